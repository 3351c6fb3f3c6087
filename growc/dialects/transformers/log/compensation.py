"""Compensation in weights for numbers that a class computes from its config.

The operator logs of the planned program and of the class must be equal, apart from real literals and
constants. A `Compensation` has a factor for some stored tensors, and the differences that no factor
compensates for.

A class computes some numbers from its sizes: the scale of embeddings from the square root of hidden, that of
attention from head_dim. One eps serves several norms. The plan keeps the source's numbers. Each value of the
class may be a multiple of the planned one, as long as its outputs are not. The logarithms of these factors
satisfy linear equations (growc.dialects.transformers.log.scale_rules), in which those of stored tensors are
free. Tied tensors have one factor. Weights change only if they must. A factor that the equations leave open
is 1, for tensors late in the program first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from growc.algebra.indexmap import Array
from growc.dialects.transformers.log.entry import UNKNOWN, Log, Wire, alike, is_input
from growc.dialects.transformers.log.linear_system import TOLERANCE, solution
from growc.dialects.transformers.log.scale_rules import Balance, NoFactorError, balances, none
from growc.ir.graph import wide


@dataclass(frozen=True)
class Factor:
    """The change of a stored tensor: (w + shift) · times − shift. The program adds `shift` to the tensor."""

    times: float
    shift: float = 0.0

    def of(self, tensor: Array) -> Array:
        """Return the tensor with the factor applied, in its own dtype."""
        scaled = (wide(tensor) + self.shift) * self.times - self.shift
        return scaled.astype(tensor.dtype)


@dataclass(frozen=True)
class Compensation:
    """Factors by the names of stored tensors, and the differences without a factor, in words."""

    factors: dict[str, Factor] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()


def compensate(planned: Log, class_log: Log) -> Compensation:
    """Return the factors for the weights with which a class computes the plan.

    Raises ValueError if the logs differ in more than real literals.
    """
    logs = alike(planned, class_log)
    if logs is None:
        raise ValueError("the logs differ in more than literals")
    planned, class_log = logs
    pairs = enumerate(zip(planned.entries, class_log.entries, strict=True))
    parting = [i for i, (a, b) in pairs if a != b]
    factors = _factors(planned, class_log, parting)
    if factors is not None:
        return Compensation(factors)
    solvable = [i for i in parting if _factors(planned, class_log, [i]) is not None]
    factors = _factors(planned, class_log, solvable)
    unsolvable = [i for i in parting if i not in solvable or factors is None]
    return Compensation(factors or {}, tuple(dict.fromkeys(_told(planned, class_log, i) for i in unsolvable)))


def _told(planned: Log, class_log: Log, number: int) -> str:
    a, b = planned.entries[number], class_log.entries[number]
    shown = [
        f"{x:g} in the plan and {y:g} in the class" for x, y in zip(a.exact, b.exact, strict=True) if x != y
    ]
    more = ", …" if len(shown) > 1 else ""
    return f"`{a.operator}` to {list(a.shapes[0])} has {shown[0]}{more}"


def _factors(planned: Log, class_log: Log, parting: Sequence[int]) -> dict[str, Factor] | None:
    """Return factors that compensate for these differences, or None if there are none."""
    shifted = dict(_shifted(planned))
    equations: list[Balance] = []
    for number, entry in enumerate(planned.entries):
        if number in shifted:
            continue
        class_entry = class_log.entries[number] if number in parting else entry
        results = [(number, place) for place in range(len(entry.shapes))]
        try:
            equations += balances(entry, class_entry, planned.wires[number], results)
        except NoFactorError:
            return None
    equations += none([wire for wires in planned.wires for wire in wires if is_input(wire)])
    equations += none([wire for wire in planned.wires[-1] if wire != UNKNOWN])
    names: dict[Wire, str] = {(number, 0): name for number, (name, _) in shifted.items() if name}
    shifted_names = set(names.values())
    free = list(dict.fromkeys(w for wires in planned.wires for w in wires if w in names or _is_stored(w)))
    free = [wire for wire in free if wire not in shifted_names]
    logarithms = solution(equations, free)
    if logarithms is None:
        return None
    shifts = dict(shifted.values())
    named_logarithms = {names.get(wire, str(wire)): logarithms.get(wire, 0.0) for wire in free}
    return {
        n: Factor(math.exp(f), shifts.get(n, 0.0)) for n, f in named_logarithms.items() if abs(f) > TOLERANCE
    }


def _is_stored(wire: Wire) -> bool:
    return isinstance(wire, str) and not is_input(wire)


def _shifted(log: Log) -> Iterator[tuple[int, tuple[str, float]]]:
    """Yield additions of a number to a stored tensor with no other use: gains kept as g − 1.

    A dtype conversion of the tensor before it is yielded too, without a name.
    """
    uses = Counter(wire for wires in log.wires for wire in wires)
    for number, entry in enumerate(log.entries):
        if entry.operator != "add" or len(log.wires[number]) != 1:
            continue
        wire, conversions = log.wires[number][0], []
        while not isinstance(wire, str) and log.entries[wire[0]].operator == "_to_copy" and uses[wire] == 1:
            conversions.append(wire[0])
            wire = log.wires[wire[0]][0]
        if isinstance(wire, str) and _is_stored(wire) and uses[wire] == 1:
            yield from ((i, ("", 0.0)) for i in conversions)
            yield number, (wire, float((*entry.exact, *entry.whole)[0]))
