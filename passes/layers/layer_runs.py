"""The layers of a model, found by growc.passes.layers.find, and what became of them, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from growc.algebra.draws import Draws
from growc.errors.brief import brief
from growc.ir.graph import Node, Value, Weight
from growc.passes.dataflow.trace_rows import Along
from growc.plans.plan import Gap, Summary


@dataclass(frozen=True)
class Move:
    """What one statement does to a run: layer k of the result was layer `order[k]` before it."""

    number: int
    order: tuple[int, ...]


@dataclass(frozen=True)
class Drawn:
    """A layer whose weights are drawn. moment: the number of the statement; draws: the layer's numbers; std:
    their standard deviation, if not that of each tensor.
    """

    moment: int
    draws: Draws
    std: float | None = None


@dataclass(frozen=True)
class Past:
    """One run of layers. `count`: how many the source has; of each layer of the result: `zeroed`, whether it
    adds nothing, and `drawn`, how its weights are drawn, None where they are copies. grafted: whether all of
    them are a template's."""

    count: int
    moves: tuple[Move, ...] = ()
    zeroed: tuple[bool, ...] = ()
    drawn: tuple[Drawn | None, ...] = ()
    merged: tuple[tuple[int, ...], ...] = ()
    """Of each layer of the result the source's of which it is the mean; one counts as often as it stands."""
    grafted: bool = False

    @staticmethod
    def of(count: int) -> Past:
        """Nothing has moved yet."""
        own = tuple((layer,) for layer in range(count))
        return Past(count, (), (False,) * count, (None,) * count, own)

    @property
    def order(self) -> tuple[int, ...]:
        """The source's layer of every layer of the result."""
        return tuple(self.number_before(k, 0) for k in range(self.count_before(None)))

    @property
    def sources_zeroed(self) -> frozenset[int]:
        """The source's layers of which some copy adds nothing."""
        return frozenset(k for k, zero in zip(self.order, self.zeroed, strict=True) if zero)

    @property
    def moved(self) -> bool:
        """Whether anything is another layer than in the source."""
        made = any(self.zeroed) or any(self.drawn) or any(len(one) > 1 for one in self.merged)
        return made or self.order != tuple(range(self.count))

    def count_before(self, moment: int | None) -> int:
        """How many layers there were before the statement of a number; None: after the last one."""
        done = [m for m in self.moves if moment is None or m.number < moment]
        return len(done[-1].order) if done else self.count

    def number_before(self, layer: int, moment: int) -> int:
        """The number that a layer of the result, or the layer that it came from, had before a statement."""
        for move in reversed(self.moves):
            if move.number < moment:
                break
            layer = move.order[layer]
        return layer

    def after(
        self,
        move: Move,
        zeroed: tuple[bool, ...],
        drawn: tuple[Drawn | None, ...],
        merged: tuple[tuple[int, ...], ...],
    ) -> Past:
        """One statement more; `zeroed`, `drawn` and `merged` of the layers as they stand after it."""
        return Past(self.count, (*self.moves, move), zeroed, drawn, merged, self.grafted)


@dataclass(frozen=True)
class Depth:
    """All runs of a model; where the result is not the source; each statement's line of the plan."""

    runs: tuple[Past, ...] = ()
    gaps: tuple[Gap, ...] = ()
    summaries: tuple[tuple[int, Summary], ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any layer moves."""
        return any(run.moved for run in self.runs)


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: what lies on a stream between two places, and what serves only it.

    start: the stream as the layer takes it. end: as it leaves it, which is the next layer's start.
    nodes: its data nodes in canonical order: those between start and end, side nodes that only they use
    (keys and values of cross-attention), and what leads from it to outputs of its own (caches). Nodes that
    carry weights or compute shapes are in no layer.
    """

    __repr__ = brief

    start: Value
    end: Value
    nodes: tuple[Node, ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Run:
    """Layers one behind the other.

    scope: "", "encoder", "decoder" or "tower N". kinds: a number for each layer; layers of one number are
    built alike. period: after how many layers their kinds come again. residual: whether a stream goes around
    every branch. past: which layers of the source they were; None before any statement was looked at.
    """

    __repr__ = brief

    layers: tuple[Layer, ...]
    scope: str = ""
    kinds: tuple[int, ...] = ()
    period: int = 1
    residual: bool = True
    past: Past | None = None

    @property
    def history(self) -> Past:
        """Which layers of the source they were, also where nothing moved."""
        return self.past or Past.of(len(self.layers))

    @property
    def tensors(self) -> frozenset[str]:
        """The names of the stored tensors that its layers read."""
        operands = (v for layer in self.layers for node in layer.nodes for v in node.operands)
        return frozenset(v.weight.name for v in operands if v.weight is not None)


@dataclass(frozen=True, eq=False)
class Rows:
    """Stored tensors of which layer k of a run takes row k.

    run: its number. tables: where they have the rows. reads: of each layer, what takes its row. way: the
    nodes between tables and reads, each with the place of the rows in its result. sums: where there is one
    row fewer than layers, of each layer but the last the sum at its end that adds its row, and which operand
    that is. constant: whether a row is made of stored tensors alone, and is zero where they are.
    """

    __repr__ = brief

    run: int
    tables: Mapping[Weight, Along]
    reads: tuple[tuple[Node, ...], ...]
    way: Mapping[Node, Along] = field(repr=False)
    sums: tuple[tuple[Node, int], ...] = ()
    constant: bool = True

    @property
    def taken(self) -> frozenset[Value]:
        """The rows as values."""
        return frozenset(node.outputs[0] for own in self.reads for node in own)


@dataclass(frozen=True, eq=False)
class Layers:
    """All runs in topological order. data: what is computed from the values of
    inputs, or of what is learned in place of one, and is used. rows: tables that their numbers go with."""

    __repr__ = brief

    runs: tuple[Run, ...] = ()
    data: frozenset[Value] = field(default=frozenset(), repr=False)
    rows: tuple[Rows, ...] = ()

    @cached_property
    def home(self) -> Mapping[Node, tuple[int, int]]:
        """The layer that a node stands in: its run, and its number there."""
        return {
            node: (number, k)
            for number, run in enumerate(self.runs)
            for k, layer in enumerate(run.layers)
            for node in layer.nodes
        }


@dataclass(frozen=True, eq=False)
class Instance:
    """One layer of a result: the number of the source's, and the uses of weights, and rows of tables, that
    are zero in it. steps: for its quantising operators those of the source whose steps they take."""

    source: int
    zeroed: tuple[Value, ...] = ()
    merged: tuple[int, ...] = ()
    """The source's layers of which it is the mean, where these are several; the first is `source`."""
    steps: Mapping[Node, Node] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Branch:
    """One term of a stream inside a layer.

    add: the sum; operand: which of its operands the branch is; value: that operand. writer: the uses of
    weights, and the rows of tables, that must be zero for the branch to be zero: a layer scale, gain and bias
    of a branch norm, else weight and bias of each projection.
    """

    add: Node
    operand: int
    value: Value
    writer: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Obstacle:
    """Why zero branches do not make a layer the identity: the node in the way, and what it does.

    branches: the terms of the layer's sums all the same.
    """

    node: Node
    cause: str
    branches: tuple[Branch, ...] = ()
