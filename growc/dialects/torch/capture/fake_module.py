"""Temporary replacement of a module's tensors by fake tensors.

A fake tensor has a shape and no data, and reports the CPU as its device. On the meta device a module would
lose the constants that its forward makes. A constructor cannot always run with fake tensors. So the module
is built on meta or with values, and its tensors are exchanged afterwards. One memo keeps tied tensors tied.
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
"""Operators that make tensors with values from no tensor. Tensors without values come from other operators.
"""
NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
SMALL = 64
"""The most elements of a buffer that may be a flag: a value that a forward decides by."""


class Fakes:
    """Fake CPU tensors, one for each tensor of a module."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
        self._made: dict[Tensor, Tensor] = {}
        self._given: dict[Tensor, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """Return the fake tensor that replaces this one."""
        if tensor not in self._made:
            self._made[tensor] = self._another(tensor)
        return self._made[tensor]

    @contextmanager
    def exchangeable(self) -> Iterator[None]:
        """Let a forward convert its module inside the context.

        torch swaps tensors to convert a module, and refuses those that its memo refers to. Without a
        conversion nothing is swapped, since the tracer knows tensors by identity.
        """
        usual: Any = torch.utils.swap_tensors
        memo = self.mode.fake_tensor_converter.meta_converter.tensor_memo

        def exchange(first: Tensor, second: Tensor) -> None:
            if (first.dtype, first.device, first.shape) == (second.dtype, second.device, second.shape):
                return
            for key in [key for key, cached in memo.items() if cached is first or cached is second]:
                del memo[key]
            usual(first, second)

        with mock.patch.object(torch.utils, "swap_tensors", exchange):
            yield

    @contextmanager
    def valued(self, arguments: Collection[Tensor] = (), but: Collection[Tensor] = ()) -> Iterator[None]:
        """Give values to small buffers and to the tensors in `arguments`, since a forward may decide by them.

        but: buffers that get none.

        They have the values of the tensors that they replace. torch computes with them as with numbers that a
        forward makes. Trained parameters get no values.
        """
        usual = FakeTensorMode.from_tensor
        pairs = ((fake, tensor) for tensor, fake in self._made.items() if isinstance(fake, FakeTensor))
        without = set(but)
        flags = [(fake, tensor) for fake, tensor in pairs if _is_flag(tensor) and fake not in without]
        flags += [(fake, self._given[fake]) for fake in arguments if isinstance(fake, FakeTensor)]
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
        """Return the structure with a new fake tensor for each tensor, even for one that is given twice."""
        return tree_map_only(Tensor, self._argument, arguments)

    def tells(self, argument: object) -> bool:
        """Whether an argument may get values: it holds few whole numbers, and is not on meta."""
        tensor = self._given.get(argument) if isinstance(argument, Tensor) else None
        return tensor is not None and _is_flag(tensor) and not tensor.is_floating_point()

    def _argument(self, tensor: Tensor) -> Tensor:
        fake = self._another(tensor)
        self._given[fake] = tensor
        return fake

    def _another(self, tensor: Tensor) -> Tensor:
        with self.mode:
            fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(fake, requires_grad=tensor.requires_grad)
        return fake


def _counting(usual: Callable[..., object]) -> Callable[..., object]:
    """Return the dispatch, extended so that small tensors made from no tensor (`arange`) have values too."""

    def dispatch(
        mode: FakeTensorMode,
        func: Callable[..., Tensor],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = usual(mode, func, types, args, kwargs)
        known = func in FACTORIES and not any(
            isinstance(leaf, NUMBERS) for leaf in tree_leaves((args, kwargs))
        )
        if (
            known
            and isinstance(result, FakeTensor)
            and not result.is_floating_point()
            and result.numel() <= SMALL
        ):
            _know(result, partial(func, *args, **(kwargs or {})))
        return result

    return dispatch


def _know(fake: FakeTensor, value: Callable[[], Tensor]) -> None:
    """Give a fake tensor values, which it has until something is written to it."""
    with fake_tensor.unset_fake_temporarily():
        fake.constant = value()
    fake.fake_mode.fake_tensor_converter.add_constant_storage_mapping(fake)


def _listed(usual: Callable[..., Tensor], data: object, **options: object) -> Tensor:
    """Call `torch.tensor` with the values of fake tensors in lists.

    torch reads tensors in a list by value, but does not read the constant of a fake tensor.
    """
    known = (FakeTensor, lambda one: one if one.constant is None else one.constant.tolist())
    return usual(tree_map_only(*known, data), **options)


def _is_flag(tensor: Tensor) -> bool:
    return not isinstance(tensor, nn.Parameter) and not tensor.is_meta and tensor.numel() <= SMALL


@contextmanager
def standing_in(module: nn.Module, train: bool = False) -> Iterator[Fakes]:
    """Replace the tensors of a module by fake ones inside the context, in the requested mode.

    Afterwards the module is exactly as it was; attributes that its forward set are undone. Failures are
    reported by errors only, since torch would also log whole graphs. Assertions about data hold. Loops over
    hit numbers run over all numbers.
    """
    parts, fakes = list(module.modules()), Fakes()
    disabled_before = logging.root.manager.disable
    saved = [(part, dict(part.__dict__), _contents(part)) for part in parts]
    try:
        logging.disable(logging.CRITICAL)
        for part in parts:
            _exchange(part, fakes)
        module.train(train)
        with asserted(), over(), fakes.exchangeable():
            yield fakes
    finally:
        logging.disable(disabled_before)
        for part, attributes, contents in saved:
            part.__dict__.clear()
            part.__dict__.update(attributes)
            for container, content in contents:
                _restore(container, content)


def _contents(part: nn.Module) -> list[tuple[Any, Any]]:
    """Copy the content of a module's dictionaries and lists. A forward may add to them, for example hooks."""
    containers = [container for container in part.__dict__.values() if isinstance(container, (dict, list))]
    return [
        (container, dict(container) if isinstance(container, dict) else list(container))
        for container in containers
    ]


def _restore(container: Any, content: Any) -> None:
    """Restore the content of a dictionary or list.

    A subclass may refuse writes, so the methods of its base class are called.
    """
    if len(container) == len(content) and all(map(operator.is_, _parts(container), _parts(content))):
        return
    if isinstance(container, list):
        list.__setitem__(container, slice(None), content)
        return
    kind = OrderedDict if isinstance(container, OrderedDict) else dict
    kind.clear(container)
    for key, value in content.items():
        kind.__setitem__(container, key, value)


def _parts(container: Any) -> list[Any]:
    return [*container, *dict.values(container)] if isinstance(container, dict) else container


@contextmanager
def exporting() -> Iterator[None]:
    """Report to models that an export is running.

    They then take the paths for exports, and cache no tensors without values. torch's log is silent, since
    forwards are expected to fail here.
    """
    compiler, disabled_before = torch.compiler, logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    flags_before = compiler._is_exporting_flag, compiler._is_compiling_flag
    compiler._is_exporting_flag = compiler._is_compiling_flag = True
    try:
        yield
    finally:
        compiler._is_exporting_flag, compiler._is_compiling_flag = flags_before
        logging.disable(disabled_before)


def _exchange(part: nn.Module, fakes: Fakes) -> None:
    """Exchange the tensors of one module. Plain attributes with values stay, as constants of the program."""
    groups: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)
    for tensors in groups:
        for name, tensor in tensors.items():
            tensors[name] = None if tensor is None else fakes.of(tensor)
    plain = {name: value for name, value in part.__dict__.items() if isinstance(value, Tensor)}
    part.__dict__.update({name: fakes.of(value) for name, value in plain.items() if value.is_meta})
