"""The layers of a model as plain data: found by growc.passes.layers, read by everything about depth."""

from __future__ import annotations

from dataclasses import dataclass, field

from growc.graph import Node, Value


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: what lies on a stream between two places, and what serves only it.

    start: the stream as the layer takes it. end: as it leaves it, which is the next layer's start.
    nodes: its data nodes in canonical order: those between start and end, side nodes that only they use
    (keys and values of cross-attention), and what leads from it to outputs of its own (caches). Nodes that
    carry weights or compute shapes are in no layer.
    """

    start: Value
    end: Value
    nodes: tuple[Node, ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Run:
    """Layers one behind the other.

    scope: "", "encoder", "decoder" or "tower N". kinds: a number for each layer; layers of one number are
    built alike. period: after how many layers their kinds come again. residual: whether a stream goes around
    every branch.
    """

    layers: tuple[Layer, ...]
    scope: str = ""
    kinds: tuple[int, ...] = ()
    period: int = 1
    residual: bool = True


@dataclass(frozen=True, eq=False)
class Layers:
    """All runs in topological order. data: what is computed from the values of inputs, and is used."""

    runs: tuple[Run, ...] = ()
    data: frozenset[Value] = frozenset()


@dataclass(frozen=True, eq=False)
class Branch:
    """One term of a stream inside a layer.

    add: the sum; operand: which of its operands the branch is; value: that operand. writer: the uses of
    weights that must be zero for the branch to be zero: a layer scale, gain and bias of a branch norm, else
    weight and bias of each projection.
    """

    add: Node
    operand: int
    value: Value
    writer: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Obstacle:
    """Why zero branches do not make a layer the identity: the node in the way, and what it does."""

    node: Node
    cause: str
