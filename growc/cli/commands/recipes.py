"""`growc recipes`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from growc.cli.command import Command
from growc.cli.output import NARROW, columns, say, say_json
from growc.cli.shared_arguments import offer, take_json, take_out
from growc.errors.diagnostic import wrong
from growc.errors.json_data import Json

if TYPE_CHECKING:
    from growc.reports.shipped_recipes import ShippedRecipe

TITLE = 30
"""Columns of a title on a narrow terminal and in a pipe."""


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc recipes`."""
    offer(
        parser.add_argument("recipe", nargs="?", metavar="NAME", help="print this recipe; default: list all"),
        _names,
    )
    take_out(parser, "copy it, and the files it reads", name="FILE")
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    take_json(parser)


def _names() -> Iterator[str]:
    """The names of the recipes, without their numbers."""
    from growc.reports.shipped_recipes import recipes

    return (recipe.short_name for recipe in recipes())


def run(options: Namespace) -> int:
    """List the recipes that growc ships, or print or copy one. Raises GrowError (G200)."""
    from growc.render.text import cut, table
    from growc.reports.shipped_recipes import recipe_named, recipes

    if options.recipe is None:
        if options.out is not None:
            raise wrong("`-o` copies one recipe, and none is named", "`growc recipes NAME -o FILE`")
        if options.json:
            say_json({"recipes": [about(shipped) for shipped in recipes()]})
        else:
            room = TITLE + (columns(sys.stdout) or NARROW) - NARROW
            say(table((shipped.name, cut(shipped.title, room), shipped.citation) for shipped in recipes()))
        return 0
    recipe = recipe_named(options.recipe)
    if options.out is None:
        _print(recipe, options.json)
    else:
        _copy(recipe, options.out, options.force, options.json)
    return 0


def about(one: ShippedRecipe) -> dict[str, Json]:
    """Name, title and paper of a recipe, as data."""
    return {"name": one.name, "title": one.title, "paper": one.paper}


def _print(recipe: ShippedRecipe, as_json: bool) -> None:
    if as_json:
        say_json(about(recipe) | {"text": recipe.named("RECIPE"), "files": list(recipe.files)})
    else:
        say(recipe.named("RECIPE").removesuffix("\n").split("\n"), fitted=False)


def _copy(recipe: ShippedRecipe, out: Path, force: bool, as_json: bool) -> None:
    """Copy the files that a recipe reads, and then the recipe. Each file is written as a whole."""
    from growc.files.new_file import require_new, write_file

    needed_files = {out.with_name(name): data for name, data in recipe.files.items()}
    if out in needed_files:
        raise wrong(f"the recipe reads `{out.name}`, so it cannot have that name itself")
    for path in (*needed_files, out):
        require_new(
            path,
            force or (path in needed_files and path.is_file() and path.read_bytes() == needed_files[path]),
            text=path == out,
        )
    for path, data in needed_files.items():
        write_file(path, data)
    write_file(out, recipe.named(out.name).encode())
    if as_json:
        say_json({"written": [str(path) for path in (*needed_files, out)]})
        return
    for path in needed_files:
        say([f"copied `{path}`, which the recipe reads: your model needs its own in its place"])
    say([f"copied `{out}`"])


RECIPES = Command(
    name="recipes",
    usage="[NAME [-o FILE]] [--json]",
    purpose="List the published recipes that growc has; print or copy one.",
    arguments=arguments,
    run=run,
    examples=(
        "recipes",
        "recipes lemon -o lemon.grow",
    ),
)
