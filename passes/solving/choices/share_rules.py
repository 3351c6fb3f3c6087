"""Rules, one for each treatment, for shares that are c times what they were."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from growc.ir.graph import Node, Value
from growc.passes.axes.norms import scalar


@dataclass(frozen=True)
class Share:
    """The factor of each copy in a value. `paired`: the value is zero except where a place holds a unit."""

    factor: float = 1.0
    paired: bool = False

    @property
    def plain(self) -> bool:
        """Whether the value is what it was."""
        return math.isclose(self.factor, 1.0, rel_tol=1e-9) and not self.paired


SharedValues = Sequence[tuple[Value, Share]]


class LostError(Exception):
    """The cause why nothing is known of a value. left: its share without this cause."""

    def __init__(self, cause: str, left: Share | None = None) -> None:
        super().__init__(cause)
        self.left = left or Share()


def require_plain(operands: SharedValues) -> None:
    """Raise LostError where a share is not what it was."""
    if not all(share.plain for _, share in operands):
        raise LostError("reads shares that are not what they were")


def is_zero(value: Value) -> bool:
    """Whether a value is zero throughout."""
    constant = None if value.producer is None else value.producer.laws.constant
    result = constant(value.producer) if constant is not None and value.producer is not None else None
    return scalar(value) == 0 or (result is not None and not result.any())


def same(operands: SharedValues) -> Share:
    """The one share of all operands. Raises LostError where they differ.

    An operand that is zero has any share. One that is no share has factor one.
    """
    nonzero = [(v, s) for v, s in operands if not is_zero(v)] or list(operands)
    _, first = max(nonzero, key=lambda one: (not one[1].plain, one[1].factor))
    for other, share in nonzero:
        if not math.isclose(share.factor, first.factor, rel_tol=1e-9) or share.paired != first.paired:
            number = scalar(other)
            other_words = "what it was" if number is None else f"{number:.3g}"
            cause = f"puts {first.factor:.3g} times what it was beside {other_words}"
            raise LostError(cause, None if number is None else first)
    return first


def _layout(node: Node, operands: SharedValues) -> Share:
    moved = {node.inputs[i] for i in node.taken}
    return same([one for one in operands if one[0] in moved])


def _product(node: Node, operands: SharedValues) -> Share:
    return Share(math.prod(s.factor for _, s in operands), any(s.paired for _, s in operands))


def _quotient(node: Node, operands: SharedValues) -> Share:
    (_, top), (_, bottom) = operands
    if bottom.paired:
        raise LostError("divides by what is zero where nothing was chosen")
    return Share(top.factor / bottom.factor, top.paired)


def _contract(node: Node, operands: SharedValues) -> Share:
    product = _product(node, operands[:2])
    if len(operands) > 2 and not product.plain:
        raise LostError("adds a bias to shares that are not what they were")
    return product


def _homogeneous(node: Node, operands: SharedValues) -> Share:
    return same(operands[:1])


def _zero(node: Node, operands: SharedValues) -> Share:
    if any(not math.isclose(s.factor, 1.0, rel_tol=1e-9) for _, s in operands):
        raise LostError("reads shares that are not what they were")
    return operands[0][1]


def _select(node: Node, operands: SharedValues) -> Share:
    if not operands[0][1].plain:
        raise LostError("decides by shares that are not what they were")
    return same(operands[1:])


def anything_else(node: Node, operands: SharedValues) -> Share:
    """The rule of all other treatments: every operand must be what it was. Raises LostError otherwise."""
    require_plain(operands)
    return Share()


RULES: dict[str, Callable[[Node, SharedValues], Share]] = {
    "layout": _layout,
    "add": lambda node, operands: same(operands),
    "multiply": _product,
    "divide": _quotient,
    "pointwise zero": _zero,
    "pointwise zero homogeneous": _homogeneous,
    "select": _select,
    "contract": _contract,
    "mean": lambda node, operands: operands[0][1],
    "sum": lambda node, operands: operands[0][1],
    "extreme": lambda node, operands: operands[0][1],
}
"""The rules by treatment. All other treatments must read values that are what they were."""

SUMMING = ("contract", "mean", "sum", "extreme")
"""Treatments that may run over units that have copies."""

NORMS = {"layer_norm": 0, "rms_norm": 0, "per_channel": 0, "l2_norm": 2, "l1_norm": 1}
"""The power of each norm. 0: the norm is refused over units that have copies."""
