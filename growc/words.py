"""A word of the language, and what is written behind it. Tables of such words are a part of the grammar."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Word:
    """One or several words, and what follows: a seed, where one is given; a file; a count."""

    name: str
    takes: Literal["", "seed", "file", "count"] = field(default="", kw_only=True)

    @property
    def spelling(self) -> str:
        """How it is written, with what must follow."""
        return self.name + {"file": ' "FILE"', "count": " K"}.get(self.takes, "")
