"""The plan: pure data on the changes of every weight and attribute, and on the claims about the result.

A plan is printed, costed, certified and stored as JSON without reading a weight. Executing it streams the
weights through `growc.plans.execute.execute` once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from math import prod
from typing import Literal

import numpy as np

from growc.algebra.indexmap import Bools, Floats, IndexMap, Ints
from growc.errors.display import Shown
from growc.errors.short_repr import brief
from growc.ir.graph import FLOATING, Node
from growc.resolve.bound import Decision

# The values of `filler`: the content of a row that is no copy.
ZERO, MEAN, DRAWN, ONE, CONTINUED = range(5)


@dataclass(frozen=True, eq=False)
class Noise:
    """Gaussian noise on rows of one axis of a weight, in units of the source tensor's standard deviation.

    `rows` says which rows get it. If `balance` is given (for each row the factor with which the row arrives),
    the noise is projected: over the rows of one group (`groups`), the sum of noise times balance is zero.
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
    """The change of one factor or segment of an axis: new row j is weight[j] times old row index[j].

    Rows with index -1 become what `filler` says:

    - ZERO: zeros.
    - MEAN: the mean of all old rows times weight.
    - DRAWN: drawn with the source tensor's standard deviation times weight under `key` (or as `std` and
      `around_mean` say).
    - ONE: ones.
    - CONTINUED: the rows that continue a sinusoidal table.

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
    """The size of blocks. Means are taken over the rows that have the same place in blocks."""
    factors: str = ""
    """The stored tensor whose elements multiply old rows in means, one for each row."""
    free: bool = False
    """Whether nothing depends on the values of mean rows (index -1)."""
    std: float | None = None
    """The standard deviation of drawn rows, if not the source tensor's. Zero tensors stay zero."""
    around_mean: bool = False
    """Whether drawn rows have the source tensor's mean, and not 0."""
    within: Within | None = None
    """Units that stand elsewhere in the new rows, or are drawn there; noise is added afterwards."""

    @property
    def even(self) -> bool:
        """Whether all elements of a row come from one old row, or from none, without noise."""
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
        """The index map of the step. Rows that are no copy are junk or zero."""
        junk = (self.index < 0) & (self.filler != ZERO)
        return IndexMap.of(self.before, self.index, self.weight, None, junk)

    @staticmethod
    def keep(size: int) -> LeafStep:
        """The step that changes nothing."""
        return LeafStep(size, np.arange(size), np.ones(size), np.zeros(size, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Layout:
    """The factors or segments of an axis, as a tree. Each leaf has a step."""

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
        return int(prod(sizes)) if self.kind == "product" else int(sum(sizes))

    @property
    def is_identity(self) -> bool:
        """Whether nothing changes."""
        return all(p.is_identity for p in self.parts) if self.step is None else self.step.is_identity

    @property
    def signature(self) -> tuple[object, ...]:
        """A key that is equal for layouts with the same effect."""
        if self.step is None:
            return (self.kind, *(p.signature for p in self.parts))
        s, n = self.step, self.step.noise
        arrays = (s.before, s.index.tobytes(), s.weight.tobytes(), s.filler.tobytes(), s.std, s.around_mean)
        within = () if s.within is None else s.within.signature
        if n is None:
            return (*arrays, *within, s.key, s.block, s.factors)
        balance = b"" if n.balance is None else n.balance.tobytes()
        noise = (n.key, n.scale, n.rows.tobytes(), n.groups.tobytes(), balance)
        return (*arrays, *within, s.key, s.block, s.factors, *noise)

    def as_map(self) -> IndexMap:
        """The index map of the whole axis. Rows that are no copy are junk or zero."""
        if self.step is not None:
            return self.step.as_map()
        maps = [p.as_map() for p in self.parts]
        return IndexMap.concat(maps) if self.kind == "sum" else reduce(IndexMap.kron, maps)


@dataclass(frozen=True, eq=False)
class NextLayer:
    """The tensor that new units come from: its name, and its steps before."""

    __repr__ = brief

    source: str
    steps: tuple[AxisStep, ...] = ()

    @property
    def signature(self) -> tuple[object, ...]:
        """A key that is equal for tensors with the same values."""
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
    """The tensor that second and later copies of a unit come from, if not this weight."""

    @property
    def signature(self) -> tuple[object, ...]:
        """A key that is equal for steps with the same effect."""
        return (self.axis, self.layout.signature, None if self.next is None else self.next.signature)


@dataclass(frozen=True, eq=False)
class WeightNormRole:
    """The role of a stored tensor in a weight that is computed as direction · length / ‖direction‖.

    part: the factor that the tensor is. direction, length: the stored tensors. axes: the weight's axes over
    which norms are taken. steps: the steps of the weight, in order. zero: whether the weight is zero, as in a
    new layer.
    """

    __repr__ = brief

    part: Literal["direction", "length"]
    direction: str
    length: str
    axes: tuple[int, ...]
    steps: tuple[AxisStep, ...]
    zero: bool = False


def attribute_of(name: str) -> str:
    """The name under which a module stores a weight that the source computes without a name."""
    return "growc_" + "".join(c if c.isalnum() else "_" for c in name)


@dataclass(frozen=True, eq=False)
class WeightPlan:
    """The plan of one stored tensor, or of one copy of it where its uses get different values.

    steps: its steps in order.
    """

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
    """The tensor of the source that it comes from, if its layer has another place in the source."""
    zero: bool = False
    """Whether it is zero, so that a new layer adds nothing."""
    shift: float = 0.0
    """The number that the model adds to it wherever it is used. Steps act on the sum."""
    stored: bool = False
    """Whether the source computes it from tensors that change, and the result stores it as it was."""
    normed: WeightNormRole | None = None
    """Set if it is part of a computed weight that changes. Then `steps` are those on its own axes."""
    made_of: tuple[str, ...] = ()
    """The stored tensors that the source computes it from, if the result stores it instead of them."""
    mean_of: tuple[str, ...] = ()
    """The tensors of the source whose mean it is before any step, if layers were merged."""
    new: bool = False
    """Whether the source lacks such a tensor. Zeros stand for it, and a statement gives its deviation."""

    @property
    def changed(self) -> bool:
        """Whether the result has other values than the source, or other sizes."""
        return self._made or self.stored or bool(self.copy_of) or self.name != self.source

    @property
    def worth_telling(self) -> bool:
        """Whether a printed plan lists it: it changes, and not as a number that only moves with its layer."""
        learned = self.dtype in FLOATING and self.elements > 1
        return self.changed and (learned or self._made or not self.copy_of)

    @property
    def _made(self) -> bool:
        """Whether its values differ from those of the tensor that it comes from."""
        has_own_values = self.literal is not None or self.normed is not None or bool(self.mean_of)
        return bool(self.steps) or self.scale != 1.0 or has_own_values

    @property
    def elements(self) -> int:
        """The number of elements after the plan."""
        return prod(self.after)


@dataclass(frozen=True)
class Gap:
    """One place where the result is not exactly the source: node, cause, and remedy."""

    node: str
    op: str
    cause: str
    help: str = ""

    @staticmethod
    def at(node: Node | None, cause: str, remedy: str = "") -> Gap:
        """A gap at a node of the source; None: at no single node."""
        return Gap("" if node is None else node.name, "" if node is None else node.kind, cause, remedy)


@dataclass(frozen=True)
class Certificate(Shown):
    """The result of the compiler's proof: exact, or all gaps."""

    gaps: tuple[Gap, ...] = ()

    def __repr__(self) -> str:
        """Whether the result is exact, and how many gaps there are."""
        gaps = f"not exact, {len(self.gaps)} gap{'s' * (len(self.gaps) > 1)}"
        return f"<Certificate: {'exact' if self.exact else gaps}>"

    @property
    def exact(self) -> bool:
        """Whether there is no gap."""
        return not self.gaps


@dataclass(frozen=True)
class AxisChange:
    """The sizes of one named axis before and after, in topological order."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Summary:
    """A line of the plan's head: the effect of a statement on an axis, and the number of spaces.

    removed: for each run, the layers that are removed, by their numbers before the statement.
    """

    __repr__ = brief

    axis: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    note: str = ""
    spaces: int = 0
    removed: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class DroppedWeight:
    """A stored tensor of the source from which no part of the result comes."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Alike:
    """An axis of the result on which units get equal gradients for ever, dropout aside, or none at all.

    units: their number. different: their number, if units that are alike count once. dead: the number of
    units that are zero behind zero readers (these count as different). layer: the layer that the axis belongs
    to, in its `scope`; None where it belongs to none, or to several. remedy: the option that would tell units
    apart.
    """

    axis: str
    units: int
    different: int
    dead: int = 0
    scope: str = ""
    layer: int | None = None
    remedy: str = ""


SHOWN = 9
"""The largest number of sizes, and of axes, in a repr."""


def _few(sizes: tuple[int, ...]) -> str:
    return "/".join(map(str, sizes[:SHOWN])) + ("/…" if len(sizes) > SHOWN else "")


@dataclass
class Plan(Shown):
    """All changes of a model, and the claims about the result."""

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
    gone: tuple[DroppedWeight, ...] = ()
    decided: tuple[Decision, ...] = ()
    """The decisions of the recipe's budgets, in order."""

    def __repr__(self) -> str:
        """The changed sizes, and whether the result is exact."""
        changed = [(name, c) for name, c in self.axes.items() if c.before != c.after][:SHOWN]
        sizes = [f"{name} {_few(c.before)} -> {_few(c.after)}" for name, c in changed]
        exact = "exact" if self.certificate.exact else "not exact"
        before, after = self.parameters
        return f"<Plan of {self.model[:80]}: {', '.join([exact, *sizes])}; {before} -> {after} parameters>"

    @property
    def later_copies(self) -> frozenset[str]:
        """The weights of new layers, and of untied heads: an earlier weight has the same origin."""
        seen: set[str] = set()
        names: set[str] = set()
        for weight in self.weights:
            origin = weight.copy_of or weight.source
            if origin in seen:
                names.add(weight.name)
            seen.add(origin)
        return frozenset(names)

    @property
    def reduces(self) -> bool:
        """Whether a statement makes some size smaller."""
        return any(a > b for s in self.summaries for a, b in zip(s.before, s.after, strict=True))
