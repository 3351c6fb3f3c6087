"""The versions of the language, and the words that each of them added. One row for each in ADDITIONS.

Version 1 does not change. A recipe without a version is read with all words. Words of later versions may
still be names of `let`s wherever a name is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from growc.errors.diagnostic import Diagnostic
from growc.recipe import syntax_tree as rc
from growc.recipe.expression import SyntaxNode, parts_of
from growc.recipe.option_rules import OPTIONS

VERSIONS = ("1", "1.1")
"""The versions that this growc reads, in order."""

LATEST = VERSIONS[-1]
"""The version of a recipe that names none."""

_FIRST_WORDS = """
    arrange as average axis balanced blocks by copies copy cyclic decoder drop each encoder equal even exact
    expect fill first from head importance in include keep last layer layers let magnitude match max mean
    measure middle min neighbor next noise norms of on outputs parameters plain preserved random reorder
    rescaled samples seed smaller split stack subclone tail to top uniform unscaled untie whole widen with
    within zero
"""
FIRST_WORDS = frozenset(_FIRST_WORDS.split())
"""The words of version 1 that no `let` can have as its name, without the axes."""


@dataclass(frozen=True)
class Addition:
    """One addition of a version.

    name: its name in messages. used: whether a part of a statement is the addition.
    """

    version: str
    name: str
    used: Callable[[SyntaxNode], bool]


def _drawing_with_std(node: SyntaxNode) -> bool:
    if isinstance(node, rc.LayerFill):
        return node.std is not None
    return _with("std")(node)


def _a(*kinds: type[SyntaxNode]) -> Callable[[SyntaxNode], bool]:
    return lambda node: isinstance(node, kinds)


def _by(word: str) -> Callable[[SyntaxNode], bool]:
    return lambda node: isinstance(node, rc.Ranking | rc.LayerOrder) and word in node.name.split()


def _with(about: str) -> Callable[[SyntaxNode], bool]:
    return lambda node: isinstance(node, rc.Option) and OPTIONS[node.name].about == about


ADDITIONS: tuple[Addition, ...] = (
    Addition("1.1", "by importance using mean, l2 or max", _by("using")),
    Addition("1.1", "before activation", _by("activation")),
    Addition("1.1", "by reap", _by("reap")),
    Addition("1.1", 'by taylor on "FILE"', _by("taylor")),
    Addition("1.1", "by cosine", _by("cosine")),
    Addition("1.1", "by loss", _by("loss")),
    Addition("1.1", 'by scores "FILE"', _by("scores")),
    Addition("1.1", "subclone to QUANTITY <= EXPR", _a(rc.Budget)),
    Addition("1.1", "widen to QUANTITY >= EXPR", _a(rc.Proportion)),
    Addition("1.1", "subclone AXIS to total EXPR", _a(rc.SubcloneTotal)),
    Addition("1.1", "merge", _a(rc.Merge, rc.MergeLayers)),
    Addition("1.1", "nest", _a(rc.Nest)),
    Addition("1.1", 'stack layers to N from "FILE"', _a(rc.StackFrom)),
    Addition("1.1", "upcycle", _a(rc.Upcycle)),
    Addition("1.1", "top EXPR", _with("top")),
    Addition("1.1", "std S", _drawing_with_std),
    Addition("1.1", "reset P", _with("reset")),
)


def newer(statement: rc.Statement, version: str) -> Iterator[Diagnostic]:
    """Yield an error (G209) for each part of a statement that is newer than the version of its recipe."""
    known = VERSIONS[: VERSIONS.index(version) + 1]
    additions = [addition for addition in ADDITIONS if addition.version not in known]
    for part in parts_of(statement) if additions else ():
        for addition in additions:
            if isinstance(part, SyntaxNode) and addition.used(part):
                message = f"`{addition.name}` came with language {addition.version}"
                label = f"this recipe says `language {version}`"
                remedy = f"write `language {addition.version}`"
                yield Diagnostic("G209", message, part.span, label, help=remedy)


def unknown(language: rc.Language) -> Iterator[Diagnostic]:
    """Yield an error (G209) for a version that this growc does not read."""
    if language.version not in VERSIONS:
        message = f"this growc does not read language {language.version}"
        have = " and ".join(VERSIONS)
        remedy = f"it reads {have}: name one of these, or use a growc that is newer"
        yield Diagnostic("G209", message, language.span, help=remedy)
