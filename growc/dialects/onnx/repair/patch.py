"""What mending changes: operands and attributes of nodes, element by element.

An element of a shape operand is a number, or a part of a number that the graph computes. Where a quotient
was whole in the source and is so no longer, it says nothing: the part is taken of what was divided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from growc.algebra.indexmap import Array
from growc.algebra.space import Size, Space
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Node, Value
from growc.ir.traits import JOIN, SAME, VIEW, WHOLE
from growc.passes.axes.infer import Axes
from growc.passes.edits import Part, Patch


def changed_operand(patch: Patch, node: Node, i: int, sim: Simulation) -> tuple[Array, ...] | None:
    """A changed operand at every sample point; None where it takes a number that is not known."""
    value = node.input(i)
    rows = [_element(entry, value, k, sim) for k, entry in enumerate(patch.operands[i])]
    if any(row is None for row in rows):
        return None
    points = zip(*(row for row in rows if row is not None), strict=True) if rows else [()] * sim.points
    return tuple(patch.literal(point, value) for point in points)


def _element(entry: int | Part | None, value: Value | None, k: int, sim: Simulation) -> Size | None:
    if isinstance(entry, int):
        return (entry,) * sim.points
    whole = entry.whole if entry is not None else None
    given = whole or value
    found = None if given is None else sim.known.get(given)
    at = 0 if whole is not None else k
    if found is None or any(at >= f.size for f in found):
        return None
    numbers = [int(f.reshape(-1)[at]) for f in found]
    if entry is None:
        return tuple(numbers)
    return tuple(n * entry.factor.numerator // entry.factor.denominator for n in numbers)


@dataclass(frozen=True)
class Demands:
    """What the spaces demand of the result; `resize` gives the new size of one, `opsets` the versions."""

    axes: Axes
    resize: Callable[[Space], Size]
    opsets: Mapping[str, int]

    def demand(self, value: Value) -> tuple[Size, ...] | None:
        """The sizes that the spaces demand of a value."""
        return None if value.sizes is None else tuple(self.resize(s) for s in self.axes.of(value))


def refusal(node: Node, message: str) -> GrowError:
    """What to raise at a node that cannot be accounted for."""
    label = node.name or node.kind
    return GrowError(
        Diagnostic(
            "G308",
            f"the size of `{label}` ({node.kind}) cannot be accounted for after the change",
            notes=(message,),
            help="this is a limit of growc, not of the model: please report the graph around this node",
        )
    )


def part_of(value: Value | None, k: int, wanted: Size, sim: Simulation) -> Part | None:
    """What element k of an operand is to be a part of, if that part is the same at every sample point."""
    if value is None:
        return None
    whole = None if value in sim.known else _divided(value, k, sim)
    known = sim.known.get(whole or value)
    if known is None or known[0].dtype.kind not in "iu" or any(k >= n.size for n in known if whole is None):
        return None
    at = k if whole is None else 0
    now = [int(n.reshape(-1)[at]) for n in known]
    if not all(n > 0 for n in now):
        return None
    factors = {Fraction(w, n) for w, n in zip(wanted, now, strict=True)}
    return Part(factors.pop(), whole) if len(factors) == 1 else None


def _divided(value: Value, k: int, sim: Simulation) -> Value | None:
    """The one number that an element of an unknown operand is made of, by layout and division alone."""
    while value not in sim.known or any(n.size != 1 for n in sim.known[value]):
        node = value.producer
        if node is None or not (node.has(JOIN, VIEW, SAME) or node.treatment == "divide"):
            return None
        value, k = _joined(node, k) if node.has(JOIN) else (node.required(0), k)
    return value


def _joined(node: Node, k: int) -> tuple[Value, int]:
    """The operand that an element of joined numbers comes from, and which element of it that is."""
    operands = [v for v in node.inputs if v is not None]
    lengths = [(v.sizes or ((0,),))[0][0] for v in operands]
    ends = np.cumsum(lengths)
    at = int(np.searchsorted(ends, k, side="right"))
    return operands[at], k - int(ends[at] - lengths[at])


def stands_for(value: Value, k: int) -> tuple[Value, int]:
    """Where an element of listed numbers comes from, before it was joined with others: which one of what."""
    while (node := value.producer) is not None and node.has(JOIN) and all(v is not None for v in node.inputs):
        value, k = _joined(node, k)
    return value, k


def loses_remainder(node: Node, sim: Simulation) -> bool:
    """Whether a node rounds numbers that it did not have to round in the source."""
    operands = [v for v in node.inputs if v is not None]
    before = [v.known for v in operands]
    after = [sim.known.get(v) for v in operands]
    return not _rounds(node, before) and _rounds(node, after)


def leaves_doubt(node: Node, sim: Simulation) -> bool:
    """Whether a comparison, or a bound, gives the same as in the source for a number that has changed and
    that the inputs' sizes move: at others than the sample points it may give something else.
    """
    before, after = node.outputs[0].known, sim.known.get(node.outputs[0])
    piecewise = node.laws.signs or node.laws.clamp is not None
    if not piecewise or before is None or after is None:
        return False
    for value in node.inputs:
        known, now = (None, None) if value is None else (value.known, sim.known.get(value))
        for one, other, made, anew in zip(known or (), now or (), before, after, strict=False):
            changed, same = np.logical_not(_equal(one, other)), _equal(made, anew)
            moves = np.logical_or.reduce([np.logical_not(_equal(one, k)) for k in known or ()])
            if (changed & moves & same).any():
                return True
    return False


def _equal(a: Array, b: Array) -> Array:
    """Which elements are equal; none where there are not as many."""
    return np.equal(a, b) if a.shape == b.shape else np.zeros(a.shape, dtype=bool)


def _rounds(node: Node, operands: Sequence[tuple[Array, ...] | None]) -> bool:
    numbers = [known for known in operands if known is not None]
    if len(numbers) < len(operands) or not numbers:
        return False
    real = numbers[0][0].dtype.kind == "f"
    if node.treatment == "divide" and not real:
        return any((a % b).any() for a, b in zip(*numbers, strict=True))
    made = node.outputs[0].known
    to_whole = node.has(WHOLE) or (node.has(SAME) and made is not None and made[0].dtype.kind in "iu")
    return real and to_whole and any((a % 1).any() for a in numbers[0])
