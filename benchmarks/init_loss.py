"""The loss right after surgery: every published recipe on trained tiny models, as bert2BERT's table 1 has it.

    python benchmarks/init_loss.py [--seeds 3] [--windows 4] [--out docs]

For each trained model of examples/models, each recipe of examples that it can follow is applied (recipes with
a `let width` to WIDTH; what is drawn at random, once for each seed), and the validation loss of the result is
measured, beside the source's and that of the same result with all weights drawn anew. Writes init_loss.json
and init_loss.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "examples"))

from make_tiny_models import task  # noqa: E402
from train_tiny_gpt import validation_windows  # noqa: E402

from growc import api, grammar  # noqa: E402
from growc.errors.diagnostic import GrowError  # noqa: E402
from growc.recipe.expression import Int  # noqa: E402
from growc.recipe.syntax_tree import Blank, Comment, Expect, Item, Option, Scoped, Widen  # noqa: E402

MODELS = {"tiny-gpt-64": 64, "tiny-gpt": 128, "tiny-bert": 24, "tiny-llama": 96}
"""Trained models, and the length of the windows that each is judged on."""

WIDTH = {"tiny-gpt-64": 128, "tiny-gpt": 128, "tiny-bert": 96, "tiny-llama": 96}
"""The width that recipes with a `let width` grow to."""

HEAD = """# The loss right after surgery

Nats per byte on the validation windows, before any training, as bert2BERT's table 1 has it for BERT. Of what
is drawn at random, the range over three seeds. `=`: the certificate says exact. Recipes with a width grow the
two GPTs (64 and 96 wide) to 128, BERT and LLaMA (64 wide) to 96; BERT is judged on the bytes that are masked.
`random`: all weights drawn anew. `python benchmarks/init_loss.py` writes this page; the numbers stand in
[init_loss.json](init_loss.json).
"""

DRAWN = ("uniform copy", "random fill")


@dataclass(frozen=True)
class Row:
    """A recipe on a model: the loss for each seed, and whether the certificate says exact."""

    model: str
    recipe: str
    losses: tuple[float, ...]
    exact: bool | None = None


def loss_of(path: Path, name: str, windows: int) -> float:
    """Nats per byte on the validation windows."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    losses = []
    for seed, window in enumerate(validation_windows(count=windows, length=MODELS[name] + 1)):
        inputs, targets, judged = task(name, window, seed)
        (logits,) = session.run(None, inputs)
        logits = logits.astype(np.float64)
        top = logits.max(-1, keepdims=True)
        total = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
        losses.append(
            float((total - np.take_along_axis(logits, targets[..., None], -1)[..., 0])[judged].mean())
        )
    return float(np.mean(losses))


def seeded(text: str, seed: int) -> tuple[str, bool]:
    """The recipe without `expect`s, with every draw's seed moved on; and whether it draws anything."""
    draws = False

    def changed(items: Sequence[Item]) -> list[Item]:
        nonlocal draws
        new_items: list[Item] = []
        for place, item in enumerate(items):
            if isinstance(item, Scoped):
                new_items.append(replace(item, body=tuple(changed(item.body))))
            elif isinstance(item, Widen):
                others = tuple(o for o in item.options if o.name != "seed")
                draws |= item.fill.name in DRAWN or "noise" in text or "split random" in text
                new_items.append(
                    replace(item, options=(*others, Option("seed", expr=Int(100 * seed + place))))
                )
            elif not isinstance(item, Expect | Comment | Blank):
                new_items.append(item)
        return new_items

    recipe = grammar.parse(api.sources_of(text)[0])
    return grammar.format(replace(recipe, body=tuple(changed(recipe.body)))), draws


def drawn_anew(path: Path, seed: int) -> None:
    """All weights of a file as for training from scratch: matrices N(0, 0.02), gains 1, biases 0."""
    proto = onnx.load(path)
    graph, rng = proto.graph, np.random.default_rng(seed)
    gains = {n.input[1] for n in graph.node if n.op_type == "LayerNormalization"}
    gains |= {i for n in graph.node if n.op_type == "Mul" for i in n.input}
    for tensor in graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or not tensor.dims or "inv_freq" in tensor.name:
            continue
        shape = tuple(tensor.dims)
        value = rng.normal(0, 0.02, shape) if len(shape) > 1 else np.full(shape, float(tensor.name in gains))
        tensor.CopyFrom(onnx.numpy_helper.from_array(value.astype(np.float32), tensor.name))
    onnx.save(proto, path)


def measured(name: str, recipe: Path, folder: Path, seeds: int, windows: int) -> Row | None:
    """One recipe on one model; None where the model cannot follow it."""
    model, out = ROOT / "examples" / "models" / f"{name}.onnx", folder / "grown.onnx"
    text = recipe.read_text(encoding="utf-8")
    params = {"width": str(WIDTH[name])} if "let width" in text else {}
    losses: list[float] = []
    exact = None
    for seed in range(1, seeds + 1):
        again, draws = seeded(text, seed)
        try:
            applied = api.apply(again, model, out, params, check=False, force=True)
        except GrowError:
            return None
        losses.append(loss_of(out, name, windows))
        exact = applied.plan.certificate.exact
        if not draws:
            break
    return Row(name, recipe.parent.name, tuple(losses), exact)


def rows_of(name: str, seeds: int, windows: int, folder: Path, said: Callable[[str], None]) -> list[Row]:
    """The source, every recipe, and random weights, for one model."""
    model = ROOT / "examples" / "models" / f"{name}.onnx"
    rows = [Row(name, "source", (loss_of(model, name, windows),))]
    for recipe in sorted((ROOT / "examples").glob("[0-9][0-9]-*/recipe.grow")):
        row = measured(name, recipe, folder, seeds, windows)
        if row is not None:
            said(f"{name:12} {row.recipe:20} {shown(row.losses)}")
            rows.append(row)
    corner = (ROOT / "examples" / "06-directcopy" / "recipe.grow").read_text(encoding="utf-8")
    params = {"width": str(WIDTH[name])}
    api.apply(seeded(corner, 0)[0], model, folder / "random.onnx", params, check=False, force=True)
    losses = []
    for seed in range(seeds):
        drawn_anew(folder / "random.onnx", seed)
        losses.append(loss_of(folder / "random.onnx", name, windows))
    return [*rows, Row(name, "random", tuple(losses))]


def shown(losses: Sequence[float]) -> str:
    """The loss, or its range over the seeds where that can be seen."""
    low, high = f"{min(losses):.3f}", f"{max(losses):.3f}"
    return low if low == high else f"{low} to {high}"


def page(rows: Sequence[Row]) -> str:
    """The table, recipes down, models across."""
    names = list(MODELS)
    cells = {(r.recipe, r.model): shown(r.losses) + (" =" if r.exact else "") for r in rows}
    recipes = ["source", *sorted({r.recipe for r in rows} - {"source", "random"}), "random"]
    lines = [HEAD, f"| recipe | {' | '.join(names)} |", f"| --- {'| --- ' * len(names)}|"]
    for recipe in recipes:
        link = recipe if recipe in ("source", "random") else f"[{recipe}](../examples/{recipe}/README.md)"
        lines.append(f"| {link} | {' | '.join(cells.get((recipe, n), '–') for n in names)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write the numbers and the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=4, help="batches of 32 windows")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    parser.add_argument("--only", help="names of models, separated by commas")
    args = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only.split(",") if args.only else MODELS:
            rows += rows_of(
                name, args.seeds, args.windows, Path(folder), lambda line: print(line, flush=True)
            )
    data: list[dict[str, Any]] = [
        {"model": r.model, "recipe": r.recipe, "losses": [round(x, 5) for x in r.losses], "exact": r.exact}
        for r in rows
    ]
    (args.out / "init_loss.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (args.out / "init_loss.md").write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
