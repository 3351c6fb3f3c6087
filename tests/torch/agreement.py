"""Whether a module and its ONNX file are understood alike: a table of differences.

    python tests/torch/agreement.py [NAME…]

Names of nodes and parameters are left out; what is compared is what `inspect` and `plan` say.
"""

from __future__ import annotations

import inspect
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "zoo")]

import torch  # noqa: E402
import zoo  # noqa: E402, F401 - fills the registry
from registry import ATTENTIONS, ZOO, Built, build  # noqa: E402

from growc import api  # noqa: E402
from growc.axes import leaves  # noqa: E402
from growc.compilation import Compilation  # noqa: E402
from growc.diagnostic import GrowError  # noqa: E402
from growc.dialects.onnx.dialect import OnnxModel  # noqa: E402
from growc.dialects.torch.dialect import TorchModel, reader  # noqa: E402
from growc.dialects.torch.export import Captured, export  # noqa: E402
from growc.dialects.torch.lowering import OPAQUE  # noqa: E402
from growc.passes import ANALYSIS, PIPELINE, run  # noqa: E402
from growc.render.inspection import inspect_lines  # noqa: E402

FILES = HERE.parents[1] / "build" / "zoo"
RECIPES = (
    "widen ffn to 2 * ffn with uniform copy",
    "widen hidden to 2 * hidden with cyclic copy\nwiden heads to 2 * heads with neighbor copy",
    "widen head_dim to 2 * head_dim with zero fill",
    "widen vocab to vocab + 3 with average fill",
    "widen channels to 2 * channels with cyclic copy",
    "widen experts to 2 * experts with cyclic copy",
    "stack layers to layers + 2 by last with zero outputs",
    "subclone ffn to ffn / 2 by magnitude",
)


ONCE = "the exporter merges equal constants of several layers, which makes one space of theirs"
FOLDED = "the exporter computes weights in advance: tables of biases, batch norms"
NORMED = "the exporter writes a group norm as another norm, whose gains of ones count as parameters"
EXPLAINED = {
    "mamba": ONCE,
    "own_separable": FOLDED,
    "own_stacked_experts": ONCE,
    "own_unet": NORMED,
    "resnet": FOLDED,
    "roformer": "the exporter computes once what two equal calls give",
    "swin": FOLDED,
    "wav2vec2": NORMED,
}
"""Why a file is understood otherwise than its module."""


def built(name: str) -> Built:
    """A model of the zoo with attention as one operator, where its class has that."""
    for attention in ATTENTIONS:
        try:
            return build(name, attention)
        except ValueError:
            continue
    raise AssertionError(name)


def captured(model: Built) -> Captured:
    """What torch.export gives of a model, with the dynamic axes of its file."""
    own = inspect.signature(model.module.forward).bind(*model.feeds[0].values()).arguments
    axes = {mine: model.axes[name] for mine, name in zip(own, model.feeds[0], strict=True)}
    return export(model.module, tuple(model.feeds[0].values()), axes=axes)


def inspected(c: Compilation) -> Iterator[str]:
    """What is said of a model, without names and numbers of nodes."""
    lines = list(inspect_lines(c))
    end = lines.index("Frozen:") if "Frozen:" in lines else len(lines)
    yield lines[0].split("·")[1].strip()
    yield from (", ".join(sorted(line.split(", "))) for line in lines[2:end] if line.strip())
    axes = {
        (space.size[0], bool(space.frozen))
        for use in c.graph.uses()
        if use.weight is not None and use.weight.floating and len(use.weight.shape) > 1
        for axis in c.axes.of(use)
        for space in leaves(axis)
    }
    yield from (f"axes of {size}{', frozen' * frozen}" for size, frozen in sorted(axes))


def planned(c: Compilation) -> Iterator[str]:
    """What a plan says, without names."""
    plan = c.plan
    yield f"exact: {plan.certificate.exact}"
    yield from sorted({re.sub("`.*?`", "`…`", f"gap: {g.cause}") for g in plan.certificate.gaps})
    yield from (f"{name}: {change.before} -> {change.after}" for name, change in plan.axes.items())
    yield f"parameters: {plan.parameters}"
    shapes = {
        (tuple(sorted(w.before)), tuple(sorted(w.after)))
        for w in plan.weights
        if w.changed and sum(k > 1 for k in w.before) > 1
    }
    yield from (f"{a} -> {b}" for a, b in sorted(shapes))


def said(opened: Any, name: str, recipe: str) -> list[str]:
    """What is said of a model, or of a plan for it."""
    bound = api.recipe(recipe).statements if recipe else ()
    try:
        c = run(PIPELINE if recipe else ANALYSIS, Compilation(Path(name), opened, bound))
    except GrowError as error:
        return [f"refused: {d.code}" for d in error.diagnostics]
    return list(planned(c) if recipe else inspected(c))


def differences(name: str, path: Path) -> Iterator[str]:
    """What is said differently of a module and of its file."""
    model = built(name)
    program = captured(model)
    read = reader(model.module)
    opaque = Counter(n.op_type for n in TorchModel.open(program, read).source.graph if n.domain == OPAQUE)
    yield from (f"opaque: {n} x {op}" for op, n in opaque.items())
    for recipe in ("", *RECIPES):
        ours = said(TorchModel.open(program, read), name, recipe)
        theirs = said(OnnxModel.open(path), name, recipe)
        for line in (
            *(f"- {x}" for x in theirs if x not in ours),
            *(f"+ {x}" for x in ours if x not in theirs),
        ):
            yield f"{recipe.splitlines()[0] if recipe else 'inspect'}: {line}"


def main() -> None:
    """Print the table: - is said of the file, + of the module."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    names, agreeing = sys.argv[1:] or list(ZOO), 0
    for name in names:
        start, path = time.time(), FILES / f"{name}.dynamo.onnx"
        if not path.exists():
            print(f"{name}: no file")
            continue
        found = list(differences(name, path))
        agreeing += not found
        said_of = EXPLAINED.get(name, "") if found else "as its file"
        print(f"{name}: {said_of} ({time.time() - start:.0f} s)", flush=True)
        for line in found:
            print(f"    {line}", flush=True)
    print(f"{agreeing} of {len(names)} agree")


if __name__ == "__main__":
    main()
