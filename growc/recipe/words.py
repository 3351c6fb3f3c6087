"""The words of the language that are rows of tables. The grammar and its messages are made of these."""

from __future__ import annotations

from dataclasses import dataclass, field

FILE = '"FILE"'
HOLES = (FILE, "EXPR", "K", "N", "S", "P")
"""Placeholders in a spelling: for a file, for expressions, and (S, P) for a number that may be fractional."""


@dataclass(frozen=True)
class Word:
    """One or several words, spelled with the placeholder of their argument.

    seeded: whether a seed may follow.
    """

    spelling: str
    seeded: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """The words alone."""
        return " ".join(word for word in self.spelling.split() if word not in HOLES)

    @property
    def takes(self) -> str:
        """The placeholder in the spelling; empty where the words take no argument."""
        return next((word for word in self.spelling.split() if word in HOLES), "")
