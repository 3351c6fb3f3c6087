"""A transformers module in memory, as the class that its config builds and the weights that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from torch import Tensor

from growc.algebra.indexmap import Array
from growc.checkpoint.classes.class_weights import ClassWeights, first_names
from growc.checkpoint.files.quiet import quiet
from growc.checkpoint.files.safetensors_file import HeaderEntry
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
class ModuleInMemory(ClassWeights):
    """A module that computes what its class and config say.

    source: the module. tensors: its state by name.
    """

    build: ClassBuilder
    source: Any
    tensors: Mapping[str, Tensor]

    @staticmethod
    def of(module: Any, inputs: Mapping[str, object] | None = None) -> ModuleInMemory:
        """The module as its class builds it, checked by running both on these inputs, or else on growc's.

        Raises GrowError: G309 for quantised weights, G317 if the module fails on the inputs, G321 if its
        class does not build it from its config.
        """
        config = module.config.to_dict()
        require_plain(config)
        built, alike = (built_like(module) for _ in range(2))
        tensors = module.state_dict(keep_vars=True)
        if reason := _difference(module, alike, tensors, inputs):
            raise _other(module, reason)
        return ModuleInMemory(built, first_names(built), config, _builder(module), module, tensors)

    def entry(self, name: str) -> HeaderEntry:
        """As a file would have it. Raises GrowError (G309) where files have no such elements."""
        return entry_of(name, self.tensors[name])

    def read(self, name: str) -> Array:
        """The tensor's values, from the module."""
        return to_numpy(self.tensors[name])


def built_like(module: Any) -> Any:
    """The module that the class of a module builds from its config.

    Parameters are on the meta device; all other tensors have their values. Raises GrowError (G321) if
    building fails.
    """
    try:
        with quiet():
            return _builder(module)(module.config.to_dict(), constants=True)
    except Exception as error:
        raise _other(module, said(error)) from error


def _builder(module: Any) -> ClassBuilder:
    """A builder for the module's class, with settings with which it can be captured."""
    return ClassBuilder(type(module), ways(module.config, "_attn_implementation"))


def _difference(
    module: Any, alike: Any, tensors: Mapping[str, Tensor], inputs: Mapping[str, object] | None
) -> str:
    """The reason, in words, why a module differs from the one its class builds (`alike`); empty if there is
    none.
    """
    built = alike.state_dict(keep_vars=True)
    for name in (*built, *tensors):
        ours, theirs = (state[name].shape if name in state else None for state in (tensors, built))
        if ours != theirs:
            return f"`{name}` is {_shape(ours)}, and {_shape(theirs)} in the class"
    for names in ties_of(module) ^ ties_of(alike):
        return f"{' and '.join(f'`{name}`' for name in sorted(names))} are one tensor in one of both"
    _with_types_of(module, alike)
    example = example_inputs(alike) if inputs is None else inputs
    try:
        with capturable(module):
            same = operator_log(module, example) == operator_log(alike, example)
    except Exception as error:  # the module's own code may raise anything
        if asks_data(error):
            raise GrowError(untraceable(module, error)) from error
        message = f"`{type(module).__name__}` fails on its example inputs"
        raise GrowError(Diagnostic("G317", message, notes=reasons(error))) from error
    return "" if same else "it computes something else"


def _with_types_of(module: Any, alike: Any) -> None:
    """Convert the tensors of `alike`, which are on the meta device, to the element types of `module`."""
    originals = dict(chain(module.named_parameters(remove_duplicate=False), module.named_buffers()))
    for name, tensor in chain(alike.named_parameters(), alike.named_buffers()):
        if name in originals and originals[name].dtype != tensor.dtype:
            tensor.data = tensor.data.to(originals[name].dtype)


def _shape(shape: Any) -> str:
    return "not there" if shape is None else str(list(shape))


def _other(module: Any, reason: str) -> GrowError:
    message = f"this `{type(module).__name__}` is not what its class builds from its config"
    remedy = "`keep_class=False` gives a module of growc's own, which computes what this one does"
    return GrowError(Diagnostic("G321", message, notes=(reason,), help=remedy))
