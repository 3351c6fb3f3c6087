"""A module of the source's class, made from a plan, with all settings that training gave the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from growc.checkpoint.check.run import Loaded
from growc.checkpoint.classes.class_weights import single
from growc.checkpoint.classes.in_memory import ModuleInMemory
from growc.checkpoint.classes.model import class_model
from growc.checkpoint.classes.new_tensors import GrownWeights, class_result
from growc.checkpoint.files.quiet import quiet
from growc.dialects.onnx.emit import emitted
from growc.dialects.torch.capture.example_inputs import real_inputs, ways
from growc.dialects.torch.capture.tracing import by_name
from growc.dialects.torch.model import arguments
from growc.dialects.torch.operators.arrays import to_torch, widened
from growc.dialects.torch.run.cases import Case, PortMapping
from growc.dialects.torch.run.run_module import Inputs
from growc.dialects.transformers.config.shapes import same_tensors
from growc.dialects.transformers.first_step import first_step
from growc.errors.json_data import Json
from growc.formats.compiler import compiled
from growc.modules.grow import finish, is_on_meta
from growc.passes.compilation import Result
from growc.resolve.bound import Resolved
from growc.verification.judge import judge_plan


def grow(
    resolved: Resolved,
    module: Any,
    example_inputs: Any = None,
    *,
    check: bool = True,
    config: Mapping[str, Json] | None = None,
) -> Any:
    """The module of the same class that a recipe makes of a transformers module, which stays unchanged.

    `check=False` skips verification except for `expect preserved`. `config` sets fields of the result's
    config. Raises GrowError.
    """
    c = compiled(resolved, module, example_inputs=example_inputs, keep_class=True, config=config)
    judge_plan(resolved.statements, c)
    grown: GrownWeights[ModuleInMemory] = class_result(c).grown
    model, result = class_model(c), revived(grown)
    inputs = _inputs(c, module, example_inputs)
    planned = emitted(c)
    descent = PortMapping.of(c, planned, [value.name or "" for value in planned.graph.outputs])
    cases = descent.cases(module, inputs, model.captured if check else None)
    finish(resolved, c, module, result, cases, descent, check=check)
    float32_copies = in_single(grown) if check and c.plan.certificate.exact else None
    if float32_copies is not None:
        wider = [Case(*tree_map_only(Tensor, single, (case.source, case.result))) for case in cases]
        finish(Resolved(()), c, *float32_copies, wider, descent, check=True)
    return result


def _inputs(c: Result, module: Any, example_inputs: object) -> Inputs:
    """Arguments of forward with values: the given ones, or growc's own on the module's device."""
    if example_inputs is not None and not is_on_meta(example_inputs):
        args, kwargs = arguments(example_inputs)
        return (), first_step(module, by_name(module, args, kwargs))
    drawn = Loaded(module).fitting(real_inputs(class_model(c).class_weights.module))
    return (), tree_map_only(Tensor, lambda tensor: tensor.to(module.device), drawn)


def revived(grown: GrownWeights[ModuleInMemory]) -> Any:
    """A new module of the source's class, with the source's modes, element types, devices and ties."""
    source = grown.source.source
    build = replace(grown.source.build, experts=ways(source.config, "_experts_implementation"))
    with quiet():
        module: Any = build(grown.config, constants=True)
    for names in same_tensors(module):
        name = next(name for name in names if name in grown.plans)
        old = grown.source.tensors[grown.origin(name)]
        grown_tensor = to_torch(grown.make(name).whole().reshape(grown.plans[name].after)).to(old.device)
        place(
            module,
            names,
            nn.Parameter(grown_tensor, old.requires_grad) if isinstance(old, nn.Parameter) else grown_tensor,
        )
    _follow(module, source)
    return module


def in_single(grown: GrownWeights[ModuleInMemory]) -> tuple[Any, Any] | None:
    """Source and result in single precision; None if no number of the source is narrower."""
    memory_source = grown.source
    if all(widened(tensor) is tensor for tensor in memory_source.tensors.values()):
        return None
    wide = deepcopy(memory_source.source).float()
    living = replace(memory_source, source=wide, tensors=wide.state_dict(keep_vars=True))
    return wide, revived(replace(grown, source=living))


def place(module: nn.Module, names: Sequence[str], tensor: Tensor) -> None:
    """Store a tensor in a module under names that the module already has."""
    for name in names:
        path, _, last = name.rpartition(".")
        part = module.get_submodule(path)
        owner: dict[str, Any] = part._parameters if last in part._parameters else part._buffers
        owner[last] = tensor


def _follow(module: Any, source: Any) -> None:
    """Copy from the source what is neither config nor weight.

    These are modes, types of computed buffers and gradient checkpointing.
    """
    source_buffers = dict(source.named_buffers())
    stored = module.state_dict(keep_vars=True)
    for name, buffer in module.named_buffers():
        if name not in stored:
            like = source_buffers.get(name)
            kind = buffer.dtype if like is None else like.dtype
            place(module, [name], buffer.to(source.device if like is None else like.device, kind))
    parts = dict(source.named_modules())
    for name, part in module.named_modules():
        part.training = parts[name].training if name in parts else source.training
    checkpointed = [part for part in parts.values() if getattr(part, "gradient_checkpointing", False)]
    for part in module.modules() if checkpointed else ():
        if hasattr(part, "gradient_checkpointing"):
            part.gradient_checkpointing = True
            part._gradient_checkpointing_func = checkpointed[0]._gradient_checkpointing_func
    if hasattr(source, "_require_grads_hook"):
        module.enable_input_require_grads()
    if getattr(source, "generation_config", None) is not None:
        module.generation_config = deepcopy(source.generation_config)
