"""What a log computes where some stored tensors are zero: the same without the branches that add nothing.

Needs: a log, and the names of tensors that are zero. Gives: `awake`, a shorter log. A class may compute
something else in such a branch than what was planned, and gives the same, as long as all values are finite.
What is zero follows forwards through operators that give zero for it; a sum with it is its other operand.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from growc.dialects.transformers.log.entry import Entry, Log, Ordered, Wire, ordered
from growc.dialects.transformers.log.scale_rules import FACTORS, REAL, SUMS, parted, scales

ADDING = ("add", "sub")
"""Sums that are their other operand where one is zero."""


def awake(log: Log, zeros: Collection[str]) -> Log:
    """The log without what tensors of zeros keep from its results; the log itself where there are none."""
    if not zeros:
        return log
    folded = None if log.folded is None else Log(*_awake(log.folded, zeros))
    return Log(*_awake(log, zeros), folded)


def _awake(log: Log, zeros: Collection[str]) -> Ordered:
    zero: set[Wire] = set(zeros)
    now: dict[Wire, Wire] = {}
    wires: list[tuple[Wire, ...]] = []
    for number, entry in enumerate(log.entries):
        given = tuple(now.get(wire, wire) for wire in log.wires[number])
        wires.append(given)
        if _is_zero(log, entry, given, zero):
            zero.update((number, place) for place, kind in enumerate(entry.kinds) if kind.startswith(REAL))
        elif (other := _other(log, entry, given, zero)) is not None:
            now[number, 0] = other
    results = [now.get(wire, wire) for wire in log.wires[-1]]
    read = {wire[0] for given in log.wires for wire in given if not isinstance(wire, str)}
    return ordered(log.entries, wires, results, [n for n in range(len(log.entries)) if n not in read])


def _is_zero(log: Log, entry: Entry, given: Sequence[Wire], zero: Collection[Wire]) -> bool:
    """Whether all that an operator makes is zero."""
    if not given or not all(map(math.isfinite, _numbers(log, entry, given))):
        return False
    name = entry.operator
    if scales(entry):
        return given[0] in zero
    if name in SUMS.split():
        return len(given) > 1 and all(wire in zero for wire in given)
    biases, factors = parted(name, given)
    zeros = all(wire in zero for wire in biases) and any(wire in zero for wire in factors)
    return name in FACTORS and zeros


def _numbers(log: Log, entry: Entry, given: Sequence[Wire]) -> list[float]:
    """Literals of an operator and of those that make its operands."""
    made = (log.entries[wire[0]].exact for wire in given if not isinstance(wire, str))
    return [*entry.exact, *(number for numbers in made for number in numbers)]


def _other(log: Log, entry: Entry, given: Sequence[Wire], zero: Collection[Wire]) -> Wire | None:
    """The operand that a sum is, where the other one is zero."""
    if entry.operator not in ADDING or len(given) != 2 or entry.exact or entry.whole not in ((), (1,)):
        return None
    left, right = given
    if right in zero and _as_made(log, left, entry):
        return left
    return right if entry.operator == "add" and left in zero and _as_made(log, right, entry) else None


def _as_made(log: Log, wire: Wire, entry: Entry) -> bool:
    """Whether a tensor has the shape and the type of what an operator makes."""
    if isinstance(wire, str):
        return False
    maker, place = log.entries[wire[0]], wire[1]
    return (maker.shapes[place], maker.kinds[place]) == (entry.shapes[0], entry.kinds[0])
