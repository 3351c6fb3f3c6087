"""Entries of the operator log, and the log itself.

A `LogEntry` is made from an operator of torch, its arguments and its results. A `Log` holds entries.
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
"""The number of significant digits to which literals and constants are compared."""
SAMPLES = 64
"""The approximate number of elements of a large constant that are compared."""
VIEWS = frozenset({"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"})
"""Operators that return the same elements in the same order."""
POOLS = ("avg_pool1d", "avg_pool2d", "avg_pool3d")
"""Operators that average over windows."""
PARTED = ("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes")
"""Operators that split a tensor. The sizes of the parts are those of the results."""
CUTS = ("slice", "slice_scatter")
"""Operators with a start and an end along an axis."""
CONSTANT, VIEW = "constant", "view"
COUNTED = -1
"""The size that stands for a data-dependent one."""
SCALED = "_scaled_dot_product"
"""Prefix of the operators that scale by the head size if no scale is given."""


@dataclass(frozen=True)
class LogEntry:
    """One operator: its name, shapes and dtypes of its results, and its whole and real literals in order.

    real: literals rounded for comparison. exact: the same literals unrounded.
    """

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...] = ()
    whole: tuple[int, ...] = ()
    real: tuple[float, ...] = ()
    exact: tuple[float, ...] = field(default=(), compare=False)

    @property
    def structure(self) -> LogEntry:
        """The entry without its real literals."""
        return LogEntry(self.operator, self.shapes, self.kinds, self.whole)


Wire = str | tuple[int, int]
"""The origin of a tensor: the name of an input, parameter or buffer, or an entry and the number of its
result.
"""
UNKNOWN, INPUT = "?", "input "
"""The wire of an unknown tensor, and the prefix of the names of inputs."""


@dataclass(frozen=True)
class Log:
    """The operators in order, with the operands of each, and last the returned tensors.

    folded: the same log, in which everything computed from numbers alone is a constant.
    """

    entries: tuple[LogEntry, ...]
    wires: tuple[tuple[Wire, ...], ...] = ()
    folded: Log | None = field(default=None, compare=False, repr=False)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names of the stored tensors that the log reads. A tied tensor has its first name."""
        return frozenset(w for wires in self.wires for w in wires if isinstance(w, str) and not is_input(w))

    @cached_property
    def counts(self) -> Counter[LogEntry]:
        """The number of occurrences of each entry."""
        return Counter(self.entries)

    @cached_property
    def structure(self) -> tuple[tuple[LogEntry, ...], tuple[tuple[Wire, ...], ...]]:
        """The log without real literals."""
        return tuple(entry.structure for entry in self.entries), self.wires

    @cached_property
    def structures(self) -> Counter[LogEntry]:
        """The number of occurrences of each entry without real literals."""
        return Counter(self.structure[0])

    def overlap(self, other: Log) -> float:
        """Return the fraction of both logs that is common: 1 if they are equal up to order."""
        common = (self.counts & other.counts).total() + (self.structures & other.structures).total()
        return common / (len(self.entries) + len(other.entries)) if self.entries or other.entries else 1.0


def alike(planned: Log, class_log: Log) -> tuple[Log, Log] | None:
    """Return two logs, as they are or folded, that differ only in real literals, or None."""
    pairs = (planned, class_log), (planned.folded or planned, class_log.folded or class_log)
    return next(((a, b) for a, b in pairs if a.structure == b.structure), None)


def same_logs(planned: Log, class_log: Log) -> bool:
    """Whether two logs are equal, as they are or folded."""
    return planned == class_log or (planned.folded or planned) == (class_log.folded or class_log)


def is_input(wire: Wire) -> bool:
    """Whether a tensor comes from outside: it is neither stored nor computed by an operator."""
    return isinstance(wire, str) and wire.startswith((INPUT, UNKNOWN))


def constant(tensor: Tensor) -> LogEntry:
    """Return the entry of a constant that a module makes: its values, or only its shape if it has none.

    Integer and bool values count as structure.
    """
    shapes, kinds = (tuple(tensor.shape),), (_kind(tensor),)
    actual = tensor.constant if isinstance(tensor, FakeTensor) else tensor
    if actual is None or actual.is_meta:
        return LogEntry(CONSTANT, shapes, kinds)
    with _disable_current_modes():
        detached = actual.detach()
        flat = (torch.view_as_real(detached.resolve_conj()) if detached.is_complex() else detached).flatten()
        samples = flat[:: max(1, len(flat) // SAMPLES)].to(torch.float64).tolist()
        if len(flat) > len(samples):
            samples.append(_sum_of(flat.to(torch.float64)))
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return LogEntry(CONSTANT, shapes, kinds, tuple(int(value) for value in samples))
    return LogEntry(CONSTANT, shapes, kinds, (), tuple(map(rounded, samples)), tuple(samples))


def _sum_of(flat: Tensor) -> float:
    """Return a weighted sum, in which every element has a different weight.

    The sum of k·x is k times that of x, for k > 0.
    """
    finite = flat.abs().clamp(max=torch.finfo(torch.float32).max)
    weights = 1 + (torch.arange(len(flat), dtype=torch.float64) * 0.6180339887) % 1
    return float((finite * weights).sum())


def rounded(value: float) -> float:
    """Return a value rounded as logs compare it."""
    if math.isnan(value):
        return math.nan  # always the same object, so that tuples of it are equal
    return float(f"{value:.{DIGITS}g}")


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def same(name: str, args: Any, results: list[Tensor]) -> bool:
    """Whether a conversion, view, slice or expansion returns its input unchanged."""
    if name not in VIEWS and name not in ("_to_copy", "expand", "slice"):
        return False
    if not isinstance(args[0], Tensor) or args[0].dtype != results[0].dtype:
        return False
    return sizes_of(args[0]) == sizes_of(results[0])


def sizes_of(tensor: Tensor) -> tuple[str, ...]:
    """Return sizes for comparison. Data-dependent sizes appear by name."""
    return tuple(map(str, tensor.shape))


def entry_of(
    func: Any, name: str, args: Any, kwargs: Any, results: list[Tensor], fixed: bool = False
) -> LogEntry:
    """Return the entry of a call. fixed: no other sizes occur, except for the rows of a batch."""
    shapes = tuple(tuple(map(_length, tensor.shape)) for tensor in results)
    kinds = tuple(map(_kind, results))
    if name in VIEWS:
        return LogEntry(VIEW, shapes, kinds)
    if name in PARTED:
        axis = args[2] if len(args) > 2 else kwargs.get("dim", 0)
        return LogEntry(PARTED[0], shapes, kinds, (axis % len(shapes[0]),))
    if fixed and name in POOLS:
        args, kwargs = _within(func, args, kwargs, results[0])
    if func in VARIANCES:
        kwargs, correction = kwargs | {"correction": None}, kwargs.get("correction", 1)
    literals = _cut(func, args, kwargs) if name in CUTS else list(_literals(func, args, kwargs))
    if func in VARIANCES:
        literals.append(excess_of(args[0].shape, args[1] if len(args) > 1 else kwargs.get("dim"), correction))
    if name.startswith(SCALED) and kwargs.get("scale") is None:
        literals.append(args[0].shape[-1] ** -0.5)
    whole = tuple(int(value) for value in literals if not isinstance(value, float))
    real = tuple(value for value in literals if isinstance(value, float))
    return LogEntry(name, shapes, kinds, whole, tuple(map(rounded, real)), real)


def is_known(size: int | torch.SymInt) -> bool:
    """Whether the size of an axis is a number, and not data-dependent."""
    return isinstance(size, int) or bool(size.node.has_hint())


def _length(size: int | torch.SymInt) -> int:
    return int(size) if is_known(size) else COUNTED


def _within(func: Any, args: Any, kwargs: Any, result: Tensor) -> tuple[Any, Any]:
    """Return the arguments of a pooling, with windows cut to the size of their axis.

    This holds for a window at least as long as its axis, without padding, of which there is one. It averages
    over the whole axis.
    """
    names = [argument.name for argument in func._schema.arguments]
    arguments = dict(zip(names, args, strict=False)) | kwargs
    places = POOLS.index(func.overloadpacket.__name__) + 1
    sizes, counts = args[0].shape[-places:], result.shape[-places:]
    windows = _each(arguments["kernel_size"], places)
    strides, paddings = (
        _each(arguments.get(n) or d, places) for n, d in (("stride", windows), ("padding", 0))
    )
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        if is_known(size) and count == 1 and windows[axis] >= size and not paddings[axis]:
            windows[axis] = strides[axis] = int(size)
    arguments |= {"kernel_size": windows, "stride": strides}
    return [args[0]], {name: value for name, value in arguments.items() if name != names[0]}


def _each(numbers: object, count: int) -> list[Any]:
    """Return one number for each axis."""
    several = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]
    return several * count if len(several) == 1 else several


def _cut(func: Any, args: Any, kwargs: Any) -> list[int | float]:
    """Return axis, start, end and step of a slice, clipped to the axis."""
    names = (argument.name for argument in func._schema.arguments)
    arguments = dict(zip(names, args, strict=False)) | kwargs
    axis, step = arguments.get("dim", 0), arguments.get("step", 1)
    size = int(args[0].shape[axis])
    ends = arguments.get("start"), arguments.get("end")
    start, end = 0 if ends[0] is None else ends[0], size if ends[1] is None else ends[1]
    return [axis % args[0].ndim, *(min(n if n >= 0 else n + size, size) for n in (start, end)), step]


def _literals(func: Any, args: Any, kwargs: Any) -> Iterator[bool | int | float]:
    """Yield the numbers among arguments, including defaults.

    Sizes are left out, since shapes show them, and so is `pin_memory`.
    """
    for position, argument in enumerate(func._schema.arguments):
        sizes = str(argument.type) == "List[int]" and argument.name in ("size", "shape")
        if sizes or argument.name == "pin_memory":
            continue
        named = kwargs.get(argument.name, argument.default_value)
        value = args[position] if position < len(args) else named
        for leaf in tree_leaves(value):
            if isinstance(leaf, (bool, int, float)):
                yield leaf


Ordered = tuple[tuple[LogEntry, ...], tuple[tuple[Wire, ...], ...]]
"""Entries, and the operands of each, with the results last."""


def ordered(
    entries: Sequence[LogEntry],
    operand_wires: Sequence[Sequence[Wire]],
    results: Sequence[Wire],
    kept: Collection[int] = (),
) -> Ordered:
    """Return entries and wires in order, with duplicates merged.

    A value computed twice from the same operands counts once, since layers may share it or each compute it.
    kept: numbers of entries that stay even if no result depends on them.
    """
    places: dict[int, int] = {}
    number_of: dict[object, int] = {}
    kept_entries: list[LogEntry] = []
    wires: list[tuple[Wire, ...]] = []
    result_numbers = [wire[0] for wire in results if not isinstance(wire, str)]

    def needs(number: int) -> list[int]:
        return [wire[0] for wire in operand_wires[number] if not isinstance(wire, str)]

    for number in postorder(
        [*result_numbers, *kept], needs
    ):  # operands in order, independent of the order of execution
        operands = tuple(_moved(wire, places) for wire in operand_wires[number])
        key = number if number in kept else (entries[number], operands)
        places[number] = number_of.setdefault(key, len(kept_entries))
        if places[number] == len(kept_entries):
            kept_entries.append(entries[number])
            wires.append(operands)
    return tuple(kept_entries), (*wires, tuple(_moved(wire, places) for wire in results))


def _moved(wire: Wire, places: Mapping[int, int]) -> Wire:
    return wire if isinstance(wire, str) else (places[wire[0]], wire[1])
