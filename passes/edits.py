"""Edits and repairs of a model as data: what the passes ask a dialect for, whatever the format."""

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
    from growc.passes.axes.unstacked_experts import Taken
    from growc.passes.raising.feed_forward import Network

# ---- edits of heads


@dataclass(frozen=True, eq=False)
class PackedPart:
    """Queries, keys or values. `sizes`: of the axes that its rows are cut into, behind those of the packed
    value; `order`: the axes of `value`, as numbers of all of these.
    """

    value: Value
    sizes: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Packed:
    """A value whose last axis has the rows of all parts. `rows`: of each part, in the order of its axes;
    `uses`: the weights that make them, each with its axis of rows.
    """

    value: Value
    parts: tuple[PackedPart, ...]
    rows: tuple[Ints, ...]
    uses: tuple[tuple[Value, int], ...]


@dataclass(frozen=True)
class HeadEdits:
    """Operators that count heads, in front of what reads them, and projections that are cut apart.

    `unfolds`: (value, its axis of one element); heads are in front of the channels on its last axis.
    `repeats`: (product, operand, axis of heads, query heads for each).
    """

    unfolds: Sequence[tuple[Value, int]] = ()
    repeats: Sequence[tuple[Node, int, int, int]] = ()
    packed: Sequence[Packed] = ()


# ---- edits of networks


@dataclass(frozen=True, eq=False)
class Mixture:
    """A network that becomes a mixture of copies of it. statement, number: the number of the statement, and
    that of the network among those of the statement. experts: how many there are; top: how many are chosen.
    parts: how many of them are one copy together.
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
    """Sizes at the sample points: of inputs, and the lengths that data decides.

    merged: values that come behind what makes one size of several there; elsewhere it may make several.
    """

    inputs: Mapping[Value, tuple[Size, ...] | None]
    counts: Mapping[Value, Size]
    merged: frozenset[Value] = field(default=frozenset(), repr=False)


@dataclass(frozen=True)
class Part:
    """A fraction of a number at run time: of `whole`, or of the element that stood there."""

    factor: Fraction
    whole: Value | None = field(default=None, repr=False)


Attribute = int | float | str | Sequence[int] | None
"""A changed attribute of a node; None: it is dropped."""

Entries = tuple[int | Part | None, ...]
"""A shape operand: a number, None for the element that stood there, or a part of a number."""


@dataclass
class Patch:
    """Changed operands (by number) and attributes (None: dropped) of one node; `op`, where it becomes
    another. `judged` operands are what they must be, though that may not be what they were.
    """

    operands: dict[int, Entries] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    op: str = ""
    judged: tuple[int, ...] = ()

    def merged(self, other: Patch) -> Patch:
        """Both, the other one's where they differ."""
        operands, attributes = self.operands | other.operands, self.attributes | other.attributes
        return Patch(operands, attributes, self.op or other.op)

    def literal(self, numbers: Sequence[int], before: Value | None) -> Array:
        """The numbers of an operand in the shape of the one that stood there, but for its first axis."""
        made = np.asarray(numbers, dtype=np.int64)
        if self.op or before is None or before.sizes is None:
            return made
        return made.reshape((-1, *(s[0] for s in before.sizes[1:])) if before.sizes else ())


@dataclass
class Repairs:
    """What must change besides weights. `constants`: run-time numbers that keep the source's value; `taken`:
    what goes with units that are taken out one by one, or gets other numbers.
    """

    taken: Taken
    patches: dict[Node, Patch] = field(default_factory=dict)
    constants: dict[Value, Array] = field(default_factory=dict)
    sizes: dict[Value, tuple[Size, ...] | None] = field(default_factory=dict)
