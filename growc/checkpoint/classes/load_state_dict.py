"""A copy of a module with the weights of a state dict.

Needs: a module in Python, on the meta device or not, and its state dict. Gives: a module of the same
structure and ties. Its parameters and buffers are those of the state dict, in the element types of the given
module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from itertools import chain

import torch
from torch import Tensor, nn

from growc.checkpoint.files.state_dict import TensorsOrFile, read_state
from growc.dialects.transformers.config.shapes import same_tensors
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.formats.compiler import has_config

LazyTensors = Mapping[str, Callable[[], Tensor]]

SHOWN = 5
"""An error names at most so many problems."""


def filled(module: nn.Module, weights: TensorsOrFile) -> nn.Module:
    """A copy of the module with these weights; the given module stays unchanged.

    Raises GrowError. G309, G310: the file cannot be read. G322: names or sizes differ from the module's, or
    the module is on meta and only its class knows a value.
    """
    state = read_state(weights)
    tied = same_tensors(module)
    module_state = module.state_dict(keep_vars=True)
    lacking = (names for names in tied if not any(name in state for name in names))
    problems = [f"it lacks {' or '.join(f'`{name}`' for name in names)}" for names in lacking]
    problems += [f"the module has no `{name}`" for name in state if name not in module_state]
    loaded: dict[Tensor, Tensor] = {}
    for names in tied:
        present = [name for name in names if name in state]
        if present:
            tensor, problem = _fitting(present, module_state[present[0]], state)
            problems += [problem] if problem else []
            loaded[module_state[present[0]]] = tensor
    if problems:
        more = (f"and {len(problems) - SHOWN} more",) if len(problems) > SHOWN else ()
        message = f"the state dict does not fit this `{type(module).__name__}`"
        raise GrowError(Diagnostic("G322", message, notes=(*problems[:SHOWN], *more)))
    copy: nn.Module = deepcopy(module, {id(old): new for old, new in (loaded | _computed(module)).items()})
    return copy


def _fitting(names: list[str], own: Tensor, state: LazyTensors) -> tuple[Tensor, str]:
    """One tensor of the state dict in the element type of the module's tensor, and the problem with it, if
    any.
    """
    first, *others = (state[name]() for name in names)
    if first.shape != own.shape or first.is_floating_point() != own.is_floating_point():
        actual, wanted = (f"{list(t.shape)} of {str(t.dtype).removeprefix('torch.')}" for t in (first, own))
        return own, f"`{names[0]}` is {actual}, and in the module {wanted}"
    for name, other in zip(names[1:], others, strict=True):
        if not torch.equal(first, other):
            return own, f"`{names[0]}` and `{name}` are one tensor in the module, and two in the state dict"
    device = "cpu" if own.is_meta else own.device
    converted = first.to(device, own.dtype)
    if isinstance(own, nn.Parameter):
        return nn.Parameter(converted, requires_grad=own.requires_grad), ""
    return converted, ""


def _computed(module: nn.Module) -> dict[Tensor, Tensor]:
    """Values of tensors that no state dict holds and that a module on meta lacks, as its class computes them.

    Raises GrowError (G322) if the class does not compute them.
    """
    stored = module.state_dict(keep_vars=True)
    absent = {n: b for n, b in _passing(module) if b.is_meta and n not in stored}
    class_values: dict[str, Tensor] = {}
    if absent and has_config(module):
        from growc.checkpoint.classes.in_memory import built_like

        class_values = {n: b for n, b in _passing(built_like(module)) if not b.is_meta}
    for name in absent:
        if name not in class_values:
            message = f"`{name}` has no values, and no state dict holds it"
            remedy = "build the module on the CPU, where its class computes it"
            raise GrowError(Diagnostic("G322", message, help=remedy))
    return {buffer: class_values[name].to(buffer.dtype) for name, buffer in absent.items()}


def _passing(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Buffers, and tensors that modules keep as plain attributes, with their names."""
    plain = (
        (f"{path}.{name}".lstrip("."), value)
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, Tensor)
    )
    return chain(module.named_buffers(remove_duplicate=False), plain)
