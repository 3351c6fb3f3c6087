"""Runs of modules in either mode, optionally with wider dtypes throughout, and without randomness.

A module's own calls decide on dtypes (rotary angles in float32) and on random draws (dropout in training). So
torch's dispatch is changed, not the module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

from growc.algebra.indexmap import Array
from growc.dialects.torch.capture.example_inputs import capturable
from growc.dialects.torch.operators.arrays import moved, to_numpy, widened
from growc.errors.diagnostic import Attempt

aten = torch.ops.aten

Inputs = tuple[Sequence[object], Mapping[str, object]]
"""Positional and named arguments of forward."""

NARROWER: Mapping[torch.dtype, Set[torch.dtype]] = {
    torch.float32: {torch.float16, torch.bfloat16},
    torch.float64: {torch.float16, torch.bfloat16, torch.float32},
    torch.complex128: {torch.complex32, torch.complex64},
}
"""Floating-point and complex dtypes, each with all narrower ones."""


def is_narrow(module: nn.Module) -> bool:
    """Whether a module has 16-bit weights."""
    return any(one.dtype in NARROWER[torch.float32] for one in module.parameters())


class WideDispatch(TorchDispatchMode):
    """A dispatch mode that computes with at least one dtype, even if a call asks for a narrower one.

    A module's own tensors must have that dtype already, otherwise writes to them are lost. rounds: casts to a
    narrower dtype still round the numbers to it.
    """

    def __init__(self, kind: torch.dtype, *, rounds: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rounds = rounds
        kinds = (kind, torch.complex128) if kind is torch.float64 else (kind,)
        self.kinds = {narrow: one for one in kinds for narrow in NARROWER[one]}

    def __torch_dispatch__(
        self,
        call: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """Make a call with widened operands, and widen its results."""
        dtype = (kwargs or {}).get("dtype")
        args, kwargs = tree_map(self.wide, (args, kwargs or {}))
        result = call(*args, **kwargs)
        if self.rounds and call is aten._to_copy.default and dtype in self.kinds:
            result = result.to(dtype)
        return tree_map(self.wide, result)

    def wide(self, value: object) -> Any:
        """Return a tensor or dtype in the wider dtype, and anything else unchanged."""
        if isinstance(value, Tensor):
            return value.to(self.kinds[value.dtype]) if value.dtype in self.kinds else value
        return self.kinds.get(value, value) if isinstance(value, torch.dtype) else value


class WithoutRandomness(TorchDispatchMode):
    """A dispatch mode in which random draws give their expectation. Dropout keeps all elements unscaled."""

    def __torch_dispatch__(
        self,
        call: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """Make a call, or replace it if it draws random numbers."""
        if call in DRAWN:
            return DRAWN[call](*args)
        return call(*args, **(kwargs or {}))


DRAWN: Mapping[Any, Callable[..., Any]] = {
    aten.bernoulli.default: torch.clone,
    aten.bernoulli.p: torch.full_like,
    aten.bernoulli_.Tensor: lambda x, p: x.copy_(p),
    aten.bernoulli_.float: lambda x, p=0.5: x.fill_(p),
    aten.native_dropout.default: lambda x, p, train: (x.clone(), torch.ones_like(x, dtype=torch.bool)),
    aten.normal_.default: lambda x, mean=0.0, deviation=1.0: x.fill_(mean),
    aten.normal_functional.default: lambda x, mean=0.0, deviation=1.0: torch.full_like(x, mean),
    aten.uniform_.default: lambda x, low=0.0, high=1.0: x.fill_((low + high) / 2),
    aten.uniform.default: lambda x, low=0.0, high=1.0: torch.full_like(x, (low + high) / 2),
}
"""Replacements for calls that draw. All other draws are equal for the same seed."""


def outputs(module: nn.Module, inputs: Inputs, *, train: bool = False) -> list[Array]:
    """Return the outputs of a module as arrays: 16-bit floats as float32, complex numbers as pairs.

    Training mode runs without randomness. The module, its buffers, and caches among the inputs are left as
    they were.
    """
    args, kwargs = tree_map(lambda leaf: leaf, inputs)  # a copy: a forward may add to a given cache
    with contextlib.ExitStack() as stack, torch.no_grad():
        stack.enter_context(_in_mode(module, train))
        if train:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.manual_seed(0)
            stack.enter_context(WithoutRandomness())  # type: ignore[no-untyped-call]
        leaves = tree_flatten(module(*args, **kwargs))[0]
    tensors = (value for value in leaves if isinstance(value, Tensor))
    return [to_numpy(widened(_real(tensor))) for tensor in tensors]


def moved_module(module: nn.Module) -> nn.Module:
    """Return a copy whose weights are moved by half a unit in the last place."""
    copy = _copy(module)
    for parameter in copy.parameters():
        parameter.data = moved(parameter.data)
    return copy


class WiderModule:
    """A module run with wider dtypes or, if a call does not support these, with other kernels.

    rounds: casts to narrower dtypes still round.
    """

    def __init__(self, module: nn.Module, kind: torch.dtype = torch.float64, *, rounds: bool = False) -> None:
        self.module, self.wide, self.mode = module, _copy(module), WideDispatch(kind, rounds=rounds)
        self.wide._apply(self.mode.wide)

    def outputs(self, inputs: Inputs, *, train: bool = False) -> list[Array]:
        """Return the outputs as for the module itself."""
        try:
            with capturable(self.wide), self.mode:
                return outputs(self.wide, tree_map_only(Tensor, self.mode.wide, inputs), train=train)
        except RuntimeError:
            with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
                return outputs(self.module, inputs, train=train)


def _copy(module: nn.Module) -> nn.Module:
    """Return a copy of a module.

    A dictionary that refuses writes cannot be copied. It has no parameters, so both modules share it.
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        for attribute in vars(part).values():
            if isinstance(attribute, dict) and type(attribute) is not dict:
                with Attempt() as attempt:
                    deepcopy(attribute, dict(memo))
                if attempt.error is not None:
                    memo[id(attribute)] = attribute
    return deepcopy(module, memo)


@contextlib.contextmanager
def _in_mode(module: nn.Module, train: bool) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    saved_buffers = [(buffer, buffer.clone()) for buffer in module.buffers()] if train else []
    module.train(train)
    try:
        yield
    finally:
        module.train(modes[0][1])  # this also chooses the graph of a GrownModule
        for part, training in modes:
            part.training = training
        for buffer, value in saved_buffers:
            buffer.copy_(value)


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
