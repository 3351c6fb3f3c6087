"""The program of torch.export that a grown one is.

Needs: a GrownModule, and the source as it was captured. Gives: an ExportedProgram with the source's inputs,
symbols and ranges, whose parameters and buffers have all of their names. Sizes are found by running the calls
on tensors without data, among the symbols of the source.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.utils._pytree import tree_flatten

from growc.dialects.torch.capture.export import Captured
from growc.dialects.torch.capture.tracing import placeholder_values
from growc.dialects.torch.emit.grown_module import GrownModule
from growc.dialects.torch.emit.module_stacks import STACK
from growc.dialects.torch.programs.open_sizes import guards_of, ranges_of
from growc.dialects.torch.run.call_signature import identifier
from growc.errors.diagnostic import Diagnostic, GrowError


def program_of(grown: GrownModule, captured: Captured) -> ExportedProgram:
    """The program. Raises GrowError (G308) where sizes that were open would be fixed in it."""
    return _Exporting(grown, captured).program()


class _Exporting:
    """nodes: those of the grown graph in the program."""

    def __init__(self, grown: GrownModule, captured: Captured) -> None:
        self.grown, self.captured, self.source = grown, captured, captured.program
        self.graph = fx.Graph()
        self.values = placeholder_values(self.source)
        self.specs: list[InputSpec] = []
        self.nodes: dict[str, fx.Node] = {}
        self.constants: dict[str, Any] = {}

    def program(self) -> ExportedProgram:
        """The program, checked by torch."""
        given = self.inputs()
        self.stored()
        outputs = self.calls()
        self.require_open()
        signature = ExportGraphSignature(self.specs + given, outputs)
        ranges, names = ranges_of(self.grown, self.captured), [spec.arg.name for spec in given]
        made = ExportedProgram(
            torch.nn.Module(),
            self.graph,
            signature,
            self.grown.state_dict(keep_vars=True),
            ranges,
            self.entries(names),
            self.examples(names),
            self.constants,
        )
        made._guards_code = guards_of(self.captured, ranges, () if self.same_inputs else names)
        return made

    # ---- what goes in

    @property
    def mode(self) -> Any:
        """What tensors without data are made in."""
        return next(v.fake_mode for v in self.values.values() if isinstance(v, FakeTensor))

    def inputs(self) -> list[InputSpec]:
        """The inputs: the source's where it has the same, or else all tensors by name."""
        source = [s for s in self.source.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
        takes = {identifier(name): name for name in self.grown.descent.takes}
        if not self.same_inputs:
            source = [InputSpec(InputKind.USER_INPUT, TensorArgument(name), None) for name in takes]
        for spec in source:
            node = self.nodes[spec.arg.name] = self.graph.placeholder(spec.arg.name)
            node.name = spec.arg.name  # fx gives another one to what is named as a builtin of Python is
            fixed = isinstance(spec.arg, ConstantArgument)
            node.meta["val"] = spec.arg.value if fixed else self.sized(takes[node.name])
        return source

    @cached_property
    def same_inputs(self) -> bool:
        """Whether the result takes the tensors that the source takes."""
        specs = self.source.graph_signature.input_specs
        own = {s.arg.name for s in specs if s.kind is InputKind.USER_INPUT}
        fixed = {s.arg.name for s in specs if isinstance(s.arg, ConstantArgument)}
        return own - fixed == {identifier(name) for name in self.grown.descent.takes}

    def sized(self, name: str) -> Tensor:
        """An input of the result, without data; sizes that are open are the source's."""
        kind, dims = self.grown.descent.takes[name]
        symbols: dict[str, Any] = {}
        for value in self.values.values():
            for size in value.shape if isinstance(value, Tensor) else ():
                symbols.setdefault(self.captured.symbols.get(str(size), str(size)), size)
        own = self.values.get(name)
        before = [None] * len(dims) if own is None else list(own.shape)
        pairs = zip(dims, before, strict=True)
        sizes = [d if isinstance(d, int) else symbols[str(d)] if b is None else b for d, b in pairs]
        with self.mode:
            return torch.empty(sizes, dtype=kind)

    def stored(self) -> None:
        """Parameters and buffers, in front of the inputs; what is tied by every name that it has."""
        parameters = dict(self.grown.named_parameters(remove_duplicate=False))
        buffers = dict(self.grown.named_buffers(remove_duplicate=False))
        kept = self.grown.state_dict(keep_vars=True)
        fixed = {
            s.target for s in self.source.graph_signature.input_specs if s.kind is InputKind.CONSTANT_TENSOR
        }
        first = next(iter(self.graph.nodes), None)
        assert first is not None
        with self.graph.inserting_before(first):
            for name, tensor in (parameters | buffers).items():
                kind = InputKind.PARAMETER if name in parameters else InputKind.BUFFER
                if name in fixed:
                    kind = InputKind.CONSTANT_TENSOR
                if name not in kept:
                    self.constants[name] = tensor
                node = self.graph.placeholder(f"{kind.name[0].lower()}_{identifier(name)}")
                with self.mode:
                    node.meta["val"] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
                node.meta["val"].requires_grad_(tensor.requires_grad)
                persistent = name in kept if kind is InputKind.BUFFER else None
                self.specs.append(InputSpec(kind, TensorArgument(node.name), name, persistent))
                self.nodes[name] = node

    # ---- what is computed

    def calls(self) -> list[OutputSpec]:
        """All calls of the grown graph, and what they give out."""
        made: dict[fx.Node, fx.Node] = {}
        found: list[OutputSpec] = []
        for node in self.grown.graphs[False].nodes:
            if node.op in ("placeholder", "get_attr"):
                made[node] = self.nodes[str(node.target)]
            elif node.op == "output":
                results = fx.map_arg(node.args[0], made.__getitem__)
                found = [_given_out(result) for result in results]
                last = self.graph.output(tuple(results))
                last.meta["val"] = tuple(fx.map_arg(list(results), _value))
            else:
                made[node] = self.graph.node_copy(node, made.__getitem__)
                made[node].meta["val"] = self.computed(made[node])
                if not any(path == "" for path, _ in made[node].meta.get(STACK, {}).values()):
                    made[node].meta[STACK] = self.outermost
        return found

    @property
    def outermost(self) -> dict[str, tuple[str, str]]:
        """Where a call stands that no module's is."""
        stacks = (node.meta.get(STACK) for node in self.source.graph.nodes)
        first = (next(iter(stack.items())) for stack in stacks if stack)
        return dict([next((one for one in first if not one[1][0]), ("", ("", "")))])

    def computed(self, node: fx.Node) -> Any:
        """What a call gives, without data."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), _value)
        with self.mode, torch.no_grad():
            return node.target(*args, **kwargs)  # type: ignore[operator]

    def require_open(self) -> None:
        """Raises GrowError (G308) where a size that was open in the source is one number by now."""
        for node in self.nodes.values():
            value = node.meta["val"]
            for size in value.shape if isinstance(value, Tensor) else ():
                if isinstance(size, torch.SymInt) and not size.node.expr.free_symbols:
                    message = "a size that is open in the source would be fixed in the result"
                    raise GrowError(Diagnostic("G308", message, notes=(f"it is one of `{node.name}`",)))

    # ---- how it is called

    def entries(self, names: list[str]) -> list[ModuleCallEntry]:
        """How the program is called, and the modules that it was."""
        whole = self.source.module_call_graph[0].signature
        assert whole is not None
        taken = whole.in_spec if self.same_inputs else tree_flatten(((), dict.fromkeys(names)))[1]
        arguments = whole.forward_arg_names if self.same_inputs else names
        inside: dict[str, None] = {}
        for node in self.graph.nodes:
            inside.update(dict.fromkeys(path for path, _ in node.meta.get(STACK, {}).values() if path))
        signature = ModuleCallSignature([], [], taken, self.grown.results, arguments)
        return [ModuleCallEntry("", signature), *(ModuleCallEntry(path) for path in inside)]

    def examples(self, names: list[str]) -> Any:
        """The source's example inputs, where the result takes the same."""
        given: Any = self.source.example_inputs
        if given is None or not self.same_inputs:
            return None
        leaves = tree_flatten(given)[0]
        values = [self.nodes[name].meta["val"] for name in names]
        pairs = zip(leaves, values, strict=True)
        same = all(not isinstance(leaf, Tensor) or _fits(leaf, value) for leaf, value in pairs)
        return given if same else None


def _value(node: fx.Node) -> Any:
    return node.meta["val"]


def _given_out(result: Any) -> OutputSpec:
    if isinstance(result, fx.Node):
        return OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(result.name), None)
    return OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", result), None)


def _fits(given: Tensor, wanted: Tensor) -> bool:
    """Whether a tensor has the sizes that are no symbols."""
    pairs = zip(given.shape, wanted.shape, strict=True)
    return all(not isinstance(size, int) or size == own for own, size in pairs)
