"""What tables of words add to the language: rules of grow.lark, and what messages list."""

from __future__ import annotations

from collections.abc import Iterable

from growc.fills import FILLS


def rules() -> str:
    """The rules of grow.lark that say which words there are."""
    return _rule("fill", FILLS)


def first_words(names: Iterable[str]) -> str:
    """The terminals that words of the language begin with."""
    return " ".join(name.split()[0].upper() for name in names)


def _rule(rule: str, names: Iterable[str]) -> str:
    """A rule that gives the words of one of some names."""
    alternatives = (" ".join(f'"{word}"' for word in name.split()) for name in names)
    return f"!{rule}: {' | '.join(alternatives)}\n"
