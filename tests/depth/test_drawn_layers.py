"""New layers `with random fill`: what their weights hold, and what is claimed of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import TINY, save
from judging import judge
from onnx.numpy_helper import to_array

import growc
from growc import api
from growc.errors.diagnostic import GrowError
from growc.plans.lineage import lineage_of
from growc.training.optimizer_state import carry

RANDOM = "with random fill"
NAME = "transformer.h.{}.{}"
MATRICES = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
GAINS = ("ln_1.weight", "ln_2.weight")
BIASES = (
    "ln_1.bias",
    "ln_2.bias",
    "attn.c_attn.bias",
    "attn.c_proj.bias",
    "mlp.c_fc.bias",
    "mlp.c_proj.bias",
)


def weights(path: Path) -> dict[str, np.ndarray]:
    found = {w.name: to_array(w) for w in onnx.load(path).graph.initializer}
    return {name: value for name, value in found.items() if value.ndim and value.dtype == np.float32}


def grown(recipe: str, model: Path, out: Path) -> dict[str, np.ndarray]:
    api.apply(recipe, model, out, check=False, force=True)
    return weights(out)


def assert_drawn(made: np.ndarray, source: np.ndarray) -> None:
    """Normal, mean 0, the source's deviation; within five deviations of what so many numbers have."""
    assert abs(made.mean()) < 5 * source.std() / np.sqrt(made.size)
    assert abs(made.std() / source.std() - 1) < 5 / np.sqrt(2 * made.size)
    assert abs(np.corrcoef(made.ravel(), source.ravel())[0, 1]) < 5 / np.sqrt(made.size)


@pytest.mark.parametrize(
    ("order", "new", "old"),
    [
        ("by last", {4: 3, 5: 3, 6: 3}, {0: 0, 1: 1, 2: 2, 3: 3}),
        ("by top 2", {4: 2, 5: 3, 6: 2}, {0: 0, 1: 1, 2: 2, 3: 3}),
        ("by each", {2: 1, 4: 2, 6: 3}, {0: 0, 1: 1, 3: 2, 5: 3}),
        ("by whole", {4: 1, 5: 2, 6: 3}, {0: 0, 1: 1, 2: 2, 3: 3}),
        ("by middle", {2: 1, 4: 2, 6: 3}, {0: 0, 1: 1, 3: 2, 5: 3}),
    ],
)
def test_matrices_are_drawn_gains_are_one_and_biases_zero(tmp_path, order, new, old):
    source = weights(TINY)
    made = grown(f"stack layers to 7 {order} {RANDOM}", TINY, tmp_path / "deep.onnx")
    for place, layer in new.items():
        for name in MATRICES:
            assert_drawn(made[NAME.format(place, name)], source[NAME.format(layer, name)])
        assert all((made[NAME.format(place, name)] == 1).all() for name in GAINS)
        assert all((made[NAME.format(place, name)] == 0).all() for name in BIASES)
    for place, layer in old.items():
        for name in (*MATRICES, *GAINS, *BIASES):
            assert np.array_equal(made[NAME.format(place, name)], source[NAME.format(layer, name)])


def test_the_same_seed_gives_the_same_bytes_and_another_other_numbers(tmp_path):
    recipe, name = f"stack layers to 6 by last {RANDOM}", NAME.format(4, MATRICES[0])
    made = [grown(f"{recipe}{seed}", TINY, tmp_path / "a.onnx") for seed in ("", " seed 0", " seed 1")]
    assert all(np.array_equal(value, made[1][key]) for key, value in made[0].items())
    assert not np.array_equal(made[0][name], made[2][name])
    assert not np.array_equal(made[0][name], made[0][NAME.format(5, MATRICES[0])])


def test_a_layer_that_is_drawn_is_a_gap(tmp_path):
    judged = judge(f"stack layers to 5 by last {RANDOM}", TINY, tmp_path / "deep.onnx")
    judged.assert_gap("layer 4 is drawn at random", "`with zero outputs` change nothing")


@pytest.mark.parametrize("model", ["tiny-gpt", "tiny-llama", "tiny-t5"])
def test_a_layer_that_is_drawn_with_zero_outputs_changes_nothing(tmp_path, model):
    path = TINY.with_name(f"{model}.onnx")
    recipe = f"stack layers to 2 * layers by each {RANDOM} with zero outputs"
    made = api.apply(recipe, path, tmp_path / "deep.onnx", force=True)
    assert made.plan.certificate.exact
    assert made.verification.relative < 1e-6


def test_all_zero_outputs_stay_zero_and_the_rest_is_drawn(tmp_path):
    made = grown(f"stack layers to 5 by last {RANDOM} with zero outputs", TINY, tmp_path / "deep.onnx")
    assert not made[NAME.format(4, "mlp.c_proj.weight")].any()
    assert_drawn(made[NAME.format(4, "mlp.c_fc.weight")], weights(TINY)[NAME.format(3, "mlp.c_fc.weight")])


def test_layers_are_drawn_at_the_sizes_of_their_statement(tmp_path):
    wide, deep = "widen ffn to 500 with cyclic copy", f"stack layers to 5 by last {RANDOM}"
    name = NAME.format(4, "mlp.c_fc.weight")
    made = grown(f"{wide}\n{deep}", TINY, tmp_path / "a.onnx")[name]
    assert np.unique(made, axis=1).shape == made.shape
    made = grown(f"{deep}\n{wide}", TINY, tmp_path / "b.onnx")[name]
    assert np.array_equal(made[:, 384:], made[:, :116])


def test_units_of_the_next_layer_are_those_that_were_drawn(tmp_path):
    recipe = f"stack layers to 5 by last {RANDOM}\nwiden ffn to 500 with cyclic copy from next layer"
    made = grown(recipe, TINY, tmp_path / "a.onnx")
    names = [NAME.format(layer, "mlp.c_fc.weight") for layer in (3, 4)]
    assert np.array_equal(made[names[0]][:, 384:], made[names[1]][:, :116])


def test_a_copy_of_a_layer_that_was_drawn_is_that_layer(tmp_path):
    made = grown(f"stack layers to 5 by last {RANDOM}\narrange layers as 4, 0..5", TINY, tmp_path / "a.onnx")
    names = [NAME.format(layer, "mlp.c_fc.weight") for layer in (0, 5)]
    assert np.array_equal(*(made[name] for name in names))


@pytest.mark.parametrize("fill", [RANDOM, "with zero outputs"])
def test_new_layers_stay_new_where_those_that_they_come_from_go(tmp_path, fill):
    recipe = f"stack layers to 8 by each {fill}\narrange layers as 1, 3, 5, 7"
    made = grown(recipe, TINY, tmp_path / "new.onnx")
    source = weights(TINY)
    name = "transformer.h.{}.mlp.c_proj.weight"
    assert not any(np.array_equal(made[name.format(k)], source[name.format(k)]) for k in range(4))
    assert not growc.plan(recipe, TINY).certificate.exact


def test_the_importance_of_a_layer_that_is_drawn_is_not_known(tmp_path):
    np.save(tmp_path / "tokens.npy", np.arange(32).reshape(2, 16))
    recipe = (
        f'measure importance on "{tmp_path / "tokens.npy"}"\nstack layers to 6 by last {RANDOM}\n'
        "subclone layers to 3 by importance"
    )
    with pytest.raises(GrowError, match="layer 4 cannot be measured: it is drawn at random"):
        growc.plan(recipe, TINY)


def test_every_entry_of_a_layer_that_is_drawn_is_new_and_begins_without_state(tmp_path):
    plan = growc.plan(f"stack layers to 5 by last {RANDOM}", TINY)
    new = [w for w in plan.weights if ".h.4." in w.name and w.dtype == "float32"]
    lineage = lineage_of(plan)
    for weight in new:
        assert set(lineage["maps"][lineage["weights"][weight.name]["axes"]["0"]["map"]]["from"]) == {-1}
    assert len(new) == len(MATRICES) + len(GAINS) + len(BIASES)
    learned = [w.name for w in plan.weights if w.dtype == "float32" and ".h." in w.name]
    pytest.importorskip("torch.nn")  # without torch, the folder tests/torch would have its name
    import torch

    before = [name for name in learned if ".h.4." not in name]
    shapes = {w.name: w.before for w in plan.weights}
    entries = {i: {"momentum_buffer": torch.ones(shapes[name])} for i, name in enumerate(before)}
    state = {"state": entries, "param_groups": [{"params": list(entries)}]}
    assert set(carry(state, plan, [before], learned).fresh) == {w.name for w in new}


ROTARY = """
rotary (int64[N, S] tokens, int64[N, S] positions) => (float[N, S, 16] logits)
<float[16, 8] table, float[8, 8] up0, float[8] scale0, float[8] shift0, float[1, 4] frequencies0,
 float[8, 8] up1, float[8] scale1, float[8] shift1, float[1, 4] frequencies1, float[8, 16] head>
{
    one = Constant <value_ints = [-1]> ()
    x0 = Gather(table, tokens)
    real = Cast <to = 1> (positions)
    place = Unsqueeze(real, one)
%s
    logits = MatMul(x2, head)
}
"""
LAYER = """
    s{k} = Mul(x{k}, scale{k})
    t{k} = Add(s{k}, shift{k})
    u{k} = MatMul(t{k}, up{k})
    f{k} = MatMul(place, frequencies{k})
    c{k} = Cos(f{k})
    d{k} = Sin(f{k})
    e{k} = Concat <axis = -1> (c{k}, d{k})
    r{k} = Mul(u{k}, e{k})
    x{n} = Add(x{k}, r{k})
"""


def test_frequencies_stay_as_they_are_and_the_plan_says_so(tmp_path):
    text = ROTARY % "".join(LAYER.format(k=k, n=k + 1) for k in range(2))
    path = save(tmp_path / "m.onnx", text, up0=np.random.default_rng(1).normal(0, 0.3, (8, 8)).astype("f"))
    recipe = f"stack layers to 3 by last {RANDOM}"
    made, source = grown(recipe, path, tmp_path / "deep.onnx"), weights(path)
    name = next(n for n in made if n.startswith("frequencies") and n not in source)
    assert np.array_equal(made[name], source["frequencies1"])
    drawn = {n.rstrip("0123456789."): value for n, value in made.items() if n not in source}
    assert (drawn["scale"] == 1).all()
    assert (drawn["shift"] == 0).all()
    assert_drawn(drawn["up"], source["up1"])
    assert f"`{name}`" in " ".join(growc.plan(recipe, path).notes)


BATCH = """
net (float[N, 4, W] x) => (float[N, 4, W] y)
<float[4, 4, 1] k0, float[4] g0, float[4] b0, float[4] m0, float[4] v0,
 float[4, 4, 1] k1, float[4] g1, float[4] b1, float[4] m1, float[4] v1>
{
    c0 = Conv(x, k0)
    n0 = BatchNormalization(c0, g0, b0, m0, v0)
    r0 = Relu(n0)
    x1 = Add(x, r0)
    c1 = Conv(x1, k1)
    n1 = BatchNormalization(c1, g1, b1, m1, v1)
    r1 = Relu(n1)
    y = Add(x1, r1)
}
"""


def test_stored_statistics_are_those_of_a_norm_that_has_seen_nothing(tmp_path):
    variances = {f"v{k}": np.array([0.5, 2, 3, 0.7], "f") for k in range(2)}
    path = save(tmp_path / "m.onnx", BATCH, **variances)
    made = grown(f"stack layers to 3 by last {RANDOM}", path, tmp_path / "deep.onnx")
    new = {name[0]: value for name, value in made.items() if name not in weights(path)}
    assert [float(new[name].mean()) for name in "gbmv"] == [1, 0, 0, 1]
    assert_drawn(new["k"], weights(path)["k1"])


STORED = {
    "as it is read": "u{k} = MatMul(x{k}, up{k})",
    "turned": "t{k} = Transpose(up{k})\nu{k} = MatMul(x{k}, t{k})",
    "behind a gain of one": "g{k} = Mul(x{k}, one{k})\nu{k} = MatMul(g{k}, up{k})",
}
TURNED = """
net (float[N, 6] x0) => (float[N, 6] x2)
<float[%s] up0, float[9, 6] down0, float[%s] up1, float[9, 6] down1, float[6] one0, float[6] one1>
{
%s
}
"""


def test_numbers_do_not_depend_on_what_exporters_do(tmp_path):
    up = [np.random.default_rng(k).standard_normal((6, 9)).astype("f") for k in range(2)]
    made = {}
    for kind, read in STORED.items():
        layer = (
            f"{read}\nr{{k}} = Relu(u{{k}})\nd{{k}} = MatMul(r{{k}}, down{{k}})\nx{{n}} = Add(x{{k}}, d{{k}})"
        )
        shape, turn = ("9, 6", np.transpose) if kind == "turned" else ("6, 9", np.asarray)
        text = TURNED % (shape, shape, "\n".join(layer.format(k=k, n=k + 1) for k in range(2)))
        path = save(tmp_path / "m.onnx", text, **{f"up{k}": turn(up[k]) for k in range(2)})
        found = grown(f"stack layers to 3 by last {RANDOM}", path, tmp_path / "out.onnx")
        [name] = [n for n in found if n.startswith("up") and n not in ("up0", "up1")]
        made[kind] = turn(found[name])
    plain, *others = made.values()
    assert all(np.array_equal(plain, other) for other in others)


ROOTS = """
net (float[N, 8] x, float[N, 4] memory) => (float[N, 8] y)
<float[4, 8] read0, float[8, 8] up0, float[8, 8] down0, float[4, 8] read1, float[8, 8] up1, float[8, 8] down1>
{
    m0 = Abs(memory)
%s
    y = Identity(x2)
}
"""
ROOT_LAYER = """
    k{k} = MatMul(m0, read{k})
    s{k} = Sqrt(k{k})
    u{k} = MatMul(x{k}, up{k})
    a{k} = Mul(u{k}, s{k})
    d{k} = MatMul(a{k}, down{k})
    x{n} = Add(x{k}, d{k})
"""


def test_numbers_that_drawn_weights_may_make_infinite_are_a_gap(tmp_path):
    """The roots of the source are of positive numbers; those of a layer that is drawn need not be."""
    layers = "".join(ROOT_LAYER.format(k=k, n=k + 1) for k in range(2)).replace("x0", "x")
    positive = {f"read{k}": np.full((4, 8), 0.3, "f") + np.eye(4, 8, dtype="f") for k in range(2)}
    path = save(tmp_path / "m.onnx", ROOTS % layers, **positive)
    plain = growc.plan("stack layers to 3 by last with zero outputs", path)
    assert plain.certificate.exact
    drawn = growc.plan(f"stack layers to 3 by last {RANDOM} with zero outputs", path)
    assert "may be infinite or no number there" in drawn.certificate.gaps[0].cause
