"""`reorder`: the same model with its units sorted; what is sorted first is what `subclone` keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import STREAM, save
from models import Models, stored

import growc

RANKINGS = ("magnitude", "random seed 4", "first", 'keep "KEEP"')


def recipe(statements: str, folder: Path) -> Path:
    (folder / "keep.txt").write_text("5\n0\n7\n2\n")
    path = folder / "r.grow"
    path.write_text(statements.replace("KEEP", "keep.txt"))
    return path


@pytest.mark.parametrize("ranking", RANKINGS)
@pytest.mark.parametrize("axis", ["hidden", "ffn"])
def test_reordering_is_exact(tmp_path: Path, axis: str, ranking: str) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    text = recipe(f"reorder {axis} by {ranking}\nexpect exact\n", tmp_path)
    done = growc.apply(text, model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5


@pytest.mark.parametrize("ranking", RANKINGS[:1] + RANKINGS[2:] + ("importance",))
@pytest.mark.parametrize(("axis", "weight", "along"), [("ffn", "down_weight", 0), ("hidden", "table", 1)])
def test_reordering_and_taking_the_first_is_subcloning(
    tmp_path: Path, axis: str, weight: str, along: int, ranking: str
) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    np.savez(tmp_path / "data.npz", tokens=np.random.default_rng(0).integers(0, 16, 40))
    measure = 'measure importance on "data.npz"\n'
    made = []
    for text in (
        f"reorder {axis} by {ranking}\nsubclone {axis} to 4 by first\n",
        f"subclone {axis} to 4 by {ranking}\n",
    ):
        path = growc.apply(
            recipe(measure + text, tmp_path), model, tmp_path / "out.onnx", check=False, force=True
        )
        weights = stored(path.written)
        order = np.lexsort(np.moveaxis(weights[weight], along, 0).reshape(4, -1).T)
        made.append({n: sorted_units(w, order, 4) for n, w in weights.items()})
    for name, values in made[0].items():
        assert values.tobytes() == made[1][name].tobytes(), name


def sorted_units(values: np.ndarray, order: np.ndarray, size: int) -> np.ndarray:
    for axis, n in enumerate(values.shape):
        if n == size:
            values = np.take(values, order, axis)
    return values


@pytest.mark.sampled(7)
@pytest.mark.parametrize("axis", ["hidden", "heads", "ffn"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
def test_reordering_whole_models_is_exact(models: Models, tmp_path: Path, name: str, axis: str) -> None:
    model = models.path(name, "torchscript.anon")
    done = growc.apply(f"reorder {axis} by magnitude\nexpect exact", model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert not done.verification.refutes_exact()
    assert [w.name for w in done.plan.weights if w.steps]


SYMMETRIC = """
symmetric (float[N, 5] x) => (float[N, 3] y, float[N, 1] z)
<float[5, 8] up_weight, float[8] up_bias, float[8, 3] down_weight, float one = {1.0}>
{
    a = MatMul(x, up_weight)
    ab = Add(a, up_bias)
    u = Softsign(ab)
    v = Abs(u)
    p = Add(v, one)
    z = REDUCE <axes = [1]> (p)
    q = Div(u, z)
    y = MatMul(q, down_weight)
}
"""


@pytest.mark.parametrize(
    "reduction",
    ["Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "Prod", "LogSum", "LogSumExp"],
)
def test_reordering_under_reductions_that_no_order_changes_is_exact(tmp_path: Path, reduction: str) -> None:
    model = save(tmp_path / "m.onnx", SYMMETRIC.replace("REDUCE", f"Reduce{reduction}"), opset=11)
    text = recipe('reorder axis 1 of "up_weight" by magnitude\nexpect exact\n', tmp_path)
    done = growc.apply(text, model, tmp_path / "out.onnx")
    assert stored(done.written)["up_weight"].tobytes() != stored(model)["up_weight"].tobytes()
    assert done.verification is not None
    assert done.verification.relative < 1e-5
