"""The versions of the language, and which of its words came with which. One row each in ADDITIONS.

Version 1 stays as it is: a recipe that says nothing of a version is read with all words, and words that came
later are still names of `let`s wherever a name may stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from growc.errors.diagnostic import Diagnostic
from growc.recipe import syntax_tree as rc
from growc.recipe.expression import Node, parts_of
from growc.recipe.option_rules import OPTIONS

VERSIONS = ("1", "1.1")
"""Those that this growc reads, the first one first."""

LATEST = VERSIONS[-1]
"""The version of a recipe that says none."""

_FIRST_WORDS = """
    arrange as average axis balanced blocks by copies copy cyclic decoder drop each encoder equal even exact
    expect fill first from head importance in include keep last layer layers let magnitude match max mean
    measure middle min neighbor next noise norms of on outputs parameters plain preserved random reorder
    rescaled samples seed smaller split stack subclone tail to top uniform unscaled untie whole widen with
    within zero
"""
FIRST_WORDS = frozenset(_FIRST_WORDS.split())
"""The words of version 1 that no `let` can have as its name, but for the axes."""


@dataclass(frozen=True)
class Addition:
    """What a version added: its name in messages, and whether a part of a statement is it."""

    version: str
    name: str
    used: Callable[[Node], bool]


def _drawing_with_std(node: Node) -> bool:
    if isinstance(node, rc.LayerFill):
        return node.std is not None
    return isinstance(node, rc.Option) and OPTIONS[node.name].about == "std"


ADDITIONS: tuple[Addition, ...] = (
    Addition("1.1", "nest", lambda node: isinstance(node, rc.Nest)),
    Addition("1.1", 'stack layers to N from "FILE"', lambda node: isinstance(node, rc.StackFrom)),
    Addition("1.1", "std S", _drawing_with_std),
    Addition("1.1", "reset P", lambda node: isinstance(node, rc.Option) and OPTIONS[node.name].draws),
)


def newer(statement: rc.Statement, version: str) -> Iterator[Diagnostic]:
    """What in a statement came later than the version that its recipe says."""
    known = VERSIONS[: VERSIONS.index(version) + 1]
    for part in parts_of(statement):
        for addition in ADDITIONS:
            if addition.version not in known and isinstance(part, Node) and addition.used(part):
                message = f"`{addition.name}` came with language {addition.version}"
                label = f"this recipe says `language {version}`"
                remedy = f"write `language {addition.version}`"
                yield Diagnostic("G209", message, part.span, label, help=remedy)


def unknown(language: rc.Language) -> Iterator[Diagnostic]:
    """What is wrong with a version that this growc does not read."""
    if language.version not in VERSIONS:
        message = f"this growc does not read language {language.version}"
        have = " and ".join(VERSIONS)
        remedy = f"it reads {have}: name one of these, or use a growc that is newer"
        yield Diagnostic("G209", message, language.span, help=remedy)
