"""How the forward of a module is called: from its arguments to the tensors that its graph takes.

A graph takes tensors alone, by name; a forward takes them in order or by name, inside of lists and mappings,
and beside numbers and flags, for which a graph was captured with one value.
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

from growc.dialects.torch.capture.export import Captured


def identifier(name: str) -> str:
    """The name of an input as an argument has it."""
    return "".join(c if c.isalnum() else "_" for c in name)


@dataclass(frozen=True)
class Argument:
    """The names of the leaves of an argument, and its structure."""

    names: tuple[str, ...]
    structure: TreeSpec


@dataclass(frozen=True)
class Calling:
    """The arguments that a module was captured with.

    parameters: the names of those that can be given in order. rest: the name of those behind, or nothing.
    fixed: the leaves that are no tensors. values: of tensors by whose values forward decides, those that it
    was captured with.
    """

    parameters: tuple[str, ...]
    rest: str
    arguments: Mapping[str, Argument]
    fixed: Mapping[str, object]
    values: Mapping[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(captured: Captured) -> Calling:
        """That of a captured module."""
        specs = [
            s.arg for s in captured.program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT
        ]
        order, named = captured.program.call_spec.in_spec.children()
        parameters, rest = captured.parameters or tuple(named.context), captured.rest
        given, behind = order.children()[: len(parameters)], order.children()[len(parameters) :]
        structures = dict(zip(parameters, given, strict=False))
        if rest and behind:
            structures[rest] = treespec_tuple(behind)
        structures |= zip(named.context, named.children(), strict=True)
        leaves = iter(arg.name for arg in specs)
        arguments = {
            name: Argument(tuple(islice(leaves, one.num_leaves)), one) for name, one in structures.items()
        }
        fixed = {arg.name: arg.value for arg in specs if isinstance(arg, ConstantArgument)}
        values = {leaf: one for name, one in captured.values.items() for leaf in arguments[name].names}
        return Calling(parameters, rest, arguments, fixed, values)

    def tensors(
        self, args: Sequence[object], kwargs: Mapping[str, object], takes: Collection[str] = ()
    ) -> dict[str, Any]:
        """The tensors by the names that a graph `takes` them by; these may be given as arguments, too.

        Raises TypeError for what the module was not captured with.
        """
        given = dict(zip(self.parameters, args, strict=False)) | dict(kwargs)
        if len(args) > len(self.parameters):
            given[self.rest] = tuple(args[len(self.parameters) :])
        found: dict[str, object] = {}
        for name, value in given.items():
            if name in self.arguments:
                found |= self._leaves(name, value)
            elif name in takes:
                found[name] = value
            elif value is not None:
                raise TypeError(f"the source was captured without `{name}`")
        return found

    def decided(self, args: Sequence[object], kwargs: Mapping[str, object]) -> set[Tensor]:
        """The tensors among arguments by whose values forward decides."""
        found = self.tensors(args, kwargs) if self.values else {}
        return {found[name] for name in self.values if name in found}

    def signature(self, takes: Collection[str] = ()) -> list[Parameter]:
        """The arguments, and behind them by name the tensors that a graph `takes` and no argument holds."""
        leaves = {leaf for one in self.arguments.values() for leaf in one.names}
        others = [name for name in self.arguments if name not in (*self.parameters, self.rest)]
        found = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None) for name in self.parameters]
        if self.rest:
            found.append(Parameter(self.rest, Parameter.VAR_POSITIONAL))
        named = [*others, *(name for name in takes if name not in leaves)]
        return found + [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in named]

    def _leaves(self, name: str, value: object) -> dict[str, object]:
        known = self.arguments[name]
        leaves, own = tree_flatten(value)
        if own != known.structure:
            raise TypeError(f"the source was captured with another structure of `{name}`")
        pairs = dict(zip(known.names, leaves, strict=True))
        for leaf in pairs.keys() & self.fixed.keys():
            if pairs[leaf] is not self.fixed[leaf] and pairs[leaf] != self.fixed[leaf]:
                raise TypeError(f"the source was captured with {self.fixed[leaf]!r} for `{name}`")
        for leaf in pairs.keys() & self.values.keys():
            held = self.values[leaf]
            if pairs[leaf].shape != held.shape or not torch.equal(pairs[leaf].to(held), held):
                raise TypeError(
                    f"the source was captured with {held.tolist()} for `{name}`: its forward decides by them"
                )
        return {leaf: found for leaf, found in pairs.items() if leaf not in self.fixed}
