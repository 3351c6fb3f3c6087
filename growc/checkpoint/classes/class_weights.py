"""A class of transformers and its weights, wherever they are: the object that is grown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from growc.algebra.indexmap import Array
from growc.checkpoint.files.safetensors_file import HeaderEntry
from growc.checkpoint.files.torch_tensors import without_data
from growc.dialects.torch.operators.arrays import to_torch
from growc.dialects.transformers.config.shapes import same_tensors

if TYPE_CHECKING:
    import torch
    from torch import nn

    from growc.dialects.transformers.config.trials import Build
    from growc.plans.lazy_rows import Rows


@dataclass(frozen=True)
class ClassWeights(ABC):
    """A class and its weights.

    module: on the meta device. stored: for every name of the class's state, the name under which the same
    tensor is stored. config: what the class is built from. build: builds the class from another config.
    remark: a note for the plan.
    """

    remark: ClassVar[str] = ""
    module: nn.Module
    stored: Mapping[str, str]
    config: Mapping[str, Any]
    build: Build

    @abstractmethod
    def entry(self, name: str) -> HeaderEntry:
        """Name, element type and shape of one tensor of the class's state, by any of its names."""

    @abstractmethod
    def read(self, name: str) -> Array:
        """Values of one tensor of the class's state, by any of its names, in the stored element type."""

    def rows(self, name: str) -> Rows | None:
        """One tensor by rows if it is stored in parts that can be read separately; otherwise None."""
        return None

    def has(self, name: str) -> bool:
        """Whether the values of a tensor are known."""
        return True

    @cached_property
    def first(self) -> dict[str, str]:
        """For every name of a tensor of the state, the tensor's first name."""
        return first_names(self.module)

    def stored_tensor(self, name: str) -> torch.Tensor:
        """One tensor of the class's state as a torch tensor, in the stored element type."""
        return to_torch(self.read(name))

    def outline(self, name: str) -> torch.Tensor:
        """One tensor on the meta device, for a class that computes in single precision."""
        return single(without_data(self.entry(name)))

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor for a class that computes in single precision."""
        return single(self.stored_tensor(name))


def single(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in single precision if it holds real numbers; otherwise unchanged."""
    return tensor.float() if tensor.is_floating_point() else tensor


def first_names(module: nn.Module) -> dict[str, str]:
    """For every name of a tensor of a module's state, the tensor's first name."""
    return {name: tied[0] for tied in same_tensors(module) for name in tied}
