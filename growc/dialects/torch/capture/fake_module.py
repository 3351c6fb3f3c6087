"""A module with fake tensors in the place of its own, for a while.

Fake tensors have a shape and no data, and say that they are on the CPU. A module on the meta device would
lose the constants that its forward makes, and its constructor cannot always run among fake tensors: so it
is built on meta or for real, and its tensors are exchanged afterwards. One memo makes what is tied stay
tied.
"""

from __future__ import annotations

import logging
import operator
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map_only

from growc.dialects.torch.capture.data_dependence import asserted
from growc.dialects.torch.capture.routed_loops import over

__all__ = ["SMALL", "Fakes", "exporting", "standing_in"]

aten = torch.ops.aten
FACTORIES = frozenset(
    {
        *(aten.arange.default, aten.arange.start, aten.arange.start_step),
        *(aten.full.default, aten.zeros.default, aten.ones.default, aten.scalar_tensor.default),
    }
)
"""What makes numbers of no tensor. Tensors without values are made so, too, by others than these."""
NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
SMALL = 64
"""Flags that a forward decides by are buffers of no more elements."""


class Fakes:
    """Fake CPU tensors, one for each tensor."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
        self._made: dict[Tensor, Tensor] = {}
        self._given: dict[Tensor, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """The tensor that stands for this one."""
        if tensor not in self._made:
            self._made[tensor] = self._another(tensor)
        return self._made[tensor]

    @contextmanager
    def exchangeable(self) -> Iterator[None]:
        """A forward may convert a module: torch exchanges tensors then, but none that its memo refers to.

        Where nothing is converted, nothing is exchanged: what traces a forward knows its tensors by identity.
        """
        usual: Any = torch.utils.swap_tensors
        memo = self.mode.fake_tensor_converter.meta_converter.tensor_memo

        def exchange(first: Tensor, second: Tensor) -> None:
            if (first.dtype, first.device, first.shape) == (second.dtype, second.device, second.shape):
                return
            for key in [key for key, held in memo.items() if held is first or held is second]:
                del memo[key]
            usual(first, second)

        with mock.patch.object(torch.utils, "swap_tensors", exchange):
            yield

    @contextmanager
    def valued(self, given: Collection[Tensor] = ()) -> Iterator[None]:
        """Small buffers, and those of the arguments that are `given`, have the values of what they stand for:
        a forward may decide by them.

        torch computes with them as with numbers that a forward makes. What a training learns has no values.
        """
        usual = FakeTensorMode.from_tensor
        made = ((fake, tensor) for tensor, fake in self._made.items() if isinstance(fake, FakeTensor))
        flags = [(fake, tensor) for fake, tensor in made if _is_flag(tensor)]
        flags += [(fake, self._given[fake]) for fake in given if isinstance(fake, FakeTensor)]
        values: Mapping[Tensor, Tensor] = dict(flags)

        def from_tensor(mode: FakeTensorMode, tensor: Tensor, **options: Any) -> FakeTensor:
            fake = usual(mode, tensor, **options)
            if tensor in values:
                _know(fake, values[tensor].clone)
            return fake

        for fake, tensor in flags:
            _know(fake, tensor.clone)
        try:
            known = mock.patch.object(fake_tensor, "CONSTANT_NUMEL_LIMIT", SMALL)
            listed = mock.patch.object(torch, "tensor", partial(_listed, torch.tensor))
            counted = mock.patch.object(FakeTensorMode, "dispatch", _counting(FakeTensorMode.dispatch))
            with known, listed, counted, mock.patch.object(FakeTensorMode, "from_tensor", from_tensor):
                yield
        finally:
            for fake, _ in flags:
                fake.constant = None

    def within(self, arguments: Any) -> Any:
        """The same structure with fake tensors, each another one: what is given twice need not be."""
        return tree_map_only(Tensor, self._argument, arguments)

    def tells(self, argument: object) -> bool:
        """Whether an argument may have values: few whole numbers that have some."""
        tensor = self._given.get(argument) if isinstance(argument, Tensor) else None
        return tensor is not None and _is_flag(tensor) and not tensor.is_floating_point()

    def _argument(self, tensor: Tensor) -> Tensor:
        made = self._another(tensor)
        self._given[made] = tensor
        return made

    def _another(self, tensor: Tensor) -> Tensor:
        with self.mode:
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(made, requires_grad=tensor.requires_grad)
        return made


def _counting(usual: Callable[..., object]) -> Callable[..., object]:
    """The same dispatch, in which numbers that are made of no tensor (`arange`) have values, too."""

    def dispatch(
        mode: FakeTensorMode,
        func: Callable[..., Tensor],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        made = usual(mode, func, types, args, kwargs)
        known = func in FACTORIES and not any(isinstance(one, NUMBERS) for one in tree_leaves((args, kwargs)))
        if known and isinstance(made, FakeTensor) and not made.is_floating_point() and made.numel() <= SMALL:
            _know(made, partial(func, *args, **(kwargs or {})))
        return made

    return dispatch


def _know(fake: FakeTensor, value: Callable[[], Tensor]) -> None:
    """Let a fake tensor have values, until something else is written to it."""
    with fake_tensor.unset_fake_temporarily():
        fake.constant = value()
    fake.fake_mode.fake_tensor_converter.add_constant_storage_mapping(fake)


def _listed(usual: Callable[..., Tensor], data: object, **options: object) -> Tensor:
    """`torch.tensor`, which takes tensors in a list by their values and asks none of a fake one."""
    known = (FakeTensor, lambda one: one if one.constant is None else one.constant.tolist())
    return usual(tree_map_only(*known, data), **options)


def _is_flag(tensor: Tensor) -> bool:
    return not isinstance(tensor, nn.Parameter) and not tensor.is_meta and tensor.numel() <= SMALL


@contextmanager
def standing_in(module: nn.Module, train: bool = False) -> Iterator[Fakes]:
    """The module with fake tensors, in the mode that is asked for.

    It is left exactly as it was, with all that its forward may have kept in attributes. What fails
    meanwhile is said by errors alone: torch would log whole graphs as well. Assertions about data hold, and
    loops over what data hit run over all.
    """
    parts, fakes = list(module.modules()), Fakes()
    logged = logging.root.manager.disable
    kept = [(part, dict(part.__dict__), _contents(part)) for part in parts]
    try:
        logging.disable(logging.CRITICAL)
        for part in parts:
            _exchange(part, fakes)
        module.train(train)
        with asserted(), over(), fakes.exchangeable():
            yield fakes
    finally:
        logging.disable(logged)
        for part, attributes, contents in kept:
            part.__dict__.clear()
            part.__dict__.update(attributes)
            for held, content in contents:
                _restore(held, content)


def _contents(part: nn.Module) -> list[tuple[Any, Any]]:
    """What its dictionaries and lists hold: a forward may add to them, as one that installs hooks does."""
    held = [one for one in part.__dict__.values() if isinstance(one, (dict, list))]
    return [(one, dict(one) if isinstance(one, dict) else list(one)) for one in held]


def _restore(held: Any, content: Any) -> None:
    """Let a dictionary or list hold what it held. Classes may refuse writes: those of their bases do not."""
    if len(held) == len(content) and all(map(operator.is_, _parts(held), _parts(content))):
        return
    if isinstance(held, list):
        list.__setitem__(held, slice(None), content)
        return
    kind = OrderedDict if isinstance(held, OrderedDict) else dict
    kind.clear(held)
    for key, value in content.items():
        kind.__setitem__(held, key, value)


def _parts(held: Any) -> list[Any]:
    return [*held, *dict.values(held)] if isinstance(held, dict) else held


@contextmanager
def exporting() -> Iterator[None]:
    """Models that ask whether they are captured are told so: they take the paths that captures take, and keep
    nothing for later that has no values.

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


def _exchange(part: nn.Module, fakes: Fakes) -> None:
    """Plain attributes with values stay: they are the program's constants."""
    places: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)
    for held in places:
        for name, tensor in held.items():
            held[name] = None if tensor is None else fakes.of(tensor)
    plain = {name: value for name, value in part.__dict__.items() if isinstance(value, Tensor)}
    part.__dict__.update({name: fakes.of(value) for name, value in plain.items() if value.is_meta})
