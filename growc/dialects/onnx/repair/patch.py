"""Parts of repairs: changed operands and attributes of nodes, element by element.

An element of a shape operand is a number, or a part of a number that the graph computes. A quotient that was
whole in the source may have a remainder now, and is then no longer known. The part is then taken of the
dividend.
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
    """Return a changed operand at every sample point; None if it depends on an unknown number."""
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
    operand = whole or value
    values = None if operand is None else sim.known.get(operand)
    at = 0 if whole is not None else k
    if values is None or any(at >= f.size for f in values):
        return None
    numbers = [int(f.reshape(-1)[at]) for f in values]
    if entry is None:
        return tuple(numbers)
    return tuple(n * entry.factor.numerator // entry.factor.denominator for n in numbers)


@dataclass(frozen=True)
class Demands:
    """The demands of spaces on the result. `resize` returns the new size of a space. `opsets`: versions."""

    axes: Axes
    resize: Callable[[Space], Size]
    opsets: Mapping[str, int]

    def demand(self, value: Value) -> tuple[Size, ...] | None:
        """Return the sizes that the spaces demand of a value."""
        return None if value.sizes is None else tuple(self.resize(s) for s in self.axes.of(value))


def refusal(node: Node, message: str) -> GrowError:
    """The error for a node whose sizes cannot be accounted for."""
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
    """Return the part that element k of an operand is to be, if it is the same at every sample point."""
    if value is None:
        return None
    whole = None if value in sim.known else _divided(value, k, sim)
    known = sim.known.get(whole or value)
    if known is None or known[0].dtype.kind not in "iu" or any(k >= n.size for n in known if whole is None):
        return None
    at = k if whole is None else 0
    numbers = [int(n.reshape(-1)[at]) for n in known]
    if not all(n > 0 for n in numbers):
        return None
    factors = {Fraction(w, n) for w, n in zip(wanted, numbers, strict=True)}
    return Part(factors.pop(), whole) if len(factors) == 1 else None


def _divided(value: Value, k: int, sim: Simulation) -> Value | None:
    """Return the one number that an element of an unknown operand is computed from by layout and division."""
    while value not in sim.known or any(n.size != 1 for n in sim.known[value]):
        node = value.producer
        if node is None or not (node.has(JOIN, VIEW, SAME) or node.treatment == "divide"):
            return None
        value, k = _joined(node, k) if node.has(JOIN) else (node.required(0), k)
    return value


def _joined(node: Node, k: int) -> tuple[Value, int]:
    """Return the operand of a Concat that an element comes from, and the element's index there."""
    operands = [v for v in node.inputs if v is not None]
    lengths = [(v.sizes or ((0,),))[0][0] for v in operands]
    ends = np.cumsum(lengths)
    at = int(np.searchsorted(ends, k, side="right"))
    return operands[at], k - int(ends[at] - lengths[at])


def stands_for(value: Value, k: int) -> tuple[Value, int]:
    """Return the value and index that an element of a list comes from, before it was joined with others."""
    while (node := value.producer) is not None and node.has(JOIN) and all(v is not None for v in node.inputs):
        value, k = _joined(node, k)
    return value, k


def loses_remainder(node: Node, sim: Simulation) -> bool:
    """Whether a node rounds numbers that were whole in the source."""
    operands = [v for v in node.inputs if v is not None]
    before = [v.known for v in operands]
    after = [sim.known.get(v) for v in operands]
    return not _rounds(node, before) and _rounds(node, after)


def leaves_doubt(node: Node, sim: Simulation) -> bool:
    """Whether a comparison, a bound or a rounding returns the source's result for a number that has changed.

    The number must vary with the inputs' sizes: at others than the sample points the result may differ.
    """
    before, after = node.outputs[0].known, sim.known.get(node.outputs[0])
    if before is None or after is None:
        return False
    bounds = node.laws.signs or node.laws.clamp is not None
    if not bounds and not _rounds(node, [sim.known.get(v) for v in node.inputs if v is not None]):
        return False
    for value in node.inputs:
        known, current = (None, None) if value is None else (value.known, sim.known.get(value))
        for old, new, old_result, new_result in zip(known or (), current or (), before, after, strict=False):
            changed, same = np.logical_not(_equal(old, new)), _equal(old_result, new_result)
            moves = np.logical_or.reduce([np.logical_not(_equal(old, k)) for k in known or ()])
            if (changed & moves & same).any():
                return True
    return False


def _equal(a: Array, b: Array) -> Array:
    """Return which elements are equal; none if their numbers differ."""
    return np.equal(a, b) if a.shape == b.shape else np.zeros(a.shape, dtype=bool)


def _rounds(node: Node, operands: Sequence[tuple[Array, ...] | None]) -> bool:
    numbers = [known for known in operands if known is not None]
    if len(numbers) < len(operands) or not numbers:
        return False
    real = numbers[0][0].dtype.kind == "f"
    if node.treatment == "divide" and not real:
        return any((a % b).any() for a, b in zip(*numbers, strict=True))
    result = node.outputs[0].known
    to_whole = node.has(WHOLE) or (node.has(SAME) and result is not None and result[0].dtype.kind in "iu")
    return real and to_whole and any((a % 1).any() for a in numbers[0])
