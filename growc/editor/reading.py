"""A recipe that is open in an editor: its text, and the results of reading it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from growc.errors.diagnostic import Diagnostic
from growc.errors.source import SourceText
from growc.grammar.reader import read
from growc.recipe.expression import SyntaxNode, parts_of
from growc.recipe.syntax_tree import Include, Item, Let, RecipeTree, Scoped
from growc.resolve.bound import Resolved
from growc.resolve.resolve import read_file, resolve


@dataclass(frozen=True)
class Reading:
    """The results of reading a recipe, each computed once, on demand.

    other: returns the text of an included recipe by its path; an editor returns the text that is open in it.
    """

    source: SourceText
    other: Callable[[Path], str] = field(default=read_file, compare=False)

    @cached_property
    def _resolved(self) -> tuple[Resolved, list[Diagnostic]]:
        return resolve([self.source], {}, self.other)

    @property
    def resolved(self) -> Resolved:
        """The resolved recipe, as far as it can be resolved."""
        return self._resolved[0]

    @property
    def problems(self) -> Sequence[Diagnostic]:
        """All problems of the recipe and of those that it includes."""
        return self._resolved[1]

    @cached_property
    def _read(self) -> tuple[RecipeTree, list[Diagnostic]]:
        return read(self.source)

    @property
    def recipe(self) -> RecipeTree:
        """The recipe's statements as written."""
        return self._read[0]

    @property
    def mistakes(self) -> Sequence[Diagnostic]:
        """Problems of the recipe's own text."""
        return self._read[1]

    @property
    def items(self) -> Iterator[Item]:
        """Every statement, scope and comment, in the order of reading."""
        return _items(self.recipe.body)

    @property
    def includes(self) -> Iterator[Include]:
        """The `include` statements of the recipe."""
        return (item for item in self.items if isinstance(item, Include))

    def around(self, offset: int) -> list[SyntaxNode]:
        """The nodes that contain an offset or end at it, the outermost first."""
        nodes = []
        for item in self.recipe.body:
            for part in parts_of(item):
                if isinstance(part, SyntaxNode) and part.span.start <= offset <= part.span.end:
                    nodes.append(part)
        return nodes

    def lets(self, offset: int) -> list[str]:
        """The names that are defined where a line begins."""
        own_names = _lets(self.recipe.body, offset)
        after_include = any(include.span.end <= offset for include in self.includes)
        defined = self.resolved.defined.items()
        return [
            *own_names,
            *(name for name, span in defined if after_include and span.source is not self.source),
        ]


def _items(body: Sequence[Item]) -> Iterator[Item]:
    for item in body:
        yield item
        if isinstance(item, Scoped):
            yield from _items(item.body)


def _lets(body: Sequence[Item], offset: int) -> Iterator[str]:
    for item in body:
        if isinstance(item, Let) and item.span.end <= offset:
            yield item.name
        elif isinstance(item, Scoped) and item.span.start <= offset < item.span.end:
            yield from _lets(item.body, offset)
