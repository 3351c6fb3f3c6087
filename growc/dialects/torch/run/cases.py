"""Cases: inputs of a source and of its result on which both compute the same.

They are made from arguments of the source's forward. Caches get the sizes of the result. Unit numbers in
inputs become the new numbers. Repeated layers get inputs of their own.
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
from growc.dialects.torch.capture.export import ExportedModule
from growc.dialects.torch.capture.tracing import placeholder_values
from growc.dialects.torch.model import torch_model
from growc.dialects.torch.operators.arrays import to_numpy, to_torch, widened
from growc.dialects.torch.operators.call import DTYPES
from growc.dialects.torch.run.call_signature import CallSignature, identifier
from growc.dialects.torch.run.run_module import Inputs, outputs
from growc.passes.compilation import Result
from growc.passes.finish.interface import Ports, ports_of
from growc.plans.unitmaps import NumberMap

CaseDims = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Case:
    """Arguments of the source's forward, and those of the result's."""

    source: Inputs
    result: Inputs


@dataclass(frozen=True)
class PortMapping:
    """The relation of a result's inputs and outputs to those of its source.

    calling: the call signature of the source. ports: the changes of inputs and outputs. takes: the result's
    input tensors, with dtypes and sizes. output_names, returns: the names of the source's and the result's
    outputs.
    """

    calling: CallSignature | None = None
    ports: Ports = field(default_factory=Ports)
    takes: Mapping[str, tuple[torch.dtype, CaseDims]] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()

    @staticmethod
    def of(c: Result, result: ir.Model, returns: Sequence[str]) -> PortMapping:
        """Return the descent of a finished compilation and its rewritten model."""
        model = torch_model(c)
        takes = {v.name or "": (_dtype(v), _dims(v)) for v in result.graph.inputs}
        return PortMapping(
            CallSignature.of(model.captured), ports_of(c), takes, model.output_names, tuple(returns)
        )

    def cases(self, source: nn.Module, inputs: Inputs, captured: ExportedModule | None = None) -> list[Case]:
        """Return the given arguments, others of the same sizes, and others of new sizes, as cases.

        The new sizes are those that are open in `captured`, if the source runs on them.
        """
        others = [_drawn(inputs, 0, set() if self.calling is None else self.calling.decided(*inputs))]
        if self.calling is not None and captured is not None:
            others += _of_other_sizes(source, captured, self.calling, inputs)
        return [self.case(arguments) for arguments in (inputs, *others)]

    def case(self, inputs: Inputs) -> Case:
        """Return the case of these arguments of the source."""
        maps, renamed = self.ports.input_maps(), self.ports.renamed
        if self.calling is None or (not maps and self.takes.keys() == self.calling.tensors(*inputs).keys()):
            return Case(inputs, inputs)
        for name, input_maps in maps.items():
            for numbers in (m for m in input_maps if isinstance(m, NumberMap)):
                inputs = _kept(inputs, self.calling.tensors(*inputs)[name], numbers)
        feeds: dict[str, Any] = {}
        for name, tensor in self.calling.tensors(*inputs).items():
            array = to_numpy(tensor)
            for input_map in maps.get(name, ()):
                array = input_map.extend(array)
            new_name = renamed.get(name, name)
            if new_name is not None:
                feeds[new_name] = to_torch(array).to(tensor)
        feeds |= self._drawn(feeds)
        return Case(inputs, ((), {identifier(name): tensor for name, tensor in feeds.items()}))

    def feeds(self, case: Case) -> dict[str, Array]:
        """Return the result's inputs in a case as arrays, by name."""
        tensors = self.tensors(*case.result)
        return {name: to_numpy(widened(tensors[identifier(name)])) for name in self.takes}

    def feeds_of_source(self, case: Case) -> dict[str, Array]:
        """Return the source's inputs in a case as arrays, by name."""
        assert self.calling is not None
        tensors = self.calling.tensors(*case.source)
        return {name: to_numpy(widened(tensor)) for name, tensor in tensors.items()}

    def tensors(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Any]:
        """Return the tensors among arguments of the result, by their names in its graph."""
        assert self.calling is not None
        return self.calling.tensors(args, kwargs, [identifier(name) for name in self.takes])

    def signature(self) -> list[Parameter]:
        """Return the parameters of the result: the source's, and keywords that only the result has."""
        assert self.calling is not None
        return self.calling.signature([identifier(name) for name in self.takes])

    def _drawn(self, feeds: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield random tensors for inputs that only the result takes, in sizes that match the others."""
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


def _dims(value: ir.Value) -> CaseDims:
    assert value.shape is not None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def _drawn(inputs: Inputs, seed: int, stays: Set[Tensor]) -> Inputs:
    """Return other inputs of the same sizes: normal floats, and permuted integers of the given inputs.

    Tensors in `stays`, by which a forward decides, stay as they are.
    """
    random = torch.Generator().manual_seed(seed)

    def draw(tensor: Tensor) -> Tensor:
        if tensor in stays:
            return tensor
        if tensor.is_floating_point():
            return torch.randn(tensor.shape, generator=random).to(tensor)
        order = torch.randperm(tensor.numel(), generator=random).to(tensor.device)
        return tensor.reshape(-1)[order].reshape(tensor.shape)

    drawn: Inputs = tree_map_only(Tensor, draw, inputs)
    return drawn


def _of_other_sizes(
    source: nn.Module, captured: ExportedModule, calling: CallSignature, inputs: Inputs
) -> Iterator[Inputs]:
    """Yield inputs with each open size enlarged by one, and inputs of one row.

    If that many sizes fail, only the rows are enlarged.
    """
    for kinds in ({"batch", *captured.symbols.values()}, {"batch"}):
        larger = resized(captured, calling, inputs, partial(_one_more, kinds))
        if _runs(source, larger):
            yield larger
            break
    one_row = resized(captured, calling, inputs, lambda called, own: 1 if called == "batch" else own)
    if _runs(source, one_row):
        yield one_row


def _one_more(kinds: Set[str], called: str, own: int) -> int:
    return own + (called in kinds)


def resized(
    captured: ExportedModule, calling: CallSignature, inputs: Inputs, size_of: Callable[[str, int], int]
) -> Inputs:
    """Return inputs of other sizes, with their content repeated.

    size_of: returns the new size for the name and value of a size.
    """
    values = placeholder_values(captured.program)
    replacements: dict[Tensor, Tensor] = {}
    for name, tensor in calling.tensors(*inputs).items():
        new_tensor = tensor
        for axis, size in enumerate(values[name].shape if isinstance(tensor, Tensor) else ()):
            current = new_tensor.shape[axis]
            wanted = size_of(captured.symbols.get(str(size), str(size)), current)
            if wanted != current:
                new_tensor = new_tensor.index_select(
                    axis, torch.arange(wanted, device=new_tensor.device) % current
                )
        replacements[tensor] = new_tensor
    result: Inputs = tree_map_only(Tensor, lambda tensor: replacements.get(tensor, tensor), inputs)
    return result


def _runs(source: nn.Module, inputs: Inputs) -> bool:
    try:
        outputs(source, inputs)
    except (RuntimeError, ValueError, IndexError):
        return False
    return True


def _kept(inputs: Inputs, tensor: Tensor, numbers: NumberMap) -> Inputs:
    """Return arguments whose unit numbers are among those that the result still has."""
    count = len(numbers.kept)
    narrowed = to_torch(numbers.narrow(to_numpy(tensor.clamp(min=0)) % count)).to(tensor)
    result: Inputs = tree_map_only(
        Tensor, lambda t: torch.where(t < 0, t, narrowed) if t is tensor else t, inputs
    )
    return result
