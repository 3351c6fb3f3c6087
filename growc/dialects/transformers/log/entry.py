"""One operator as the operator log has it, and the log itself.

Needs: an operator of torch, what it was given and what it made. Gives: `Entry`, `Log`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from growc.dialects.torch.operators.variances import VARIANCES, excess_of
from growc.ir.walk import postorder

DIGITS = 5
"""Literals and constants are equal where so many digits are."""
SAMPLES = 64
"""Of a large constant, so many entries are compared."""
VIEWS = frozenset({"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"})
"""Operators that give the same elements in the same order."""
POOLS = ("avg_pool1d", "avg_pool2d", "avg_pool3d")
"""Operators that average what their windows show."""
PARTED = ("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes")
"""Operators that take a tensor apart: the sizes of the parts are those of what they make."""
CUTS = ("slice", "slice_scatter")
"""Operators that have the ends of a cut."""
CONSTANT, VIEW = "constant", "view"
COUNTED = -1
"""The size of an axis that is as long as data decide."""
SCALED = "_scaled_dot_product"
"""How operators begin that scale by the size of a head where nothing else is said."""


@dataclass(frozen=True)
class Entry:
    """One operator: its name, shapes and kinds of what it makes, whole and real literals in order.

    real: as they are compared; exact: as they are.
    """

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...] = ()
    whole: tuple[int, ...] = ()
    real: tuple[float, ...] = ()
    exact: tuple[float, ...] = field(default=(), compare=False)

    @property
    def structure(self) -> Entry:
        """The entry without its real literals."""
        return Entry(self.operator, self.shapes, self.kinds, self.whole)


Wire = str | tuple[int, int]
"""Where a tensor comes from: an input, parameter or buffer by name, or an entry and which of its results."""
UNKNOWN, INPUT = "?", "input "
"""A tensor of which nothing is known, and what stands before the name of an input."""


@dataclass(frozen=True)
class Log:
    """The operators in order; what each is given, and last what is returned.

    folded: the same, with what is made of numbers alone as constants.
    """

    entries: tuple[Entry, ...]
    wires: tuple[tuple[Wire, ...], ...] = ()
    folded: Log | None = field(default=None, compare=False, repr=False)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names of stored tensors that it is made from; of several names of one tensor the first."""
        return frozenset(w for wires in self.wires for w in wires if isinstance(w, str) and not is_input(w))

    @cached_property
    def counts(self) -> Counter[Entry]:
        """How often each entry stands in the log."""
        return Counter(self.entries)

    @cached_property
    def structure(self) -> tuple[tuple[Entry, ...], tuple[tuple[Wire, ...], ...]]:
        """The log without real literals."""
        return tuple(entry.structure for entry in self.entries), self.wires

    @cached_property
    def structures(self) -> Counter[Entry]:
        """The same without real literals."""
        return Counter(self.structure[0])

    def overlap(self, other: Log) -> float:
        """Which part of both logs is common to them: 1 where they are equal but for the order."""
        common = (self.counts & other.counts).total() + (self.structures & other.structures).total()
        return common / (len(self.entries) + len(other.entries)) if self.entries or other.entries else 1.0


def alike(planned: Log, found: Log) -> tuple[Log, Log] | None:
    """Two logs that differ in real literals alone: as they are, or folded; None where they differ in more."""
    pairs = (planned, found), (planned.folded or planned, found.folded or found)
    return next(((a, b) for a, b in pairs if a.structure == b.structure), None)


def same_logs(planned: Log, found: Log) -> bool:
    """Whether two logs are equal, as they are or folded."""
    return planned == found or (planned.folded or planned) == (found.folded or found)


def is_input(wire: Wire) -> bool:
    """Whether a tensor comes from outside: neither stored nor made by an operator."""
    return isinstance(wire, str) and wire.startswith((INPUT, UNKNOWN))


def constant(tensor: Tensor) -> Entry:
    """The values of what a module makes for itself; of one without values, its shape.

    Whole numbers and truth values are its structure.
    """
    shapes, kinds = (tuple(tensor.shape),), (_kind(tensor),)
    known = tensor.constant if isinstance(tensor, FakeTensor) else tensor
    if known is None or known.is_meta:
        return Entry(CONSTANT, shapes, kinds)
    with _disable_current_modes():
        plain = known.detach()
        flat = (torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain).flatten()
        chosen = flat[:: max(1, len(flat) // SAMPLES)].to(torch.float64).tolist()
        if len(flat) > len(chosen):
            chosen.append(_sum_of(flat.to(torch.float64)))
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return Entry(CONSTANT, shapes, kinds, tuple(int(value) for value in chosen))
    return Entry(CONSTANT, shapes, kinds, (), tuple(map(rounded, chosen)), tuple(chosen))


def _sum_of(flat: Tensor) -> float:
    """A sum in which every entry has a weight of its own: that of k·x is k times that of x, for k > 0."""
    finite = flat.abs().clamp(max=torch.finfo(torch.float32).max)
    weights = 1 + (torch.arange(len(flat), dtype=torch.float64) * 0.6180339887) % 1
    return float((finite * weights).sum())


def rounded(value: float) -> float:
    """The value as logs compare it."""
    if math.isnan(value):
        return math.nan  # always the same object: tuples of it are equal
    return float(f"{value:.{DIGITS}g}")


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def same(name: str, args: Any, made: list[Tensor]) -> bool:
    """Whether an operator that converts, views, cuts or expands gives what it is given."""
    if name not in VIEWS and name not in ("_to_copy", "expand", "slice"):
        return False
    if not isinstance(args[0], Tensor) or args[0].dtype != made[0].dtype:
        return False
    return sizes_of(args[0]) == sizes_of(made[0])


def sizes_of(tensor: Tensor) -> tuple[str, ...]:
    """Sizes as they are compared: what data decide has a name."""
    return tuple(map(str, tensor.shape))


def entry_of(func: Any, name: str, args: Any, kwargs: Any, made: list[Tensor], fixed: bool = False) -> Entry:
    """A call of an operator. `fixed`: it never has other sizes, but for the rows of its batch."""
    shapes = tuple(tuple(map(_length, tensor.shape)) for tensor in made)
    kinds = tuple(map(_kind, made))
    if name in VIEWS:
        return Entry(VIEW, shapes, kinds)
    if name in PARTED:
        axis = args[2] if len(args) > 2 else kwargs.get("dim", 0)
        return Entry(PARTED[0], shapes, kinds, (axis % len(shapes[0]),))
    if fixed and name in POOLS:
        args, kwargs = _within(func, args, kwargs, made[0])
    if func in VARIANCES:
        kwargs, correction = kwargs | {"correction": None}, kwargs.get("correction", 1)
    literals = _cut(func, args, kwargs) if name in CUTS else list(_literals(func, args, kwargs))
    if func in VARIANCES:
        literals.append(excess_of(args[0].shape, args[1] if len(args) > 1 else kwargs.get("dim"), correction))
    if name.startswith(SCALED) and kwargs.get("scale") is None:
        literals.append(args[0].shape[-1] ** -0.5)
    whole = tuple(int(value) for value in literals if not isinstance(value, float))
    real = tuple(value for value in literals if isinstance(value, float))
    return Entry(name, shapes, kinds, whole, tuple(map(rounded, real)), real)


def is_known(size: int | torch.SymInt) -> bool:
    """Whether the size of an axis is a number, and not one that data decide."""
    return isinstance(size, int) or bool(size.node.has_hint())


def _length(size: int | torch.SymInt) -> int:
    return int(size) if is_known(size) else COUNTED


def _within(func: Any, args: Any, kwargs: Any, made: Tensor) -> tuple[Any, Any]:
    """The arguments of a pooling. A window that is as long as an axis or longer, where nothing is put around
    and there is one window, is as long: it averages what there is.
    """
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    places = POOLS.index(func.overloadpacket.__name__) + 1
    sizes, counts = args[0].shape[-places:], made.shape[-places:]
    windows = _each(given["kernel_size"], places)
    steps, around = (_each(given.get(n) or d, places) for n, d in (("stride", windows), ("padding", 0)))
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        if is_known(size) and count == 1 and windows[axis] >= size and not around[axis]:
            windows[axis] = steps[axis] = int(size)
    given |= {"kernel_size": windows, "stride": steps}
    return [args[0]], {name: value for name, value in given.items() if name != names[0]}


def _each(given: object, count: int) -> list[Any]:
    """One number for each axis."""
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    return several * count if len(several) == 1 else several


def _cut(func: Any, args: Any, kwargs: Any) -> list[int | float]:
    """Axis, start, end and step of a slice, within the axis."""
    names = (argument.name for argument in func._schema.arguments)
    given = dict(zip(names, args, strict=False)) | kwargs
    axis, step = given.get("dim", 0), given.get("step", 1)
    size = int(args[0].shape[axis])
    ends = given.get("start"), given.get("end")
    start, end = 0 if ends[0] is None else ends[0], size if ends[1] is None else ends[1]
    return [axis % args[0].ndim, *(min(n if n >= 0 else n + size, size) for n in (start, end)), step]


def _literals(func: Any, args: Any, kwargs: Any) -> Iterator[bool | int | float]:
    """Numbers that are given, defaults too. Sizes are left out, which shapes tell, and kinds of memory."""
    for position, argument in enumerate(func._schema.arguments):
        sizes = str(argument.type) == "List[int]" and argument.name in ("size", "shape")
        if sizes or argument.name == "pin_memory":
            continue
        named = kwargs.get(argument.name, argument.default_value)
        value = args[position] if position < len(args) else named
        for leaf in tree_leaves(value):
            if isinstance(leaf, (bool, int, float)):
                yield leaf


Ordered = tuple[tuple[Entry, ...], tuple[tuple[Wire, ...], ...]]
"""Entries, and what each is given, with the results last."""


def ordered(
    entries: Sequence[Entry],
    given: Sequence[Sequence[Wire]],
    results: Sequence[Wire],
    kept: Collection[int] = (),
) -> Ordered:
    """Entries and wires. What is computed twice from the same counts once: layers may share it, or each
    compute its own. kept: numbers of entries that stay whatever they reach.
    """
    places: dict[int, int] = {}
    found: dict[object, int] = {}
    chosen: list[Entry] = []
    wires: list[tuple[Wire, ...]] = []
    wanted = [wire[0] for wire in results if not isinstance(wire, str)]

    def needs(number: int) -> list[int]:
        return [wire[0] for wire in given[number] if not isinstance(wire, str)]

    for number in postorder([*wanted, *kept], needs):  # first operands first, whatever order they ran in
        from_these = tuple(_moved(wire, places) for wire in given[number])
        key = number if number in kept else (entries[number], from_these)
        places[number] = found.setdefault(key, len(chosen))
        if places[number] == len(chosen):
            chosen.append(entries[number])
            wires.append(from_these)
    return tuple(chosen), (*wires, tuple(_moved(wire, places) for wire in results))


def _moved(wire: Wire, places: Mapping[int, int]) -> Wire:
    return wire if isinstance(wire, str) else (places[wire[0]], wire[1])
