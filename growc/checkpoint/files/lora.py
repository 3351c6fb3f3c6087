"""LoRA adapters (directories of PEFT) in a checkpoint, grown together with the weights that they adapt.

An adapter adds s·B·A to a weight W. If W becomes M·W·L, B becomes M·B and A becomes A·L, so the sum becomes
M·(W + s·B·A)·L. The adapted model thus grows by the same maps as the plain one. Entries that a fill adds to W
without depending on W (drawn entries, noise) belong to W; adapters have zeros there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from growc.algebra.indexmap import Array
from growc.checkpoint.files.directory import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    Checkpoint,
    read_json,
    read_tensors,
)
from growc.checkpoint.files.safetensors_file import WORDS, HeaderEntry, unreadable
from growc.checkpoint.files.shards import ShardWriter, laid_out
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.plans.execute import ReadTensor, execute
from growc.plans.lazy_rows import stored
from growc.plans.plan import MEAN, ZERO, Layout, WeightPlan

WEIGHTS, PICKLED = ADAPTER_WEIGHTS
PREFIX = "base_model.model."

INERT = """
    auto_mapping base_model_name_or_path bias exclude_modules fan_in_fan_out inference_mode init_lora_weights
    lora_alpha lora_dropout megatron_core modules_to_save peft_type peft_version qalora_group_size r revision
    runtime_config target_modules task_type use_rslora
"""
"""Fields of plain LoRA that hold for every size and number of layers; all other fields must be unset."""

STARTS = (True, False, None, "gaussian", "orthogonal")
"""Ways to start an adapter that do not change the weight itself."""

NUMBERED = ("layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern")
"""Fields that may name layers by number. They hold only if layers keep their numbers."""

FACTORS = (("lora_A.weight", "lora_B.weight"), ("lora_embedding_A", "lora_embedding_B"))
"""Endings of the names of A and B."""


@dataclass(frozen=True)
class AdapterGrowth:
    """The growth that an adapter follows.

    plans: by the names of the result's weights. named: maps a name of a source's weight to the first of its
    names, or to None if the source has no such weight. read: reads the source's tensors by the plan's names.
    """

    plans: Mapping[str, WeightPlan]
    named: Callable[[str], str | None]
    read: ReadTensor


def adapters_of(source: Checkpoint) -> list[Path]:
    """The folders of a checkpoint that hold an adapter, possibly the checkpoint's own."""
    folders = (source.path, *(p for p in source.carried() if p.is_dir()))
    return [folder for folder in folders if (folder / ADAPTER_CONFIG).is_file()]


def grow_adapter(folder: Path, out: Path, growth: AdapterGrowth) -> None:
    """Write the adapter in `folder`, grown, to `out`.

    Raises GrowError (G309) if it is no plain LoRA, or if the result has no counterpart of the same rank.
    """
    config = read_json(folder / ADAPTER_CONFIG)
    file = next((p for n in (WEIGHTS, PICKLED) if (p := folder / n).is_file()), None)
    if file is None:
        raise unreadable(folder / ADAPTER_CONFIG, f"there is no `{WEIGHTS}` beside it")
    _require_plain(folder, config, any(plan.copy_of for plan in growth.plans.values()))
    tensors, metadata = read_tensors(file)
    across = bool(config.get("fan_in_fan_out"))
    grown = {
        n: a for pair in _pairs(folder, tensors) for n, a in _grown(folder, pair, tensors, growth, across)
    }
    entries = [HeaderEntry(name, WORDS[array.dtype], array.shape) for name, array in sorted(grown.items())]
    out.mkdir(exist_ok=True)
    with ShardWriter(laid_out(out, entries, metadata or {"format": "pt"}, name=WEIGHTS)) as writer:
        for name, array in grown.items():
            writer.put(name, stored(array))
    text = json.dumps(config | {"base_model_name_or_path": None}, indent=2, sort_keys=True)
    (out / ADAPTER_CONFIG).write_text(text, encoding="utf-8")


def _require_plain(folder: Path, config: Mapping[str, Any], moved: bool) -> None:
    if config.get("peft_type") != "LORA":
        raise _not_plain(folder, f"it is of type {config.get('peft_type')}")
    if config.get("init_lora_weights") not in STARTS:
        raise _not_plain(folder, f"`init_lora_weights` is {config['init_lora_weights']!r}")
    for name in sorted(config.keys() - {*INERT.split(), *NUMBERED}):
        if config[name]:
            raise _not_plain(folder, f"`{name}` is set")
    if config.get("bias") not in (None, "none"):
        raise _not_plain(folder, f"`bias` is {config['bias']!r}")
    if not moved:
        return
    targets = config.get("target_modules") or []
    numbered = [name for name in NUMBERED if config.get(name)]
    if isinstance(targets, str) or any(re.search(r"\d", t) for t in targets):
        numbered.append("target_modules")
    if numbered:
        raise _not_plain(folder, f"`{numbered[0]}` may name layers by numbers, and layers change theirs")


def _not_plain(folder: Path, reason: str) -> GrowError:
    message = f"the adapter in `{folder}` cannot be carried to the result: {reason}"
    remedy = "merge the adapter into the weights, or remove it from the directory"
    return GrowError(Diagnostic("G309", message, help=remedy))


def _pairs(folder: Path, tensors: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each module with an A and a B, with the endings of their names."""
    unpaired = set(tensors)
    for ends in FACTORS:
        for name in sorted(n for n in tensors if n.endswith(f".{ends[0]}")):
            module = name.removesuffix(f".{ends[0]}")
            if f"{module}.{ends[1]}" in unpaired and name.startswith(PREFIX):
                unpaired -= {name, f"{module}.{ends[1]}"}
                yield module.removeprefix(PREFIX), *ends
    if unpaired:
        raise _not_plain(folder, f"`{min(unpaired)}` is no A or B of a weight")


def _grown(
    folder: Path, pair: tuple[str, str, str], tensors: Mapping[str, Any], growth: AdapterGrowth, across: bool
) -> Iterator[tuple[str, Array]]:
    """The new A and B for every weight of the result that comes from the adapted one."""
    module, *ends = pair
    a, b = (tensors[f"{PREFIX}{module}.{end}"].read() for end in ends)
    source = growth.named(f"{module}.weight")
    if source is None:
        raise _not_plain(folder, f"the model has no weight `{module}.weight`")
    for name, plan in growth.plans.items():
        if growth.named(plan.copy_of or plan.source) != source:
            continue
        axes = _axes(folder, plan, a, b, across)
        if plan.literal is not None or any(step.next is not None for step in plan.steps):
            raise _not_plain(folder, f"`{name}` comes from two weights, or from none, and A and B have one")
        place = name.removesuffix(".weight") if plan.copy_of else module
        new_a = _along(plan, axes[0], 1, a, 1.0, growth.read)
        new_b = _along(plan, axes[1], 0, b, plan.scale, growth.read)
        yield f"{PREFIX}{place}.{ends[0]}", new_a
        yield f"{PREFIX}{place}.{ends[1]}", np.zeros_like(new_b) if plan.zero else new_b


def _axes(folder: Path, plan: WeightPlan, a: Array, b: Array, across: bool) -> tuple[int, int]:
    """The axes of a weight that belong to A and B: its inputs and its outputs."""
    fitting = [
        (inputs, outputs)
        for inputs, outputs in (((0, 1), (1, 0)) if across else ((1, 0), (0, 1)))
        if len(plan.before) > 1
        and (plan.before[inputs], plan.before[outputs]) == (a.shape[1], b.shape[0])
        and plan.before[2:] == a.shape[2:]
    ]
    if not fitting:
        message = f"A and B are {list(a.shape)} and {list(b.shape)}, and `{plan.name}` is {list(plan.before)}"
        raise _not_plain(folder, message)
    return fitting[0]


def _along(plan: WeightPlan, axis: int, own: int, factor: Array, scale: float, read: ReadTensor) -> Array:
    """Apply the steps on one axis of a weight to an axis of one of its factors."""
    steps = tuple(replace(s, axis=own, layout=_linear(s.layout)) for s in plan.steps if s.axis == axis)
    after = list(factor.shape)
    after[own] = plan.after[axis]
    factor_plan = WeightPlan(
        plan.name, plan.name, str(factor.dtype), factor.shape, tuple(after), steps, scale
    )
    return execute(factor_plan, factor, read)


def _linear(layout: Layout) -> Layout:
    """A layout without added entries that are not made of old ones."""
    if layout.step is None:
        return replace(layout, parts=tuple(_linear(part) for part in layout.parts))
    step = layout.step
    filler = np.where(step.filler == MEAN, MEAN, ZERO)
    return replace(layout, step=replace(step, filler=filler, noise=None))
