"""The operator log: what one forward of a module computes, without computing it.

Needs: a module (parameters on meta, fake or real) and the inputs of a forward. Gives: `Log`, its operators,
each with the shapes that it makes and the literals that it is given, and the values of constants that the
module makes for itself (buffers that no checkpoint holds). They stand in the order that their results ask
for, not in that in which they ran.

Two modules with equal shapes of parameters and equal logs compute the same function of parameters and inputs.
Shapes alone do not tell: the number of heads shows in no parameter. What only copies data, and what reaches
no output, is left out, and what is written to is another value from there on, so that a captured program has
the log of the class that it was captured from.

What a program makes of numbers alone is known. `Log.folded` has it as constants, however it was made: a class
may compute from its config what a plan holds as values.
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
    Entry,
    Log,
    Wire,
    constant,
    entry_of,
    is_known,
    ordered,
    same,
    sizes_of,
)
from growc.dialects.transformers.log.inplace_writes import Written

LIFTED = ("lift_fresh", "lift_fresh_copy")
"""What brings a number of the program in as a tensor."""
PLAIN = frozenset({*LIFTED, "alias", "detach", "clone", "contiguous"})
"""Operators that give what they are given."""
TYPED = "new_"
"""How operators begin that ask a tensor for its type alone: captured programs make the same without it."""
SHAPED = ("zeros_like", "ones_like", "full_like")
"""Operators that ask a tensor for its shape and type alone."""
NUMBER = torch.ops.aten._local_scalar_dense.default
"""The operator that asks a tensor for its number."""
UNSET = "empty"
LARGE = 1 << 22
"""More numbers than these are not computed."""


def operator_log(module: nn.Module, inputs: Mapping[str, Any], fixed: bool = False) -> Log:
    """The log of one forward, with the inputs as keyword arguments. Raises whatever the forward raises.

    fixed: no other sizes are ever fed, but for the rows of a batch.
    """
    recorder = Recorder(fixed)
    saved = module.state_dict(keep_vars=True).keys()
    own = [buffer for name, buffer in module.named_buffers() if name not in saved]
    with torch.no_grad(), standing_in(module) as fakes, exporting():
        fed = fakes.within(dict(inputs))
        given = {INPUT + name: value for name, value in fed.items() if isinstance(value, Tensor)}
        state = module.state_dict(keep_vars=True)
        recorder.know(given, state, [(buffer, fakes.of(buffer)) for buffer in own])
        with fakes.mode, recorder:
            returned = module(**fed)
            outputs = [recorder.by_now(leaf) for leaf in tree_leaves(returned) if isinstance(leaf, Tensor)]
    return recorder.log(outputs)


class Recorder(TorchDispatchMode):
    """Keeps what runs, and what it is made from: what reaches no output is no part of the log.

    fixed: sizes are never others, but for rows. known: the values of what is made of numbers alone. seen:
    what a view shows, and its sizes.
    """

    def __init__(self, fixed: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fixed = fixed
        self.entries: list[Entry] = []
        self.wires: list[list[Wire]] = []
        self.wire: dict[Tensor, Wire] = {}
        self.known: dict[Wire, Tensor] = {}
        self.seen: dict[Wire, tuple[Wire, tuple[str, ...]]] = {}
        self.mutating: list[int] = []
        self.written = Written(self)

    def know(
        self,
        inputs: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
        computed: Sequence[tuple[Tensor, Tensor]],
    ) -> None:
        """Tensors by name; buffers that no checkpoint holds, with stand-ins, as if operators made them."""
        named = {**inputs, **state}
        for name in sorted(named, reverse=True):
            self.wire[named[name]] = name
        entries = [(constant(buffer), buffer, stand_in) for buffer, stand_in in computed]
        for entry, buffer, stand_in in sorted(entries, key=lambda found: repr(found[0])):
            self.add(entry, [], [stand_in])
            self._learn([stand_in], [buffer])
        self.written.kept.update(state.values(), (stand_in for _, stand_in in computed))

    def add(self, entry: Entry, given: Sequence[Wire], made: Sequence[Tensor]) -> None:
        """One operator with its tensors."""
        self.wires.append(list(given))
        self.wire |= {tensor: (len(self.entries), place) for place, tensor in enumerate(made)}
        self.entries.append(entry)

    def by_now(self, tensor: Tensor) -> Tensor:
        """What a tensor has become by writes."""
        return self.written.now(tensor)

    # ------------------------------------------------------------------------------------ the log

    def log(self, returned: Sequence[Tensor]) -> Log:
        """What the returned tensors, and tensors that are written to, are made from."""
        results = [self.wire.get(tensor, UNKNOWN) for tensor in returned]
        plain = ordered(self.entries, self.wires, results, self.mutating)
        last = [self._folded(wire) for wire in results]
        folded = [[self._folded(wire) for wire in wires] for wires in self.wires]  # it grows: constants
        return Log(*plain, Log(*ordered(self.entries, folded, last, self.mutating)))

    def _folded(self, wire: Wire) -> Wire:
        """What is known as a constant, however it was made."""
        if isinstance(wire, str) or wire not in self.known or self.entries[wire[0]].operator == CONSTANT:
            return wire
        self.add(constant(self.known[wire]), [], [])
        return len(self.entries) - 1, 0

    # ------------------------------------------------------------------------------------ what runs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        passed = kwargs or {}
        if func is NUMBER and (wire := self.wire.get(args[0], UNKNOWN)) in self.known:
            with _disable_current_modes():
                return self.known[wire].item()
        if func._schema.is_mutable and self.written.write(func, args, passed):
            return func(*args, **passed)
        made = func(*args, **passed)
        tensors = [leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor)]
        if tensors:
            before = len(self.entries)
            given, named = tree_map_only(Tensor, self.by_now, (args, passed))
            self._ran(func, given, named, tensors)
            if func._schema.is_mutable:
                self.mutating += range(before, len(self.entries))
            else:
                self.written.saw(func, args, passed, made)
        return made

    def _ran(self, func: Any, args: Any, kwargs: Any, made: list[Tensor]) -> None:
        """An operator: what only copies stands for what it is given."""
        name = func.overloadpacket.__name__.removesuffix("_")
        given = [self._of(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name in LIFTED and args[0] not in self.wire:
            self.add(constant(args[0]), [], made)
        elif name in PLAIN or same(name, args, made):
            self._stands_for(made, given[0])
        elif name in VIEWS and args[0].dtype == made[0].dtype:
            self._viewed(func, args, kwargs, made)
        elif name.startswith(TYPED):
            self.add(entry_of(func, name.removeprefix(TYPED), args, kwargs, made), [], made)
            self._learn(made, self._values(func, args, kwargs, made))
        else:
            self.add(entry_of(func, name, args, kwargs, made, self.fixed), given, made)
            self._learn(made, self._values(func, args, kwargs, made))

    def _viewed(self, func: Any, args: Any, kwargs: Any, made: list[Tensor]) -> None:
        """A view of a view is one of what that shows, and it may be that again."""
        given = self._of(args[0])
        source, sizes = self.seen.get(given, (given, sizes_of(args[0])))
        if sizes_of(made[0]) == sizes:
            self._stands_for(made, source)
            return
        self.add(entry_of(func, VIEW, args, kwargs, made), [source], made)
        self.seen[self.wire[made[0]]] = source, sizes
        self._learn(made, self._values(func, args, kwargs, made))

    def _stands_for(self, made: list[Tensor], given: Wire) -> None:
        self.wire[made[0]] = given

    def _of(self, tensor: Tensor) -> Wire:
        """Where a tensor comes from; one with values that the program holds is a constant of its own."""
        if tensor not in self.wire and not isinstance(tensor, FakeTensor) and not tensor.is_meta:
            self.add(constant(tensor), [], [tensor])
            self._learn([tensor], [tensor])
        return self.wire.get(tensor, UNKNOWN)

    # ------------------------------------------------------------------------------------ what is known

    def _learn(self, made: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        for tensor, value in zip(made, values, strict=False):
            if not value.is_meta:
                self.known[self.wire[tensor]] = value

    def _values(self, func: Any, args: Any, kwargs: Any, made: Sequence[Tensor]) -> list[Tensor]:
        """What an operator makes of known values; nothing where they are not all known."""
        name = func.overloadpacket.__name__
        chance = torch.Tag.nondeterministic_seeded in func.tags or UNSET in name
        symbols = any(isinstance(leaf, torch.SymInt | torch.SymFloat) for leaf in tree_leaves((args, kwargs)))
        symbols |= not all(is_known(size) for tensor in made for size in tensor.shape)
        if chance or func._schema.is_mutable or symbols or sum(t.numel() for t in made) > LARGE:
            return []
        asked = name.startswith(TYPED) or name in SHAPED
        tensors = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        if not asked and any(self.wire.get(tensor) not in self.known for tensor in tensors):
            return []
        with suppress(Exception), _disable_current_modes():  # what cannot be computed is not known
            known = tree_map_only(Tensor, _blank if asked else self._value, (args, kwargs))
            known = tree_map_only(torch.device, lambda _: torch.device("cpu"), known)
            computed = func(*known[0], **known[1])
            return [leaf for leaf in tree_leaves(computed) if isinstance(leaf, Tensor)]
        return []

    def _value(self, tensor: Tensor) -> Tensor:
        return self.known[self.wire[tensor]]


def _blank(tensor: Tensor) -> Tensor:
    return torch.empty(tuple(tensor.shape), dtype=tensor.dtype)
