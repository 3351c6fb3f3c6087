"""The cost of weight subcloning right after surgery, before any training: the yardstick of `subclone`.

    python benchmarks/subclone.py [--models DIR] [--seeds 1,2,3] [--steps 1500] [--windows 4] [--out docs]

Three byte-level GPTs of six layers, which differ in their seed, are trained by examples/train_tiny_gpt.py on
the source of Python's standard library, where DIR does not have them yet. Width: each axis to three quarters
and to half of its size, by every ranking, and by keeping the least important units. Depth: each layer removed
and doubled, and fewer layers by every order. The loss is that of held-out windows; importance is measured on
64 windows of the training files. Writes subclone.json and subclone.md; what was measured of a seed is kept in
DIR, so that seeds can be measured side by side (`--only`) and put together afterwards.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import onnxruntime

ROOT = Path(__file__).parent.parent
TRAINER = ROOT / "examples" / "train_tiny_gpt.py"
sys.path.append(str(TRAINER.parent))

from train_tiny_gpt import CONTEXT, corpus, validation_windows  # noqa: E402

from growc import api  # noqa: E402
from growc.reports import measure as measuring  # noqa: E402

LAYERS, WIDTH, BATCH = 6, 64, 16
CALIBRATION = 64
"""Windows of the training files that importance is measured on."""

AXES = ("hidden", "heads", "ffn")
RANKINGS = ("importance", "magnitude", "even", "random", "first", "least")
SIZES = {"1/2": "{0} / 2", "3/4": "3 * {0} / 4"}
OPTIONS = ("rescaled", "unscaled")
ORDERS = ("importance", "middle", "even", "first", "last")


@dataclass(frozen=True)
class Row:
    """One loss: of what surgery, on the model of which seed."""

    seed: int
    kind: str
    what: str
    how: str
    loss: float


class Subject:
    """One trained model with its scores. `folder` is where recipes and results are written."""

    def __init__(self, path: Path, seed: int, folder: Path, windows: int) -> None:
        self.path, self.seed, self.folder = path, seed, folder
        self.held_out = list(validation_windows(count=windows))
        random = np.random.default_rng(0)
        data = corpus(validation=False)
        starts = random.integers(0, len(data) - CONTEXT, CALIBRATION)
        ids = data[starts[:, None] + np.arange(CONTEXT)].astype(np.int64)
        np.savez(folder / "calibration.npz", input_ids=ids)
        self.measured = measuring.measurement(path, folder / "calibration.npz", folder / f"scores{seed}.npz")

    def loss(self, recipe: str) -> float:
        """Nats per byte on held-out windows after a recipe; of the model itself where that is empty."""
        path = self.path
        if recipe:
            file = self.folder / "recipe.grow"
            file.write_text(f'measure importance on "calibration.npz"\n{recipe}\n', encoding="utf-8")
            path = api.apply(file, self.path, self.folder / "result.onnx", check=False, force=True).written
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        losses = []
        for window in self.held_out:
            (logits,) = session.run(None, {"input_ids": window[:, :-1]})
            logits = logits.astype(np.float64)
            top = logits.max(-1, keepdims=True)
            total = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
            losses.append(float((total - np.take_along_axis(logits, window[:, 1:, None], -1)[..., 0]).mean()))
        return float(np.mean(losses))

    def narrower(self, axis: str, size: str, ranking: str, option: str) -> str:
        """The statements that shrink one axis."""
        to = SIZES[size].format(axis)
        if ranking != "least":
            return f"subclone {axis} to {to} by {ranking} {option}"
        spaces = [scores for name, scores in self.measured.scores.items() if name.startswith(f"{axis}.")]
        lines = []
        for k, scores in enumerate(spaces):
            stay = len(scores) * 3 // 4 if size == "3/4" else len(scores) // 2
            name = f"least.{axis}.{k}.txt"
            least = np.sort(np.argsort(scores, kind="stable")[:stay])
            (self.folder / name).write_text("\n".join(map(str, least)) + "\n", encoding="utf-8")
            line = f'subclone {axis} to {to} by keep "{name}" {option}'
            lines.append(line if axis == "hidden" else f"in layers {k} {{\n    {line}\n}}")
        return "\n".join(lines)

    def width(self) -> Iterator[Row]:
        """Every axis, and all together, by every ranking."""
        for size in SIZES:
            for what in (*AXES, "all"):
                for option in OPTIONS:
                    for ranking in RANKINGS if option == "rescaled" else ("importance", "first", "least"):
                        axes = AXES if what == "all" else (what,)
                        recipe = "\n".join(self.narrower(axis, size, ranking, option) for axis in axes)
                        yield Row(self.seed, f"{size} {option}", what, ranking, self.loss(recipe))

    def depth(self) -> Iterator[Row]:
        """Every layer by itself, and a third and half of them by every order."""
        for layer in self.measured.layers:
            k = layer.layer
            assert layer.ratio is not None
            yield Row(self.seed, "layer", str(k), "ratio", layer.ratio)
            yield Row(self.seed, "layer", str(k), "removed", self.loss(f"drop layers {k}"))
            twice = f"arrange layers as 0..{k + 1}, {k}.." if k else "arrange layers as 0, 0.."
            yield Row(self.seed, "layer", str(k), "doubled", self.loss(twice))
        for count in (LAYERS - 1, 2 * LAYERS // 3, LAYERS // 2):
            for order in ORDERS:
                loss = self.loss(f"subclone layers to {count} by {order}")
                yield Row(self.seed, "layers", str(count), order, loss)


def trained(folder: Path, seed: int, steps: int) -> Path:
    """The model of a seed, trained if it is not there."""
    path = folder / f"gpt-{seed}.onnx"
    if not path.exists():
        sizes = {"layers": LAYERS, "width": WIDTH, "batch": BATCH, "steps": steps, "seed": seed}
        options = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
        command = [sys.executable, str(TRAINER), *options, "--name", path.stem, "--out", str(folder)]
        subprocess.run(command, check=True)
    return path


def measured(folder: Path, seed: int, steps: int, windows: int) -> list[Row]:
    """All rows of a seed, measured if they are not there."""
    kept = folder / f"gpt-{seed}.rows.json"
    if kept.exists():
        return [Row(**row) for row in json.loads(kept.read_text(encoding="utf-8"))]
    with tempfile.TemporaryDirectory() as scratch:
        subject = Subject(trained(folder, seed, steps), seed, Path(scratch), windows)
        rows = [Row(seed, "source", "", "", subject.loss(""))]
        for row in chain(subject.depth(), subject.width()):
            print(f"seed {seed}  {row.kind:13} {row.what:7} {row.how:10} {row.loss:.4f}", flush=True)
            rows.append(row)
    kept.write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
    return rows


# ------------------------------------------------------------------------------------------------ the page

HEAD = """# Subcloning: the loss right after surgery

The losses are nats per byte on held-out files, before any training. The models are byte-level GPTs with six
layers of width 64 and four heads. They are trained for {steps} steps on the source of Python's standard
library. Each cell has one number for each of {seeds} seeds. Before surgery the losses are {sources}, and a
bigram model has {bigram}. growc measures importance on {windows} windows of the training files.

`python benchmarks/subclone.py` trains, measures, and writes this page. [subclone.json](subclone.json) has the
numbers of all tables.
"""


def cells(losses: Mapping[tuple[str, str, str], list[float]], *key: str) -> str:
    """The losses of all seeds."""
    values = losses.get((key[0], key[1], key[2]), [])
    return " ".join(f"{x:.2f}" for x in values) or "–"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def holds(smaller: list[float], larger: list[float], *, equal: bool) -> str:
    """In how many seeds an order holds."""
    kept = sum(a <= b if equal else a < b for a, b in zip(smaller, larger, strict=True))
    return f"{kept} of {len(smaller)}"


def width_part(losses: Mapping[tuple[str, str, str], list[float]]) -> Iterator[str]:
    """Every axis by every ranking, and the order that is asked for."""
    yield from ["", "## Width", ""]
    yield "`least` keeps the least important units. The last columns count the seeds in which an order holds."
    for what, some in (("one axis at a time", AXES), ("all three at once", ("all",))):
        pairs = [
            [losses[f"{size} {option}", axis, how] for how in ("importance", "first", "least")]
            for size in SIZES
            for option in OPTIONS
            for axis in some
        ]
        best = sum(int(a <= b) for one, two, _ in pairs for a, b in zip(one, two, strict=True))
        worst = sum(int(b < c) for _, two, three in pairs for b, c in zip(two, three, strict=True))
        total = sum(len(one) for one, _, _ in pairs)
        yield f"With {what}, importance ≤ first holds in {best} of {total} cases."
        yield f"There, first < least holds in {worst} of {total}."
    for option in OPTIONS:
        rankings = RANKINGS if option == "rescaled" else ("importance", "first", "least")
        rows = []
        for size in SIZES:
            for what in (*AXES, "all"):
                kind = f"{size} {option}"
                by = {r: losses[kind, what, r] for r in rankings}
                order = [holds(by["importance"], by["first"], equal=True)]
                order.append(holds(by["first"], by["least"], equal=False))
                rows.append([f"{what} to {size}", *(cells(losses, kind, what, r) for r in rankings), *order])
        yield from ["", f"`{option}`" + (":" if option == "unscaled" else ", the default:"), ""]
        yield from table([option, *rankings, "importance ≤ first", "first < least"], rows)


def depth_part(losses: Mapping[tuple[str, str, str], list[float]]) -> Iterator[str]:
    """Each layer, and each order."""
    yield from ["", "## Depth", ""]
    yield "The first table has the numbers of figure 2 of [the paper](../examples/24-subcloning/README.md):"
    yield "‖f(x)‖/‖x + f(x)‖, and the loss without a layer and with that layer twice."
    yield ""
    names = ("ratio", "removed", "doubled")
    rows = [[str(k), *(cells(losses, "layer", str(k), n) for n in names)] for k in range(LAYERS)]
    yield from table(["layer", "‖f(x)‖/‖x + f(x)‖", "removed", "doubled"], rows)
    removed = np.array([losses["layer", str(k), "removed"] for k in range(LAYERS)])
    middle = removed[1:-1].mean(axis=0)
    seeds = len(middle)
    first, last = (int((middle < removed[k]).sum()) for k in (0, -1))
    best = int((removed[1:-1].min(axis=0) < np.minimum(removed[0], removed[-1])).sum())
    centre = int((removed[LAYERS // 2] < np.minimum(removed[0], removed[-1])).sum())
    yield ""
    yield f"Removing an inner layer costs less, on average, than removing the first in {first} of {seeds}"
    yield f"seeds. It costs less than removing the last in {last} of {seeds}. `by middle` removes layer"
    yield f"{LAYERS // 2} first. This layer costs less than the first and the last in {centre} of {seeds}."
    yield from [f"The cheapest inner layer costs less than both in {best} of {seeds}.", ""]
    counts = sorted({what for kind, what, _ in losses if kind == "layers"}, reverse=True)
    rows = [[f"{LAYERS} to {n}", *(cells(losses, "layers", n, o) for o in ORDERS)] for n in counts]
    yield from table(["layers", *(f"by {o}" for o in ORDERS)], rows)


def page(rows: list[Row], steps: int, bigram: float) -> str:
    """Everything."""
    losses: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        losses.setdefault((row.kind, row.what, row.how), []).append(row.loss)
    sources = losses["source", "", ""]
    shown = ", ".join(f"{x:.2f}" for x in sources)
    head = HEAD.format(
        steps=steps, seeds=len(sources), sources=shown, bigram=f"{bigram:.2f}", windows=CALIBRATION
    )
    return "\n".join([head.rstrip(), *width_part(losses), *depth_part(losses)]) + "\n"


def main() -> None:
    """Train, measure, write the numbers and the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "subclone")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--windows", type=int, default=4, help="batches of 32 windows")
    parser.add_argument("--only", type=int, metavar="SEED", help="measure this one, and write no page")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    args = parser.parse_args()
    args.models.mkdir(parents=True, exist_ok=True)
    if args.only is not None:
        measured(args.models, args.only, args.steps, args.windows)
        return
    seeds = [int(seed) for seed in args.seeds.split(",")]
    rows = [row for seed in seeds for row in measured(args.models, seed, args.steps, args.windows)]
    record = json.loads((args.models / f"gpt-{seeds[0]}.json").read_text(encoding="utf-8"))
    data = [asdict(row) | {"loss": round(row.loss, 5)} for row in rows]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "subclone.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    text = page(rows, record["steps"], record["bigram nats per byte"])
    (args.out / "subclone.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
