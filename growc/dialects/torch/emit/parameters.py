"""What the module of the result holds: parameters and buffers under the names that they are to have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export.graph_signature import InputKind

from growc.dialects.torch.capture.export import Captured
from growc.dialects.torch.emit.grown_module import Tensors
from growc.dialects.torch.lowering.lower import Read
from growc.dialects.torch.model import torch_model
from growc.dialects.torch.operators.arrays import to_torch
from growc.passes.compilation import Result
from growc.plans.plan import WeightPlan, attribute_of


def stored_name(captured: Captured, target: str) -> str:
    """The name of what a placeholder stands for: the first one of what is stored, its own of a constant."""
    return target if target in captured.constants else captured.names.get(target, target)


@dataclass(frozen=True)
class Holdings:
    """What the source holds, and the weights of the plan by name.

    kinds: parameters and buffers of the source by their first names, with whether a parameter is trained.
    unused: those that its graph does not read, which stay as they are. computed: weights that the source
    computes, where the result stores them: they are trained.
    """

    captured: Captured
    plans: Mapping[str, WeightPlan]
    kinds: Mapping[str, InputKind]
    passing: frozenset[str]
    frozen: frozenset[str]
    unused: frozenset[str]
    computed: frozenset[str]
    read: Read

    @staticmethod
    def of(c: Result) -> Holdings:
        """The holdings of a compiled module."""
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
        gone = frozenset(kinds) - used - passing
        made = frozenset(weight.name for weight in c.assembled.sources if weight.computed)
        return Holdings(captured, plans, kinds, frozenset(passing), frozenset(frozen), gone, made, model.read)

    def origin(self, name: str) -> str:
        """The tensor of the source that one of the result comes from."""
        plan = self.plans.get(name)
        return name if plan is None else plan.copy_of or plan.source

    def name(self, value: ir.Value) -> str:
        """The name under which the result holds a tensor.

        A use that parted from a tied tensor has one of the names that it had in the source, if there was one;
        a tensor that no state dict had gets one that no module has.
        """
        own = value.name or ""
        plan = self.plans.get(own)
        if self.origin(own) not in self.kinds:
            return attribute_of(own)
        if plan is None or plan.copy_of or plan.name == plan.source:
            origin, beside = self.origin(own), own.removeprefix(self.origin(own))
            return f"{origin}_{beside[1:]}" if beside.startswith(".") and beside != own else own
        return own if own in self.captured.names else own.replace(".", "_")

    def tensors(self, used: Iterable[ir.Value], make: Callable[[ir.Value], Tensor]) -> Tensors:
        """All tensors of the result; `make` gives those that a checkpoint holds."""
        found = Tensors()
        for value in used:
            name = value.name or ""
            if value.const_value is None:  # what evaluation does not read stays as it is
                own = self.captured.constants.get(name)
                if own is not None:
                    self.hold(found, name, name, own.clone())
                continue
            origin = self.origin(name)
            self.hold(
                found, self.name(value), origin, computed(value) if self.passes(origin) else make(value)
            )
        for name in sorted(self.unused):
            self.hold(found, name, name, self.read(name).detach().clone())
        for alias, first in self.captured.names.items():
            if first in found.parameters:
                found.parameters.setdefault(alias, found.parameters[first])
                found.origins.setdefault(alias, first)
            elif first in found.buffers:
                found.buffers.setdefault(alias, found.buffers[first])
                found.origins.setdefault(alias, first)
        found.sort(self.places([*found.parameters, *found.buffers]))
        return found

    def places(self, names: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """The order of names: the source's, and layers of the result by their numbers."""
        numbers = {name: k for k, name in enumerate(self.captured.names)}
        origins = {name: self.origin(name) for name in names}
        lists = {_list_of(name, origin) for name, origin in origins.items() if name != origin}
        starts = {one: min(k for name, k in numbers.items() if name.startswith(one)) for one in lists - {""}}
        found: dict[str, tuple[int, int, int]] = {}
        for name, origin in origins.items():
            at = numbers.get(origin, len(numbers))
            own = next((one for one in starts if name.startswith(one)), "")
            number = name[len(own) :].split(".")[0]
            found[name] = (starts[own], int(number), at) if own and number.isdigit() else (at, 0, 0)
        return found

    def hold(self, found: Tensors, name: str, origin: str, tensor: Tensor) -> None:
        """Take a tensor in, as what it was in the source."""
        found.origins[name] = origin
        if self.kinds.get(origin) is InputKind.PARAMETER or origin in self.computed:
            found.parameters[name] = nn.Parameter(tensor, requires_grad=origin not in self.frozen)
            return
        found.buffers[name] = tensor
        if self.passes(origin):
            found.passing.add(name)

    def passes(self, origin: str) -> bool:
        """Whether no state dict holds what comes from this."""
        return origin in self.passing or origin not in (self.kinds.keys() | self.computed)


def computed(value: ir.Value) -> Tensor:
    """The tensor of the result, from its plan."""
    assert value.const_value is not None
    return to_torch(value.const_value.numpy().copy())


def _list_of(name: str, origin: str) -> str:
    """What stands in both names before the number in which they differ; nothing if they differ otherwise."""
    parts, others = name.split("."), origin.split(".")
    for k, (part, other) in enumerate(zip(parts, others, strict=False)):
        if part != other:
            return ".".join([*parts[:k], ""]) if part.isdigit() and other.isdigit() else ""
    return ""
