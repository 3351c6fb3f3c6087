"""Whether what a training has beside the weights grows right: the state of an optimizer, and LoRA adapters.

Judged where outputs are equal. A first moment that is a gradient of the source has to become the result's
gradient, wherever growc says that it does; an adapter that is merged into the result has to give what it
gives merged into the source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import judge
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from growc.plans.plan import Plan
from growc.training.optimizer_state import carry

RANK = 2
PREFIX = "base_model.model."
FAINT = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Gradients that are smaller, relative to the largest of all, are rounding: some biases have none."""


def gradients(module: nn.Module, outputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """Those of one loss of all outputs, by parameter; none where no output depends on one."""
    weights = torch.Generator().manual_seed(0)
    drawn = [torch.randn(t.shape, generator=weights).to(t.dtype) for t in outputs]
    sums = [(t * w).sum() / t.detach().abs().max() for t, w in zip(outputs, drawn, strict=True)]
    loss = sum(sums, torch.zeros(()))
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not loss.requires_grad:
        return {}
    computed = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {name: g for name, g in zip(named, computed, strict=True) if g is not None}


def state_off(source: nn.Module, result: nn.Module, plan: Plan, feed: judge.Feed) -> float | None:
    """How far the first moments that growc calls exact are from the result's gradients, relative to the
    largest of a parameter; None where outputs have more units, or none is called so.

    The optimizer has all parameters, as a training gives it, and a state for those with a gradient.
    """
    with judge.put_back(source):
        feed, _ = judge.precise((source, result), feed)
        outputs = judge.recorded(source, feed), judge.recorded(result, feed)
        if any(a.shape != b.shape for a, b in zip(*outputs, strict=True)):
            return None
        before, after = gradients(source, outputs[0]), gradients(result, outputs[1])
    names = [name for name, _ in source.named_parameters()]
    entries = {
        k: {"step": torch.tensor(1.0), "exp_avg": before[name]}
        for k, name in enumerate(names)
        if name in before
    }
    state = {"state": entries, "param_groups": [{"lr": 0.1, "params": list(range(len(names)))}]}
    carried = carry(state, plan, [names], [name for name, _ in result.named_parameters()])
    moments = {carried.names[0][k]: entry["exp_avg"] for k, entry in carried.state["state"].items()}
    exact = [name for name in carried.exact if name in after]
    if not exact:
        return None
    largest = max(after.values(), key=lambda gradient: float(gradient.abs().max()))
    faint = float(largest.abs().max()) * FAINT[largest.dtype]
    return max(_off(after[name], moments[name], faint) for name in exact)


def _off(wanted: Tensor, made: Tensor, faint: float) -> float:
    return float((wanted - made).abs().max() / max(float(wanted.abs().max()), faint))


def write_adapter(module: nn.Module, folder: Path) -> None:
    """Write a LoRA adapter of all linear layers of a module beside its checkpoint."""
    noise, held = torch.Generator().manual_seed(0), dict[str, Tensor]()
    linear = {name: part for name, part in module.named_modules() if type(part) is nn.Linear}
    for name, part in linear.items():
        size = float(part.weight.detach().std()) ** 0.5
        held[f"{PREFIX}{name}.lora_A.weight"] = size * torch.randn(RANK, part.in_features, generator=noise)
        held[f"{PREFIX}{name}.lora_B.weight"] = size * torch.randn(part.out_features, RANK, generator=noise)
    save_file(held, folder / "adapter_model.safetensors")
    targets = sorted({name.rpartition(".")[2] for name in linear})
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "target_modules": targets,
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


def merged(module: nn.Module, folder: Path) -> nn.Module:
    """A module with the adapter of a folder in its weights, in place."""
    config: Mapping[str, Any] = json.loads((folder / "adapter_config.json").read_text())
    held = load_file(folder / "adapter_model.safetensors")
    for name, a in held.items():
        if name.endswith(".lora_A.weight"):
            weight = module.get_parameter(
                f"{name.removeprefix(PREFIX).removesuffix('.lora_A.weight')}.weight"
            )
            b = held[name.replace("lora_A", "lora_B")]
            weight.data += (config["lora_alpha"] / config["r"]) * (b @ a).to(weight.dtype)
    return module
