"""Norms in one form for every spelling (growc.passes.raising.norms), and their eps."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from growc.algebra.indexmap import IndexMap
from growc.ir.graph import Node, Value
from growc.ir.traits import SIZES


@dataclass(frozen=True)
class Formula:
    """The norm v / (mean(|v|ᵖ) + eps)^(1/p), with v = x.

    centred: v = x − mean(x).
    total: a sum instead of a mean.
    outside: eps is added to the root, or bounds it.
    power: p, two or one.
    """

    centred: bool = False
    total: bool = False
    outside: bool = False
    power: int = 2

    def __str__(self) -> str:
        if self.total or self.power != 2:
            return f"L{self.power} norm"
        return "LayerNorm" if self.centred else "RMSNorm"

    def behind(self, state: IndexMap) -> tuple[IndexMap, float] | None:
        """The state behind the norm, and the factor of its eps; None if the norm is not exact on this
        state.
        """
        normed = (state.layer_norm if self.centred else state.rms_norm)(self.power)
        if normed is None:
            return None
        after, factor = normed
        if self.total:
            growth = state.size / state.source
            after, factor = after.scaled(growth ** (-1 / self.power)), factor * growth
        return after, self.rooted(factor) if self.outside else factor

    def rooted(self, factor: float) -> float:
        """The factor of the root, from the factor of the mean."""
        return float(factor ** (1 / self.power))


@dataclass(frozen=True, eq=False)
class Norm:
    """One norm over the axes `axes` of `source`, counted from the end, in order.

    result: the value of the norm, before any gain except `gain`.
    close: the node that makes the result.
    weigh: the node that multiplies the operand, or the inverse of the root, with `gain` before these two
        meet.
    """

    formula: Formula
    source: Value
    axes: tuple[int, ...]
    result: Value
    close: Node
    eps: Value | None
    interior: frozenset[Node] = field(repr=False)
    gain: Value | None = None
    weigh: Node | None = None

    @property
    def by_operator(self) -> bool:
        """Whether a single operator with a gain and an eps of its own closes the norm."""
        return self.weigh is self.close

    @property
    def bare(self) -> bool:
        """Whether no eps prevents a division of zero by zero."""
        return without_eps(self.close) if self.by_operator else self.eps is None or scalar(self.eps) == 0

    def eps_weight(self) -> Value:
        """The use of a weight that is the eps, through casts."""
        use = None if self.eps is None else stored(self.eps)
        assert use is not None
        return use


def readers(value: Value) -> set[Node]:
    """The nodes that use the numbers of a value, and not only its shape."""
    return {n for n, _ in value.users if not n.has(SIZES)}


def without_eps(node: Node) -> bool:
    """Whether a norm operator has an eps of zero."""
    return node.real("epsilon", 1.0) == 0


def scalar(value: Value | None) -> float | None:
    """The number of a value that is one known real number; None otherwise."""
    if value is None or value.known is None or value.known[0].size != 1 or np.iscomplexobj(value.known[0]):
        return None
    numbers = {float(np.asarray(k).reshape(-1)[0]) for k in value.known}
    return numbers.pop() if len(numbers) == 1 else None


def stored(value: Value) -> Value | None:
    """The use of a weight that a number comes from, through casts; None if it has other readers."""
    while value.weight is None:
        if value.producer is None or len(value.producer.inputs) != 1 or len(value.users) > 1:
            return None
        value = value.producer.required(0)
    return value
