"""New names that are not in use."""

from __future__ import annotations


def unused(name: str, taken: set[str] | set[str | None]) -> str:
    """The name, with underscores appended until it is not in `taken`. Adds it to `taken`."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
