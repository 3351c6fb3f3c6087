"""The neutral graph that the analysis works on: nodes, values, and one constant per use of a weight.

A dialect (growc.dialects.onnx) builds it from a model. Every operand that is a weight is a `Value` of its
own, so that merged initializers, shared scalars and tied embeddings are many values that name one
`Weight`: what must stay one is decided later, by growc.passes.axes.ties.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from growc.algebra.indexmap import Array, Bools, Ints
from growc.algebra.space import Size
from growc.algebra.unit_ranges import Range
from growc.errors.brief import brief
from growc.ir.notation import Line, Operand
from growc.ir.traits import JOIN, WRITE, Trait
from growc.ir.walk import walk

Index = tuple[slice | Ints, ...]
"""Of an array, as numpy takes it: slices, or numbers for each axis."""
Origin = Hashable
"""What a dialect has of its own for a value, a node or a stored tensor. Only the dialect looks into it."""


@dataclass(frozen=True, eq=False)
class Order:
    """The units of an axis, where they are others than are stored. units: the stored one that each is, -1
    where it is zero; stored: how many there are; name: of the axis."""

    axis: int
    units: Array
    stored: int
    name: str


@dataclass(frozen=True)
class Upcycled:
    """Of a mixture that a network of the source became: the number of the statement, that of the network
    among those of the statement, and which of its stored tensors it is. router: whether the source has no
    such tensor, since it scores experts. reads: whether its matrix reads the network's inner units.
    """

    statement: int
    network: int
    part: int
    router: bool = False
    reads: bool = False


@dataclass(eq=False)
class Weight:
    """A stored tensor of the model. `read` brings its values and is called only when they are needed."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], Array] = field(repr=False)
    origin: Origin | None = field(default=None, repr=False)
    stored: Origin | None = field(default=None, repr=False)
    """Where it is quantised: how (growc.plans.quantised.Quantised)."""
    computed: tuple[str, ...] = ()
    """The stored tensors that the model computes it from, if it does."""
    copy_of: str = ""
    """The tensor of the source that it comes from, where its layer has another place there."""
    zero: bool = False
    """Whether it is zero, so that a new layer adds nothing."""
    mean_of: tuple[str, ...] = ()
    """The tensors of the source of which it is the mean, where layers became one."""
    aliases: tuple[str, ...] = ()
    """Its other names in a module: a use that parts from it takes one of them."""
    assumed: bool = False
    """Whether it stands for what an operator is not given: the model stores no such tensor."""
    shift: float = 0.0
    """What the model adds to it wherever it is used (gains stored as their distance from one): maps act on
    the sum."""

    order: Order | None = None
    """What the units of an axis are of those that are stored: `shape` and `read` have them in this order."""
    upcycled: Upcycled | None = None
    """What it is of a mixture that a statement makes: `order` then says that experts are copies of one."""
    known: bool = True
    """Whether there are values: of a config by itself, sizes are all that is there."""
    some: Callable[[Index], Array] | None = field(default=None, repr=False)
    """Brings the values at an index of numpy without the others, where that is possible."""

    def at(self, index: Index) -> Array:
        """The values at an index of numpy."""
        return self.reader()(index)

    def reader(self) -> Callable[[Index], Array]:
        """What brings the values at one index after the other; where it brings all, it does so once."""
        if self.some is not None:
            return self.some
        whole = self.read()
        return lambda index: np.asarray(whole[index])

    @property
    def root(self) -> str:
        """The name of the source's tensor that it is or comes from."""
        return self.copy_of or self.name

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Its sizes in the source."""
        if self.order is None:
            return self.shape
        return tuple(self.order.stored if k == self.order.axis else n for k, n in enumerate(self.shape))

    @property
    def elements(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def floating(self) -> bool:
        """Whether it holds real or complex numbers."""
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
        """What it is but for its layout: the use of a stored tensor, if it is one that is on its way."""
        return backward(self, lambda node: node.chain)

    @property
    def reader(self) -> Node | None:
        """The node that reads a stored tensor, behind the layout operators on its way to this use."""
        for user, _ in self.users[:1]:
            return user.outputs[0].reader if user.chain else user
        return None


Operands = Mapping[int, Range]
"""The ranges of operands, by their numbers: those that have an element for each unit."""

Image = Callable[["Node", Operands, Bools], Range]
"""A rule for ranges. The last argument: rows that are in the domain of the operator, as means of what is."""


Bound = Sequence["Value | float"]
"""The largest, or the least, of these."""


class Clamp(NamedTuple):
    """The largest of some values and numbers, then the least of that and others."""

    largest: Bound
    least: Bound = ()

    def beside(self, operand: Value | None) -> tuple[Bound, Bound] | None:
        """The bounds below and above one of the values that the others are; None where several of them make
        one bound.
        """
        low, high = ([x for x in side if x is not operand] for side in self)
        if operand in self.largest:
            return low, high
        return ([], [*low, *high]) if len(low) == 1 else None


class Address(NamedTuple):
    """An operand that holds numbers of the units of an axis: of operand 0, or of the result.

    column: which element of its last axis they are, where that has one for each of several axes. end: whether
    a run of units starts or ends there.
    """

    operand: int
    axis: int
    result: bool = False
    column: int | None = None
    end: bool = False


@dataclass(frozen=True)
class Laws:
    """What an operator's row states of the values of its results, beside its traits (docs/theory.md)."""

    image: Image | None = None
    """What it makes of the ranges of units."""
    increasing: bool = False
    """Of one operand: no result falls where the operand grows."""
    clamp: Callable[[Node], Clamp] | None = None
    """Which values and numbers each element is the largest and the least of, at its place."""
    keeps: tuple[float, float] | None = None
    """Between these bounds lie all results, and numbers between them stay as they are."""
    again: bool = False
    """f(f(x)) = f(x), where the other operands are the same."""
    puts: tuple[float, ...] | None = None
    """With `again`: f leaves an element as it is, or puts one of these in its place; None: or others."""
    signs: frozenset[int] = frozenset()
    """A comparison is true where the sign of operand 0 − operand 1 is one of these."""
    implies: Mapping[bool, bool] = field(default_factory=dict)
    """Where a condition is the one, all its operands are the other."""
    least: bool = False
    """Of an extreme along axes: it is the least element, not the largest."""
    with_zero: bool = False
    """Of an extreme along axes: it is one of the elements and zero."""
    addresses: Callable[[Node], Iterable[Address]] = lambda node: ()
    """Which operands hold numbers of units."""
    mixes: bool = False
    """It is linear along an axis, of which some element of a result depends on all."""
    constant: Callable[[Node], Array] | None = None
    """The one number that every element of a result is."""
    shape: int | None = None
    """The operand that lists the sizes of the result."""
    scales: int | None = None
    """The operand that lists by how much each axis grows."""


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
    """Values that a body of this node (If, Loop, Scan) takes from the scope around it."""
    guards: tuple[tuple[Value, bool], ...] = ()
    """For a node in a branch: the conditions under which it runs."""
    chain: bool = False
    """Whether it carries a weight to one use: other uses of the weight have their own copy of it."""
    part_of: str = ""
    """The operator of the model that it is a part of, where that was taken apart."""
    treatment: str = "opaque"
    """What its operator does to maps, by its row (growc.ir.notation.TREATMENTS)."""
    traits: frozenset[Trait] = frozenset()
    """The laws that its operator's row states of what it makes."""
    laws: Laws = Laws()
    """What its operator's row states besides."""

    @property
    def addresses(self) -> list[Address]:
        """Its operands that hold numbers of units."""
        return list(self.laws.addresses(self))

    @property
    def taken(self) -> Sequence[int]:
        """Of an operator that moves elements: the operands whose elements it gives."""
        every = range(len(self.inputs))
        return every if self.has(JOIN) else every[:3:2] if self.has(WRITE) else every[:1]

    def has(self, *traits: Trait) -> bool:
        """Whether one of these laws holds of what it makes."""
        return not self.traits.isdisjoint(traits)

    @property
    def kind(self) -> str:
        """The operator as the model has it."""
        return self.part_of or self.op

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is a whole number."""
        found = self.attributes.get(name, default)
        assert isinstance(found, int), name
        return found

    def real(self, name: str, default: float = 0.0) -> float:
        """An attribute that is a number."""
        found = self.attributes.get(name, default)
        assert isinstance(found, int | float), name
        return float(found)

    def integers(self, name: str) -> list[int] | None:
        """An attribute that is a list of whole numbers; None where it is absent."""
        found = self.attributes.get(name)
        assert found is None or isinstance(found, Sequence), name
        return None if found is None else [int(i) for i in found]

    def array(self, name: str) -> Array | None:
        """An attribute that is a tensor; None where it is absent."""
        found = self.attributes.get(name)
        return None if found is None else np.asarray(found)

    @property
    def made_of(self) -> Sequence[Sequence[int]] | None:
        """Around a body: for each result the operands that become its elements."""
        found = self.attributes.get("made_of")
        assert found is None or isinstance(found, tuple)
        return found

    def input(self, i: int) -> Value | None:
        """Operand i, or None where it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    def required(self, i: int) -> Value:
        """Operand i of an operator that always has it."""
        found = self.inputs[i]
        assert found is not None, i
        return found

    @property
    def named_axes(self) -> list[int] | None:
        """The axes that it names, by an attribute in old opsets and by operand 1 in new ones.

        None where it names none, or none that are known.
        """
        given, second = self.integers("axes"), self.input(1)
        if given is None and second is not None and second.known is not None:
            return [int(a) for a in second.known[0].reshape(-1)]
        return given

    def sources(self, result: Value) -> tuple[Value, ...]:
        """The operands that become elements of a result: not all, around bodies of If, Loop and Scan."""
        made_of = self.made_of
        places = range(len(self.inputs)) if made_of is None else made_of[self.outputs.index(result)]
        return tuple(v for i in places if (v := self.inputs[i]) is not None)

    @property
    def operands(self) -> Iterator[Value]:
        """All values that the node uses, captured ones included."""
        yield from (v for v in self.inputs if v is not None)
        yield from self.captured


class Dialect(Protocol):
    """What is asked of the format that a graph was captured from."""

    def knows(self, op: str) -> bool:
        """Whether an operator has a row."""

    def line(self, node: Node, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> Line:
        """The row of a node's operator at these operands and results; opaque where it has none."""

    def outermost(self, node: Node) -> bool:
        """Whether a node stands in no body."""

    def evaluate(self, node: Node, operands: Sequence[Array | None]) -> Sequence[Array] | None:
        """What a node makes of these operands; None where that cannot be told."""


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
    """Inputs that take what an output of the step before gave, each with that output."""

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
        """The uses of weights that are outputs and nothing else."""
        yield from (v for v in self.outputs if v.weight is not None and not v.users)


def static_values(graph: Graph) -> set[Value]:
    """Values that no model input reaches: weights and what is made of them alone."""
    found = {v for v in graph.values() if v.weight is not None}
    for node in graph.nodes:
        operands = list(node.operands)
        if (
            operands
            and all(v in found or v.known is not None for v in operands)
            and any(v in found for v in operands)
        ):
            found.update(node.outputs)
    return found


def backward(value: Value, through: Callable[[Node], bool]) -> Value:
    """The value behind nodes that pass a test, along the first operand of each."""
    while (node := value.producer) is not None and node.inputs and through(node):
        if node.inputs[0] is None:
            break
        value = node.inputs[0]
    return value


def makers(values: Iterable[Value | None]) -> Iterator[Node]:
    """The nodes whose results these are."""
    yield from (v.producer for v in values if v is not None and v.producer is not None)


def used_by(values: Iterable[Value]) -> Iterator[Node]:
    """The nodes that use these in any way."""
    yield from (node for v in values for node, _ in v.users)


def readers(use: Value) -> set[Node]:
    """The nodes that a stored tensor reaches first, the layout operators on the way included."""
    return set(walk(used_by([use]), lambda node: used_by(node.outputs if node.chain else ())))
