"""Pruning of a log by stored tensors that are zero: branches that add nothing are removed.

`pruned` makes a shorter log from a log and the names of zero tensors. In such a branch, a class may compute
something else than planned. Its result is the same, as long as all values are finite. Zeros propagate
forwards through operators that map zero to zero. A sum with a zero is its other operand.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from growc.dialects.transformers.log.entry import Log, LogEntry, Ordered, Wire, ordered
from growc.dialects.transformers.log.scale_rules import FACTORS, REAL, SUMS, parted, scales

ADDING = ("add", "sub")
"""Sums that equal one operand if the other one is zero."""


def pruned(log: Log, zeros: Collection[str]) -> Log:
    """Return the log without the branches that zero tensors keep from its results.

    Without zero tensors, the log itself is returned.
    """
    if not zeros:
        return log
    folded = None if log.folded is None else Log(*_without_zero_branches(log.folded, zeros))
    return Log(*_without_zero_branches(log, zeros), folded)


def _without_zero_branches(log: Log, zeros: Collection[str]) -> Ordered:
    zero: set[Wire] = set(zeros)
    replaced_by: dict[Wire, Wire] = {}
    wires: list[tuple[Wire, ...]] = []
    for number, entry in enumerate(log.entries):
        operands = tuple(replaced_by.get(wire, wire) for wire in log.wires[number])
        wires.append(operands)
        if _is_zero(log, entry, operands, zero):
            zero.update((number, place) for place, kind in enumerate(entry.kinds) if kind.startswith(REAL))
        elif (survivor := _surviving_operand(log, entry, operands, zero)) is not None:
            replaced_by[number, 0] = survivor
    results = [replaced_by.get(wire, wire) for wire in log.wires[-1]]
    read = {wire[0] for operands in log.wires for wire in operands if not isinstance(wire, str)}
    return ordered(log.entries, wires, results, [n for n in range(len(log.entries)) if n not in read])


def _is_zero(log: Log, entry: LogEntry, operands: Sequence[Wire], zero: Collection[Wire]) -> bool:
    """Whether all results of an operator are zero."""
    if not operands or not all(map(math.isfinite, _numbers(log, entry, operands))):
        return False
    name = entry.operator
    if scales(entry):
        return operands[0] in zero
    if name in SUMS.split():
        return len(operands) > 1 and all(wire in zero for wire in operands)
    biases, factors = parted(name, operands)
    zeros = all(wire in zero for wire in biases) and any(wire in zero for wire in factors)
    return name in FACTORS and zeros


def _numbers(log: Log, entry: LogEntry, operands: Sequence[Wire]) -> list[float]:
    """Return the literals of an operator, and of the operators that make its operands."""
    literals = (log.entries[wire[0]].exact for wire in operands if not isinstance(wire, str))
    return [*entry.exact, *(number for numbers in literals for number in numbers)]


def _surviving_operand(
    log: Log, entry: LogEntry, operands: Sequence[Wire], zero: Collection[Wire]
) -> Wire | None:
    """Return the operand that a sum equals because the other one is zero, or None."""
    if entry.operator not in ADDING or len(operands) != 2 or entry.exact or entry.whole not in ((), (1,)):
        return None
    left, right = operands
    if right in zero and _as_made(log, left, entry):
        return left
    return right if entry.operator == "add" and left in zero and _as_made(log, right, entry) else None


def _as_made(log: Log, wire: Wire, entry: LogEntry) -> bool:
    """Whether a tensor has the shape and dtype of an operator's result."""
    if isinstance(wire, str):
        return False
    maker, place = log.entries[wire[0]], wire[1]
    return (maker.shapes[place], maker.kinds[place]) == (entry.shapes[0], entry.kinds[0])
