"""Call signature of a module's forward: from its arguments to the tensors of its graph.

A graph takes only tensors, by name. A forward takes them by position or by name, also inside lists and
mappings. It also takes numbers and flags; a graph was captured for one value of each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils._pytree import TreeSpec, tree_flatten, treespec_tuple

from growc.dialects.torch.capture.export import ExportedModule


def identifier(name: str) -> str:
    """Return the name of an input as a Python identifier."""
    return "".join(c if c.isalnum() else "_" for c in name)


@dataclass(frozen=True)
class Argument:
    """The names of the leaves of an argument, and its structure."""

    names: tuple[str, ...]
    structure: TreeSpec


@dataclass(frozen=True)
class CallSignature:
    """The arguments that a module was captured with.

    parameters: the names of positional arguments. rest: the name of the variadic argument, or an empty
    string. fixed: the leaves that are no tensors. values: the captured values of tensors by which forward
    decides.
    """

    parameters: tuple[str, ...]
    rest: str
    arguments: Mapping[str, Argument]
    fixed: Mapping[str, object]
    values: Mapping[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(captured: ExportedModule) -> CallSignature:
        """Return the call signature of a captured module."""
        specs = [
            s.arg for s in captured.program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT
        ]
        order, keywords = captured.program.call_spec.in_spec.children()
        parameters, rest = captured.parameters or tuple(keywords.context), captured.rest
        positional, variadic = order.children()[: len(parameters)], order.children()[len(parameters) :]
        structures = dict(zip(parameters, positional, strict=False))
        if rest and variadic:
            structures[rest] = treespec_tuple(variadic)
        structures |= zip(keywords.context, keywords.children(), strict=True)
        leaves = iter(arg.name for arg in specs)
        arguments = {
            name: Argument(tuple(islice(leaves, one.num_leaves)), one) for name, one in structures.items()
        }
        fixed = {arg.name: arg.value for arg in specs if isinstance(arg, ConstantArgument)}
        values = {leaf: one for name, one in captured.values.items() for leaf in arguments[name].names}
        return CallSignature(parameters, rest, arguments, fixed, values)

    def tensors(
        self, args: Sequence[object], kwargs: Mapping[str, object], takes: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return the tensors among arguments by their names in the graph.

        takes: names of the graph's inputs, which may be given as arguments too. Raises TypeError for
        arguments that the module was not captured with.
        """
        arguments = dict(zip(self.parameters, args, strict=False)) | dict(kwargs)
        if len(args) > len(self.parameters):
            arguments[self.rest] = tuple(args[len(self.parameters) :])
        tensors: dict[str, object] = {}
        for name, value in arguments.items():
            if name in self.arguments:
                tensors |= self._leaves(name, value)
            elif name in takes:
                tensors[name] = value
            elif value is not None:
                raise TypeError(f"the source was captured without `{name}`")
        return tensors

    def decided(self, args: Sequence[object], kwargs: Mapping[str, object]) -> set[Tensor]:
        """Return the tensors among arguments by whose values forward decides."""
        tensors = self.tensors(args, kwargs) if self.values else {}
        return {tensors[name] for name in self.values if name in tensors}

    def signature(self, takes: Collection[str] = ()) -> list[Parameter]:
        """Return the parameters of forward, and keywords for the graph's other inputs (`takes`)."""
        leaves = {leaf for one in self.arguments.values() for leaf in one.names}
        others = [name for name in self.arguments if name not in (*self.parameters, self.rest)]
        parameters = [
            Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None) for name in self.parameters
        ]
        if self.rest:
            parameters.append(Parameter(self.rest, Parameter.VAR_POSITIONAL))
        keywords = [*others, *(name for name in takes if name not in leaves)]
        return parameters + [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in keywords]

    def _leaves(self, name: str, value: object) -> dict[str, object]:
        argument = self.arguments[name]
        leaves, structure = tree_flatten(value)
        if structure != argument.structure:
            raise TypeError(f"the source was captured with another structure of `{name}`")
        pairs = dict(zip(argument.names, leaves, strict=True))
        for leaf in pairs.keys() & self.fixed.keys():
            if pairs[leaf] is not self.fixed[leaf] and pairs[leaf] != self.fixed[leaf]:
                raise TypeError(f"the source was captured with {self.fixed[leaf]!r} for `{name}`")
        for leaf in pairs.keys() & self.values.keys():
            known = self.values[leaf]
            if pairs[leaf].shape != known.shape or not torch.equal(pairs[leaf].to(known), known):
                raise TypeError(
                    f"the source was captured with {known.tolist()} for `{name}`: its forward decides by them"
                )
        return {leaf: tensor for leaf, tensor in pairs.items() if leaf not in self.fixed}
