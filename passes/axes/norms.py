"""Norms, the form of every spelling of one (growc.passes.raising.norms), and what their eps is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from growc.algebra.indexmap import IndexMap
from growc.ir.graph import Node, Value
from growc.ir.traits import SIZES


@dataclass(frozen=True)
class Formula:
    """v / (mean(|v|ᵖ) + eps)^(1/p), v = x. `centred`: v = x − mean(x). `total`: a sum, no mean.
    `outside`: eps is added to the root, or bounds it. `power`: p, two or one.
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
        """The state behind the norm, and the factor of its eps; None where it is not exact."""
        found = (state.layer_norm if self.centred else state.rms_norm)(self.power)
        if found is None:
            return None
        after, factor = found
        if self.total:
            growth = state.size / state.source
            after, factor = after.scaled(growth ** (-1 / self.power)), factor * growth
        return after, self.rooted(factor) if self.outside else factor

    def rooted(self, factor: float) -> float:
        """The factor of the root where the mean has this one."""
        return float(factor ** (1 / self.power))


@dataclass(frozen=True, eq=False)
class Norm:
    """One norm over the last-named axes of `source` (counted from the end, in order); `result` is the value
    that leaves, before any gain but `gain`, which `weigh` puts in front of the quotient.
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
        """Whether one operator closes it that has a gain and an eps of its own."""
        return self.weigh is self.close

    @property
    def bare(self) -> bool:
        """Whether no eps keeps it from dividing zero by zero."""
        return without_eps(self.close) if self.by_operator else self.eps is None or scalar(self.eps) == 0

    def eps_weight(self) -> Value:
        """The weight use behind eps, through casts."""
        found = None if self.eps is None else stored(self.eps)
        assert found is not None
        return found


def readers(value: Value) -> set[Node]:
    """The nodes that use a value as more than a shape."""
    return {n for n, _ in value.users if not n.has(SIZES)}


def without_eps(node: Node) -> bool:
    """Whether an operator that norms has an eps of zero."""
    return node.real("epsilon", 1.0) == 0


def scalar(value: Value | None) -> float | None:
    """The number in a value that is one known real number, else None."""
    if value is None or value.known is None or value.known[0].size != 1 or np.iscomplexobj(value.known[0]):
        return None
    numbers = {float(np.asarray(k).reshape(-1)[0]) for k in value.known}
    return numbers.pop() if len(numbers) == 1 else None


def stored(value: Value) -> Value | None:
    """The use of a weight that a number comes from, through casts; None where it serves others too."""
    while value.weight is None:
        if value.producer is None or len(value.producer.inputs) != 1 or len(value.users) > 1:
            return None
        value = value.producer.required(0)
    return value
