"""Constant results of a captured program: slopes, sine tables, position numbers, masks.

They are found by their calls and computed on demand. A constant can change with the sizes of the tensors that
it belongs to. The calls that compute it cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from growc.dialects.torch.capture.export import ExportedModule
from growc.dialects.torch.operators.call import TYPES, sizes_of
from growc.ir.walk import walk

UNIFORM = ("empty", "full", "ones", "scalar_tensor", "zeros")
"""Calls that fill a tensor with one number. They serve any size, and stay."""


@dataclass
class Constants:
    """The constants among the results of a program."""

    captured: ExportedModule
    nodes: set[fx.Node] = field(default_factory=set)

    def __post_init__(self) -> None:
        graph = self.captured.program.graph
        known = {name for name, value in self.captured.constants.items() if value is not None}
        self.targets = {
            spec.arg.name: str(spec.target)
            for spec in self.captured.program.graph_signature.input_specs
            if spec.target in known
        }
        for node in graph.nodes:
            if self._is_constant(node):
                self.nodes.add(node)

    def _is_constant(self, node: fx.Node) -> bool:
        if node.op == "placeholder":
            return node.name in self.targets
        if node.op != "call_function" or not all(n in self.nodes for n in node.all_input_nodes):
            return False
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        return not random and all(_is_plain(value) for value in _parts(node.meta.get("val")))

    def stands(self, node: fx.Node) -> bool:
        """Whether the result of a call becomes a stored constant."""
        if node not in self.nodes or node.op == "placeholder" or not self.serves(node):
            return False
        uniform = not node.all_input_nodes and str(node.target).split(".")[1] in UNIFORM
        return isinstance(node.meta["val"], torch.Tensor) and not uniform

    def serves(self, node: fx.Node) -> bool:
        """Whether a node that is not itself constant uses this one."""
        return any(user not in self.nodes for user in node.users)

    def given(self, node: fx.Node) -> list[fx.Node]:
        """Return the placeholders that a constant is computed from."""
        made_of = walk([node], lambda one: one.all_input_nodes, nearest=True)
        return [one for one in made_of if one.op == "placeholder"]

    def value(self, node: fx.Node, values: dict[fx.Node, Any] | None = None) -> Any:
        """Return the value of a constant. `values` holds the values computed so far."""
        values = {} if values is None else values
        if node.op == "placeholder":
            return self.captured.constants[self.targets[node.name]]
        if node not in values:
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: self.value(n, values))
            target: Any = node.target
            with torch.no_grad():
                values[node] = target(*args, **kwargs)
        return values[node]


def _parts(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, (list, tuple)) else (value,)


def _is_plain(value: Any) -> bool:
    """Whether a result is a tensor of fixed sizes and of a dtype that can be stored."""
    fixed = isinstance(value, torch.Tensor) and all(isinstance(s, int) for s in sizes_of(value))
    return fixed and value.dtype in TYPES
