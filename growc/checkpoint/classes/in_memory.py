"""A module of transformers in memory, as the class that its config builds and the weights that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from torch import Tensor

from growc.algebra.indexmap import Array
from growc.checkpoint.classes.holder import Holder, first_names
from growc.checkpoint.files.quiet import quiet
from growc.checkpoint.files.safetensors_file import Entry
from growc.checkpoint.files.torch_tensors import entry_of
from growc.dialects.torch.capture.data_dependence import asks_data, reasons, untraceable
from growc.dialects.torch.capture.example_inputs import capturable, example_inputs, ways
from growc.dialects.torch.operators.arrays import to_numpy
from growc.dialects.transformers.classes import ClassBuilder, require_plain
from growc.dialects.transformers.config.shapes import ties_of
from growc.dialects.transformers.config.trials import said
from growc.dialects.transformers.log.record import operator_log
from growc.errors.diagnostic import Diagnostic, GrowError


@dataclass(frozen=True)
class Living(Holder):
    """A module whose class and config say what it computes.

    source: the module. tensors: its state by name.
    """

    build: ClassBuilder
    source: Any
    tensors: Mapping[str, Tensor]

    @staticmethod
    def of(module: Any, inputs: Mapping[str, object] | None = None) -> Living:
        """A module that runs on these inputs, else on growc's.

        Raises GrowError: G309 for quantised weights, G317 where it fails on these, G321 where its class
        does not build it from its config.
        """
        config = module.config.to_dict()
        require_plain(config)
        built, alike = (built_like(module) for _ in range(2))
        tensors = module.state_dict(keep_vars=True)
        if reason := _difference(module, alike, tensors, inputs):
            raise _other(module, reason)
        return Living(built, first_names(built), config, _builder(module), module, tensors)

    def entry(self, name: str) -> Entry:
        """As a file would have it. Raises GrowError (G309) where files have no such elements."""
        return entry_of(name, self.tensors[name])

    def read(self, name: str) -> Array:
        """From the module."""
        return to_numpy(self.tensors[name])


def built_like(module: Any) -> Any:
    """What the class of a module builds from its config: parameters on meta, all else with its values.

    Raises GrowError (G321) where it builds nothing.
    """
    try:
        with quiet():
            return _builder(module)(module.config.to_dict(), constants=True)
    except Exception as error:
        raise _other(module, said(error)) from error


def _builder(module: Any) -> ClassBuilder:
    """The module's class, as it can be captured."""
    return ClassBuilder(type(module), ways(module.config, "_attn_implementation"))


def _difference(
    module: Any, alike: Any, tensors: Mapping[str, Tensor], inputs: Mapping[str, object] | None
) -> str:
    """Why a module is not what its class builds (`alike`), in words; empty where it is."""
    built = alike.state_dict(keep_vars=True)
    for name in (*built, *tensors):
        ours, theirs = (state[name].shape if name in state else None for state in (tensors, built))
        if ours != theirs:
            return f"`{name}` is {_shape(ours)}, and {_shape(theirs)} in the class"
    for names in ties_of(module) ^ ties_of(alike):
        return f"{' and '.join(f'`{name}`' for name in sorted(names))} are one tensor in one of both"
    _with_types_of(module, alike)
    given = example_inputs(alike) if inputs is None else inputs
    try:
        with capturable(module):
            same = operator_log(module, given) == operator_log(alike, given)
    except Exception as error:  # whatever the module's own code raises
        if asks_data(error):
            raise GrowError(untraceable(module, error)) from error
        message = f"`{type(module).__name__}` fails on its example inputs"
        raise GrowError(Diagnostic("G317", message, notes=reasons(error))) from error
    return "" if same else "it computes something else"


def _with_types_of(module: Any, alike: Any) -> None:
    """Give a module on meta the element types of another one."""
    own = dict(chain(module.named_parameters(remove_duplicate=False), module.named_buffers()))
    for name, tensor in chain(alike.named_parameters(), alike.named_buffers()):
        if name in own and own[name].dtype != tensor.dtype:
            tensor.data = tensor.data.to(own[name].dtype)


def _shape(shape: Any) -> str:
    return "not there" if shape is None else str(list(shape))


def _other(module: Any, reason: str) -> GrowError:
    message = f"this `{type(module).__name__}` is not what its class builds from its config"
    remedy = "`keep_class=False` gives a module of growc's own, which computes what this one does"
    return GrowError(Diagnostic("G321", message, notes=(reason,), help=remedy))
