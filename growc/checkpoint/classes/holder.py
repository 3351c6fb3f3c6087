"""A class of transformers with weights that lie anywhere: what a config is solved for, and what is grown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from growc.algebra.indexmap import Array
from growc.checkpoint.files.safetensors_file import Entry
from growc.checkpoint.files.torch_tensors import without_data
from growc.dialects.torch.operators.arrays import to_torch
from growc.dialects.transformers.config.shapes import same_tensors

if TYPE_CHECKING:
    import torch
    from torch import nn

    from growc.dialects.transformers.config.trials import Build
    from growc.plans.rows import Rows


@dataclass(frozen=True)
class Holder(ABC):
    """A class and its weights.

    module: on meta. stored: for every name of the class's state, the one under which the same tensor lies.
    config: what the class is built from. build: what builds it from another config. remark: what a plan says.
    """

    remark: ClassVar[str] = ""
    module: nn.Module
    stored: Mapping[str, str]
    config: Mapping[str, Any]
    build: Build

    @abstractmethod
    def entry(self, name: str) -> Entry:
        """What one tensor of the class's state is, by any of its names."""

    @abstractmethod
    def read(self, name: str) -> Array:
        """One tensor of the class's state, by any of its names, as it is stored."""

    def rows(self, name: str) -> Rows | None:
        """One tensor by its rows, where it is stored in parts that need not be joined to be read."""
        return None

    def has(self, name: str) -> bool:
        """Whether the values of a tensor are known."""
        return True

    @cached_property
    def first(self) -> dict[str, str]:
        """For every name of a tensor of the state, the first of its names."""
        return first_names(self.module)

    def stored_tensor(self, name: str) -> torch.Tensor:
        """The same as a tensor of torch."""
        return to_torch(self.read(name))

    def outline(self, name: str) -> torch.Tensor:
        """The same on meta, for a class that computes in single precision."""
        return single(without_data(self.entry(name)))

    def tensor(self, name: str) -> torch.Tensor:
        """The same for a class that computes in single precision."""
        return single(self.stored_tensor(name))


def single(tensor: torch.Tensor) -> torch.Tensor:
    """Real numbers as a class has them that computes in single precision."""
    return tensor.float() if tensor.is_floating_point() else tensor


def first_names(module: nn.Module) -> dict[str, str]:
    """For every name of a tensor of a module's state, the first of its names."""
    return {name: same[0] for same in same_tensors(module) for name in same}
