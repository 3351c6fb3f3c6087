"""The recipes that growc ships: examples/ of the repository, which the wheel holds as growc.examples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable

from growc.errors.arguments import checked_arguments
from growc.errors.diagnostic import nearest, wrong

RECIPE = "recipe.grow"


@dataclass(frozen=True)
class ShippedRecipe:
    """One shipped recipe.

    title: the title of its page. paper: its source. files: the files that it reads, by the names in the
    recipe.
    """

    name: str
    title: str
    paper: str
    text: str = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)

    @property
    def short_name(self) -> str:
        """The name without its number."""
        return self.name.partition("-")[2]

    def named(self, file: str) -> str:
        """The text, with a command in its header that applies it from this file to any model."""
        return re.sub(rf"growc apply \S+/{RECIPE} \S+", f"growc apply {file} MODEL", self.text, count=1)

    @property
    def citation(self) -> str:
        """The paper by its authors and its year if they are known: `Chen et al. 2016`."""
        match = re.search(r"\(([^)]* [0-9]{4})\)", self.paper)
        return match[1] if match else self.paper


@checked_arguments
def recipes() -> tuple[ShippedRecipe, ...]:
    """The recipes that growc brings along, in the order of examples/README.md.

    >>> recipes()[0].title
    'Net2WiderNet'
    """
    root = files("growc.examples")
    papers = dict(_papers((root / "README.md").read_text(encoding="utf-8")))
    folders = sorted((folder for folder in root.iterdir() if folder.is_dir()), key=lambda folder: folder.name)
    return tuple(_recipe(folder, papers) for folder in folders if (folder / RECIPE).is_file())


def recipe_named(name: str) -> ShippedRecipe:
    """A recipe by its name, with or without its number. Raises GrowError (G200) if there is none."""
    by_name = {recipe.name: recipe for recipe in recipes()}
    by_name |= {recipe.short_name: recipe for recipe in by_name.values()}
    if name.lower() in by_name:
        return by_name[name.lower()]
    near = nearest(name.lower(), by_name)
    listed = "`growc recipes` lists them all"
    raise wrong(f"there is no recipe `{name}`", f"did you mean `{near}`? {listed}" if near else listed)


def _recipe(folder: Traversable, papers: Mapping[str, str]) -> ShippedRecipe:
    text = (folder / RECIPE).read_text(encoding="utf-8")
    title = (folder / "README.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    files = {name: (folder / name).read_bytes() for name in _named_in(text)}
    return ShippedRecipe(folder.name, title, papers.get(folder.name, ""), text, files)


def _named_in(text: str) -> list[str]:
    """The files that a recipe names. Parameters named by globs do not count."""
    statements = (line.partition("#")[0] for line in text.splitlines())
    quoted = (re.findall(r'(?:include|match|keep|scores|on) "([^"]*)"', line) for line in statements)
    return list(dict.fromkeys(name for names in quoted for name in names))


def _papers(page: str) -> Iterator[tuple[str, str]]:
    """The paper of each recipe, from the table of examples/README.md; a row without one has that of the row
    above.
    """
    paper = ""
    for row in re.finditer(r"^\| (.*?) ?\| \[([^\]]+)\]", page, re.M):
        paper = row[1].strip() or paper
        yield row[2], paper
