"""Modules that growc makes: one set of tensors, and a torch.fx graph for each mode.

They are not GraphModules. torch.export runs the graphs of a GraphModule itself, without keeping the order of
arguments, and the returned values lose their structure.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.graph_module import _forward_from_src
from torch.fx.node import map_aggregate
from torch.utils._pytree import TreeSpec, tree_unflatten

from growc.dialects.torch.capture.export import tensor_names
from growc.dialects.torch.run.cases import PortMapping
from growc.errors.diagnostic import Diagnostic, GrowError

MODES = {False: "evaluation", True: "training"}


@dataclass
class Tensors:
    """The tensors of a module. `parameters` and `buffers` list every name; tied names share one tensor.

    passing: buffers that no state dict holds. order: all names in the order of their modules. origins: for
    each name the tensor of the source that it comes from.
    """

    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    buffers: dict[str, Tensor | None] = field(default_factory=dict)
    passing: set[str] = field(default_factory=set)
    order: tuple[str, ...] = ()
    origins: dict[str, str] = field(default_factory=dict)

    def place(self, module: nn.Module) -> None:
        """Register these tensors in a module, in submodules by the parts of their names."""
        for name in self.order:
            _owner(module, name)
        for name, parameter in self.parameters.items():
            owner, last = _owner(module, name)
            owner.register_parameter(last, parameter)
        for name, buffer in self.buffers.items():
            owner, last = _owner(module, name)
            owner.register_buffer(last, buffer, persistent=name not in self.passing)

    def sort(self, places: Mapping[str, Any]) -> None:
        """Put parameters and buffers in the order of their places."""
        self.order = tuple(sorted({**self.parameters, **self.buffers}, key=places.__getitem__))
        self.parameters = {name: self.parameters[name] for name in self.order if name in self.parameters}
        self.buffers = {name: self.buffers[name] for name in self.order if name in self.buffers}

    @staticmethod
    def of(module: nn.Module) -> Tensors:
        """Return the current tensors of a module."""
        stored = module.state_dict(keep_vars=True)
        buffers = dict(module.named_buffers(remove_duplicate=False))
        parameters = dict(module.named_parameters(remove_duplicate=False))
        return Tensors(parameters, dict(buffers), set(buffers) - set(stored), tuple(tensor_names(module)))


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    *path, last = name.split(".")
    for part in path:
        if part not in module._modules:
            module.add_module(part, nn.Module())
        module = module.get_submodule(part)
    return module, last


class GrownModule(nn.Module):
    """A trainable module: the result of a plan on another module.

    `train` and `eval` choose the graph. `lineage`, `plan` and `verification` record how it was made. It can
    be pickled and copied, and ties stay. It is called like its source. Arguments that are no tensors have the
    value that they were captured with. New layers may have inputs of their own, which are given by name.
    """

    def __init__(
        self,
        tensors: Tensors,
        graphs: Mapping[bool, fx.Graph],
        results: TreeSpec,
        descent: PortMapping,
        missing: str = "",
    ) -> None:
        super().__init__()
        tensors.place(self)
        self.origins = dict(tensors.origins)
        self.graphs, self.results, self.missing = dict(graphs), results, missing
        self.descent = descent
        self.lineage: object = None
        self.plan: Any = None
        self.verification: Any = None
        self.device: torch.device | None = None
        self.training = False
        self.forward = self._forward()  # an attribute of the instance, so that it has its own signature
        self.follow()
        self.recompile()

    def train(self, mode: bool = True) -> GrownModule:
        """Choose the graph of a mode. Raises GrowError (G320) if there is none."""
        if mode not in self.graphs:
            message = f"this module has no graph for {MODES[mode]}"
            raise GrowError(Diagnostic("G320", message, notes=(self.missing,) if self.missing else ()))
        super().train(mode)
        self.recompile()
        return self

    @property
    def graph(self) -> fx.Graph:
        """The graph of the current mode."""
        return self.graphs[self.training]

    def follow(self) -> None:
        """Let the graphs make their tensors on the device of the module's tensors."""
        first = next((t for t in (*self.parameters(), *self.buffers())), None)
        if first is None or first.device == self.device:
            return
        self.device = first.device
        for graph in self.graphs.values():
            for node in graph.nodes:
                if "device" in node.kwargs:
                    node.update_kwarg("device", first.device)
        self.recompile()

    def _apply(self, fn: Any, recurse: bool = True) -> GrownModule:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.follow()
        return self

    def recompile(self) -> None:
        """Compile the graph of the current mode to Python code."""
        code = self.graph.python_code(root_module="self")
        self._code = _forward_from_src(code.src, code.globals)

    def _forward(self) -> Any:
        """Return forward, which takes the source's arguments and returns results in its structure."""

        def forward(*args: object, **kwargs: object) -> Any:
            tensors = self.descent.tensors(args, kwargs)
            return tree_unflatten(self._code(self, **tensors), self.results)

        forward.__signature__ = inspect.Signature(self.descent.signature())  # type: ignore[attr-defined]
        return forward

    def __reduce__(self) -> Any:
        return _restored, (self._state(),)

    def __deepcopy__(self, memo: dict[int, Any]) -> GrownModule:
        state = self._state()
        shared = {name: state[name] for name in ("said", "descent", "results")}  # immutable: shared by copies
        copy = _restored(deepcopy({k: v for k, v in state.items() if k not in shared}, memo) | shared)
        memo[id(self)] = copy
        return copy

    def _state(self) -> dict[str, object]:
        records = {"lineage": self.lineage, "plan": self.plan, "verification": self.verification}
        graphs = {mode: _packed(graph) for mode, graph in self.graphs.items()}
        shared = {"tensors": Tensors.of(self), "results": self.results, "missing": self.missing}
        shared["descent"] = self.descent
        return {**shared, "graphs": graphs, "said": records, "training": self.training}


def _restored(state: Mapping[str, Any]) -> GrownModule:
    graphs = {mode: _unpacked(rows) for mode, rows in state["graphs"].items()}
    module = GrownModule(state["tensors"], graphs, state["results"], state["descent"], state["missing"])
    for name, value in state["said"].items():
        setattr(module, name, value)
    return module.train() if state["training"] else module


# ------------------------------------------------------------------------------------------ graphs as data


@dataclass(frozen=True)
class _Ref:
    name: str


GraphRow = tuple[str, str, Any, Any, Any]


def _packed(graph: fx.Graph) -> list[GraphRow]:
    """Return a graph as plain data, with operators by their names."""
    rows: list[GraphRow] = []
    for node in graph.nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), _reference)
        target = _name_of(node.target) if node.op == "call_function" else node.target
        rows.append((node.op, node.name, target, args, kwargs))
    return rows


def _reference(node: fx.Node) -> Any:
    return _Ref(node.name)


def _unpacked(rows: list[GraphRow]) -> fx.Graph:
    graph = fx.Graph()
    nodes: dict[str, fx.Node] = {}

    def filled(leaf: Any) -> Any:
        return nodes[leaf.name] if isinstance(leaf, _Ref) else leaf

    for op, name, target, args, kwargs in rows:
        function = _named(target) if op == "call_function" else target
        args, kwargs = (map_aggregate(one, filled) for one in (args, kwargs))
        nodes[name] = graph.create_node(op, function, args, kwargs, name)
    return graph


def _name_of(function: Any) -> tuple[str, str]:
    if isinstance(function, torch._ops.OpOverload):
        return "torch.ops", str(function)
    return function.__module__, function.__qualname__


def _named(name: tuple[str, str]) -> Any:
    home = torch.ops if name[0] == "torch.ops" else importlib.import_module(name[0])
    return functools.reduce(getattr, name[1].split("."), home)
