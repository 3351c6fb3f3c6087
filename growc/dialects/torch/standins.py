"""A module with fake tensors in the place of its own, for a while.

Fake tensors have a shape and no data, and say that they are on the CPU. A module on the meta device would
lose the constants that its forward makes, and its constructor cannot always run among fake tensors: so it is
built on meta or for real, and its tensors are exchanged afterwards. One memo makes what is tied stay tied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_map_only

__all__ = ["Fakes", "standing_in"]


class Fakes:
    """Fake CPU tensors, one for each tensor."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
        self._made: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """The tensor that stands for this one."""
        if id(tensor) not in self._made:
            with self.mode:
                made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            if isinstance(tensor, nn.Parameter):
                made = nn.Parameter(made, requires_grad=tensor.requires_grad)
            self._made[id(tensor)] = tensor, made  # the first is held, so that its id stays its own
        return self._made[id(tensor)][1]

    def within(self, arguments: Any) -> Any:
        """The same structure with fake tensors."""
        return tree_map_only(Tensor, self.of, arguments)


@contextmanager
def standing_in(module: nn.Module, train: bool = False) -> Iterator[Fakes]:
    """The module with fake tensors, in the mode that is asked for; left exactly as it was."""
    fakes = Fakes()
    modes = [(part, part.training) for part in module.modules()]
    replaced: list[Callable[[], None]] = []
    try:
        for part in module.modules():
            replaced += [_exchange(place, name, fakes) for place, name in _places(part)]
        module.train(train)
        yield fakes
    finally:
        for restore in reversed(replaced):
            restore()
        for part, training in modes:
            part.training = training


def _places(part: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Where a module keeps tensors. Plain attributes with values stay: they are the program's constants."""
    places = [(held, name) for held in (part._parameters, part._buffers) for name in held]
    plain = [(part.__dict__, n) for n, v in part.__dict__.items() if isinstance(v, Tensor) and v.is_meta]
    return [(held, name) for held, name in [*places, *plain] if held[name] is not None]


def _exchange(held: dict[str, Any], name: str, fakes: Fakes) -> Callable[[], None]:
    own = held[name]
    held[name] = fakes.of(own)
    return lambda: held.__setitem__(name, own)
