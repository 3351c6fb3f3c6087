"""The importance of layers, ‖f(x)‖/‖x + f(x)‖, and `subclone layers … by importance`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import TINY, save
from models import Models, stored
from numpy.typing import NDArray

import growc
from growc import api
from growc.errors.diagnostic import GrowError
from growc.plans.plan_to_json import from_json, to_json
from growc.reports import measure as measuring
from growc.verification.ort_session import Session

BLOCK = """
    u{n} = MatMul(x{n}, up{n})
    r{n} = Relu(u{n})
    d{n} = MatMul(r{n}, down{n})
    x{m} = Add(x{n}, d{n})
"""


def stack(path: Path, *scales: float, vocab: int = 6) -> Path:
    """A masked stream of feed-forward layers whose branches have these sizes."""
    count = len(scales)
    shapes = ", ".join(f"float[8, 12] up{n}, float[12, 8] down{n}" for n in range(count))
    layers = "".join(BLOCK.format(n=n, m=n + 1) for n in range(count))
    text = f"""
    stack (int64[N, S] ids, int64[N, S] mask) => (float[N, S, {vocab}] y)
    <float[10, 8] table, int64[1] two, float[8, {vocab}] head, {shapes}>
    {{
        g = Gather(table, ids)
        c = Cast <to = 1> (mask)
        m = Unsqueeze(c, two)
        x0 = Mul(g, m)
        {layers}
        y = MatMul(x{count}, head)
    }}
    """
    random = np.random.default_rng(3)
    down = {
        f"down{n}": (s * random.standard_normal((12, 8))).astype(np.float32) for n, s in enumerate(scales)
    }
    return save(path, text, two=np.array([2]), **down)


def inputs(path: Path) -> Path:
    """Twelve rows, of which some end early."""
    random = np.random.default_rng(1)
    mask = (np.arange(5) < random.integers(1, 6, (12, 1))).astype(np.int64)
    np.savez(path, ids=random.integers(0, 10, (12, 5)), mask=mask)
    return path


def ratio(f: NDArray[np.float32], y: NDArray[np.float32], keep: NDArray[np.bool_] | None = None) -> float:
    f, y = (f, y) if keep is None else (f[keep], y[keep])
    return float((np.linalg.norm(f, axis=-1) / np.linalg.norm(y, axis=-1)).mean())


def bytes_of_tiny(folder: Path) -> tuple[Path, Path]:
    model = Path(shutil.copy(TINY, folder / "tiny.onnx"))
    np.savez(folder / "data.npz", input_ids=np.random.default_rng(0).integers(32, 127, (12, 24)))
    return model, folder / "data.npz"


def tensors(model: Path, data: Path, *names: str) -> list[NDArray[np.float32]]:
    """Tensors inside of a model, as onnxruntime computes them."""
    proto = onnx.load(model)
    for name in names:
        proto.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with np.load(data) as file:
        found: list[NDArray[np.float32]] = session.run(list(names), dict(file))
    return found


def test_the_importance_of_a_layer_is_the_mean_of_its_share_over_unmasked_positions(tmp_path: Path) -> None:
    model, data = stack(tmp_path / "m.onnx", 0.3, 0.1, 0.2), inputs(tmp_path / "data.npz")
    found = growc.measure(model, data)["layers.0"]
    w, given = stored(model), np.load(data)
    x, keep = w["table"][given["ids"]] * given["mask"][..., None], given["mask"] > 0
    wanted = []
    for n in range(3):
        f = np.maximum(x @ w[f"up{n}"], 0) @ w[f"down{n}"]
        wanted.append(ratio(f, x + f, keep))
        x = x + f
    assert np.allclose(found, wanted, rtol=1e-4)


def test_branches_are_measured_one_by_one_and_have_kinds(tmp_path: Path) -> None:
    model, data = bytes_of_tiny(tmp_path)
    layer = measuring.measurement(model, data).layers[0]
    x, middle, y = tensors(model, data, "add_17", "add_232", "add_299")
    assert [kind for kind, _ in layer.branches] == ["attention", "ffn"]
    assert layer.ratio == pytest.approx(ratio(y - x, y), rel=1e-4)
    wanted = [ratio(middle - x, middle), ratio(y - middle, y)]
    assert [found for _, found in layer.branches] == pytest.approx(wanted, rel=1e-4)


def test_cross_attention_is_told_from_attention() -> None:
    from growc.passes.ranking.layer_ratios import find_blocks

    c = api.inspect(TINY.with_name("tiny-t5.onnx"))
    kinds = {tuple(kind for kind, _ in b.branches) for b in find_blocks(c.axes, c.layers, c.roles)}
    assert kinds == {("attention", "cross-attention", "ffn"), ("attention", "ffn")}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
def test_both_exporters_give_the_same_importance_of_layers(models: Models, tmp_path: Path, name: str) -> None:
    ids = np.random.default_rng(0).integers(0, 40, (6, 9))
    padded = (np.arange(9) < np.array([9, 9, 7, 5, 9, 6])[:, None]).astype(np.int64)
    found = []
    for flavour in ("dynamo.anon", "torchscript"):
        path = models.path(name, flavour)
        ports = [value.name for value in growc.inspect(path).graph.inputs]
        np.savez(tmp_path / "data.npz", **dict(zip(ports, (ids, padded, 0 * ids), strict=False)))
        found.append(growc.measure(path, tmp_path / "data.npz", tmp_path / f"{flavour}.npz")["layers.0"])
    assert len(found[0]) == 2
    assert np.allclose(found[0], found[1], rtol=1e-4)


def test_the_least_important_layers_go_and_the_plan_says_which(tmp_path: Path) -> None:
    model = stack(tmp_path / "m.onnx", 0.3, 0.02, 0.2, 0.05)
    inputs(tmp_path / "data.npz")
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone layers to 2 by importance\n')
    done = growc.apply(recipe, model, tmp_path / "out.onnx")
    [summary] = done.plan.summaries
    assert summary.removed == ((1, 3),)
    before, after = stored(model), stored(done.written)
    assert {(after[f"up{k}"] == before[f"up{n}"]).all() for k, n in enumerate((0, 2))} == {True}
    assert from_json(to_json(done.plan)).summaries == done.plan.summaries


def test_layers_and_units_are_ranked_in_one_recipe_by_one_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = stack(tmp_path / "m.onnx", 0.3, 0.02, 0.2)
    scores = growc.measure(model, inputs(tmp_path / "data.npz"), tmp_path / "scores.npz")
    recipe = tmp_path / "r.grow"
    recipe.write_text(
        'measure importance on "data.npz"\nsubclone layers to 2 by importance\n'
        "subclone ffn to 5 by importance unscaled\n"
    )
    runs, run = [], Session.run
    monkeypatch.setattr(Session, "run", lambda self, feeds: [runs.append(1), run(self, feeds)][1])
    (tmp_path / "m.importance.npz").mkdir()  # nothing can be kept there
    made = growc.plan(recipe, model)
    assert len(runs) == 2  # two batches of eight rows
    assert [s.axis for s in made.summaries] == ["layers", "ffn"]
    monkeypatch.undo()
    after = stored(growc.apply(recipe, model, tmp_path / "out.onnx").written)
    for place, layer in enumerate((0, 2)):
        best = np.sort(np.argsort(-scores[f"ffn.{layer}"], kind="stable")[:5])
        assert (after[f"up{place}"] == stored(model)[f"up{layer}"][:, best]).all()


def test_layers_that_add_nothing_are_the_first_to_go(tmp_path: Path) -> None:
    model = stack(tmp_path / "m.onnx", 0.3, 0.2)
    inputs(tmp_path / "data.npz")
    recipe = tmp_path / "r.grow"
    recipe.write_text(
        'measure importance on "data.npz"\nstack layers to 4 by each with zero outputs\n'
        "subclone layers to 2 by importance\n"
    )
    made = growc.plan(recipe, model)
    assert made.summaries[1].removed == ((1, 3),)
    assert made.certificate.exact


def test_encoder_and_decoder_are_ranked_each_by_itself(tmp_path: Path) -> None:
    model = Path(shutil.copy(TINY.with_name("tiny-t5.onnx"), tmp_path / "t5.onnx"))
    random = np.random.default_rng(0)
    ports = growc.inspect(model).graph.inputs
    np.savez(tmp_path / "data.npz", **{port.name: random.integers(2, 60, (4, 7)) for port in ports})
    scores = growc.measure(model, tmp_path / "data.npz")
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone layers to 1 by importance\n')
    [summary] = growc.plan(recipe, model).summaries
    assert summary.removed == tuple((int(np.argmin(scores[f"layers.{k}"])),) for k in range(2))


def test_layers_whose_part_no_tensor_shows_have_no_importance(tmp_path: Path) -> None:
    text = """
    chain (float[N, 8] x) => (float[N, 8] y)
    <float[8, 8] a, float[8, 8] b, float[8, 8] c>
    {
        h = MatMul(x, a)
        r = Relu(h)
        i = MatMul(r, b)
        s = Relu(i)
        j = MatMul(s, c)
        y = Relu(j)
    }
    """
    model = save(tmp_path / "m.onnx", text)
    np.savez(tmp_path / "data.npz", x=np.ones((3, 8), np.float32))
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone layers to 2 by importance\n')
    with pytest.raises(GrowError, match="the importance of layer 0 cannot be measured"):
        growc.plan(recipe, model)
