"""A module with the weights of a state dict that lies beside it.

Needs: a module in Python, on meta or not, and its state dict. Gives: another one of the same structure and
ties, whose parameters and buffers are those of the state dict, in the element types of the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from itertools import chain

import torch
from torch import Tensor, nn

from growc.checkpoint.files.state_dict import Given, read_state
from growc.dialects.transformers.config.shapes import same_tensors
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.formats.compiler import has_config

State = Mapping[str, Callable[[], Tensor]]

SHOWN = 5
"""So many tensors are named that do not fit."""


def filled(module: nn.Module, given: Given) -> nn.Module:
    """The module with these weights; the one that is given stays as it was.

    Raises GrowError: G309, G310 where the file cannot be read; G322 where names or sizes are others than the
    module's, or where only the class knows a value and the module is on meta.
    """
    state = read_state(given)
    tied = same_tensors(module)
    own = module.state_dict(keep_vars=True)
    lacking = (names for names in tied if not any(name in state for name in names))
    problems = [f"it lacks {' or '.join(f'`{name}`' for name in names)}" for names in lacking]
    problems += [f"the module has no `{name}`" for name in state if name not in own]
    made: dict[Tensor, Tensor] = {}
    for names in tied:
        found = [name for name in names if name in state]
        if found:
            tensor, problem = _fitting(found, own[found[0]], state)
            problems += [problem] if problem else []
            made[own[found[0]]] = tensor
    if problems:
        more = (f"and {len(problems) - SHOWN} more",) if len(problems) > SHOWN else ()
        message = f"the state dict does not fit this `{type(module).__name__}`"
        raise GrowError(Diagnostic("G322", message, notes=(*problems[:SHOWN], *more)))
    copy: nn.Module = deepcopy(module, {id(old): new for old, new in (made | _computed(module)).items()})
    return copy


def _fitting(names: list[str], own: Tensor, state: State) -> tuple[Tensor, str]:
    """One tensor of the state dict in the type of the module's, and what is wrong with it."""
    first, *others = (state[name]() for name in names)
    if first.shape != own.shape or first.is_floating_point() != own.is_floating_point():
        given, wanted = (f"{list(t.shape)} of {str(t.dtype).removeprefix('torch.')}" for t in (first, own))
        return own, f"`{names[0]}` is {given}, and in the module {wanted}"
    for name, other in zip(names[1:], others, strict=True):
        if not torch.equal(first, other):
            return own, f"`{names[0]}` and `{name}` are one tensor in the module, and two in the state dict"
    device = "cpu" if own.is_meta else own.device
    made = first.to(device, own.dtype)
    if isinstance(own, nn.Parameter):
        return nn.Parameter(made, requires_grad=own.requires_grad), ""
    return made, ""


def _computed(module: nn.Module) -> dict[Tensor, Tensor]:
    """What no state dict holds and a module on meta has no values of, from its class.

    Raises GrowError (G322) where that does not say them.
    """
    stored = module.state_dict(keep_vars=True)
    absent = {n: b for n, b in _passing(module) if b.is_meta and n not in stored}
    known: dict[str, Tensor] = {}
    if absent and has_config(module):
        from growc.checkpoint.classes.in_memory import built_like

        known = {n: b for n, b in _passing(built_like(module)) if not b.is_meta}
    for name in absent:
        if name not in known:
            message = f"`{name}` has no values, and no state dict holds it"
            remedy = "build the module on the CPU, where its class computes it"
            raise GrowError(Diagnostic("G322", message, help=remedy))
    return {buffer: known[name].to(buffer.dtype) for name, buffer in absent.items()}


def _passing(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Buffers, and tensors that modules keep as plain attributes, by their names."""
    plain = (
        (f"{path}.{name}".lstrip("."), value)
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, Tensor)
    )
    return chain(module.named_buffers(remove_duplicate=False), plain)
