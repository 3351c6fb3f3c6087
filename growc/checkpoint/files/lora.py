"""LoRA adapters (directories of PEFT) that lie in a checkpoint, grown with the weights that they adapt.

An adapter adds s·B·A to a weight W. Where W becomes M·W·L, B becomes M·B and A becomes A·L, so that the sum
becomes M·(W + s·B·A)·L: the adapted model grows by the same maps as the plain one. What a fill adds to W that
does not depend on W (drawn entries, noise) belongs to W, and adapters have zeros there.
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
from growc.checkpoint.files.safetensors_file import WORDS, Entry, unreadable
from growc.checkpoint.files.shards import ShardWriter, laid_out
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.plans.execute import Read, execute
from growc.plans.plan import MEAN, ZERO, Layout, WeightPlan
from growc.plans.rows import stored

WEIGHTS, PICKLED = ADAPTER_WEIGHTS
PREFIX = "base_model.model."

INERT = """
    auto_mapping base_model_name_or_path bias exclude_modules fan_in_fan_out inference_mode init_lora_weights
    lora_alpha lora_dropout megatron_core modules_to_save peft_type peft_version qalora_group_size r revision
    runtime_config target_modules task_type use_rslora
"""
"""Fields of plain LoRA that hold for every size and number of layers; every other one is to be unset."""

STARTS = (True, False, None, "gaussian", "orthogonal")
"""Ways to start an adapter that leave the weight itself alone."""

NUMBERED = ("layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern")
"""Fields that may name layers by number: they hold as long as layers keep theirs."""

FACTORS = (("lora_A.weight", "lora_B.weight"), ("lora_embedding_A", "lora_embedding_B"))
"""How the names of A and B end."""


@dataclass(frozen=True)
class Growth:
    """What an adapter has to follow.

    plans: by the names of the result's weights. named: of all names of a weight of the source the first, None
    where the source has no such weight. read: the source's tensors, by the plan's names.
    """

    plans: Mapping[str, WeightPlan]
    named: Callable[[str], str | None]
    read: Read


def adapters_of(source: Checkpoint) -> list[Path]:
    """The folders of a checkpoint in which an adapter lies, itself among them."""
    folders = (source.path, *(p for p in source.carried() if p.is_dir()))
    return [folder for folder in folders if (folder / ADAPTER_CONFIG).is_file()]


def grow_adapter(folder: Path, out: Path, growth: Growth) -> None:
    """Write the adapter that lies in `folder` to `out`.

    Raises GrowError (G309) for what is no plain LoRA, or has no counterpart of the same rank.
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
    entries = [Entry(name, WORDS[array.dtype], array.shape) for name, array in sorted(grown.items())]
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
    """The module that each A and B belong to, and how their names end."""
    left = set(tensors)
    for ends in FACTORS:
        for name in sorted(n for n in tensors if n.endswith(f".{ends[0]}")):
            module = name.removesuffix(f".{ends[0]}")
            if f"{module}.{ends[1]}" in left and name.startswith(PREFIX):
                left -= {name, f"{module}.{ends[1]}"}
                yield module.removeprefix(PREFIX), *ends
    if left:
        raise _not_plain(folder, f"`{min(left)}` is no A or B of a weight")


def _grown(
    folder: Path, pair: tuple[str, str, str], tensors: Mapping[str, Any], growth: Growth, across: bool
) -> Iterator[tuple[str, Array]]:
    """The new A and B, for every weight of the result that comes from the adapted one."""
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
    """The axes of a weight that A and B bear: its inputs and its outputs."""
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


def _along(plan: WeightPlan, axis: int, own: int, factor: Array, scale: float, read: Read) -> Array:
    """What the steps on one axis of a weight make of an axis of one of its factors."""
    steps = tuple(replace(s, axis=own, layout=_linear(s.layout)) for s in plan.steps if s.axis == axis)
    after = list(factor.shape)
    after[own] = plan.after[axis]
    made = WeightPlan(plan.name, plan.name, str(factor.dtype), factor.shape, tuple(after), steps, scale)
    return execute(made, factor, read)


def _linear(layout: Layout) -> Layout:
    """A layout without what it adds that is not made of old entries."""
    if layout.step is None:
        return replace(layout, parts=tuple(_linear(part) for part in layout.parts))
    step = layout.step
    filler = np.where(step.filler == MEAN, MEAN, ZERO)
    return replace(layout, step=replace(step, filler=filler, noise=None))
