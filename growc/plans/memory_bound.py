"""The memory that planning and writing will take, against that of the machine and the limit of `--memory`.

A result is written by blocks, which take about BLOCKS. This module counts what cannot be made by blocks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from math import prod

from growc.errors.diagnostic import Diagnostic, GrowError, wrong
from growc.errors.printable import size_of
from growc.errors.source import Span
from growc.plans.execute import leaf_steps
from growc.plans.lazy_rows import BLOCK
from growc.plans.plan import CONTINUED, WeightPlan

OF_UNIT, OF_NODE, OF_NUMBER = 64, 8_000, 16
"""Bytes that a plan takes for each unit of an axis in each weight that has it, for each node of a new layer,
and for each number of a table that is continued by a rule. Measured: less would allow plans that do not fit.
"""

BOUND = 512 << 20
"""The default of `--memory`: bytes that writing takes at most."""
BLOCKS = 64 << 20
"""Bytes of the blocks that are computed, and of those that wait to be written. Measured."""
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
WIDE = 8
"""Bytes of a number in double precision."""
NORMED, ROW = 6, 5
"""The number of copies in memory at once: of a weight that has a norm, and of a row wider than a block."""


def read_bound(text: str) -> int:
    """`256M` as bytes; BOUND for an empty text.

    Raises GrowError (G200) where the text is no size, or the size is less than BLOCKS.
    """
    if not text:
        return BOUND
    match = re.fullmatch(r"(\d+)\s*([KMGT])(i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise wrong(f"`--memory {text}` is no size", "write a number of K, M, G or T, such as `256M`")
    bound = int(match[1]) * UNITS[match[2].upper()]
    if bound < BLOCKS:
        raise wrong(f"`--memory {text}` is less than blocks take", f"the least is `{BLOCKS >> 20}M`")
    return bound


def working_bytes(plan: WeightPlan) -> int:
    """The bytes that computing one weight takes at once, beside blocks of rows."""
    wide = WIDE * max(prod(plan.before), prod(plan.after))
    if plan.normed is not None:
        return NORMED * wide
    if not plan.steps:
        return 0
    row = WIDE * max(prod(plan.before[1:]), prod(plan.after[1:]))
    total = ROW * row if row > BLOCK else 0
    for step in plan.steps:
        for leaf in leaf_steps(step.layout):
            total += 2 * wide if (leaf.filler == CONTINUED).any() else 0
            balanced = leaf.noise is not None and leaf.noise.balance is not None
            total += wide if balanced and step.axis == 0 else 0
    return total


def excess(parts: Iterable[tuple[str, int]], bound: int) -> str:
    """A sentence on the part of a result that takes the most memory; empty where it is within the bound.

    parts: names, and the bytes that each takes beside blocks while it is made.
    """
    name, most = max(parts, key=lambda part: part[1], default=("", 0))
    need = BLOCKS + most
    sentence = f"`{name}` is made as a whole, which takes about {size_of(need)}"
    return f"{sentence}, more than {size_of(bound)}" if need > bound else ""


def memory() -> int:
    """The bytes of the machine's memory; a terabyte where the system does not say."""
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
