"""Recording of the operator log: the computation of one forward, without its data.

A module (parameters on meta, fake or real) runs on the inputs of a forward. The `Log` lists its operators,
each with the shapes of its results and its literals. It also holds the values of constants that the module
makes (buffers that no checkpoint holds). The order follows from the dependencies of the results, not from the
order of execution.

Two modules with equal parameter shapes and equal logs compute the same function of parameters and inputs.
Shapes alone are not enough: the number of heads shows in no parameter. Copies, and operators that reach no
output, are left out. A tensor that is written to is a new value from there on. So a captured program has the
log of the class that it was captured from.

Values that a program computes from numbers alone are known. `Log.folded` holds them as constants, however
they were computed, since a class may compute from its config what a plan holds as values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from growc.dialects.torch.capture.fake_module import exporting, standing_in
from growc.dialects.transformers.log.entry import (
    CONSTANT,
    INPUT,
    UNKNOWN,
    VIEW,
    VIEWS,
    Log,
    LogEntry,
    Wire,
    constant,
    entry_of,
    is_known,
    ordered,
    same,
    sizes_of,
)
from growc.dialects.transformers.log.inplace_writes import WriteTracker

LIFTED = ("lift_fresh", "lift_fresh_copy")
"""Operators that turn a number of the program into a tensor."""
PLAIN = frozenset({*LIFTED, "alias", "detach", "clone", "contiguous"})
"""Operators that return their input unchanged."""
TYPED = "new_"
"""Prefix of operators that read only the dtype of a tensor. Captured programs create the same without it."""
SHAPED = ("zeros_like", "ones_like", "full_like")
"""Operators that read only the shape and dtype of a tensor."""
NUMBER = torch.ops.aten._local_scalar_dense.default
"""The operator that reads the number of a tensor."""
UNSET = "empty"
LARGE = 1 << 22
"""The most elements of an operator's results whose values are computed."""


def operator_log(module: nn.Module, inputs: Mapping[str, Any], fixed: bool = False) -> Log:
    """Return the log of one forward, with the inputs as keyword arguments.

    Raises whatever the forward raises.

    fixed: no other sizes are ever passed, except for the rows of a batch.
    """
    recorder = Recorder(fixed)
    saved = module.state_dict(keep_vars=True).keys()
    unstored = [buffer for name, buffer in module.named_buffers() if name not in saved]
    with torch.no_grad(), standing_in(module) as fakes, exporting():
        fake_inputs = fakes.within(dict(inputs))
        named_inputs = {
            INPUT + name: value for name, value in fake_inputs.items() if isinstance(value, Tensor)
        }
        state = module.state_dict(keep_vars=True)
        recorder.know(named_inputs, state, [(buffer, fakes.of(buffer)) for buffer in unstored])
        with fakes.mode, recorder:
            returned = module(**fake_inputs)
            outputs = [recorder.by_now(leaf) for leaf in tree_leaves(returned) if isinstance(leaf, Tensor)]
    return recorder.log(outputs)


class Recorder(TorchDispatchMode):
    """A dispatch mode that records operators and their operands. Operators that reach no output are left out.

    fixed: sizes never change, except for rows. known: the values of tensors computed from numbers alone.
    seen: the source of a view, and the source's sizes.
    """

    def __init__(self, fixed: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fixed = fixed
        self.entries: list[LogEntry] = []
        self.wires: list[list[Wire]] = []
        self.wire: dict[Tensor, Wire] = {}
        self.known: dict[Wire, Tensor] = {}
        self.seen: dict[Wire, tuple[Wire, tuple[str, ...]]] = {}
        self.mutating: list[int] = []
        self.written = WriteTracker(self)

    def know(
        self,
        inputs: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
        computed: Sequence[tuple[Tensor, Tensor]],
    ) -> None:
        """Register tensors by name, and unstored buffers with fake tensors, as if operators made these."""
        named = {**inputs, **state}
        for name in sorted(named, reverse=True):
            self.wire[named[name]] = name
        entries = [(constant(buffer), buffer, stand_in) for buffer, stand_in in computed]
        for entry, buffer, stand_in in sorted(entries, key=lambda row: repr(row[0])):
            self.add(entry, [], [stand_in])
            self._learn([stand_in], [buffer])
        self.written.kept.update(state.values(), (stand_in for _, stand_in in computed))

    def add(self, entry: LogEntry, operands: Sequence[Wire], results: Sequence[Tensor]) -> None:
        """Add one operator with its tensors."""
        self.wires.append(list(operands))
        self.wire |= {tensor: (len(self.entries), place) for place, tensor in enumerate(results)}
        self.entries.append(entry)

    def by_now(self, tensor: Tensor) -> Tensor:
        """Return the current value of a tensor after writes."""
        return self.written.now(tensor)

    # ------------------------------------------------------------------------------------ the log

    def log(self, returned: Sequence[Tensor]) -> Log:
        """Return the log of the returned tensors, and of tensors that are written to."""
        results = [self.wire.get(tensor, UNKNOWN) for tensor in returned]
        plain = ordered(self.entries, self.wires, results, self.mutating)
        last = [self._folded(wire) for wire in results]
        folded = [
            [self._folded(wire) for wire in wires] for wires in self.wires
        ]  # adds constants to the entries
        return Log(*plain, Log(*ordered(self.entries, folded, last, self.mutating)))

    def _folded(self, wire: Wire) -> Wire:
        """Return a constant in place of a known value, however it was computed."""
        if isinstance(wire, str) or wire not in self.known or self.entries[wire[0]].operator == CONSTANT:
            return wire
        self.add(constant(self.known[wire]), [], [])
        return len(self.entries) - 1, 0

    # ------------------------------------------------------------------------------------ operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        passed = kwargs or {}
        if func is NUMBER and (wire := self.wire.get(args[0], UNKNOWN)) in self.known:
            with _disable_current_modes():
                return self.known[wire].item()
        if func._schema.is_mutable and self.written.write(func, args, passed):
            return func(*args, **passed)
        result = func(*args, **passed)
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if tensors:
            before = len(self.entries)
            operands, options = tree_map_only(Tensor, self.by_now, (args, passed))
            self._ran(func, operands, options, tensors)
            if func._schema.is_mutable:
                self.mutating += range(before, len(self.entries))
            else:
                self.written.saw(func, args, passed, result)
        return result

    def _ran(self, func: Any, args: Any, kwargs: Any, results: list[Tensor]) -> None:
        """Record an operator. One that only copies gives its operand again."""
        name = func.overloadpacket.__name__.removesuffix("_")
        wires = [self._of(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name in LIFTED and args[0] not in self.wire:
            self.add(constant(args[0]), [], results)
        elif name in PLAIN or same(name, args, results):
            self._stands_for(results, wires[0])
        elif name in VIEWS and args[0].dtype == results[0].dtype:
            self._viewed(func, args, kwargs, results)
        elif name.startswith(TYPED):
            self.add(entry_of(func, name.removeprefix(TYPED), args, kwargs, results), [], results)
            self._learn(results, self._values(func, args, kwargs, results))
        else:
            self.add(entry_of(func, name, args, kwargs, results, self.fixed), wires, results)
            self._learn(results, self._values(func, args, kwargs, results))

    def _viewed(self, func: Any, args: Any, kwargs: Any, results: list[Tensor]) -> None:
        """Record a view. A view of a view is one of the base, or the base itself if the sizes are equal."""
        wire = self._of(args[0])
        source, sizes = self.seen.get(wire, (wire, sizes_of(args[0])))
        if sizes_of(results[0]) == sizes:
            self._stands_for(results, source)
            return
        self.add(entry_of(func, VIEW, args, kwargs, results), [source], results)
        self.seen[self.wire[results[0]]] = source, sizes
        self._learn(results, self._values(func, args, kwargs, results))

    def _stands_for(self, results: list[Tensor], wire: Wire) -> None:
        self.wire[results[0]] = wire

    def _of(self, tensor: Tensor) -> Wire:
        """Return the wire of a tensor. A real tensor of the program becomes a constant."""
        if tensor not in self.wire and not isinstance(tensor, FakeTensor) and not tensor.is_meta:
            self.add(constant(tensor), [], [tensor])
            self._learn([tensor], [tensor])
        return self.wire.get(tensor, UNKNOWN)

    # ------------------------------------------------------------------------------------ known values

    def _learn(self, results: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        for tensor, value in zip(results, values, strict=False):
            if not value.is_meta:
                self.known[self.wire[tensor]] = value

    def _values(self, func: Any, args: Any, kwargs: Any, results: Sequence[Tensor]) -> list[Tensor]:
        """Return the results of an operator on known values, or nothing if some are unknown."""
        name = func.overloadpacket.__name__
        undetermined = torch.Tag.nondeterministic_seeded in func.tags or UNSET in name
        symbols = any(isinstance(leaf, torch.SymInt | torch.SymFloat) for leaf in tree_leaves((args, kwargs)))
        symbols |= not all(is_known(size) for tensor in results for size in tensor.shape)
        if undetermined or func._schema.is_mutable or symbols or sum(t.numel() for t in results) > LARGE:
            return []
        reads_no_values = name.startswith(TYPED) or name in SHAPED
        tensors = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        if not reads_no_values and any(self.wire.get(tensor) not in self.known for tensor in tensors):
            return []
        with suppress(Exception), _disable_current_modes():  # values that cannot be computed stay unknown
            known = tree_map_only(Tensor, _blank if reads_no_values else self._value, (args, kwargs))
            known = tree_map_only(torch.device, lambda _: torch.device("cpu"), known)
            computed = func(*known[0], **known[1])
            return [leaf for leaf in tree_leaves(computed) if isinstance(leaf, Tensor)]
        return []

    def _value(self, tensor: Tensor) -> Tensor:
        return self.known[self.wire[tensor]]


def _blank(tensor: Tensor) -> Tensor:
    return torch.empty(tuple(tensor.shape), dtype=tensor.dtype)
