"""Lowering of a captured program to an onnx-ir model in the vocabulary of the passes.

Parameters and buffers become initializers by the names of the state dict. They hold no data until they are
read. Every node remembers the call that it comes from (growc.dialects.torch.operators.call). Calls that the
table lacks become opaque nodes of the domain `aten`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import fx
from torch.export.graph_signature import InputKind
from torch.utils._pytree import (
    SUPPORTED_NODES,
    TreeSpec,
    keystr,
    tree_flatten_with_path,
    tree_unflatten,
    treespec_leaf,
)

from growc.algebra.indexmap import Array
from growc.dialects.onnx.capture.capture import ALIASES, RESERVED
from growc.dialects.onnx.capture.fused_ops import detach
from growc.dialects.onnx.capture.stored_values import OnDemand
from growc.dialects.torch.capture.export import ExportedModule, is_tensor
from growc.dialects.torch.lowering.constants import Constants
from growc.dialects.torch.lowering.outputs import OUTPUT
from growc.dialects.torch.operators.arrays import to_numpy
from growc.dialects.torch.operators.call import SITE, TYPES, Call, CallOrigin, UnknownError, sizes_of
from growc.dialects.torch.operators.complex_numbers import understood
from growc.dialects.torch.operators.table import TABLE, key_of

OPSET = 23
"""Version of the standard ONNX operators. In it, attention and norms are one operator each."""

OPAQUE = "aten"
"""Domain of nodes for calls that the table lacks."""

OWNER = "growc.owner"
"""Key of an initializer's `meta`: the owner of its tensor.

"state" is the state dict. "class" is for constants of the class or its forward. "call" is for literals of
calls and for tensors in place of omitted arguments.
"""

SAME = "growc.same"
"""Key of a lowered model's `meta`: for calls that pass an argument on unchanged, that argument."""

ReadParameter = Callable[[str], torch.Tensor]
"""Function that returns the tensor of a parameter or buffer, by its first name."""


def lower(captured: ExportedModule, read: ReadParameter, known: Callable[[str], bool] = bool) -> ir.Model:
    """Return the program as a model.

    read: loads a tensor of the state dict on demand, in its stored dtype. known: whether a tensor has values.
    """
    return _ModuleLowering(captured, read, known).model()


@dataclass
class _ModuleLowering:
    captured: ExportedModule
    read: ReadParameter
    known: Callable[[str], bool]
    values: dict[fx.Node, Any] = field(default_factory=dict)
    nodes: list[ir.Node] = field(default_factory=list)
    initializers: dict[str, ir.Value] = field(default_factory=dict)
    inputs: list[ir.Value] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)
    current: str = ""
    labels: Counter[str] = field(default_factory=Counter)
    same: dict[fx.Node, fx.Node] = field(default_factory=dict)

    def model(self) -> ir.Model:
        program = self.captured.program
        self.constants = Constants(self.captured)
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        for node in program.graph.nodes:
            self.current = node.name
            if node.op == "placeholder":
                self.place(node, specs[node.name])
            elif node.op == "call_function":
                self.call(node)
            elif node.op == "output":
                self.finish()
        graph = ir.Graph(
            self.inputs,
            self.outputs,
            nodes=self.nodes,
            initializers=list(self.initializers.values()),
            opset_imports={"": OPSET},
            name="module",
        )
        domains = {n.domain for n in self.nodes} - {""}
        graph.opset_imports.update(dict.fromkeys(sorted(domains), 1))
        read = {name for name, value in self.initializers.items() if value.uses()}
        graph.meta[RESERVED] = frozenset(n for n, first in self.captured.names.items() if first not in read)
        model = ir.Model(graph, ir_version=10, producer_name="torch.export")
        model.meta[SAME] = self.same
        return model

    # ---------------------------------------------------------------- values

    def value(self, node: fx.Node) -> ir.Value:
        """Return the value of a node's result. Raises UnknownError if there are several results, or none."""
        value = self.values.get(node)
        if not isinstance(value, ir.Value):
            raise UnknownError
        return value

    def constant(self, numbers: Array, dtype: torch.dtype) -> ir.Value:
        """Return a constant of the call that is being lowered."""
        if dtype not in TYPES:
            raise UnknownError
        kind = TYPES[dtype]
        tensor = ir.Tensor(np.asarray(numbers).astype(kind.numpy()), dtype=kind)
        return self.initializer(f"{self.current}.{len(self.initializers)}", tensor, "call")

    def initializer(self, name: str, tensor: ir.TensorProtocol, owner: str) -> ir.Value:
        """Add an initializer. A name that is taken gets a suffix."""
        while name in self.initializers:
            name += "@"
        tensor.name = name
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)  # type: ignore[arg-type]
        value.meta[OWNER] = owner
        self.initializers[name] = value
        return value

    def place(self, node: fx.Node, spec: Any) -> None:
        """Lower a placeholder: an input, or a tensor of the module."""
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(node.meta.get("val"), torch.Tensor):
                self.values[node] = self.declared(ir.Value(name=node.name), node.meta["val"])
                self.inputs.append(self.values[node])
            return
        target = str(spec.target)
        constants = self.captured.constants
        name = target if target in constants else self.captured.names.get(target, target)
        if name not in self.initializers and node.meta["val"].dtype in TYPES:
            constant = constants.get(target)
            read = partial(self.read, name) if constant is None else partial(_given, constant)
            tensor = _lazy(node.meta["val"], read, constant is not None or self.known(name))
            initializer = self.initializer(name, tensor, "class" if target in constants else "state")
            initializer.meta[ALIASES] = self.captured.aliases.get(name, ())
        self.values[node] = self.initializers.get(name)

    def declared(self, value: ir.Value, fake: Any) -> ir.Value:
        """Declare dtype and sizes of a value as torch inferred them, with named symbols, and return it."""
        if isinstance(fake, torch.Tensor) and fake.dtype in TYPES:
            names = self.captured.symbols
            value.type = ir.TensorType(TYPES[fake.dtype])
            value.shape = ir.Shape(
                [s if isinstance(s, int) else names.get(str(s), str(s)) for s in sizes_of(fake)]
            )
        return value

    # ---------------------------------------------------------------- calls

    def call(self, node: fx.Node) -> None:
        """Lower a call. `getitem` chooses among several results, and constant results are stored."""
        if self.constants.stands(node):
            self.values[node] = self.stored(node)
            return
        if node in self.constants.nodes and not self.constants.serves(node):
            return
        if key_of(node.target) == "_operator.getitem":
            whole, item = node.args
            results = self.values.get(whole)  # type: ignore[arg-type]
            self.values[node] = results[int(item)] if isinstance(results, list) else None  # type: ignore[arg-type]
            self.remember(node)
            return
        self.values[node] = self.lowered(node)
        self.remember(node)
        operands = (n for n in node.all_input_nodes if self.values.get(n) is self.values[node])
        if isinstance(self.values[node], ir.Value) and (source := next(operands, None)) is not None:
            self.same[node] = source

    def stored(self, node: fx.Node) -> ir.Value:
        """Return a constant result of calls, as an initializer."""
        tensor = _lazy(node.meta["val"], partial(self.constants.value, node))
        return self.initializer(self.label(node), tensor, "class")

    def lowered(self, node: fx.Node) -> Any:
        """Return the value, or the list of values, for the results of a call."""
        row = TABLE.get(key_of(node.target))
        label = self.label(node)
        if row is not None and understood(node):
            arguments, paths = _arguments(node)
            call = Call([], {}, label, node=node, arguments=arguments, paths=paths, program=self)
            try:
                results = row(call)
            except UnknownError:
                detach(call.nodes)
            else:
                self.nodes += call.nodes
                return list(results) if isinstance(results, (list, tuple)) else results
        return self.opaque(node, label)

    def opaque(self, node: fx.Node, label: str) -> Any:
        """Add an opaque node, which freezes the axes it touches, for a call that is not understood."""
        kinds = ((n, self.values.get(n)) for n in node.all_input_nodes)
        several_of = ((n, v) for n, k in kinds for v in (k if isinstance(k, list) else [k]))
        operands = [(n, v) for n, v in several_of if isinstance(v, ir.Value)]
        fakes = node.meta.get("val")
        several = isinstance(fakes, (list, tuple))
        results = list(fakes) if several else [fakes]  # type: ignore[arg-type]
        name = key_of(node.target).removeprefix("aten.")
        opaque_node = ir.Node(OPAQUE, name, [v for _, v in operands], num_outputs=len(results), name=label)
        opaque_node.meta[SITE] = CallOrigin(node, operands={i: n for i, (n, _) in enumerate(operands)})
        for k, (value, fake) in enumerate(zip(opaque_node.outputs, results, strict=True)):
            value.name = f"{label}.{k}"
            self.declared(value, fake)
        self.nodes.append(opaque_node)
        return list(opaque_node.outputs) if several else opaque_node.outputs[0]

    def label(self, node: fx.Node) -> str:
        """Return a unique name that tells where in the module a call stands."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        place = stack[-1][0] if stack else ""
        name = f"{place}/{node.name}" if place else node.name
        self.labels[name] += 1
        return name if self.labels[name] == 1 else f"{name}@{self.labels[name]}"

    def remember(self, node: fx.Node) -> None:
        """Declare the results of a call, and record in their nodes which results of the program they are."""
        lowered, fake = self.values[node], node.meta.get("val")
        pairs: list[tuple[Any, int | None, Any]] = [(lowered, None, fake)]
        if isinstance(lowered, list):
            fakes = list(fake) if isinstance(fake, (list, tuple)) else [None] * len(lowered)
            pairs = [(v, k, f) for k, (v, f) in enumerate(zip(lowered, fakes, strict=False))]
        for value, item, fake_result in pairs:
            maker = value.producer() if isinstance(value, ir.Value) else None
            if maker is None or SITE not in maker.meta:
                continue
            results = maker.meta[SITE].results.setdefault(value.index(), [])
            if not results and isinstance(fake_result, torch.Tensor):
                self.declared(value, fake_result)
            results.append((node, item))

    # ---------------------------------------------------------------- outputs

    def finish(self) -> None:
        """Add the results of the program, named by their place in the module's output structure."""
        returned = self.captured.returned
        for number, (name, argument) in enumerate(zip(self.names(len(returned)), returned, strict=True)):
            if not is_tensor(argument):
                continue
            identity = ir.Node("", "Identity", [self.value(argument)], num_outputs=1, name=f"output.{name}")
            identity.meta[SITE] = CallOrigin(argument, operands={0: argument})
            identity.meta[OUTPUT] = number
            self.nodes.append(identity)
            result = self.declared(identity.outputs[0], argument.meta["val"])
            result.name = name
            self.outputs.append(result)

    def names(self, count: int) -> list[str]:
        """Return the names of the results, by their place in the output of forward."""
        spec = self.captured.program.call_spec.out_spec
        if spec is None:
            return [f"output_{k}" for k in range(count)]
        paths, _ = tree_flatten_with_path(tree_unflatten(list(range(count)), _plain(spec)))
        named: dict[int, str] = {k: plain_name(keystr(path)) for path, k in paths}
        reserved = {*(v.name for v in self.inputs), *self.initializers}
        return [
            name if name not in reserved else f"{name}_out"
            for name in (named.get(k) or f"output_{k}" for k in range(count))
        ]


def plain_name(path: str) -> str:
    """Return the name of the output at a key path in the result of forward."""
    words = "".join(c if c.isalnum() else " " for c in path).split()
    return "_".join(["output", *words] if not words or words[0].isdigit() else words)


def _plain(spec: TreeSpec) -> TreeSpec:
    """Return a structure in which torch can name every part.

    Mappings of a class without key paths become dictionaries. Other unknown classes become lists.
    """
    if spec.is_leaf():
        return spec
    children, registered = [_plain(child) for child in spec.children()], SUPPORTED_NODES.get(spec.type)
    if isinstance(spec.type, type) and issubclass(spec.type, dict | list | tuple):
        if registered is None or registered.flatten_with_keys_fn is not None:
            return TreeSpec(spec.type, spec.context, children)
        filled = tree_unflatten(
            range(len(children)), TreeSpec(spec.type, spec.context, [treespec_leaf()] * len(children))
        )
        if isinstance(filled, dict):
            return TreeSpec(dict, sorted(filled, key=filled.__getitem__), children)
    return TreeSpec(list, None, children)


def _given(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _lazy(fake: torch.Tensor, read: Callable[[], torch.Tensor], known: bool = True) -> OnDemand:
    return OnDemand(lambda: to_numpy(read()), TYPES[fake.dtype], [int(s) for s in fake.shape], known)


def _arguments(node: fx.Node) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a call by name, with defaults, and the place of each in the call."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        letters = "abcdefgh"
        return dict(zip(letters, node.args, strict=False)), {
            x: (i,) for i, x in enumerate(letters[: len(node.args)])
        }
    values: dict[str, Any] = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    paths: dict[str, Any] = {name: (name,) for name in values}
    for i, (argument, value) in enumerate(zip(schema.arguments, node.args, strict=False)):
        values[argument.name], paths[argument.name] = value, (i,)
    for name, value in node.kwargs.items():
        values[name], paths[name] = value, (name,)
    return values, paths
