"""Words of the language that stand in tables. The grammar and its messages are made of these."""

from __future__ import annotations

from dataclasses import dataclass, field

FILE = '"FILE"'
HOLES = (FILE, "EXPR", "K", "N", "S", "P")
"""What stands in a spelling for a file, for expressions, and (S, P) for a number that may have a fraction."""


@dataclass(frozen=True)
class Word:
    """One or several words, spelled with what they take. A seed may follow if they are `seeded`."""

    spelling: str
    seeded: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """The words alone."""
        return " ".join(word for word in self.spelling.split() if word not in HOLES)

    @property
    def takes(self) -> str:
        """What stands in the spelling for what the words take; nothing where they take nothing."""
        return next((word for word in self.spelling.split() if word in HOLES), "")
