"""Edits and repairs of a model as data: the requests of passes to a dialect, independent of the file
format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from growc.algebra.indexmap import Array, Ints
from growc.algebra.space import Size
from growc.ir.graph import Node, Value

if TYPE_CHECKING:
    from growc.passes.axes.unstacked_experts import ExpertRemoval
    from growc.passes.raising.feed_forward import Network

# ---- edits of heads


@dataclass(frozen=True, eq=False)
class PackedPart:
    """Queries, keys or values of a packed projection.

    sizes: those of the axes into which its rows are split, behind the axes of the packed value.
    order: the axes of `value`, as numbers among all of these.
    """

    value: Value
    sizes: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Packed:
    """A value whose last axis has the rows of all parts.

    rows: for each part, its rows in the order of its axes.
    uses: the weights that make them, each with its axis of rows.
    """

    value: Value
    parts: tuple[PackedPart, ...]
    rows: tuple[Ints, ...]
    uses: tuple[tuple[Value, int], ...]


@dataclass(frozen=True)
class HeadEdits:
    """Operators to insert that count heads, in front of their readers, and packed projections to split.

    unfolds: (value, its axis of one element); heads are in front of the channels on its last axis.
    repeats: (product, operand, axis of heads, query heads for each).
    """

    unfolds: Sequence[tuple[Value, int]] = ()
    repeats: Sequence[tuple[Node, int, int, int]] = ()
    packed: Sequence[Packed] = ()


# ---- edits of networks


@dataclass(frozen=True, eq=False)
class Mixture:
    """A network that becomes a mixture of copies of it.

    statement: the number of the statement.
    number: the number of the network among those of the statement.
    experts: the number of experts.
    parts: how many experts are one copy together.
    top: the number of experts that are chosen.
    """

    statement: int
    number: int
    network: Network
    experts: int
    top: int
    parts: int = 1


# ---- repairs of shapes


@dataclass(frozen=True)
class Sampled:
    """Sizes at the sample points: those of inputs, and the lengths that data decide.

    merged: values behind operators that merge several sizes into one there; elsewhere there may be several.
    """

    inputs: Mapping[Value, tuple[Size, ...] | None]
    counts: Mapping[Value, Size]
    merged: frozenset[Value] = field(default=frozenset(), repr=False)


@dataclass(frozen=True)
class Part:
    """A fraction of a number at run time: of `whole`, or of the element that was in its place."""

    factor: Fraction
    whole: Value | None = field(default=None, repr=False)


ChangedAttribute = int | float | str | Sequence[int] | None
"""A changed attribute of a node; None drops it."""

ShapeEntries = tuple[int | Part | None, ...]
"""The elements of a shape operand: a number, None for the previous element, or a part of a number."""


@dataclass
class Patch:
    """Changed operands (by number) and attributes (None drops one) of a node.

    op: the new operator, if the node becomes another one.
    judged: operands whose new values are right, though they may differ from the old ones.
    """

    operands: dict[int, ShapeEntries] = field(default_factory=dict)
    attributes: dict[str, ChangedAttribute] = field(default_factory=dict)
    op: str = ""
    judged: tuple[int, ...] = ()

    def merged(self, other: Patch) -> Patch:
        """Both patches; the other one's entries replace this one's."""
        operands, attributes = self.operands | other.operands, self.attributes | other.attributes
        return Patch(operands, attributes, self.op or other.op)

    def literal(self, numbers: Sequence[int], before: Value | None) -> Array:
        """The numbers of an operand in the shape of the previous operand, except for its first axis."""
        array = np.asarray(numbers, dtype=np.int64)
        if self.op or before is None or before.sizes is None:
            return array
        return array.reshape((-1, *(s[0] for s in before.sizes[1:])) if before.sizes else ())


@dataclass
class Repairs:
    """Changes besides weights.

    constants: run-time numbers that keep the source's value.
    taken: changes of units that are taken out one by one, and of unit numbers.
    """

    taken: ExpertRemoval
    patches: dict[Node, Patch] = field(default_factory=dict)
    constants: dict[Value, Array] = field(default_factory=dict)
    sizes: dict[Value, tuple[Size, ...] | None] = field(default_factory=dict)
