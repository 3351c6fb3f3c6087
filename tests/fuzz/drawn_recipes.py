"""Recipes that the grammar allows, drawn from its rules: all of it, in the proportions of nobody's use."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

from lark.grammar import Rule

from growc.grammar.parser import grammar, keywords
from growc.recipe.syntax_tree import ROLES

SHALLOW, DEEP = 2, 12
"""Rules inside each other, behind which the shortest expansion is taken every other time, and always."""
WORDS: Mapping[str, Sequence[str]] = {
    "ROLE": tuple(role for role in ROLES if role != "layers"),
    "LAYERS": ("layers",),
    "NAME": ("n", "wide", "a_b"),
    "STRING": ('"up*"', '"norm1_weight"', '"**"', '"nosuch.npz"', '""', '"a.grow"'),
    "INT": ("0", "1", "2", "3", "4", "8", "12", "16", "24", "32", "1K", "2M", "99999999999999999999"),
    "FLOAT": ("0.1", "1e-5", "0.0", "1e400", ".5"),
    "RELATION": ("==", "!=", "<", "<=", ">", ">="),
}
"""Spellings of the terminals that are no fixed text."""


@cache
def _rules() -> Mapping[str, Sequence[Rule]]:
    rules: dict[str, list[Rule]] = defaultdict(list)
    for rule in grammar().rules:
        rules[rule.origin.name].append(rule)
    return rules


@cache
def _depth(name: str, within: frozenset[str] = frozenset()) -> int:
    """How many rules inside each other the shortest text of a rule needs."""
    if name in within:
        return 10**6
    inside = within | {name}
    depths = [
        max([_depth(part.name, inside) for part in rule.expansion if not part.is_term], default=0)
        for rule in _rules()[name]
    ]
    return 1 + min(depths)


def _drawn(chance: random.Random, name: str, deep: int) -> list[str]:
    rules = _rules()[name]
    if deep > DEEP or (deep > SHALLOW and chance.randrange(2)):
        least = min(_least(rule) for rule in rules)
        rules = [rule for rule in rules if _least(rule) == least]
    words: list[str] = []
    for part in chance.choice(rules).expansion:
        if part.is_term:
            words.append(keywords().get(part.name) or chance.choice(WORDS[part.name]))
        else:
            words += _drawn(chance, part.name, deep + 1)
    return words


def _least(rule: Rule) -> int:
    return max([_depth(part.name) for part in rule.expansion if not part.is_term], default=0)


def drawn_recipe(chance: random.Random) -> str:
    """A recipe of one to six lines; scopes are closed, one in twenty is not."""
    lines: list[str] = []
    blocks = 0
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        text = " ".join(_drawn(chance, "line", 0))
        lines.append("    " * blocks + text)
        blocks += text.endswith("{")
        if blocks and not chance.randrange(3):
            blocks -= 1
            lines.append("}")
    if chance.randrange(20):
        lines += ["}"] * blocks
    return "\n".join(lines) + "\n"
