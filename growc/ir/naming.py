"""Names that nothing has yet."""

from __future__ import annotations


def unused(name: str, taken: set[str] | set[str | None]) -> str:
    """A name, with a mark for each time that it is taken already; it is taken from now on."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
