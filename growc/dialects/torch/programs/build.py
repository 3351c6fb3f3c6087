"""Export of a grown module as a torch.export program.

From a GrownModule and the captured source comes an ExportedProgram with the source's inputs, symbols and
ranges. Its parameters and buffers have all of their names. Sizes are inferred by running the calls on fake
tensors with the source's symbols.
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

from growc.dialects.torch.capture.export import ExportedModule
from growc.dialects.torch.capture.tracing import placeholder_values
from growc.dialects.torch.emit.grown_module import GrownModule
from growc.dialects.torch.emit.module_stacks import STACK
from growc.dialects.torch.programs.open_sizes import guards_of, ranges_of
from growc.dialects.torch.run.call_signature import identifier
from growc.errors.diagnostic import Diagnostic, GrowError


def program_of(grown: GrownModule, captured: ExportedModule) -> ExportedProgram:
    """Return the program. Raises GrowError (G308) if it would fix a size that is open in the source."""
    return _Exporting(grown, captured).program()


class _Exporting:
    """The construction of one program. nodes: the program's nodes for inputs and tensors, by name."""

    def __init__(self, grown: GrownModule, captured: ExportedModule) -> None:
        self.grown, self.captured, self.source = grown, captured, captured.program
        self.graph = fx.Graph()
        self.values = placeholder_values(self.source)
        self.specs: list[InputSpec] = []
        self.nodes: dict[str, fx.Node] = {}
        self.constants: dict[str, Any] = {}

    def program(self) -> ExportedProgram:
        """Return the program, checked by torch."""
        input_specs = self.inputs()
        self.stored()
        outputs = self.calls()
        self.require_open()
        signature = ExportGraphSignature(self.specs + input_specs, outputs)
        ranges, names = ranges_of(self.grown, self.captured), [spec.arg.name for spec in input_specs]
        program = ExportedProgram(
            torch.nn.Module(),
            self.graph,
            signature,
            self.grown.state_dict(keep_vars=True),
            ranges,
            self.entries(names),
            self.examples(names),
            self.constants,
        )
        program._guards_code = guards_of(self.captured, ranges, () if self.same_inputs else names)
        return program

    # ---- inputs

    @property
    def mode(self) -> Any:
        """The mode in which the source's fake tensors were made."""
        return next(v.fake_mode for v in self.values.values() if isinstance(v, FakeTensor))

    def inputs(self) -> list[InputSpec]:
        """Add the inputs: those of the source if they are the same, otherwise all tensors by name."""
        source = [s for s in self.source.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
        takes = {identifier(name): name for name in self.grown.descent.takes}
        if not self.same_inputs:
            source = [InputSpec(InputKind.USER_INPUT, TensorArgument(name), None) for name in takes]
        for spec in source:
            node = self.nodes[spec.arg.name] = self.graph.placeholder(spec.arg.name)
            node.name = spec.arg.name  # fx renames nodes that are named like a Python builtin
            fixed = isinstance(spec.arg, ConstantArgument)
            node.meta["val"] = spec.arg.value if fixed else self.sized(takes[node.name])
        return source

    @cached_property
    def same_inputs(self) -> bool:
        """Whether the result takes the same tensors as the source."""
        specs = self.source.graph_signature.input_specs
        own = {s.arg.name for s in specs if s.kind is InputKind.USER_INPUT}
        fixed = {s.arg.name for s in specs if isinstance(s.arg, ConstantArgument)}
        return own - fixed == {identifier(name) for name in self.grown.descent.takes}

    def sized(self, name: str) -> Tensor:
        """Return an input of the result as a fake tensor. Open sizes are symbols of the source."""
        kind, dims = self.grown.descent.takes[name]
        symbols: dict[str, Any] = {}
        for value in self.values.values():
            for size in value.shape if isinstance(value, Tensor) else ():
                symbols.setdefault(self.captured.symbols.get(str(size), str(size)), size)
        source_value = self.values.get(name)
        before = [None] * len(dims) if source_value is None else list(source_value.shape)
        pairs = zip(dims, before, strict=True)
        sizes = [d if isinstance(d, int) else symbols[str(d)] if b is None else b for d, b in pairs]
        with self.mode:
            return torch.empty(sizes, dtype=kind)

    def stored(self) -> None:
        """Add parameters and buffers in front of the inputs. Tied tensors are added under every name."""
        parameters = dict(self.grown.named_parameters(remove_duplicate=False))
        buffers = dict(self.grown.named_buffers(remove_duplicate=False))
        state_dict = self.grown.state_dict(keep_vars=True)
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
                if name not in state_dict:
                    self.constants[name] = tensor
                node = self.graph.placeholder(f"{kind.name[0].lower()}_{identifier(name)}")
                with self.mode:
                    node.meta["val"] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
                node.meta["val"].requires_grad_(tensor.requires_grad)
                persistent = name in state_dict if kind is InputKind.BUFFER else None
                self.specs.append(InputSpec(kind, TensorArgument(node.name), name, persistent))
                self.nodes[name] = node

    # ---- calls

    def calls(self) -> list[OutputSpec]:
        """Add all calls of the grown graph, and return the specifications of its outputs."""
        copies: dict[fx.Node, fx.Node] = {}
        output_specs: list[OutputSpec] = []
        for node in self.grown.graphs[False].nodes:
            if node.op in ("placeholder", "get_attr"):
                copies[node] = self.nodes[str(node.target)]
            elif node.op == "output":
                results = fx.map_arg(node.args[0], copies.__getitem__)
                output_specs = [_given_out(result) for result in results]
                last = self.graph.output(tuple(results))
                last.meta["val"] = tuple(fx.map_arg(list(results), _value))
            else:
                copies[node] = self.graph.node_copy(node, copies.__getitem__)
                copies[node].meta["val"] = self.computed(copies[node])
                if not any(path == "" for path, _ in copies[node].meta.get(STACK, {}).values()):
                    copies[node].meta[STACK] = self.outermost
        return output_specs

    @property
    def outermost(self) -> dict[str, tuple[str, str]]:
        """The module stack of a call that belongs to no submodule."""
        stacks = (node.meta.get(STACK) for node in self.source.graph.nodes)
        first = (next(iter(stack.items())) for stack in stacks if stack)
        return dict([next((one for one in first if not one[1][0]), ("", ("", "")))])

    def computed(self, node: fx.Node) -> Any:
        """Return the fake result of a call."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), _value)
        with self.mode, torch.no_grad():
            return node.target(*args, **kwargs)  # type: ignore[operator]

    def require_open(self) -> None:
        """Raise GrowError (G308) if a size that was open in the source is now a number."""
        for node in self.nodes.values():
            value = node.meta["val"]
            for size in value.shape if isinstance(value, Tensor) else ():
                if isinstance(size, torch.SymInt) and not size.node.expr.free_symbols:
                    message = "a size that is open in the source would be fixed in the result"
                    raise GrowError(Diagnostic("G308", message, notes=(f"it is one of `{node.name}`",)))

    # ---- signature

    def entries(self, names: list[str]) -> list[ModuleCallEntry]:
        """Return the call signature of the program, and the paths of its modules."""
        whole = self.source.module_call_graph[0].signature
        assert whole is not None
        in_spec = whole.in_spec if self.same_inputs else tree_flatten(((), dict.fromkeys(names)))[1]
        arguments = whole.forward_arg_names if self.same_inputs else names
        paths: dict[str, None] = {}
        for node in self.graph.nodes:
            paths.update(dict.fromkeys(path for path, _ in node.meta.get(STACK, {}).values() if path))
        signature = ModuleCallSignature([], [], in_spec, self.grown.results, arguments)
        return [ModuleCallEntry("", signature), *(ModuleCallEntry(path) for path in paths)]

    def examples(self, names: list[str]) -> Any:
        """Return the source's example inputs if the result takes the same, otherwise None."""
        inputs: Any = self.source.example_inputs
        if inputs is None or not self.same_inputs:
            return None
        leaves = tree_flatten(inputs)[0]
        values = [self.nodes[name].meta["val"] for name in names]
        pairs = zip(leaves, values, strict=True)
        same = all(not isinstance(leaf, Tensor) or _fits(leaf, value) for leaf, value in pairs)
        return inputs if same else None


def _value(node: fx.Node) -> Any:
    return node.meta["val"]


def _given_out(result: Any) -> OutputSpec:
    if isinstance(result, fx.Node):
        return OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(result.name), None)
    return OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", result), None)


def _fits(tensor: Tensor, wanted: Tensor) -> bool:
    """Whether a tensor has the wanted sizes, apart from symbols."""
    pairs = zip(tensor.shape, wanted.shape, strict=True)
    return all(not isinstance(size, int) or size == own for own, size in pairs)
