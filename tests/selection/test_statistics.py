"""Other scores than weight subcloning's, by their formulas: Minitron's, and ShortGPT's for layers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graphs import STREAM, TINY, save
from models import stored
from test_importance import MASKED, layer_norm, tokens
from test_layer_importance import bytes_of_tiny, inputs, stack, tensors

import growc
from growc.algebra.indexmap import Floats
from growc.errors.diagnostic import GrowError
from growc.errors.progress import quiet
from growc.formats.compiler import analysed
from growc.measurement.importance import measure
from growc.measurement.layer_losses import LossOf, layer_losses
from growc.measurement.prediction import Loss
from growc.measurement.probes import activations, tables_of, turns
from growc.passes.compilation import Analysis
from growc.passes.finish.interface import Ports
from growc.passes.ranking.unit_scores import scored
from growc.recipe.layer_orders import SHALLOWER
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.statistics import COSINE, Statistic
from growc.system.ranks import ALONE

OVER: dict[str, Callable[[np.ndarray], Floats]] = {
    "mean": lambda x: np.abs(x).mean(0),
    "l2": lambda x: np.sqrt(np.square(x.astype(np.float64)).sum(0)),
    "max": lambda x: np.abs(x).max(0),
}

GATED = """
gated (int64[N, S] ids) => (float[N, S, 6] y)
<float[10, 8] table, float[8] gain, float[1] two, float[8, 5] gate, float[8, 5] up, float[5] bias,
 float[5, 8] down, float[8, 6] head>
{
    x = Gather(table, ids)
    n = LayerNormalization <axis = -1> (x, gain)
    g0 = MatMul(n, gate)
    g = Add(g0, bias)
    u = MatMul(n, up)
    s = Sigmoid(g)
    a0 = Mul(g, s)
    a = Mul(a0, u)
    d = MatMul(a, down)
    z = Add(x, d)
    y = MatMul(z, head)
}
"""


def statistic(name: str) -> Statistic:
    """The statistic that a ranking measures."""
    found = RANKINGS[name].statistic
    assert found is not None
    return found


def units(model: Path, data: Path, name: str, axis: str, number: int = 0) -> Floats:
    """The scores of one axis of a model."""
    c = analysed(model)
    found = measure(c, data, statistic=statistic(name), keeps=False)
    return scored(tables_of(c, found, statistic(name)), c.roles.axes[axis][number].spaces)


@pytest.mark.parametrize("using", OVER)
def test_minitrons_scores_are_of_what_weights_contract_and_of_the_norms_on_the_stream(
    tmp_path: Path, using: str
) -> None:
    model, data = save(tmp_path / "m.onnx", STREAM), tokens(tmp_path)
    w = {name: values.astype(np.float64) for name, values in stored(model).items()}
    x0 = w["table"][np.load(data)["tokens"]]
    n1 = layer_norm(x0, w["norm1_weight"], w["norm1_bias"])
    front = n1 @ w["up_weight"] + w["up_bias"]
    act = np.maximum(front, 0)
    x1 = x0 + act @ w["down_weight"] + w["down_bias"]
    n2 = layer_norm(x1, w["norm2_weight"], w["norm2_bias"]) if "norm2_weight" in w else x1
    found = units(model, data, f"importance using {using}", "ffn")
    assert np.allclose(found, OVER[using](act), rtol=1e-4)
    before = units(model, data, f"importance using {using} before activation", "ffn")
    assert np.allclose(before, OVER[using](front), rtol=1e-4)
    hidden = units(model, data, f"importance using {using}", "hidden")
    assert np.allclose(hidden, OVER[using](n1) + OVER[using](n2), rtol=1e-4)


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("using", OVER)
def test_minitrons_score_of_a_head_is_the_norm_of_what_it_gives(
    tmp_path: Path, using: str, groups: bool
) -> None:
    model, data = bytes_of_tiny(tmp_path)
    model = Path(shutil.copy(TINY.with_name("tiny-llama.onnx"), model)) if groups else model
    c = analysed(model)
    (context,) = tensors(model, data, reads_heads(c)[0])
    heads = c.roles.axes["heads"][0].size
    norms = np.linalg.norm(context.reshape(-1, heads, context.shape[-1] // heads), axis=-1)
    found = units(model, data, f"importance using {using}", "heads")
    assert np.allclose(found, OVER[using](norms), rtol=1e-4)
    of_groups = units(model, data, f"importance using {using}", "kv_heads")
    assert np.allclose(of_groups, found.reshape(len(of_groups), -1).mean(1), rtol=1e-4)


def reads_heads(c: Analysis) -> list[str]:
    """The tensors that the projections behind attention read, layer by layer."""
    readings = activations(c, statistic("importance using mean")).readings
    return [r.value.name for r in readings if r.grouped]


def test_in_front_of_a_gate_all_that_makes_the_unit_counts(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", GATED)
    ids = np.random.default_rng(1).integers(0, 10, (12, 5))
    np.savez(tmp_path / "data.npz", ids=ids)
    w = {name: values.astype(np.float64) for name, values in stored(model).items()}
    n = layer_norm(w["table"][ids], w["gain"], np.zeros(8))
    gate, up = n @ w["gate"] + w["bias"], n @ w["up"]
    found = units(model, tmp_path / "data.npz", "importance before activation", "ffn")
    wanted = np.abs(gate).mean((0, 1)) + np.abs(up).mean((0, 1))
    assert np.allclose(found, wanted, rtol=1e-4)


def test_in_front_of_an_activation_changes_nothing_where_there_is_none(tmp_path: Path) -> None:
    model, data = bytes_of_tiny(tmp_path)
    for axis in ("hidden", "heads"):
        behind = units(model, data, "importance", axis)
        assert np.array_equal(behind, units(model, data, "importance before activation", axis))


@pytest.mark.parametrize("using", OVER)
def test_masked_positions_count_in_no_statistic(tmp_path: Path, using: str) -> None:
    model = save(tmp_path / "m.onnx", MASKED, two=np.array([2]))
    random = np.random.default_rng(1)
    ids, mask = random.integers(0, 10, (12, 5)), (random.random((12, 5)) > 0.4).astype(np.int64)
    np.savez(tmp_path / "data.npz", ids=ids, mask=mask)
    w = stored(model)
    act = np.maximum(w["table"][ids] @ w["up"], 0)[mask > 0]
    found = units(model, tmp_path / "data.npz", f"importance using {using}", "ffn")
    assert np.allclose(found, OVER[using](act), rtol=1e-4)


def test_batches_are_accumulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = save(tmp_path / "m.onnx", STREAM), tokens(tmp_path)
    whole = {using: units(model, data, f"importance using {using}", "ffn") for using in OVER}
    monkeypatch.setattr("growc.verification.feeds.ROWS", 4)
    for using, wanted in whole.items():
        assert np.allclose(units(model, data, f"importance using {using}", "ffn"), wanted, rtol=1e-5)


def test_the_block_influence_of_a_layer_is_one_minus_the_cosine_over_unmasked_positions(
    tmp_path: Path,
) -> None:
    model, data = stack(tmp_path / "m.onnx", 0.3, 0.001, 0.2), inputs(tmp_path / "data.npz")
    c = analysed(model)
    [found] = turns(c, measure(c, data, statistic=COSINE, keeps=False))
    w, given = {k: v.astype(np.float64) for k, v in stored(model).items()}, np.load(data)
    x, keep = w["table"][given["ids"]] * given["mask"][..., None], given["mask"] > 0
    wanted = []
    for n in range(3):
        y = x + np.maximum(x @ w[f"up{n}"], 0) @ w[f"down{n}"]
        cosine = (x * y).sum(-1)[keep] / np.linalg.norm(x, axis=-1)[keep] / np.linalg.norm(y, axis=-1)[keep]
        wanted.append((1 - cosine).mean())
        x = y
    assert np.allclose(found, wanted, rtol=1e-3)


def test_layers_that_turn_the_stream_least_go(tmp_path: Path) -> None:
    model = stack(tmp_path / "m.onnx", 0.3, 0.02, 0.2, 0.05)
    inputs(tmp_path / "data.npz")
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone layers to 2 by cosine\n')
    [summary] = growc.apply(recipe, model, tmp_path / "out.onnx").plan.summaries
    assert summary.removed == ((1, 3),)
    assert (tmp_path / "m.cosine.npz").exists()
    assert not (tmp_path / "m.importance.npz").exists()


def mean_loss(model: Path, data: Path, layers: list[int]) -> float:
    """The cross-entropy of next tokens, of a stack of some of its layers, in numpy."""
    w, given = {k: v.astype(np.float64) for k, v in stored(model).items()}, np.load(data)
    x = w["table"][given["ids"]] * given["mask"][..., None]
    for n in layers:
        x = x + np.maximum(x @ w[f"up{n}"], 0) @ w[f"down{n}"]
    y = (x @ w["head"])[:, :-1]
    chances = np.log(np.exp(y - y.max(-1, keepdims=True)).sum(-1)) + y.max(-1)
    nats = chances - np.take_along_axis(y, given["ids"][:, 1:, None], -1)[..., 0]
    return float(nats[(given["mask"][:, 1:] & given["mask"][:, :-1]) > 0].mean())


def test_the_loss_of_a_layer_is_how_much_it_rises_without_it(tmp_path: Path) -> None:
    model = stack(tmp_path / "m.onnx", 0.5, 0.3, 0.6, 0.4, vocab=10)
    data, c = inputs(tmp_path / "data.npz"), analysed(model)
    [found] = layer_losses(
        c, data, None, keeps=True, progress=quiet, ranks=ALONE, remade=Path, analysed=analysed
    )
    rises = [mean_loss(model, data, [n for n in range(4) if n != k]) for k in range(4)]
    assert np.allclose(found, np.array(rises) - mean_loss(model, data, [0, 1, 2, 3]), rtol=1e-4)
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone layers to 2 by loss\n')
    [summary] = growc.plan(recipe, model).summaries
    assert summary.removed == (tuple(sorted(np.argsort(rises)[:2].tolist())),)


def test_losses_that_were_interrupted_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = stack(tmp_path / "m.onnx", 0.5, 0.3, 0.6, vocab=10)
    inputs(tmp_path / "data.npz")
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone layers to 2 by loss\n')
    of, calls = LossOf.of, [0]

    def fails(self: LossOf, result: Path, ports: Ports) -> Loss:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return of(self, result, ports)

    monkeypatch.setattr(LossOf, "of", fails)
    with pytest.raises(KeyboardInterrupt):
        growc.apply(recipe, model, tmp_path / "out.onnx", check=False)
    growc.apply(recipe, model, tmp_path / "out.onnx", check=False)
    assert calls[0] == 3 + 2
    growc.plan(recipe, model)
    assert calls[0] == 3 + 2


def test_a_loss_that_nobody_can_know_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", pixel_values=np.zeros((4, 1, 8, 8), dtype=np.float32))
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone layers to 2 by loss\n')
    with pytest.raises(GrowError, match="no output predicts the next token") as found:
        growc.plan(recipe, TINY.with_name("tiny-vit.onnx"))
    assert (found.value.diagnostics[0].code, found.value.diagnostics[0].span is None) == ("G313", False)


def test_each_statistic_is_kept_by_itself_and_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    tokens(tmp_path)
    recipe = tmp_path / "r.grow"
    recipe.write_text(
        'measure importance on "data.npz"\nsubclone ffn to 3 by importance using l2\n'
        "subclone hidden to hidden / 2 by importance before activation\n"
    )
    first = growc.apply(recipe, model, tmp_path / "out.onnx", check=False)
    kept = {path.name for path in tmp_path.glob("m.*.npz")}
    assert kept == {"m.importance-using-l2.npz", "m.importance-before-activation.npz"}
    monkeypatch.setattr("growc.measurement.importance._run", lambda *_: pytest.fail("measured again"))
    again = growc.apply(recipe, model, tmp_path / "out.onnx", check=False, force=True)
    assert again.plan.certificate.gaps == first.plan.certificate.gaps


@pytest.mark.parametrize("name", [n for n, rule in RANKINGS.items() if rule.measured])
def test_units_that_rank_highest_stay(tmp_path: Path, name: str) -> None:
    if name == "reap":
        pytest.skip("there are no experts")
    model, data = save(tmp_path / "m.onnx", STREAM), tokens(tmp_path)
    scores = units(model, data, name, "ffn")
    recipe = tmp_path / "r.grow"
    recipe.write_text(f'measure importance on "data.npz"\nsubclone ffn to 3 by {name} unscaled\n')
    out = growc.apply(recipe, model, tmp_path / "out.onnx", check=False).written
    assert out is not None
    stay = np.sort(np.argsort(-scores, kind="stable")[:3])
    assert np.array_equal(stored(out)["up_weight"], stored(model)["up_weight"][:, stay])


def test_a_planted_unit_that_one_token_needs_is_first_by_its_largest_value_and_last_by_the_mean(
    tmp_path: Path,
) -> None:
    table, up = np.zeros((10, 8), dtype=np.float32), np.zeros((8, 5), dtype=np.float32)
    table[:, 1], table[3] = 1, [10, 0, 0, 0, 0, 0, 0, 0]
    up[1], up[:, 2] = [0.5, 0.6, 0, 0.7, 0.8], [1, 0, 0, 0, 0, 0, 0, 0]
    model = save(tmp_path / "m.onnx", MASKED, two=np.array([2]), table=table, up=up)
    ids = np.full((12, 5), 4)
    ids[5, 2] = 3
    np.savez(tmp_path / "data.npz", ids=ids, mask=np.ones_like(ids))
    found = {using: units(model, tmp_path / "data.npz", f"importance using {using}", "ffn") for using in OVER}
    assert (found["mean"].argmin(), found["max"].argmax(), found["l2"].argmax()) == (2, 2, 2)


def test_a_ranking_that_needs_a_measurement_says_so() -> None:
    for line in ("subclone ffn to 8 by importance using max", "subclone layers to 2 by cosine"):
        with pytest.raises(GrowError, match="no importance was measured") as found:
            growc.plan(line, TINY)
        assert found.value.diagnostics[0].code == "G214"


def test_every_order_by_scores_keeps_the_highest() -> None:
    for rule in SHALLOWER.values():
        if rule.scored:
            assert rule.layers(4, 2, 0, [0.1, 3.0, 0.1, 2.0]) == [1, 3]
            assert rule.layers(4, 3, 0, [0.1, 3.0, 0.1, 2.0]) == [0, 1, 3]
