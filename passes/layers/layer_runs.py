"""Data classes for the layers of a model (see growc.passes.layers.find) and for their changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from growc.algebra.draws import Draws
from growc.errors.short_repr import brief
from growc.ir.graph import Node, Origin, Value, Weight
from growc.passes.dataflow.trace_rows import RowPlace
from growc.plans.plan import Gap, Summary

LayerPlace = tuple[int, int]
"""A layer: the number of its run, and its number in the run."""


@dataclass(frozen=True)
class Move:
    """The effect of one statement on a run: layer k of the result was layer `order[k]` before it."""

    number: int
    order: tuple[int, ...]


@dataclass(frozen=True)
class Drawn:
    """A layer whose weights are drawn at random.

    moment: the number of the statement.
    draws: the random numbers of the layer.
    std: their standard deviation, if it is not that of each tensor.
    """

    moment: int
    draws: Draws
    std: float | None = None


@dataclass(frozen=True)
class RunHistory:
    """The history of one run of layers.

    count: the number of layers in the source.
    zeroed: for each layer of the result, whether it adds nothing to the stream.
    drawn: for each layer of the result, how its weights are drawn; None if they are copies.
    grafted: whether all layers come from a template.
    """

    count: int
    moves: tuple[Move, ...] = ()
    zeroed: tuple[bool, ...] = ()
    drawn: tuple[Drawn | None, ...] = ()
    merged: tuple[tuple[int, ...], ...] = ()
    """For each layer of the result, the source layers whose mean it is.

    A layer that counts several times is repeated.
    """
    grafted: bool = False

    @staticmethod
    def of(count: int) -> RunHistory:
        """The history of a run in which nothing has moved."""
        themselves = tuple((layer,) for layer in range(count))
        return RunHistory(count, (), (False,) * count, (None,) * count, themselves)

    @property
    def order(self) -> tuple[int, ...]:
        """For each layer of the result, its layer in the source."""
        return tuple(self.number_before(k, 0) for k in range(self.count_before(None)))

    @property
    def sources_zeroed(self) -> frozenset[int]:
        """The source layers that have a copy which adds nothing."""
        return frozenset(k for k, zero in zip(self.order, self.zeroed, strict=True) if zero)

    @property
    def moved(self) -> bool:
        """Whether any layer differs from the source's."""
        changed = any(self.zeroed) or any(self.drawn) or any(len(sources) > 1 for sources in self.merged)
        return changed or self.order != tuple(range(self.count))

    def count_before(self, moment: int | None) -> int:
        """The number of layers before the statement `moment`; None means after the last statement."""
        earlier = [m for m in self.moves if moment is None or m.number < moment]
        return len(earlier[-1].order) if earlier else self.count

    def number_before(self, layer: int, moment: int) -> int:
        """The number that a layer of the result, or its origin, had before the statement `moment`."""
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
    ) -> RunHistory:
        """The history with one more statement.

        zeroed, drawn, merged: of the layers as they stand after it.
        """
        return RunHistory(self.count, (*self.moves, move), zeroed, drawn, merged, self.grafted)


@dataclass(frozen=True)
class LayerGap:
    """A gap of one layer of the result, by its number in its run. None: of the run."""

    layer: int | None
    gap: Gap


@dataclass(frozen=True)
class DepthChange:
    """The histories and gaps of all runs of a model, and the summary of each statement for the plan."""

    runs: tuple[RunHistory, ...] = ()
    gaps_of_runs: tuple[tuple[LayerGap, ...], ...] = ()
    summaries: tuple[tuple[int, Summary], ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps of all runs."""
        return tuple(layer_gap.gap for gaps in self.gaps_of_runs for layer_gap in gaps)

    @property
    def changed(self) -> bool:
        """Whether any layer moves."""
        return any(run.moved for run in self.runs)


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: the part of a stream between two values, with the nodes that serve only it.

    start: the stream as the layer takes it.
    end: the stream as the layer leaves it, which is the next layer's start.
    nodes: its data nodes in canonical order: the nodes between start and end, and side nodes that only they
        use (keys and values of cross-attention). Nodes that lead from the layer to outputs of its own
        (caches) are included. Nodes that carry weights or compute shapes are in no layer.
    """

    __repr__ = brief

    start: Value
    end: Value
    nodes: tuple[Node, ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Run:
    """Consecutive layers of one stream.

    scope: "", "encoder", "decoder" or "tower N".
    kinds: a number for each layer; layers with one number are built alike.
    period: the number of layers after which their kinds repeat.
    residual: whether a stream goes around every branch.
    past: the history of the layers; None before any statement was processed.
    """

    __repr__ = brief

    layers: tuple[Layer, ...]
    scope: str = ""
    kinds: tuple[int, ...] = ()
    period: int = 1
    residual: bool = True
    past: RunHistory | None = None

    @property
    def history(self) -> RunHistory:
        """The history of the layers, also if nothing moved."""
        return self.past or RunHistory.of(len(self.layers))

    @property
    def tensors(self) -> frozenset[str]:
        """The names of the stored tensors that its layers read."""
        operands = (v for layer in self.layers for node in layer.nodes for v in node.operands)
        return frozenset(v.weight.name for v in operands if v.weight is not None)


@dataclass(frozen=True)
class RunPlaces:
    """The places of one run in its stream, before its layers have nodes.

    values: the stream in front of each layer, and behind the last one.
    """

    values: tuple[Value, ...]
    scope: str
    residual: bool

    @staticmethod
    def of(run: Run) -> RunPlaces:
        """The places of a run that is known."""
        values = (run.layers[0].start, *(layer.end for layer in run.layers))
        return RunPlaces(values, run.scope, run.residual)


@dataclass(frozen=True)
class KeptPlaces:
    """Places of layers that an edit inside of layers keeps.

    runs: places in the graph before the edit.
    counterpart: the origin in the edited model of a value with some origin.
    """

    runs: tuple[RunPlaces, ...]
    counterpart: Callable[[Origin | None], Origin | None]


@dataclass(frozen=True, eq=False)
class LayerTables:
    """Stored tensors with a row for each layer: layer k of a run takes row k.

    run: the number of the run.
    tables: the tensors, each with the place of its rows.
    reads: for each layer, the nodes that take its row.
    way: the nodes between tables and reads, each with the place of the rows in its result.
    sums: if there is one row fewer than layers, the sum at the end of each layer but the last that adds its
        row, with the operand that the row is.
    constant: whether a row is made of stored tensors alone, and is zero if they are.
    """

    __repr__ = brief

    run: int
    tables: Mapping[Weight, RowPlace]
    reads: tuple[tuple[Node, ...], ...]
    way: Mapping[Node, RowPlace] = field(repr=False)
    sums: tuple[tuple[Node, int], ...] = ()
    constant: bool = True

    @property
    def taken(self) -> frozenset[Value]:
        """The rows as values."""
        return frozenset(node.outputs[0] for layer_reads in self.reads for node in layer_reads)


@dataclass(frozen=True, eq=False)
class Layers:
    """All runs in topological order.

    data: values that are used, and are computed from the values of inputs or from what is learned in place of
        an input.
    rows: tables that have a row for each layer.
    """

    __repr__ = brief

    runs: tuple[Run, ...] = ()
    data: frozenset[Value] = field(default=frozenset(), repr=False)
    rows: tuple[LayerTables, ...] = ()

    @cached_property
    def home(self) -> Mapping[Node, tuple[int, int]]:
        """The layer in which a node stands: its run, and its number there."""
        return {
            node: (number, k)
            for number, run in enumerate(self.runs)
            for k, layer in enumerate(run.layers)
            for node in layer.nodes
        }


@dataclass(frozen=True, eq=False)
class ResultLayer:
    """One layer of a result.

    source: the number of the layer in the source.
    zeroed: the uses of weights, and the rows of tables, that are zero in it.
    steps: for its quantising operators, those of the source whose quantisation steps they take.
    """

    source: int
    zeroed: tuple[Value, ...] = ()
    merged: tuple[int, ...] = ()
    """The source layers whose mean it is, if there are several; the first is `source`."""
    steps: Mapping[Node, Node] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Branch:
    """One term of a stream inside a layer.

    add: the sum.
    operand: the number of the branch among the operands of the sum.
    value: that operand.
    writer: the uses of weights, and the rows of tables, that must be zero for the branch to be zero: a layer
        scale, or gain and bias of a branch norm; otherwise weight and bias of each projection.
    """

    add: Node
    operand: int
    value: Value
    writer: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Obstacle:
    """A node that prevents a layer with zero branches from being the identity, and why.

    branches: the layer's branches, as without the obstacle.
    """

    node: Node
    cause: str
    branches: tuple[Branch, ...] = ()
