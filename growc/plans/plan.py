"""The plan: pure data. What becomes of every weight and attribute, and what can be claimed of the result.

A plan is printed, costed, certified and stored as JSON without reading a weight; executing it streams the
weights through `growc.plans.execute.execute` once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

import numpy as np

from growc.algebra.indexmap import Bools, Floats, IndexMap, Ints
from growc.errors.brief import brief
from growc.errors.shown import Shown
from growc.ir.graph import FLOATING, Node
from growc.resolve.bound import Decision

# What a row that is no copy becomes.
ZERO, MEAN, DRAWN, ONE, CONTINUED = range(5)


@dataclass(frozen=True, eq=False)
class Noise:
    """Gaussian noise on rows of one axis of a weight, in units of the source tensor's standard deviation.

    `rows` says which rows get it. Where `balance` is given (one factor a row, as the row arrives), the noise
    is projected so that over the rows with one `group` the sum of noise times balance vanishes.
    """

    __repr__ = brief

    key: int
    scale: float
    rows: Bools
    groups: Ints
    balance: Floats | None = None


@dataclass(frozen=True, eq=False)
class Within:
    """Units inside the rows of one axis of a weight, where each row takes others.

    index: for each row and each place in it, the unit of the same row that comes there, -1 where none does;
    shape (rows, size). behind: how many elements stand side by side for one unit; a row is a run of blocks of
    (size, behind) elements. Places with index -1 become what `filler` says. All numbers of `key` are drawn
    for whole rows, with the source tensor's mean and standard deviation.
    """

    __repr__ = brief

    index: Ints
    behind: int
    filler: int = ZERO
    key: int = 0

    @property
    def moves(self) -> bool:
        """Whether every place holds a unit of the row."""
        return bool((self.index >= 0).all())

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for those that do the same."""
        return self.index.tobytes(), self.behind, self.filler, self.key


@dataclass(frozen=True, eq=False)
class LeafStep:
    """What happens to one factor or segment of an axis: new row j is weight[j] times old row index[j].

    Rows with index -1 become what `filler` says: zeros, the mean of all old rows times weight, drawn with the
    source tensor's standard deviation times weight under `key` (or as `std` and `around_mean` say), or ones.
    Arrays have the new size.
    """

    __repr__ = brief

    before: int
    index: Ints
    weight: Floats
    filler: Ints
    key: int = 0
    noise: Noise | None = None
    block: int = 1
    """Means are taken over the rows that stand at the same place in blocks of so many."""
    factors: str = ""
    """The stored tensor whose elements old rows are multiplied by in means, one for each."""
    free: bool = False
    """Whether nothing depends on rows with index -1 being the means that they are."""
    std: float | None = None
    """The standard deviation of what is drawn, if not the source tensor's; zeros stay zeros."""
    around_mean: bool = False
    """Whether what is drawn has the source tensor's mean, and not 0."""
    within: Within | None = None
    """What happens inside the new rows, before noise is added."""

    @property
    def even(self) -> bool:
        """Whether all elements of a row are those of one old row, or of none, without noise."""
        return self.noise is None and self.within is None

    @property
    def after(self) -> int:
        """The new size."""
        return len(self.index)

    @property
    def is_identity(self) -> bool:
        """Whether nothing changes."""
        return (
            self.after == self.before
            and self.even
            and bool((self.index == np.arange(self.before)).all())
            and bool((self.weight == 1).all())
        )

    @property
    def moves(self) -> bool:
        """Whether every new row is an old one, or zero."""
        copies = self.index >= 0
        as_they_are = bool((self.weight[copies] == 1).all() and (self.filler[~copies] == ZERO).all())
        inside = self.within is None or self.within.moves
        return as_they_are and self.noise is None and inside

    def as_map(self) -> IndexMap:
        """Its map; rows that are no copy are junk or zero."""
        junk = (self.index < 0) & (self.filler != ZERO)
        return IndexMap.of(self.before, self.index, self.weight, None, junk)

    @staticmethod
    def keep(size: int) -> LeafStep:
        """The step that changes nothing."""
        return LeafStep(size, np.arange(size), np.ones(size), np.zeros(size, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Layout:
    """How an axis is made of factors or segments; leaves carry a step."""

    __repr__ = brief

    kind: str  # leaf, product, sum
    parts: tuple[Layout, ...] = ()
    step: LeafStep | None = None

    @property
    def before(self) -> int:
        """The old size."""
        return self._size("before")

    @property
    def after(self) -> int:
        """The new size."""
        return self._size("after")

    def _size(self, which: str) -> int:
        if self.step is not None:
            return int(getattr(self.step, which))
        sizes = [getattr(p, which) for p in self.parts]
        return int(np.prod(sizes)) if self.kind == "product" else int(sum(sizes))

    @property
    def is_identity(self) -> bool:
        """Whether nothing changes."""
        return all(p.is_identity for p in self.parts) if self.step is None else self.step.is_identity

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for layouts that do the same."""
        if self.step is None:
            return (self.kind, *(p.signature for p in self.parts))
        s, n = self.step, self.step.noise
        arrays = (s.index.tobytes(), s.weight.tobytes(), s.filler.tobytes(), s.std, s.around_mean)
        within = () if s.within is None else s.within.signature
        if n is None:
            return (*arrays, *within, s.key, s.block, s.factors)
        balance = b"" if n.balance is None else n.balance.tobytes()
        return (*arrays, *within, s.key, s.block, s.factors, n.key, n.scale, n.rows.tobytes(), balance)

    def as_map(self) -> IndexMap:
        """The whole axis's map; rows that are no copy are junk or zero."""
        if self.step is not None:
            return self.step.as_map()
        maps = [p.as_map() for p in self.parts]
        return IndexMap.concat(maps) if self.kind == "sum" else reduce(IndexMap.kron, maps)


@dataclass(frozen=True, eq=False)
class NextLayer:
    """The tensor that new units come from: its name, and what was done to it before."""

    __repr__ = brief

    source: str
    steps: tuple[AxisStep, ...] = ()

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for tensors that are the same."""
        return (self.source, *(s.signature for s in self.steps))


@dataclass(frozen=True, eq=False)
class AxisStep:
    """One statement's effect on one axis of a weight."""

    __repr__ = brief

    axis: int
    layout: Layout
    verb: str  # makes, reads, scales
    name: str = ""
    """The axis as the statement names it."""
    next: NextLayer | None = None
    """Where second and later copies of a unit come from, if not from this weight."""

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for steps that do the same."""
        return (self.axis, self.layout.signature, None if self.next is None else self.next.signature)


@dataclass(frozen=True, eq=False)
class Normed:
    """How a stored tensor is part of a weight that is computed as direction · length / ‖direction‖.

    part: which of both it is. direction, length: the stored tensors. axes: of the weight, over which norms
    are taken. steps: what becomes of the weight, in order. zero: whether it is zero, as in a new layer.
    """

    __repr__ = brief

    part: Literal["direction", "length"]
    direction: str
    length: str
    axes: tuple[int, ...]
    steps: tuple[AxisStep, ...]
    zero: bool = False


def attribute_of(name: str) -> str:
    """The name under which a module stores a weight that the source computes, and has no name for."""
    return "growc_" + "".join(c if c.isalnum() else "_" for c in name)


@dataclass(frozen=True, eq=False)
class WeightPlan:
    """What becomes of one stored tensor (or of one copy of it, where uses part): steps in order."""

    __repr__ = brief

    name: str
    source: str
    dtype: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    steps: tuple[AxisStep, ...]
    scale: float = 1.0
    """The factor of all values: of eps constants, and of weights that are rescaled."""
    literal: tuple[int | float | bool, ...] | None = None
    """Only for tables that are continued by a rule: the new values, flat."""
    copy_of: str = ""
    """The tensor of the source that it comes from, where its layer has another place there."""
    zero: bool = False
    """Whether it is zero, so that a new layer adds nothing."""
    shift: float = 0.0
    """What the model adds to it wherever it is used: steps act on the sum."""
    stored: bool = False
    """Whether the source computes it from tensors that change, and the result stores it as it was."""
    normed: Normed | None = None
    """Where it is part of a computed weight that changes: `steps` say what of that is on its own axes."""
    made_of: tuple[str, ...] = ()
    """The stored tensors that the source computes it from, where the result stores it instead of them."""
    mean_of: tuple[str, ...] = ()
    """The tensors of the source of which it is the mean before any step, where layers became one."""
    new: bool = False
    """Whether the source has no such tensor: zeros stand for it, and a statement says its deviation."""

    @property
    def changed(self) -> bool:
        """Whether the result has other values than the source, or other sizes."""
        return self._made or self.stored or bool(self.copy_of) or self.name != self.source

    @property
    def worth_telling(self) -> bool:
        """Whether a reader of the plan sees it: what changes, but for numbers that only went with a layer."""
        learned = self.dtype in FLOATING and self.elements > 1
        return self.changed and (learned or self._made or not self.copy_of)

    @property
    def _made(self) -> bool:
        """Whether its values are others than those of the tensor that it comes from."""
        own = self.literal is not None or self.normed is not None or bool(self.mean_of)
        return bool(self.steps) or self.scale != 1.0 or own

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return int(np.prod(self.after, dtype=np.int64))


@dataclass(frozen=True)
class Gap:
    """One place where the result is not exactly the source: node, cause, and what would mend it."""

    node: str
    op: str
    cause: str
    help: str = ""

    @staticmethod
    def at(node: Node | None, cause: str, remedy: str = "") -> Gap:
        """A gap at a node of the source, where it is one node's."""
        return Gap("" if node is None else node.name, "" if node is None else node.kind, cause, remedy)


@dataclass(frozen=True)
class Certificate(Shown):
    """What the compiler proved: exact, or every gap."""

    __repr__ = brief

    gaps: tuple[Gap, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether there is no gap."""
        return not self.gaps


@dataclass(frozen=True)
class AxisChange:
    """One name of the recipe, before and after; sizes in topological order."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Summary:
    """A line of the plan's head: what a statement does to an axis, in how many index spaces.

    removed: for each run the layers that go, as they were numbered before the statement.
    """

    __repr__ = brief

    axis: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    note: str = ""
    spaces: int = 0
    removed: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Gone:
    """A stored tensor of the source that nothing in the result comes from."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Alike:
    """An axis of the result on which units get equal gradients for ever, dropout aside, or none at all.

    units: how many there are; different: how many, if those that are alike count once; dead: how many are
    zero behind zero readers (these count among the different ones). layer: the one that the axis belongs to,
    in its `scope`; None where it belongs to none, or to several. remedy: what would tell the units apart.
    """

    axis: str
    units: int
    different: int
    dead: int = 0
    scope: str = ""
    layer: int | None = None
    remedy: str = ""


SHOWN = 9
"""The most sizes, and axes, in a repr."""


def _few(sizes: tuple[int, ...]) -> str:
    return "/".join(map(str, sizes[:SHOWN])) + ("/…" if len(sizes) > SHOWN else "")


@dataclass
class Plan(Shown):
    """Everything that will happen to a model, and what is claimed of it."""

    model: str
    certificate: Certificate
    axes: dict[str, AxisChange]
    summaries: tuple[Summary, ...]
    weights: tuple[WeightPlan, ...]
    parameters: tuple[int, int]
    bytes_to_write: int
    warnings: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str, float], ...] = ()
    notes: tuple[str, ...] = field(default=())
    alike: tuple[Alike, ...] = ()
    gone: tuple[Gone, ...] = ()
    decided: tuple[Decision, ...] = ()
    """What the budgets of the recipe came to, in order."""

    def __repr__(self) -> str:
        """What becomes of the sizes, and whether that is exact."""
        changed = [(name, c) for name, c in self.axes.items() if c.before != c.after][:SHOWN]
        sizes = [f"{name} {_few(c.before)} -> {_few(c.after)}" for name, c in changed]
        exact = "exact" if self.certificate.exact else "not exact"
        before, after = self.parameters
        return f"<Plan of {self.model[:80]}: {', '.join([exact, *sizes])}; {before} -> {after} parameters>"

    @property
    def later_copies(self) -> frozenset[str]:
        """Weights of new layers, and of heads that parted: what they come from stands there before."""
        seen: set[str] = set()
        found: set[str] = set()
        for weight in self.weights:
            origin = weight.copy_of or weight.source
            if origin in seen:
                found.add(weight.name)
            seen.add(origin)
        return frozenset(found)

    @property
    def reduces(self) -> bool:
        """Whether a statement leaves less of something."""
        return any(a > b for s in self.summaries for a, b in zip(s.before, s.after, strict=True))
