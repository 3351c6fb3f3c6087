"""Capture of a module by torch.export as an FX graph of whole ATen operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export._tree_utils import reorder_kwargs
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.utils._pytree import tree_flatten, tree_unflatten

from growc.dialects.torch.capture.fake_module import standing_in
from growc.dialects.torch.capture.functionalize import writes
from growc.dialects.torch.capture.tracing import NamedAxes, by_name, free_axes, named_symbols, trace
from growc.errors.diagnostic import Diagnostic, GrowError

__all__ = ["ExportedModule", "export", "is_tensor", "run", "run_flat"]

T = TypeVar("T")


@dataclass(frozen=True)
class ExportedModule:
    """The computation of a module.

    program: an exported program of whole ATen operators. The target of a placeholder names its parameter or
        buffer.
    names: for each name of a parameter or buffer, the first name of the same tensor. A graph uses any one
        name of a tied tensor.
    constants: tensors that no state dict holds, by the targets of their placeholders: buffers that are not
        stored, and tensors that forward makes. None if the module was on meta and only its class knows the
        value.
    symbols: the names of the program's symbols. Symbols of one name are meant to be equal.
    parameters: the names of the positional arguments of forward. rest: the name of its variadic argument.
    values: the argument values that the program is specialised to, where forward decides by values.
    """

    program: ExportedProgram
    names: Mapping[str, str]
    constants: Mapping[str, Tensor | None]
    symbols: Mapping[str, str]
    parameters: tuple[str, ...] = ()
    rest: str = ""
    values: Mapping[str, Tensor] = field(default_factory=dict)

    @cached_property
    def aliases(self) -> Mapping[str, tuple[str, ...]]:
        """The other names of a tensor, by its first name."""
        others: dict[str, tuple[str, ...]] = {}
        for name, first in self.names.items():
            if name != first:
                others[first] = (*others.get(first, ()), name)
        return others

    @property
    def reads(self) -> frozenset[str]:
        """The parameters and buffers that the program reads, each by one of its names."""
        placeholders = self.program.graph.find_nodes(op="placeholder")
        pairs = zip(placeholders, self.program.graph_signature.input_specs, strict=True)
        return frozenset(str(spec.target) for node, spec in pairs if spec.target and node.users)

    @property
    def returned(self) -> list[Any]:
        """The values that the program returns, in order; see `is_tensor`."""
        results = self.program.graph.output_node().args[0]
        assert isinstance(results, Sequence), "torch.export gives a tuple"
        return self.given_out(results)

    def given_out(self, results: Sequence[T]) -> list[T]:
        """Select the results of the program that its caller gets."""
        pairs = zip(results, self.program.graph_signature.output_specs, strict=True)
        return [result for result, spec in pairs if spec.kind is OutputKind.USER_OUTPUT]

    @property
    def written(self) -> list[str]:
        """The names of the tensors that a run of the program changes."""
        signature = self.program.graph_signature
        target_of = {spec.arg.name: str(spec.target) for spec in signature.input_specs}
        targets_written = [target_of.get(node.name, node.name) for node in writes(self.program.graph)]
        other_outputs = [s for s in signature.output_specs if s.kind is not OutputKind.USER_OUTPUT]
        return targets_written + [str(spec.target or spec.arg.name) for spec in other_outputs]

    def require_pure(self) -> None:
        """Raise GrowError (G308) if a run of the program changes a tensor, which a grown module would not."""
        if self.written:
            message = f"evaluation writes to `{self.written[0]}`, and what is grown from that would not"
            raise GrowError(Diagnostic("G308", message, help="export the model without this state"))


def export(
    module: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool = False,
    axes: NamedAxes | None = None,
    deciding: bool = False,
) -> ExportedModule:
    """Capture a module, on meta or with values. The module is left as it was.

    args, kwargs: example inputs. Only their sizes count, unless `deciding` is set.
    axes: the axes of any size. The default is the rows of all inputs, and the sequence of token ids and of
        vectors. Fewer are free where torch finds that the module works with one size only.
    deciding: the program may be specialised to the given values of arguments of few whole numbers, if forward
        asks for these values.

    Raises GrowError (G317) with torch's reason for a module that cannot be captured.
    """
    named = by_name(module, args, kwargs or {})
    free = free_axes(named) if axes is None else axes
    with standing_in(module, train) as fakes, torch.no_grad():
        fake_inputs = fakes.within(tuple(args)), fakes.within(dict(kwargs or {}))
        program, decided = trace(module, *fake_inputs, free, fakes, deciding)
    values = {name: named[name].clone() for name in sorted(decided)}
    symbols = named_symbols(program, named.items(), free)
    kinds = inspect.signature(module.forward).parameters.values()
    parameters = tuple(p.name for p in kinds if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    rest = next((p.name for p in kinds if p.kind is p.VAR_POSITIONAL), "")
    constants = _constants(module, program)
    return ExportedModule(program, tensor_names(module), constants, symbols, parameters, rest, values)


def tensor_names(module: nn.Module) -> dict[str, str]:
    """Return, for each name of a tensor of a module, the first name of that tensor in state-dict order."""
    first: dict[Tensor, str] = {}
    own = {"recurse": False, "remove_duplicate": False}
    tensors = [
        pair
        for prefix, part in module.named_modules(remove_duplicate=False)
        for pair in (*part.named_parameters(prefix, **own), *part.named_buffers(prefix, **own))
    ]
    return {name: first.setdefault(tensor, name) for name, tensor in tensors}


def _constants(module: nn.Module, program: ExportedProgram) -> dict[str, Tensor | None]:
    """Return the tensors that are not stored: buffers of the module, and tensors that forward made."""
    own = dict(module.named_buffers(remove_duplicate=False))
    stored = module.state_dict(keep_vars=True)
    constants: dict[str, Tensor | None] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind not in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR) or spec.target in stored:
            continue
        target = str(spec.target)
        value = own[target] if target in own else program.constants[target]
        constants[target] = None if value.is_meta or isinstance(value, FakeTensor) else value
    return constants


def run(
    captured: ExportedModule,
    tensors: Callable[[str], Tensor],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Run the program with parameters and stored buffers from `tensors`, and with its own constants.

    The result is that of the module's forward, without the classes that a module wraps around its outputs.
    """
    spec = captured.program.call_spec
    leaves = tree_flatten((tuple(args), reorder_kwargs(dict(kwargs or {}), spec.in_spec)))[0]
    results = run_flat(captured, lambda target: tensors(captured.names[target]), leaves)
    return tree_unflatten(results, spec.out_spec)


def run_named(
    captured: ExportedModule, stored: Callable[[str], Tensor], inputs: Mapping[str, Tensor]
) -> list[Tensor]:
    """Return the program's tensors for inputs by name. `stored` takes the first name of a tensor."""
    specs = [s for s in captured.program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    leaves = [inputs[s.arg.name] if s.arg.name in inputs else getattr(s.arg, "value", None) for s in specs]
    results = run_flat(captured, lambda target: stored(captured.names.get(target, target)), leaves)
    return [result for result in results if isinstance(result, Tensor)]


def run_flat(
    captured: ExportedModule, stored: Callable[[str], Tensor], argument_leaves: Iterable[object]
) -> list[object]:
    """Run the program on the argument leaves, in order. `stored` takes the target of a placeholder."""
    leaves = iter(argument_leaves)

    def fed(spec: InputSpec) -> object:
        if spec.kind is InputKind.USER_INPUT:
            return next(leaves)
        target = str(spec.target)
        return captured.constants[target] if target in captured.constants else stored(target)

    operands = map(fed, captured.program.graph_signature.input_specs)
    return captured.given_out(fx.Interpreter(captured.program.graph_module).run(*operands))


def is_tensor(argument: object) -> bool:
    """Whether a value that a program returns is a tensor."""
    return isinstance(argument, fx.Node) and isinstance(argument.meta.get("val"), Tensor)
