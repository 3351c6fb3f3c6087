"""The recipes that growc brings along: examples/ of the repository, which the wheel has as growc.examples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable

from growc.errors.diagnostic import nearest, wrong

RECIPE = "recipe.grow"


@dataclass(frozen=True)
class ShippedRecipe:
    """One recipe. title: what its page calls it. paper: where it is from. files: those that it reads, by the
    names that it gives them.
    """

    name: str
    title: str
    paper: str
    text: str = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)

    @property
    def citation(self) -> str:
        """The paper by its authors and its year, where they are known: `Chen et al. 2016`."""
        found = re.search(r"\(([^)]* [0-9]{4})\)", self.paper)
        return found[1] if found else self.paper


def recipes() -> tuple[ShippedRecipe, ...]:
    """The recipes that growc brings along, in the order of examples/README.md.

    >>> recipes()[0].title
    'Net2WiderNet'
    """
    root = files("growc.examples")
    papers = dict(_papers((root / "README.md").read_text(encoding="utf-8")))
    folders = sorted((one for one in root.iterdir() if one.is_dir()), key=lambda one: one.name)
    return tuple(_recipe(one, papers) for one in folders if (one / RECIPE).is_file())


def recipe_named(name: str) -> ShippedRecipe:
    """A recipe by its name, with its number or without. Raises GrowError (G200) where there is none."""
    known = {one.name: one for one in recipes()}
    short = {one.partition("-")[2]: one for one in known}
    if name in known or name in short:
        return known[short.get(name, name)]
    near = nearest(name, [*known, *short])
    listed = "`growc recipes` lists them all"
    raise wrong(f"there is no recipe `{name}`", f"did you mean `{near}`? {listed}" if near else listed)


def _recipe(folder: Traversable, papers: Mapping[str, str]) -> ShippedRecipe:
    text = (folder / RECIPE).read_text(encoding="utf-8")
    title = (folder / "README.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    read = {name: (folder / name).read_bytes() for name in _named_in(text)}
    return ShippedRecipe(folder.name, title, papers.get(folder.name, ""), text, read)


def _named_in(text: str) -> list[str]:
    """The files that a recipe names: parameters that globs name are none."""
    statements = (line.partition("#")[0] for line in text.splitlines())
    found = (re.findall(r'(?:include|match|keep|scores|on) "([^"]*)"', line) for line in statements)
    return list(dict.fromkeys(name for names in found for name in names))


def _papers(page: str) -> Iterator[tuple[str, str]]:
    """The paper of each recipe, by the table of examples/README.md: a row without one has that above it."""
    paper = ""
    for row in re.finditer(r"^\| (.*?) ?\| \[([^\]]+)\]", page, re.M):
        paper = row[1].strip() or paper
        yield row[2], paper
