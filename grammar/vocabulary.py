"""The rules of grow.lark that say which words there are, made of the tables that say what the words mean."""

from __future__ import annotations

from collections.abc import Mapping

from growc.fills import FILLS
from growc.orders import DEEPER, SHALLOWER
from growc.ranking_rules import RANKINGS
from growc.recipe import ROLES
from growc.words import Word

_TAKEN = {"": "", "seed": " [seed]", "file": " text", "count": " _expr"}


def rules() -> str:
    """The rules that grow.lark lacks."""
    return "\n".join(
        [
            f"ROLE.1: /({'|'.join(role for role in ROLES if role != 'layers')})(?!\\w)/",
            _rule("fill", FILLS),
            _rule("ranking", RANKINGS),
            _rule("deeper", DEEPER, " -> order"),
            _rule("shallower", SHALLOWER, " -> order"),
            _rule("either", {**SHALLOWER, **DEEPER}, " -> order"),
        ]
    )


def _rule(name: str, words: Mapping[str, Word], tree: str = "") -> str:
    """A rule that is one of some words, with what each takes, and gives their tokens."""
    quoted = (" ".join(f'"{word}"' for word in entry.split()) for entry in words)
    taken = (_TAKEN[entry.takes] + tree for entry in words.values())
    return f"!{name}: {' | '.join(map(str.__add__, quoted, taken))}"
