"""The operator log: what one forward of a module computes, without computing it.

Needs: a module (parameters on meta, fake or real) and the inputs of a forward. Gives: `Log`, its operators,
each with the shapes that it makes and the literals that it is given, and the values of constants that the
module makes for itself (buffers that no checkpoint holds). They stand in the order that their results ask
for, not in that in which they ran.

Two modules with equal shapes of parameters and equal logs compute the same function of parameters and inputs.
Shapes alone do not tell: the number of heads shows in no parameter. What only copies data, and what reaches
no output, is left out, and operators that work in place are written as the others, so that a captured program
has the log of the class that it was captured from.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from growc.dialects.torch.standins import standing_in

DIGITS = 5
"""Literals and constants are equal where so many digits are."""
SAMPLES = 64
"""Of a large constant, so many entries are compared."""
LIFTED = ("lift_fresh", "lift_fresh_copy")
"""What brings a number of the program in as a tensor."""
PLAIN = frozenset({*LIFTED, "alias", "detach", "clone", "contiguous"})
"""Operators that give what they are given."""
TYPED = "new_"
"""How operators begin that ask a tensor for its type alone: captured programs make the same without it."""
VIEWS = frozenset({"view", "_unsafe_view", "reshape"})
CONSTANT = "constant"
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
    """The operators in order; what each is given, and last what is returned."""

    entries: tuple[Entry, ...]
    wires: tuple[tuple[Wire, ...], ...] = ()

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


def operator_log(module: nn.Module, inputs: Mapping[str, Any]) -> Log:
    """The log of one forward, with the inputs as keyword arguments. Raises whatever the forward raises."""
    recorder = _Recorder()
    own = list(computed(module).values())
    with torch.no_grad(), standing_in(module) as fakes, _exporting():
        fed = fakes.within(dict(inputs))
        given = {INPUT + name: value for name, value in fed.items() if isinstance(value, Tensor)}
        recorder.know(given | module.state_dict(keep_vars=True), [(b, fakes.of(b)) for b in own])
        with fakes.mode, recorder:
            returned = module(**fed)
    return recorder.log(tree_leaves(returned))


def is_input(wire: Wire) -> bool:
    """Whether a tensor comes from outside: neither stored nor made by an operator."""
    return isinstance(wire, str) and wire.startswith((INPUT, UNKNOWN))


def computed(module: nn.Module) -> dict[str, Tensor]:
    """Buffers that no checkpoint holds: the module makes them."""
    saved = module.state_dict(keep_vars=True).keys()
    return {name: buffer for name, buffer in module.named_buffers() if name not in saved}


def constant(tensor: Tensor) -> Entry:
    """The values of what a module makes for itself; of one without values, its shape."""
    shapes, kinds = (tuple(tensor.shape),), (_kind(tensor),)
    known = tensor.constant if isinstance(tensor, FakeTensor) else tensor
    if known is None or known.is_meta:
        return Entry(CONSTANT, shapes, kinds)
    with _disable_current_modes():
        flat = known.detach().flatten()
        chosen = flat[:: max(1, len(flat) // SAMPLES)].to(torch.float64).tolist()
    return Entry(CONSTANT, shapes, kinds, (), tuple(map(rounded, chosen)), tuple(chosen))


def rounded(value: float) -> float:
    """The value as logs compare it."""
    return float(f"{value:.{DIGITS}g}")


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


@contextmanager
def _exporting() -> Iterator[None]:
    """Models that ask whether they are captured are told so: the log takes the paths that captures take.

    torch's own log is silent: forwards that fail are no news here.
    """
    compiler, disabled = torch.compiler, logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    before = compiler._is_exporting_flag, compiler._is_compiling_flag
    compiler._is_exporting_flag = compiler._is_compiling_flag = True
    try:
        yield
    finally:
        compiler._is_exporting_flag, compiler._is_compiling_flag = before
        logging.disable(disabled)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps what runs, and what it is made from: what reaches no output is no part of the log."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: list[Entry] = []
        self.wires: list[list[Wire]] = []
        self.wire: dict[int, Wire] = {}
        self.mutating: list[int] = []
        self.alive: list[Any] = []

    def know(self, named: Mapping[str, Tensor], computed: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Tensors by name; buffers that no checkpoint holds, with stand-ins, as if operators made them."""
        for name in sorted(named, reverse=True):
            self.wire[id(named[name])] = name
        entries = [(constant(buffer), stand_in) for buffer, stand_in in computed]
        for entry, stand_in in sorted(entries, key=lambda pair: repr(pair[0])):
            self.add(entry, [], [stand_in])

    def add(self, entry: Entry, given: list[Tensor], made: list[Tensor]) -> None:
        """One operator with its tensors."""
        self.wires.append([self.wire.get(id(tensor), UNKNOWN) for tensor in given])
        self.wire |= {id(tensor): (len(self.entries), place) for place, tensor in enumerate(made)}
        self.alive.append(made)
        self.entries.append(entry)

    def log(self, returned: list[Any]) -> Log:
        """What the returned tensors, and tensors that are written to, are made from.

        What is computed twice from the same counts once: layers may share it, or each compute its own.
        """
        results = [self.wire.get(id(leaf), UNKNOWN) for leaf in returned if isinstance(leaf, Tensor)]
        places: dict[int, int] = {}
        found: dict[object, int] = {}
        entries: list[Entry] = []
        wires: list[tuple[Wire, ...]] = []
        for number in self.order([wire[0] for wire in results if not isinstance(wire, str)] + self.mutating):
            given = tuple(_moved(wire, places) for wire in self.wires[number])
            key = number if number in self.mutating else (self.entries[number], given)
            places[number] = found.setdefault(key, len(entries))
            if places[number] == len(entries):
                entries.append(self.entries[number])
                wires.append(given)
        return Log(tuple(entries), (*wires, tuple(_moved(wire, places) for wire in results)))

    def order(self, last: list[int]) -> list[int]:
        """Operators behind what they are made from, first operands first: whatever order they ran in."""
        placed: dict[int, None] = {}
        pending = last[::-1]
        while pending:
            number = pending[-1]
            needed = [wire[0] for wire in self.wires[number] if not isinstance(wire, str)]
            waiting = [maker for maker in needed if maker not in placed]
            if waiting and number not in placed:
                pending.append(waiting[0])
            else:
                placed[pending.pop()] = None
        return list(placed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        passed = kwargs or {}
        made = func(*args, **passed)
        tensors = [leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor)]
        if tensors:
            name = func.overloadpacket.__name__
            given = [leaf for leaf in tree_leaves((args, passed)) if isinstance(leaf, Tensor)]
            before = len(self.entries)
            self.ran(func, name.removesuffix("_"), args, passed, tensors, given)
            if func._schema.is_mutable:
                self.mutating += range(before, len(self.entries))
        return made

    def ran(self, func: Any, name: str, args: Any, kwargs: Any, made: list[Tensor], given: list[Any]) -> None:
        """An operator: what only copies stands for what it is given."""
        if name in LIFTED and id(args[0]) not in self.wire:
            self.add(constant(args[0]), [], made)
        elif name in PLAIN or _same(name, args, made):
            self.wire[id(made[0])] = self.wire.get(id(args[0]), UNKNOWN)
            self.alive.append(made)
        elif name.startswith(TYPED):
            self.add(_entry(func, name.removeprefix(TYPED), args, kwargs, made), [], made)
        else:
            self.add(_entry(func, name, args, kwargs, made), given, made)


def _moved(wire: Wire, places: Mapping[int, int]) -> Wire:
    return wire if isinstance(wire, str) else (places[wire[0]], wire[1])


def _same(name: str, args: Any, made: list[Tensor]) -> bool:
    """Whether an operator that converts, views, cuts or expands gives what it is given."""
    if name not in VIEWS and name not in ("_to_copy", "expand", "slice"):
        return False
    return isinstance(args[0], Tensor) and (args[0].shape, args[0].dtype) == (made[0].shape, made[0].dtype)


def _entry(func: Any, name: str, args: Any, kwargs: Any, made: list[Tensor]) -> Entry:
    shapes = tuple(tuple(int(n) for n in tensor.shape) for tensor in made)
    kinds = tuple(map(_kind, made))
    if name in VIEWS:
        return Entry("view", shapes, kinds)
    literals = _cut(args, kwargs) if name == "slice" else list(_literals(func, args, kwargs))
    if name.startswith(SCALED) and kwargs.get("scale") is None:
        literals.append(args[0].shape[-1] ** -0.5)
    whole = tuple(int(value) for value in literals if not isinstance(value, float))
    real = tuple(value for value in literals if isinstance(value, float))
    return Entry(name, shapes, kinds, whole, tuple(map(rounded, real)), real)


def _cut(args: Any, kwargs: Any) -> list[int | float]:
    """Axis, start, end and step of a slice, within the axis."""
    given = dict(zip(("x", "dim", "start", "end", "step"), args, strict=False)) | kwargs
    axis, step = given.get("dim", 0), given.get("step", 1)
    size = int(given["x"].shape[axis])
    ends = given.get("start"), given.get("end")
    start, end = 0 if ends[0] is None else ends[0], size if ends[1] is None else ends[1]
    return [axis % given["x"].ndim, *(min(n if n >= 0 else n + size, size) for n in (start, end)), step]


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
