"""Find by trial, on random numbers, where a network's tensors stand in the tensors of experts.

Needs: a network of the source, and the region of a mixture that must compute the same. Gives: for each
stored tensor of the region, the network's tensors that it holds, or that it is the router or zero.

Kinds of axes determine a tensor's orientation. Several tensors in one may stand in any order, one after
another or interleaved; these ways are tried. With random weights in their places and any router, the mixture
must compute what the network does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from growc.algebra.indexmap import Array, Ints
from growc.algebra.space import Space, atoms_of
from growc.checkpoint.mixtures.region import Region
from growc.ir.graph import Value
from growc.ir.lowered_statement import Sizes
from growc.passes.axes.routing import fewest
from growc.passes.compilation import Analysis
from growc.passes.edits import Mixture
from growc.passes.upcycling.network_units import unit_numbers

CLOSE = 1e-4
"""Largest difference that counts as rounding, relative to the largest number of the expected result."""

EXPERT, INNER, OUTER = "efh"
"""Kinds of axes: experts, inner units of a network, and units that a network reads or makes."""


class UnplacedError(Exception):
    """No tensors of a mixture can hold those of a network; the message says why."""


@dataclass(frozen=True)
class Parts:
    """A stored tensor of a network, and the part of it that each expert has.

    kinds: a letter for each axis. whole: the tensor's shape. units: the unit of each element along the axis
    of inner units; None where there is no such axis. count: how many experts are one copy together. factor:
    the factor of each part.
    """

    name: str
    kinds: str
    whole: tuple[int, ...]
    units: Ints | None
    count: int
    factor: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what one expert has."""
        inner = [1 if kind != INNER else self.count for kind in self.kinds]
        return tuple(size // parts for size, parts in zip(self.whole, inner, strict=True))

    def stack(self, tensor: Array, experts: int) -> Array:
        """The parts that experts have of a tensor, with experts along the first axis."""
        if self.units is None or self.count == 1:
            return np.broadcast_to(tensor, (experts, *tensor.shape))
        size, axis = (int(self.units.max()) + 1) // self.count, self.kinds.index(INNER)
        own = [np.flatnonzero(self.units // size == part) for part in range(self.count)]
        cut = [tensor.take(places, axis) * self.factor for places in own]
        return np.stack([cut[e % self.count] for e in range(experts)])


@dataclass(frozen=True)
class Kinds:
    """The kinds of the axes of a model's tensors."""

    analysis: Analysis

    def of(self, use: Value) -> str:
        """A letter for the kind of each axis of a stored tensor."""
        axes = self.analysis.axes
        kinds = ""
        for space in axes.of(use):
            atoms = set(atoms_of([space]))
            atoms_by_kind = (EXPERT, self.named("experts")), (INNER, self.named("ffn"))
            kinds += next((kind for kind, role_atoms in atoms_by_kind if atoms & role_atoms), OUTER)
        return kinds

    def parts(self, mixture: Mixture, use: Value) -> Parts:
        """The part that each expert of a mixture has of a stored tensor of its network."""
        assert use.weight is not None
        kinds, spaces = self.of(use), self.analysis.axes.of(use)
        named = self.named("ffn")
        inner = [(space, atom) for space in spaces for atom in atoms_of([space]) if atom in named]
        units = unit_numbers(*inner[0], Sizes()) if inner else None
        factor = mixture.parts if use in mixture.network.scales else 1
        return Parts(use.weight.name, kinds, use.weight.shape, units, mixture.parts, factor)

    def named(self, name: str) -> set[Space]:
        """The atoms of the axes of a role."""
        return set(atoms_of(s for axis in self.analysis.roles.axes.get(name, ()) for s in axis.spaces))


@dataclass(frozen=True)
class MixtureTensor:
    """The contents of a mixture's tensor.

    numbers: the tensors of the network in it, in order; if empty, it is zero. turns: whether these are
    interleaved rather than concatenated. router: whether it scores experts. kinds: the kinds of its axes.
    sources: the kinds of the network tensors' axes.
    """

    kinds: str
    shape: tuple[int, ...]
    numbers: tuple[int, ...] = ()
    turns: bool = False
    router: bool = False
    sources: tuple[str, ...] = ()

    def filled(self, stacks: Mapping[int, Array], router: Array) -> Array:
        """The tensor's values.

        stacks: by number, a network's tensor for each expert. router: scores, with outer units on the first
        axis.
        """
        if self.router:
            return np.ascontiguousarray(router if self.kinds == OUTER + EXPERT else router.T)
        if not self.numbers:
            return np.zeros(self.shape, np.float32)
        parts = [self.turned(stacks[k], source) for k, source in zip(self.numbers, self.sources, strict=True)]
        along = self.along
        if not self.turns:
            return np.concatenate(parts, axis=along)
        interleaved = np.stack(parts, axis=along + 1)
        return interleaved.reshape(self.shape)

    @property
    def along(self) -> int:
        """The number of the axis along which several tensors stand."""
        return self.kinds.index(INNER) if INNER in self.kinds else self.kinds.index(OUTER)

    def turned(self, stack: Array, source: str) -> Array:
        """One tensor of every expert with its axes in the order of this tensor."""
        stack_kinds = EXPERT + source
        return stack.transpose([stack_kinds.index(kind) for kind in self.kinds])


def places(
    region: Region, kinds: Kinds, sources: Sequence[tuple[str, tuple[int, ...]]], state: Collection[str]
) -> Iterator[dict[str, MixtureTensor]]:
    """Every way to hold the tensors of a network, given by kinds and shapes.

    Raises UnplacedError if there is none.
    """
    routers = {v.weight.name for v in kinds.analysis.roles.routers if v.weight is not None}
    uses = [v for v in region.uses if v.weight is not None and v.weight.name in state]
    empty = {v.weight.name: MixtureTensor(kinds.of(v), v.weight.shape) for v in uses if v.weight is not None}
    fixed: dict[str, MixtureTensor] = {}
    slots: list[list[tuple[str, int]]] = []
    for name, place in empty.items():
        if name in routers and sorted(place.kinds) == [EXPERT, OUTER]:
            fixed[name] = MixtureTensor(place.kinds, place.shape, router=True)
        elif place.kinds == EXPERT:
            fixed[name] = place
        elif EXPERT not in place.kinds:
            raise UnplacedError(f"`{name}` is no expert's")
        else:
            slots.append([(name, k) for k in range(_count(name, place, sources))])
    flat = [slot for group in slots for slot in group]
    if sum(place.router for place in fixed.values()) != 1 or len(flat) != len(sources):
        raise UnplacedError(f"it has {len(flat)} places for {len(sources)} tensors of a network")
    several = [group[0][0] for group in slots if len(group) > 1]
    for order in permutations(range(len(sources))):
        assignment = dict(zip(flat, order, strict=True))
        if not all(_fits(empty[name], sources[k]) for (name, _), k in assignment.items()):
            continue
        for turns in product((False, True), repeat=len(several)):
            contents = dict(fixed)
            for group in slots:
                name = group[0][0]
                numbers = tuple(assignment[slot] for slot in group)
                own_kinds = tuple(sources[k][0] for k in numbers)
                interleaved = dict(zip(several, turns, strict=True)).get(name, False)
                contents[name] = MixtureTensor(
                    empty[name].kinds, empty[name].shape, numbers, interleaved, sources=own_kinds
                )
            yield contents


def _count(name: str, place: MixtureTensor, sources: Sequence[tuple[str, tuple[int, ...]]]) -> int:
    """The number of a network's tensors that a tensor holds.

    Raises UnplacedError if it holds none.
    """
    own_sizes = _sizes(place.kinds, place.shape)
    for kinds, shape in sources:
        size = dict(zip(kinds, shape, strict=True))
        if set(kinds) == own_sizes.keys() - {EXPERT} and all(
            own_sizes[kind] % size[kind] == 0 for kind in kinds
        ):
            return int(np.prod([own_sizes[kind] // size[kind] for kind in kinds]))
    raise UnplacedError(f"`{name}` {list(place.shape)} holds no tensor of a network")


def _sizes(kinds: str, shape: Sequence[int]) -> Mapping[str, int]:
    return dict(zip(kinds, shape, strict=True))


def _fits(place: MixtureTensor, source: tuple[str, tuple[int, ...]]) -> bool:
    own_sizes, size = _sizes(place.kinds, place.shape), _sizes(*source)
    return size.keys() == own_sizes.keys() - {EXPERT} and all(
        own_sizes[kind] == n or (kind == place.kinds[place.along] and own_sizes[kind] % n == 0)
        for kind, n in size.items()
    )


def chosen(region: Region, analysis: Analysis) -> set[int]:
    """The numbers of experts that the rankings in a region choose."""
    return {fewest(node) for node in region.nodes if node in analysis.axes.ranked}


def computes_the_same(
    network: Region, parts: Sequence[Parts], mixture: Region, contents: Mapping[str, MixtureTensor]
) -> bool:
    """Whether a mixture of equal experts computes what the network does, for random scores of experts."""
    random = np.random.default_rng(0)
    x = random.standard_normal([size[0] for size in network.input.sizes or ()]).astype(np.float32)
    tensors = {
        one.name: (random.standard_normal(one.whole) / np.sqrt(one.whole[-1])).astype(np.float32)
        for one in parts
    }
    expected = network.computed(x, tensors)
    router = next(place for place in contents.values() if place.router)
    count = _sizes(router.kinds, router.shape)[EXPERT]
    stacks = {k: one.stack(tensors[one.name], count) for k, one in enumerate(parts)}
    copies = random.standard_normal((x.shape[-1], count // parts[0].count)).astype(np.float32)
    scores = copies.repeat(parts[0].count, axis=1)
    actual = mixture.computed(x, {name: place.filled(stacks, scores) for name, place in contents.items()})
    if expected is None or actual is None or expected.shape != actual.shape:
        return False
    return bool(np.abs(actual - expected).max() <= CLOSE * np.abs(expected).max())
