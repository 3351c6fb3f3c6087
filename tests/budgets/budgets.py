"""`subclone to parameters <= parameters / 2` on the zoo, and what the choice costs on trained models.

    python tests/budgets/budgets.py [FOLDER] [--json FILE] [--page FILE]

FOLDER has the zoo's models. Of each: the budget, the sizes, how near they come, plans and seconds of CPU. Of
trained models with calibration data: the loss on held-out samples after the choice by importance (without and
with candidates), by magnitude, and after half of each axis.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import growc
from growc.budgets.settle import settled
from growc.errors.source import SourceText
from growc.resolve.recipe_forms import reading_of

sys.path.append(str(Path(__file__).resolve().parents[1]))

from full_runs import Record

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
    """The sizes that the budget comes to on a model of the zoo, or the refusal."""
    model = folder / f"{name}.torchscript.onnx"
    started = time.process_time()
    try:
        resolved = settled(reading_of([SourceText("-e", by_magnitude(AXES[name]))]), {}, model)
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
    """The cost of a recipe on held-out samples."""
    done = growc.apply(recipe, model, folder / "small.onnx", inputs=data, force=True)
    calibration = done.calibration
    assert calibration is not None
    loss = None if calibration.after is None else round(calibration.after.mean, 4)
    kl = None if calibration.kl is None else round(calibration.kl, 4)
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


HEAD = """# Budgets

`make budgets` makes this page, and keeps the numbers in [budgets.json](budgets.json). The recipe is
`subclone to parameters <= parameters / 2 over AXES by magnitude`, with `layers by even` for models with
layers. [The language](language.md#budgets) says how sizes are chosen.

## How near the choice comes to the budget

Channels of a convolutional network change in one proportion, so few sizes are possible there.

| model | axes | parameters / budget | plans | seconds of CPU |
| --- | --- | --- | --- | --- |
"""

LOSSES = """
## Loss after the choice

Half of the calibration data chooses, and the other half judges. Both models are small and trained. The loss
of tiny-gpt is the cross entropy of the next byte. KL is the divergence from the source's predictions, in
nats.

| model | way | parameters | loss | KL |
| --- | --- | --- | --- | --- |
"""


def page(record: Path) -> str:
    """The page of a record."""
    rows = json.loads(record.read_text(encoding="utf-8"))
    text = HEAD
    for name, axes in AXES.items():
        row = rows[name]
        text += f"| {name} | {axes} | {row['part']:.3f} | {row['plans']} | {row['seconds']} |\n"
    text += LOSSES
    for name in TRAINED:
        for way, one in rows[name].items():
            if isinstance(one, dict):
                loss, kl = ("" if one[key] is None else f"{one[key]:.2f}" for key in ("loss", "kl"))
                text += f"| {name} | {way} | {one['parameters']:,} | {loss} | {kl} |\n"
    return text


def main() -> None:
    """Measure all, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/zoo")
    parser.add_argument("--json", type=Path, default=ROOT / "build/budgets.json")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    record = Record(options.json)
    jobs = {name: partial(on_trained, name) for name in TRAINED}
    jobs |= {name: partial(on_zoo, name, options.folder) for name in AXES}
    for name, job in jobs.items():
        result = job()
        record.add(name, result)
        print(name, result, flush=True)
    if options.page:
        options.page.write_text(page(options.json), encoding="utf-8")


if __name__ == "__main__":
    main()
