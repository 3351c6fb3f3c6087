"""`subclone to parameters <= parameters / 2` on the zoo, and what the choice costs on trained models.

    python tests/budgets/budgets.py [FOLDER] [--json FILE]

FOLDER has the zoo's models. Of each: the budget, the sizes, how near they come, plans and seconds of CPU. Of
trained models with calibration data: the loss on held-out samples after the choice by importance (without and
with candidates), by magnitude, and after half of each axis.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import growc
from growc.budgets.settle import settled
from growc.errors.source import Source

ROOT = Path(__file__).resolve().parents[2]
TRANSFORMERS = [
    *("gpt2", "gpt_neox", "opt", "bloom", "phi", "llama_gqa"),
    *("qwen2", "gemma2", "mistral", "bert", "t5", "vit"),
]
CONVOLUTIONS = ["resnet", "regnet", "convnext", "mobilenet_v2"]
MIXTURES = ["mixtral", "qwen2_moe"]
AXES = {
    **dict.fromkeys(TRANSFORMERS, "hidden, ffn, heads, layers"),
    **dict.fromkeys(CONVOLUTIONS, "channels"),
    "convnext": "hidden, ffn",
    "mobilenet_v2": "channels",
    **dict.fromkeys(MIXTURES, "hidden, ffn, experts, layers"),
}
HALF = "subclone to parameters <= parameters / 2 over"
TRAINED = {
    "tiny-gpt": ("24-subcloning/calibration.npz", ("hidden", "heads", "ffn")),
    "tiny-vit": ("25-subcloning-vit/digits.npz", ("hidden", "heads", "ffn")),
}


def by_magnitude(axes: str) -> str:
    """The recipe of a zoo model."""
    return f"{HALF} {axes} by magnitude" + (" layers by even" if "layers" in axes else "")


def on_zoo(name: str, folder: Path) -> dict[str, Any]:
    """What the budget comes to on a model of the zoo."""
    model = folder / f"{name}.torchscript.onnx"
    started = time.process_time()
    try:
        resolved = settled([Source("-e", by_magnitude(AXES[name]))], {}, model)
    except growc.GrowError as error:
        return {"refused": str(error).splitlines()[0]}
    seconds = time.process_time() - started
    one = resolved.decided[0]
    return {
        "budget": one.limit,
        "parameters": one.rows[0].amount,
        "part": round(one.rows[0].amount / one.limit, 4),
        "sizes": dict(zip(one.axes, one.rows[0].sizes, strict=True)),
        "near": [row.amount for row in one.near],
        "plans": one.plans,
        "seconds": round(seconds, 1),
    }


def held_out(model: Path, recipe: str, folder: Path, data: Path) -> dict[str, Any]:
    """What a recipe costs on held-out samples."""
    done = growc.apply(recipe, model, folder / "small.onnx", inputs=data, force=True)
    found = done.calibration
    assert found is not None
    loss = None if found.after is None else round(found.after.mean, 4)
    kl = None if found.kl is None else round(found.kl, 4)
    sizes = {
        name: change.after[0] for name, change in done.plan.axes.items() if change.before != change.after
    }
    return {"parameters": done.plan.parameters[1], "sizes": sizes, "loss": loss, "kl": kl}


def on_trained(name: str) -> dict[str, Any]:
    """The choice beside other ways to the same size; the first half of the data chooses, the other judges."""
    file, axes = TRAINED[name]
    model = ROOT / f"examples/models/{name}.onnx"
    with tempfile.TemporaryDirectory() as place, np.load(ROOT / "examples" / file) as data:
        folder = Path(place)
        rows = {key: data[key] for key in data.files}
        middle = len(next(iter(rows.values()))) // 2
        np.savez(folder / "chosen.npz", **{key: value[:middle] for key, value in rows.items()})
        np.savez(folder / "held.npz", **{key: value[middle:] for key, value in rows.items()})
        measure = f'measure importance on "{folder / "chosen.npz"}"\n'
        over = ", ".join([*axes, "layers"])
        hand = "\n".join(f"subclone {axis} to {axis} / 2 by importance" for axis in axes)
        ways = {
            "by importance": f"{measure}{HALF} {over} by importance",
            "by importance, 8 candidates": f"{measure}{HALF} {over} by importance candidates 8",
            "by magnitude": f"{measure}{HALF} {over} by magnitude layers by importance",
            "each axis halved by hand": f"{measure}{hand}\nsubclone layers to layers / 2 by importance",
            "each width halved by hand": f"{measure}{hand}",
        }
        return {way: held_out(model, recipe, folder, folder / "held.npz") for way, recipe in ways.items()}


def main() -> None:
    """Measure all, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/zoo")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"trained": {name: on_trained(name) for name in TRAINED}, "zoo": {}}
    for name in AXES:
        found["zoo"][name] = on_zoo(name, options.folder)
        print(name, found["zoo"][name], flush=True)
    print(json.dumps(found["trained"], indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
