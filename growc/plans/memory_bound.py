"""Whether what a recipe asks for can be planned in the memory of this machine, judged before it is made."""

from __future__ import annotations

import os

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.printable import size_of
from growc.errors.source import Span

OF_UNIT, OF_NODE, OF_NUMBER = 64, 8_000, 16
"""Bytes that a plan takes for each unit of an axis in each weight that has it, for each node of a new layer,
and for each number of a table that goes on by a rule. As measured: less would let through what cannot be."""


def memory() -> int:
    """Bytes of memory that the machine has; a terabyte where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 10**12


def require(what: str, need: int, span: Span | None) -> None:
    """Raise GrowError (G502) where planning something needs more memory than there is."""
    have = memory()
    if need > have:
        sizes = f"{size_of(need)} of memory, and there are {size_of(have)}"
        message = f"{what} cannot be planned: that takes {sizes}"
        remedy = "a smaller size; growc holds a few numbers for each unit, and none for each parameter"
        raise GrowError(Diagnostic("G502", message, span, help=remedy))
