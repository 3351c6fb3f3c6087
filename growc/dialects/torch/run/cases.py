"""What a source and its result are run on, so that both compute the same.

Needs: arguments of the source's forward. Gives: `Case`s. Caches of the result have its sizes, units that
inputs number have their new numbers, and layers that come again have inputs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from growc.algebra.indexmap import Array
from growc.dialects.torch.capture.export import Captured
from growc.dialects.torch.capture.tracing import placeholder_values
from growc.dialects.torch.model import torch_model
from growc.dialects.torch.operators.arrays import to_numpy, to_torch, widened
from growc.dialects.torch.operators.call import DTYPES
from growc.dialects.torch.run.call_signature import Calling, identifier
from growc.dialects.torch.run.run_module import Inputs, outputs
from growc.passes.compilation import Result
from growc.passes.finish.interface import Ports, ports_of
from growc.plans.unitmaps import NumberMap

Dims = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Case:
    """Arguments of the source's forward, and of the result's."""

    source: Inputs
    result: Inputs


@dataclass(frozen=True)
class Descent:
    """How what a result takes and gives follows from its source.

    calling: how the source is called. ports: what became of inputs and outputs. takes: the tensors that the
    result takes, with their types and sizes. gives, returns: the names of the outputs of source and result.
    """

    calling: Calling | None = None
    ports: Ports = field(default_factory=Ports)
    takes: Mapping[str, tuple[torch.dtype, Dims]] = field(default_factory=dict)
    gives: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()

    @staticmethod
    def of(c: Result, result: ir.Model, returns: Sequence[str]) -> Descent:
        """Of a finished compilation, and its model as it was rewritten."""
        model = torch_model(c)
        takes = {v.name or "": (_dtype(v), _dims(v)) for v in result.graph.inputs}
        return Descent(Calling.of(model.captured), ports_of(c), takes, model.gives, tuple(returns))

    def cases(self, source: nn.Module, inputs: Inputs, captured: Captured | None = None) -> list[Case]:
        """The arguments that are given, others of their sizes, and other sizes, where the source takes them:
        those that are open in what was `captured` of it.
        """
        others = [_drawn(inputs, 0, set() if self.calling is None else self.calling.decided(*inputs))]
        if self.calling is not None and captured is not None:
            others += _of_other_sizes(source, captured, self.calling, inputs)
        return [self.case(one) for one in (inputs, *others)]

    def case(self, inputs: Inputs) -> Case:
        """The case of these arguments of the source."""
        maps, renamed = self.ports.input_maps(), self.ports.renamed
        if self.calling is None or (not maps and self.takes.keys() == self.calling.tensors(*inputs).keys()):
            return Case(inputs, inputs)
        for name, found in maps.items():
            for numbers in (m for m in found if isinstance(m, NumberMap)):
                inputs = _kept(inputs, self.calling.tensors(*inputs)[name], numbers)
        feeds: dict[str, Any] = {}
        for name, tensor in self.calling.tensors(*inputs).items():
            array = to_numpy(tensor)
            for one in maps.get(name, ()):
                array = one.extend(array)
            own = renamed.get(name, name)
            if own is not None:
                feeds[own] = to_torch(array).to(tensor)
        feeds |= self._drawn(feeds)
        return Case(inputs, ((), {identifier(name): tensor for name, tensor in feeds.items()}))

    def feeds(self, case: Case) -> dict[str, Array]:
        """The arrays that the result takes in a case, by name."""
        tensors = self.tensors(*case.result)
        return {name: to_numpy(widened(tensors[identifier(name)])) for name in self.takes}

    def feeds_of_source(self, case: Case) -> dict[str, Array]:
        """The arrays that the source takes in a case, by name."""
        assert self.calling is not None
        given = self.calling.tensors(*case.source)
        return {name: to_numpy(widened(tensor)) for name, tensor in given.items()}

    def tensors(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Any]:
        """The tensors among arguments of the result, by the names that its graph has for them."""
        assert self.calling is not None
        return self.calling.tensors(args, kwargs, [identifier(name) for name in self.takes])

    def signature(self) -> list[Parameter]:
        """The arguments of the result: the source's, and those that only the result takes, by name."""
        assert self.calling is not None
        return self.calling.signature([identifier(name) for name in self.takes])

    def _drawn(self, feeds: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """What only the result takes, in sizes that go with the rest."""
        sizes = {
            dim: size
            for name, tensor in feeds.items()
            for dim, size in zip(self.takes[name][1], tensor.shape, strict=True)
        }
        random = torch.Generator().manual_seed(0)
        for name, (kind, dims) in self.takes.items():
            if name not in feeds:
                shape = [dim if isinstance(dim, int) else sizes[dim] for dim in dims]
                yield name, torch.randn(shape, generator=random).to(kind)


def _dtype(value: ir.Value) -> torch.dtype:
    return torch.float32 if value.dtype is None else DTYPES.get(value.dtype, torch.float32)


def _dims(value: ir.Value) -> Dims:
    assert value.shape is not None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def _drawn(inputs: Inputs, seed: int, stays: Set[Tensor]) -> Inputs:
    """Other inputs of the same sizes: normal numbers, and whole ones that stand in the given inputs. What a
    forward decides by stays.
    """
    random = torch.Generator().manual_seed(seed)

    def draw(tensor: Tensor) -> Tensor:
        if tensor in stays:
            return tensor
        if tensor.is_floating_point():
            return torch.randn(tensor.shape, generator=random).to(tensor)
        order = torch.randperm(tensor.numel(), generator=random).to(tensor.device)
        return tensor.reshape(-1)[order].reshape(tensor.shape)

    found: Inputs = tree_map_only(Tensor, draw, inputs)
    return found


def _of_other_sizes(
    source: nn.Module, captured: Captured, calling: Calling, inputs: Inputs
) -> Iterator[Inputs]:
    """Inputs with one more of everything that has any size, or else of the rows; and one row alone."""
    for kinds in ({"batch", *captured.symbols.values()}, {"batch"}):
        made = resized(captured, calling, inputs, partial(_one_more, kinds))
        if _runs(source, made):
            yield made
            break
    alone = resized(captured, calling, inputs, lambda called, own: 1 if called == "batch" else own)
    if _runs(source, alone):
        yield alone


def _one_more(kinds: Set[str], called: str, own: int) -> int:
    return own + (called in kinds)


def resized(
    captured: Captured, calling: Calling, inputs: Inputs, size_of: Callable[[str, int], int]
) -> Inputs:
    """Inputs of other sizes, what stands in them again and again.

    `size_of`: what a size is to be, by what it is called, and what it is.
    """
    values = placeholder_values(captured.program)
    made: dict[Tensor, Tensor] = {}
    for name, tensor in calling.tensors(*inputs).items():
        other = tensor
        for axis, size in enumerate(values[name].shape if isinstance(tensor, Tensor) else ()):
            own = other.shape[axis]
            wanted = size_of(captured.symbols.get(str(size), str(size)), own)
            if wanted != own:
                other = other.index_select(axis, torch.arange(wanted, device=other.device) % own)
        made[tensor] = other
    found: Inputs = tree_map_only(Tensor, lambda tensor: made.get(tensor, tensor), inputs)
    return found


def _runs(source: nn.Module, inputs: Inputs) -> bool:
    try:
        outputs(source, inputs)
    except (RuntimeError, ValueError, IndexError):
        return False
    return True


def _kept(inputs: Inputs, tensor: Tensor, numbers: NumberMap) -> Inputs:
    """Arguments with numbers of units that the result still has."""
    count = len(numbers.kept)
    there = to_torch(numbers.narrow(to_numpy(tensor.clamp(min=0)) % count)).to(tensor)
    found: Inputs = tree_map_only(
        Tensor, lambda t: torch.where(t < 0, t, there) if t is tensor else t, inputs
    )
    return found
