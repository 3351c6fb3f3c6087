"""Running modules: in either mode, with wider numbers throughout, and without chance.

A module's own calls decide on types (rotary angles in float32) and on chance (dropout in training), so what
torch dispatches is changed, and not the module.
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
"""Types of real and of complex numbers, and all that have fewer bits."""


def is_narrow(module: nn.Module) -> bool:
    """Whether a module has weights of 16 bits."""
    return any(one.dtype in NARROWER[torch.float32] for one in module.parameters())


class Widened(TorchDispatchMode):
    """All real numbers are of one type, if not of a wider one, whatever type a call asks for.

    A module's own tensors must be of that type already, or what it writes to them is lost. rounds: what
    a call casts to a narrower type is rounded to it all the same.
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
        """Make a call with wider operands, and its results wider."""
        asked = (kwargs or {}).get("dtype")
        args, kwargs = tree_map(self.wide, (args, kwargs or {}))
        made = call(*args, **kwargs)
        if self.rounds and call is aten._to_copy.default and asked in self.kinds:
            made = made.to(asked)
        return tree_map(self.wide, made)

    def wide(self, value: object) -> Any:
        """A tensor, or the name of a type, as it is to be; anything else as it is."""
        if isinstance(value, Tensor):
            return value.to(self.kinds[value.dtype]) if value.dtype in self.kinds else value
        return self.kinds.get(value, value) if isinstance(value, torch.dtype) else value


class Expected(TorchDispatchMode):
    """What is drawn is what is expected: dropout keeps everything, as it is."""

    def __torch_dispatch__(
        self,
        call: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """Make a call, but for those that draw."""
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
"""What stands in the place of calls that draw. All others draw alike from the same seed."""


def outputs(module: nn.Module, inputs: Inputs, *, train: bool = False) -> list[Array]:
    """What a module gives, as arrays: 16-bit numbers as float32, complex ones as pairs.

    In training without chance; the module and its buffers are left as they were, and caches among the inputs.
    """
    args, kwargs = tree_map(lambda leaf: leaf, inputs)  # a forward may add to a cache that it is given
    with contextlib.ExitStack() as stack, torch.no_grad():
        stack.enter_context(_in_mode(module, train))
        if train:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.manual_seed(0)
            stack.enter_context(Expected())  # type: ignore[no-untyped-call]
        found = tree_flatten(module(*args, **kwargs))[0]
    tensors = (value for value in found if isinstance(value, Tensor))
    return [to_numpy(widened(_real(tensor))) for tensor in tensors]


def moved_module(module: nn.Module) -> nn.Module:
    """A copy whose weights are moved by half a unit of their last place."""
    copy = _copy(module)
    for parameter in copy.parameters():
        parameter.data = moved(parameter.data)
    return copy


class Otherwise:
    """A module with wider numbers, that `rounds` or not; where a call knows no such, by other kernels."""

    def __init__(self, module: nn.Module, kind: torch.dtype = torch.float64, *, rounds: bool = False) -> None:
        self.module, self.wide, self.mode = module, _copy(module), Widened(kind, rounds=rounds)
        self.wide._apply(self.mode.wide)

    def outputs(self, inputs: Inputs, *, train: bool = False) -> list[Array]:
        """As of the module itself."""
        try:
            with capturable(self.wide), self.mode:
                return outputs(self.wide, tree_map_only(Tensor, self.mode.wide, inputs), train=train)
        except RuntimeError:
            with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
                return outputs(self.module, inputs, train=train)


def _copy(module: nn.Module) -> nn.Module:
    """A copy of a module. A dictionary that refuses writes cannot be copied: it has no parameters, and both
    have it.
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        for held in vars(part).values():
            if isinstance(held, dict) and type(held) is not dict:
                with Attempt() as attempt:
                    deepcopy(held, dict(memo))
                if attempt.error is not None:
                    memo[id(held)] = held
    return deepcopy(module, memo)


@contextlib.contextmanager
def _in_mode(module: nn.Module, train: bool) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    kept = [(buffer, buffer.clone()) for buffer in module.buffers()] if train else []
    module.train(train)
    try:
        yield
    finally:
        module.train(modes[0][1])  # which chooses a graph, too
        for part, training in modes:
            part.training = training
        for buffer, value in kept:
            buffer.copy_(value)


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
