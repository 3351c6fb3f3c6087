"""The neutral graph that the analysis works on: nodes, values, and one constant per use of a weight.

A dialect (growc.dialects.onnx) builds it from a model. Every operand that is a weight is a separate `Value`.
So merged initializers, shared scalars and tied embeddings are several values with one `Weight`.
growc.passes.axes.ties decides later which of these must stay one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

from growc.algebra.indexmap import Array, Bools, Ints
from growc.algebra.space import Size
from growc.algebra.unit_ranges import UnitRange
from growc.errors.short_repr import brief
from growc.ir.notation import Line, Operand
from growc.ir.traits import JOIN, WRITE, Trait
from growc.ir.walk import walk

Index = tuple[slice | Ints, ...]
"""An index of numpy: for each axis a slice, or numbers."""
Origin = Hashable
"""The dialect's own object for a value, a node or a stored tensor. Only the dialect looks into it."""


@dataclass(frozen=True, eq=False)
class Order:
    """The order of an axis's units, if it differs from the stored one.

    units: the stored unit that each unit is, -1 for zeros. stored: the number of stored units. name: the name
    of the axis."""

    axis: int
    units: Array
    stored: int
    name: str


@dataclass(frozen=True)
class Upcycled:
    """The mark of a stored tensor of a mixture that was made of a network of the source.

    statement: the number of the statement. network: the number of the network among those of the statement.
    part: the number of the tensor in the network. router: whether it scores experts: the source has no such
    tensor. reads: whether it is the matrix that reads the network's inner units.
    """

    statement: int
    network: int
    part: int
    router: bool = False
    reads: bool = False


@dataclass(eq=False)
class Weight:
    """A stored tensor of the model. `read` returns its values and is called only when they are needed."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], Array] = field(repr=False)
    origin: Origin | None = field(default=None, repr=False)
    stored: Origin | None = field(default=None, repr=False)
    """The storage of a quantised weight (growc.plans.quantised.Quantised)."""
    computed: tuple[str, ...] = ()
    """The stored tensors that the model computes it from, if it does."""
    copy_of: str = ""
    """The tensor of the source that it comes from, if its layer has another place in the source."""
    zero: bool = False
    """Whether it is zero, so that a new layer adds nothing."""
    mean_of: tuple[str, ...] = ()
    """The tensors of the source whose mean it is, if layers were merged."""
    aliases: tuple[str, ...] = ()
    """Its other names in a module. A use that gets a tensor of its own takes one of them."""
    assumed: bool = False
    """Whether it stands for an absent operand: the model stores no such tensor."""
    shift: float = 0.0
    """The number that the model adds to it wherever it is used (gains stored as their distance from one).

    Maps act on the sum.
    """

    order: Order | None = None
    """The order of an axis's units, if it is not the stored one: `shape` and `read` have this order."""
    upcycled: Upcycled | None = None
    """Set for a tensor of a mixture that a statement makes. `order` then makes all experts copies of one."""
    known: bool = True
    """Whether there are values. A config alone gives only sizes."""
    some: Callable[[Index], Array] | None = field(default=None, repr=False)
    """Reads the values at an index of numpy without the others, where that is possible."""

    def at(self, index: Index) -> Array:
        """The values at an index of numpy."""
        return self.reader()(index)

    def reader(self) -> Callable[[Index], Array]:
        """A function that reads the values at an index. If it must read all values, it does so once."""
        if self.some is not None:
            return self.some
        whole = self.read()
        return lambda index: np.asarray(whole[index])

    @property
    def root(self) -> str:
        """The name of the source's tensor that the weight is or comes from."""
        return self.copy_of or self.name

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the stored tensor."""
        if self.order is None:
            return self.shape
        return tuple(self.order.stored if k == self.order.axis else n for k, n in enumerate(self.shape))

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def floating(self) -> bool:
        """Whether the weight holds real or complex numbers."""
        return self.dtype in FLOATING


FLOATING = frozenset({"float16", "bfloat16", "float32", "float64", "complex64", "complex128"})


def wide(array: Array) -> Array:
    """Real or complex numbers in double precision."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


@dataclass(eq=False)
class Value:
    """An edge of the graph: a tensor. `sizes`, `known` and `dtype` are filled in by simulation."""

    __repr__ = brief

    name: str
    weight: Weight | None = None
    producer: Node | None = None
    users: list[tuple[Node, int]] = field(default_factory=list, repr=False)
    sizes: tuple[Size, ...] | None = None
    known: tuple[Array, ...] | None = field(default=None, repr=False)
    floating: bool = True
    dtype: str = ""
    """The name of its element type; empty where that is not known."""
    origin: Origin | None = field(default=None, repr=False)

    @property
    def rank(self) -> int:
        """Number of axes; 0 where the shape could not be found."""
        return len(self.sizes or ())

    @property
    def unmoved(self) -> Value:
        """The value before layout operators: the use of a stored tensor, if this is such a use."""
        return backward(self, lambda node: node.chain)

    @property
    def reader(self) -> Node | None:
        """The node that reads a stored tensor, behind the layout operators on its way to this use."""
        for user, _ in self.users[:1]:
            return user.outputs[0].reader if user.chain else user
        return None


OperandRanges = Mapping[int, UnitRange]
"""The ranges of operands, by their numbers: those that have an element for each unit."""

Image = Callable[["Node", OperandRanges, Bools], UnitRange]
"""A rule for ranges. Its last argument: units that are in the domain of the operator, such as means."""


BoundOperands = Sequence["Value | float"]
"""Values and numbers whose largest, or least, is a bound."""


class Clamp(NamedTuple):
    """A clamp: the largest of some values and numbers, then the least of that and others."""

    largest: BoundOperands
    least: BoundOperands = ()

    def beside(self, operand: Value | None) -> tuple[BoundOperands, BoundOperands] | None:
        """The lower and upper bounds of one operand by the others; None where several make one bound."""
        low, high = ([x for x in side if x is not operand] for side in self)
        if operand in self.largest:
            return low, high
        return ([], [*low, *high]) if len(low) == 1 else None


class Address(NamedTuple):
    """An operand that holds unit numbers of an axis of operand 0, or of the result.

    column: the element of its last axis that holds them, if it has one for each of several axes. end: whether
    a run of units starts or ends at the number.
    """

    operand: int
    axis: int
    result: bool = False
    column: int | None = None
    end: bool = False


@dataclass(frozen=True)
class Laws:
    """The laws of an operator's row about the values of its results, beside its traits (docs/theory.md)."""

    image: Image | None = None
    """The rule for the ranges of units."""
    increasing: bool = False
    """For one operand: whether no result falls where the operand grows."""
    clamp: Callable[[Node], Clamp] | None = None
    """The values and numbers whose largest and least each element is, at its place."""
    keeps: tuple[float, float] | None = None
    """Bounds of all results. Numbers between them stay as they are."""
    again: bool = False
    """Whether f(f(x)) = f(x), if the other operands are the same."""
    puts: tuple[float, ...] | None = None
    """With `again`: the numbers that f may put in place of an element. None: any number."""
    signs: frozenset[int] = frozenset()
    """For a comparison: the signs of operand 0 − operand 1 for which it is true."""
    implies: Mapping[bool, bool] = field(default_factory=dict)
    """For a condition: where it has the truth value of the key, all its operands have that of the value."""
    least: bool = False
    """For an extreme along axes: whether it is the least element, not the largest."""
    with_zero: bool = False
    """For an extreme along axes: whether it is that of the elements and zero."""
    addresses: Callable[[Node], Iterable[Address]] = lambda node: ()
    """Gives the operands that hold unit numbers."""
    mixes: bool = False
    """Whether it is linear along an axis, and some element of a result depends on all units."""
    constant: Callable[[Node], Array] | None = None
    """Gives the number that every element of a result is."""
    shape: int | None = None
    """The operand that lists the sizes of the result."""
    scales: int | None = None
    """The operand that lists the factor by which each axis grows."""


@dataclass(eq=False)
class Node:
    """One operator. `origin` is the dialect's own node."""

    __repr__ = brief

    op: str
    name: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attributes: Mapping[str, object]
    origin: Origin | None = field(default=None, repr=False)
    captured: tuple[Value, ...] = ()
    """Values that a body of this node (If, Loop, Scan) takes from the enclosing scope."""
    guards: tuple[tuple[Value, bool], ...] = ()
    """For a node in a branch: the conditions under which it runs."""
    chain: bool = False
    """Whether it is a layout operator between a weight and one use. Other uses have their own copy of it."""
    part_of: str = ""
    """The operator of the model that it is a part of, if that was split into several nodes."""
    treatment: str = "opaque"
    """The effect of its operator on maps, by its row (growc.ir.notation.TREATMENTS)."""
    traits: frozenset[Trait] = frozenset()
    """The traits of its operator's row."""
    laws: Laws = Laws()
    """The other laws of its operator's row."""

    @property
    def addresses(self) -> list[Address]:
        """The operands that hold unit numbers."""
        return list(self.laws.addresses(self))

    @property
    def taken(self) -> Sequence[int]:
        """For an operator that moves elements: the operands whose elements the result has."""
        every = range(len(self.inputs))
        return every if self.has(JOIN) else every[:3:2] if self.has(WRITE) else every[:1]

    def has(self, *traits: Trait) -> bool:
        """Whether the operator has one of these traits."""
        return not self.traits.isdisjoint(traits)

    @property
    def kind(self) -> str:
        """The name of the operator in the model."""
        return self.part_of or self.op

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is an integer."""
        attribute = self.attributes.get(name, default)
        assert isinstance(attribute, int), name
        return attribute

    def real(self, name: str, default: float = 0.0) -> float:
        """An attribute that is a number."""
        attribute = self.attributes.get(name, default)
        assert isinstance(attribute, int | float), name
        return float(attribute)

    def integers(self, name: str) -> list[int] | None:
        """An attribute that is a list of integers; None where it is absent."""
        attribute = self.attributes.get(name)
        assert attribute is None or isinstance(attribute, Sequence), name
        return None if attribute is None else [int(i) for i in attribute]

    def array(self, name: str) -> Array | None:
        """An attribute that is a tensor; None where it is absent."""
        attribute = self.attributes.get(name)
        return None if attribute is None else np.asarray(attribute)

    @property
    def made_of(self) -> Sequence[Sequence[int]] | None:
        """For a node with a body: the operands that become elements of each result; None for others."""
        attribute = self.attributes.get("made_of")
        assert attribute is None or isinstance(attribute, tuple)
        return attribute

    def input(self, i: int) -> Value | None:
        """Operand i, or None where it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    def required(self, i: int) -> Value:
        """Operand i of an operator that always has it."""
        operand = self.inputs[i]
        assert operand is not None, i
        return operand

    @property
    def named_axes(self) -> list[int] | None:
        """The axes that the node names, by an attribute in old opsets and by operand 1 in new ones.

        None where it names none, or they are not known.
        """
        attribute, second = self.integers("axes"), self.input(1)
        if attribute is None and second is not None and second.known is not None:
            return [int(a) for a in second.known[0].reshape(-1)]
        return attribute

    def sources(self, result: Value) -> tuple[Value, ...]:
        """The operands that become elements of a result. For If, Loop and Scan these are not all operands."""
        made_of = self.made_of
        places = range(len(self.inputs)) if made_of is None else made_of[self.outputs.index(result)]
        return tuple(v for i in places if (v := self.inputs[i]) is not None)

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        """All values that the node uses, captured ones included."""
        return (*(v for v in self.inputs if v is not None), *self.captured)


class Dialect(Protocol):
    """The interface to the format that a graph was captured from."""

    def knows(self, op: str) -> bool:
        """Whether an operator has a row."""

    def line(self, node: Node, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> Line:
        """The row of a node's operator at these operands and results; opaque where it has none."""

    def outermost(self, node: Node) -> bool:
        """Whether a node is in no body of another node."""

    def evaluate(self, node: Node, operands: Sequence[Array | None]) -> Sequence[Array] | None:
        """The results of a node on these operands; None where they cannot be computed."""


@dataclass(eq=False)
class Graph:
    """Nodes in canonical topological order (independent of names and of the order in the file)."""

    __repr__ = brief

    nodes: list[Node]
    inputs: list[Value]
    outputs: list[Value]
    weights: list[Weight]
    dialect: Dialect
    states: list[tuple[Value, Value]] = field(default_factory=list)
    """Pairs (input, output): the input takes the value that the output had at the step before."""

    def values(self) -> Iterator[Value]:
        """Every value once: graph inputs, weight uses, results of nodes."""
        yield from self.inputs
        for node in self.nodes:
            for v in node.operands:
                if v.weight is not None:
                    yield v
            yield from node.outputs
        yield from self.given_out()

    def uses(self) -> Iterator[Value]:
        """Every use of a weight, in canonical order."""
        for node in self.nodes:
            yield from (v for v in node.operands if v.weight is not None)
        yield from self.given_out()

    def given_out(self) -> Iterator[Value]:
        """Yield the uses of weights that are outputs and have no other use."""
        yield from (v for v in self.outputs if v.weight is not None and not v.users)

    @cached_property
    def static(self) -> frozenset[Value]:
        """The values that no model input reaches: weights, and values made of weights alone.

        Sizes must be simulated before, since numbers that they make known count as weights.
        """
        static = {v for v in self.values() if v.weight is not None}
        for node in self.nodes:
            if all(v in static or v.known is not None for v in node.operands) and not static.isdisjoint(
                node.operands
            ):
                static.update(node.outputs)
        return frozenset(static)


def backward(value: Value, through: Callable[[Node], bool]) -> Value:
    """The value above all nodes that pass a test, along the first operand of each."""
    while (node := value.producer) is not None and node.inputs and through(node):
        if node.inputs[0] is None:
            break
        value = node.inputs[0]
    return value


def makers(values: Iterable[Value | None]) -> Iterator[Node]:
    """Yield the nodes whose results these values are."""
    yield from (v.producer for v in values if v is not None and v.producer is not None)


def used_by(values: Iterable[Value]) -> Iterator[Node]:
    """Yield the nodes that use these values in any way."""
    yield from (node for v in values for node, _ in v.users)


def readers(use: Value) -> set[Node]:
    """The nodes that a stored tensor reaches first, including the layout operators on the way."""
    return set(walk(used_by([use]), lambda node: used_by(node.outputs if node.chain else ())))
