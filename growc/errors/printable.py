"""Make text from elsewhere safe for a terminal: names in models and recipes, error messages of libraries."""

from __future__ import annotations

import unicodedata

UNPRINTABLE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Categories of characters that control a terminal, or hide or reorder others: ESC, bidi marks, lone
surrogates.
"""


def printable(text: str, kept: str = "") -> str:
    r"""The text with the escape of JSON in the place of all such characters but those that are `kept`.

    JSON stays the same JSON, since such characters stand in its strings alone.

    >>> printable("a\x1b[2Jb\u202e")
    'a\\u001b[2Jb\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(c if c in kept or unicodedata.category(c) not in UNPRINTABLE else _escape(c) for c in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def size_of(n: int) -> str:
    """A number of bytes as text with a decimal unit: 1.42 GB."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.2f} {unit}" if n < 10**16 else f"{n / size:.0e} {unit}"
    return f"{n} bytes"
