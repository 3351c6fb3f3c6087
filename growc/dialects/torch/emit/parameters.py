"""Parameters and buffers of the resulting module, under their final names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export.graph_signature import InputKind

from growc.dialects.torch.capture.export import ExportedModule
from growc.dialects.torch.emit.grown_module import Tensors
from growc.dialects.torch.lowering.lower import ReadParameter
from growc.dialects.torch.model import torch_model
from growc.dialects.torch.operators.arrays import to_torch
from growc.passes.compilation import Result
from growc.plans.plan import WeightPlan, attribute_of


def stored_name(captured: ExportedModule, target: str) -> str:
    """Return the name of a placeholder's tensor: the first name if stored, its own if it is a constant."""
    return target if target in captured.constants else captured.names.get(target, target)


@dataclass(frozen=True)
class SourceTensors:
    """The tensors of the source, and the weights of the plan by name.

    kinds: whether a tensor of the source is a parameter, buffer or constant, by its first name.
    passing: tensors that no state dict holds.
    frozen: tensors that are not trained.
    unused: stored tensors that the graph does not read. They stay as they are.
    computed: weights that the source computes and the result stores. They are trained.
    """

    captured: ExportedModule
    plans: Mapping[str, WeightPlan]
    kinds: Mapping[str, InputKind]
    passing: frozenset[str]
    frozen: frozenset[str]
    unused: frozenset[str]
    computed: frozenset[str]
    read: ReadParameter

    @staticmethod
    def of(c: Result) -> SourceTensors:
        """Return the tensors of a compiled module."""
        model = torch_model(c)
        captured = model.captured
        program = captured.program
        nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
        kinds: dict[str, InputKind] = {}
        passing, frozen, used = set(), set(), set()
        for spec in program.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT:
                continue
            name = stored_name(captured, str(spec.target))
            kinds[name] = spec.kind
            if nodes[spec.arg.name].users:
                used.add(name)
            if name in captured.constants:
                passing.add(name)
            if not program.state_dict.get(str(spec.target), torch.empty(0)).requires_grad:
                frozen.add(name)
        plans = {w.name: w for w in c.assembled.weights}
        unused = frozenset(kinds) - used - passing
        computed_names = frozenset(weight.name for weight in c.assembled.sources if weight.computed)
        return SourceTensors(
            captured, plans, kinds, frozenset(passing), frozenset(frozen), unused, computed_names, model.read
        )

    def origin(self, name: str) -> str:
        """Return the tensor of the source that a tensor of the result comes from."""
        plan = self.plans.get(name)
        return name if plan is None else plan.copy_of or plan.source

    def name(self, value: ir.Value) -> str:
        """Return the name of a tensor in the result.

        A use that is no longer tied has one of its names in the source, if it had one. A tensor that no state
        dict had gets a name that no module has.
        """
        own = value.name or ""
        plan = self.plans.get(own)
        if self.origin(own) not in self.kinds:
            return attribute_of(own)
        if plan is None or plan.copy_of or plan.name == plan.source:
            origin, suffix = self.origin(own), own.removeprefix(self.origin(own))
            return f"{origin}_{suffix[1:]}" if suffix.startswith(".") and suffix != own else own
        return own if own in self.captured.names else own.replace(".", "_")

    def tensors(self, used: Iterable[ir.Value], make: Callable[[ir.Value], Tensor]) -> Tensors:
        """Return all tensors of the result. `make` computes those that a checkpoint holds."""
        result = Tensors()
        for value in used:
            name = value.name or ""
            if value.const_value is None:  # evaluation does not read it, so it stays as it is
                constant = self.captured.constants.get(name)
                if constant is not None:
                    self.add(result, name, name, constant.clone())
                continue
            origin = self.origin(name)
            self.add(
                result, self.name(value), origin, computed(value) if self.passes(origin) else make(value)
            )
        for name in sorted(self.unused):
            self.add(result, name, name, self.read(name).detach().clone())
        for alias, first in self.captured.names.items():
            if first in result.parameters:
                result.parameters.setdefault(alias, result.parameters[first])
                result.origins.setdefault(alias, first)
            elif first in result.buffers:
                result.buffers.setdefault(alias, result.buffers[first])
                result.origins.setdefault(alias, first)
        result.sort(self.places([*result.parameters, *result.buffers]))
        return result

    def places(self, names: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """Return sort keys for names: the order of the source, with the result's layers by their numbers."""
        numbers = {name: k for k, name in enumerate(self.captured.names)}
        origins = {name: self.origin(name) for name in names}
        list_prefixes = {_list_of(name, origin) for name, origin in origins.items() if name != origin}
        starts = {
            one: min(k for name, k in numbers.items() if name.startswith(one)) for one in list_prefixes - {""}
        }
        keys: dict[str, tuple[int, int, int]] = {}
        for name, origin in origins.items():
            position = numbers.get(origin, len(numbers))
            list_prefix = next((one for one in starts if name.startswith(one)), "")
            number = name[len(list_prefix) :].split(".")[0]
            keys[name] = (
                (starts[list_prefix], int(number), position)
                if list_prefix and number.isdigit()
                else (position, 0, 0)
            )
        return keys

    def add(self, tensors: Tensors, name: str, origin: str, tensor: Tensor) -> None:
        """Add a tensor to `tensors`, as a parameter or buffer as in the source."""
        tensors.origins[name] = origin
        if self.kinds.get(origin) is InputKind.PARAMETER or origin in self.computed:
            tensors.parameters[name] = nn.Parameter(tensor, requires_grad=origin not in self.frozen)
            return
        tensors.buffers[name] = tensor
        if self.passes(origin):
            tensors.passing.add(name)

    def passes(self, origin: str) -> bool:
        """Whether no state dict holds the tensors that come from this one."""
        return origin in self.passing or origin not in (self.kinds.keys() | self.computed)


def computed(value: ir.Value) -> Tensor:
    """Return a tensor of the result, computed from its plan."""
    assert value.const_value is not None
    return to_torch(value.const_value.numpy().copy())


def _list_of(name: str, origin: str) -> str:
    """Return the common prefix of two names that first differ in a layer number, or an empty string."""
    parts, others = name.split("."), origin.split(".")
    for k, (part, other) in enumerate(zip(parts, others, strict=False)):
        if part != other:
            return ".".join([*parts[:k], ""]) if part.isdigit() and other.isdigit() else ""
    return ""
