"""Weight norms: weights computed as direction · length / ‖direction‖, however they are spelled.

Needs: a computed weight (growc.dialects.onnx.capture.computed_weights). Gives: the stored tensors that take
part, or None. The nodes above the weight are read as a product of powers: of stored tensors, and of sums of
their squares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from growc.dialects.onnx.capture.computed_weights import Folded
from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.dialects.onnx.capture.stored_values import constant_of, read_tensor, shape_of, stored_tensor


@dataclass(frozen=True)
class WeightNorm:
    """A weight norm: direction and length are stored tensors.

    axes: the direction's axes over which its norm is taken. places: the axis of the direction that
    corresponds to each axis of the length.
    """

    direction: ir.Value
    length: ir.Value
    axes: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def leaves(self) -> tuple[ir.Value, ir.Value]:
        """Both stored tensors."""
        return self.direction, self.length


@dataclass(frozen=True)
class _Squares:
    """The sum of a stored tensor's squares over some axes, which remain as axes of size one."""

    of: ir.Value
    axes: tuple[int, ...]


Powers = Mapping[ir.Value | _Squares, Fraction]
"""A product: its factors and their exponents.

A factor is a stored tensor, possibly unsqueezed, or a sum of squares.
"""
ONE, HALF = Fraction(1), Fraction(1, 2)


def weight_norm(folded: Folded) -> WeightNorm | None:
    """Return the weight norm that a computed weight is, or None if it is something else."""
    powers = dict(_powers(folded.value) or {})
    squares = next((factor for factor in powers if isinstance(factor, _Squares)), None)
    if squares is None or powers.pop(squares) != -HALF or powers.pop(squares.of, 0) != ONE:
        return None
    shape, lengths = _shape(squares.of), [f for f, power in powers.items() if power == ONE]
    if len(powers) != 1 or not lengths or _shape(folded.stand_in) != shape:
        return None
    [factor] = lengths
    assert isinstance(factor, ir.Value), "of several sums none has this exponent"
    length, places = _spread(factor, len(shape))
    sizes = dict(zip(places, _shape(length), strict=True))
    norm_shape = tuple(1 if axis in squares.axes else size for axis, size in enumerate(shape))
    if min(places, default=0) < 0 or tuple(sizes.get(axis, 1) for axis in range(len(shape))) != norm_shape:
        return None
    return WeightNorm(squares.of, length, squares.axes, places)


def _spread(factor: ir.Value, rank: int) -> tuple[ir.Value, tuple[int, ...]]:
    """Return the stored tensor behind a factor, and the axis of a product of this rank for each axis."""
    node = factor.producer()
    if constant_of(factor) is not None or node is None:
        stored, added = factor, []
    else:
        stored, added = node.inputs[0] or factor, _axes(node) or []
    count = len(_shape(stored)) + len(added)
    own = [axis for axis in range(count) if axis not in {a % count for a in added}]
    return stored, tuple(rank - count + axis for axis in own)


def _shape(value: ir.Value) -> tuple[int, ...]:
    return shape_of(stored_tensor(value))


def _powers(value: ir.Value) -> Powers | None:
    """Return the product of powers that a value is; None if it is no product."""
    node = value.producer()
    if constant_of(value) is not None:
        return {value: ONE}
    if node is None:
        return None
    first, second = ([v for v in node.inputs if v is not None] + [None])[:2]
    assert first is not None, "all these operators have operands"
    match op_name(node):
        case "Identity" | "Cast":
            return _powers(first)
        case "Unsqueeze" if constant_of(first) is not None and _axes(node):
            return {value: ONE}
        case "Mul":
            return _product(_powers(first), _powers(second or first), 1)
        case "Div":
            return _product(_powers(first), _powers(second or first), -1)
        case "Reciprocal":
            return _product({}, _powers(first), -1)
        case "Sqrt":
            return _raised(_powers(first), HALF)
        case "Pow":
            return _raised(_powers(first), _number(second or first))
        case "ReduceL2":
            return _raised(_squares(node, _powers(first), 1), HALF)
        case "ReduceSumSquare":
            return _squares(node, _powers(first), 1)
        case "ReduceSum":
            return _squares(node, _powers(first), 2)
    return None


def _product(one: Powers | None, other: Powers | None, sign: int) -> Powers | None:
    if one is None or other is None:
        return None
    total = Counter[ir.Value | _Squares]()
    for powers, factor in ((one, 1), (other, sign)):
        for base, power in powers.items():
            total[base] += factor * power  # type: ignore[assignment]
    return {base: Fraction(power) for base, power in total.items() if power}


def _raised(powers: Powers | None, exponent: Fraction | None) -> Powers | None:
    """Return a power of a product; None for a root of factors that may be negative."""
    if powers is None or exponent is None:
        return None
    if exponent.denominator != 1 and not all(isinstance(base, _Squares) for base in powers):
        return None
    return {base: power * exponent for base, power in powers.items()}


def _squares(node: ir.Node, powers: Powers | None, power: int) -> Powers | None:
    """Return the sum of squares that a reduction computes from a stored tensor to this power, else None."""
    [base] = [*powers] if powers is not None and len(powers) == 1 else [None]
    if not isinstance(base, ir.Value) or powers is None or powers[base] != power:
        return None
    if constant_of(base) is None:
        return None
    rank, axes = len(_shape(base)), _axes(node)
    if axes is None or (not node.attributes.get_int("keepdims", 1) and len(axes) not in (0, rank)):
        return None
    return {_Squares(base, tuple(sorted({a % rank for a in axes})) or tuple(range(rank))): Fraction(1)}


def _axes(node: ir.Node) -> list[int] | None:
    """Return the axes of a reduction, an empty list for all axes; None if they are not known."""
    if node.attributes.get_int("noop_with_empty_axes", 0):
        return None
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if axes is None:
        return [int(a) for a in node.attributes["axes"].as_ints()] if "axes" in node.attributes else []
    tensor = constant_of(axes)
    return None if tensor is None else [int(a) for a in np.atleast_1d(read_tensor(tensor))]


def _number(value: ir.Value) -> Fraction | None:
    tensor = constant_of(value)
    if tensor is None or tensor.size != 1:
        return None
    number = float(read_tensor(tensor).reshape(()))
    return Fraction(number).limit_denominator(4) if number * 4 == int(number * 4) else None
