"""The rules of grow.lark that say which words there are, made of the tables that say what the words mean."""

from __future__ import annotations

from collections.abc import Mapping

from growc.recipe.fills import FILLS
from growc.recipe.layer_orders import DEEPER, SHALLOWER
from growc.recipe.option_rules import GROWING, SHRINKING
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.syntax_tree import ROLES
from growc.recipe.words import FILE, Word

TAKEN = {FILE: "text", "EXPR": "_expr", "K": "_expr", "N": "_expr", "S": "_number"}


def rules() -> str:
    """The rules that grow.lark lacks."""
    return "\n".join(
        [
            f"ROLE.1: /({'|'.join(role for role in ROLES if role != 'layers')})(?!\\w)/",
            _rule("fill", FILLS),
            _rule("option", GROWING),
            _rule("rescaled", SHRINKING, " -> option"),
            _rule("ranking", RANKINGS),
            _rule("deeper", DEEPER, " -> order"),
            _rule("shallower", SHALLOWER, " -> order"),
            _rule("either", {**SHALLOWER, **DEEPER}, " -> order"),
        ]
    )


def _rule(name: str, words: Mapping[str, Word], tree: str = "") -> str:
    """A rule that is one of some words, with what each takes, and gives their tokens."""
    return f"!{name}: {' | '.join(_symbols(word) + tree for word in words.values())}"


def _symbols(word: Word) -> str:
    """The symbols of a spelling."""
    parts = (TAKEN.get(part) or f'"{part}"' for part in word.spelling.split())
    return " ".join(parts) + (" [seed]" if word.seeded else "")
