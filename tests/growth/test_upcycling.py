"""Feed-forward networks become mixtures of experts: each a copy, chosen by a new router."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from faults import Change, Mutant, edited
from graphs import ROOT, STREAM, save
from judging import judge
from models import stored
from test_planted_faults import run as spoilt

import growc
from growc import api
from growc.algebra.draws import Draws
from growc.errors.diagnostic import GrowError
from growc.plans.lineage import lineage_of
from growc.plans.plan import LeafStep, WeightPlan
from growc.render.inspection import inspect_data

TINY = ROOT / "examples/models"
E, K, F, H = 5, 2, 12, 8
UPCYCLE = f"upcycle ffn to experts {E} top {K} with cyclic copy"
PARTS = "upcycle ffn to experts 6 top 3 with cyclic copy in 3 parts"
NOISY = f"{UPCYCLE} noise 0.5 seed 7"


def stream(path: Path, text: str = STREAM) -> Path:
    """A model whose norms are random and whose bias behind the network is not zero."""
    random = np.random.default_rng(3)
    vectors = {f"norm{k}_{x}": random.normal(1, 0.5, H) for k in (1, 2) for x in ("weight", "bias")}
    return save(path, text, **{name: v.astype(np.float32) for name, v in vectors.items()})


def normal(key: Draws, count: int) -> np.ndarray:
    """Box and Muller on Philox: what a key stands for."""
    raw = np.random.Philox(key=key.key).random_raw(2 * count)
    u = ((raw >> np.uint64(11)).astype(np.float64) + 1).reshape(-1, 2) * 2.0**-53
    return np.sqrt(-2 * np.log(u[:, 0])) * np.cos(2 * np.pi * u[:, 1])


def test_weights_are_the_papers_formulas(tmp_path: Path) -> None:
    """E_0 = W, E_i = W + S·std(W)·z; biases are copies; R = 0.02·z (Komatsuzaki et al. 2022, section 3)."""
    source = stream(tmp_path / "m.onnx")
    made = growc.apply(NOISY, source, tmp_path / "out.onnx", check=False).written
    before, after = stored(source), stored(made)
    key = Draws.of(7, 1, "experts", "", 0)
    names = ("up_weight", "up_bias", "down_weight", "down_bias")
    for part, name in enumerate(names):
        w = before[name].astype(np.float64)
        expected = np.broadcast_to(w.reshape(1, *[1] * (2 - w.ndim), *w.shape), after[name].shape).copy()
        if w.ndim == 2:
            noise = normal(key.at(0, part).at("noise").at(0), expected.size).reshape(expected.shape)
            expected[1:] += 0.5 * w.std() * noise[1:]
        np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-6)
    [router] = set(after) - set(before) - {name for name in after if after[name].dtype.kind == "i"}
    assert after[router].shape == (H, E)
    drawn = 0.02 * normal(key.at(0, len(names)).at(0), H * E).reshape(H, E)
    np.testing.assert_allclose(after[router], drawn, rtol=1e-5)


def test_reset_draws_units_of_every_expert(tmp_path: Path) -> None:
    """floor(P·f) units of each expert, the same for what makes and reads them: mean(W) + std(W)·z in
    matrices, 0 in vectors (Nakamura et al. 2025, section 3); all other entries are copies.
    """
    source = stream(tmp_path / "m.onnx")
    recipe = f"{UPCYCLE} reset 0.45 seed 7"
    made = growc.apply(recipe, source, tmp_path / "out.onnx", check=False).written
    before, after = stored(source), stored(made)
    key = Draws.of(7, 1, "experts", "", 0)
    numbers = key.at(0, "units").uniform(0, E * F).reshape(E, F)
    drawn = np.argsort(np.argsort(numbers, axis=1), axis=1) < int(0.45 * F)
    assert (drawn.sum(axis=1) == 5).all()
    assert (drawn[0] != drawn[1]).any()
    axes = {"up_weight": 2, "up_bias": 2, "down_weight": 1, "down_bias": None}
    for part, (name, axis) in enumerate(axes.items()):
        w = before[name].astype(np.float64)
        expected = np.broadcast_to(w.reshape(1, *[1] * (2 - w.ndim), *w.shape), after[name].shape).copy()
        if axis is not None:
            mask = np.broadcast_to(np.expand_dims(drawn, 3 - axis), expected.shape)
            z = normal(key.at(0, part).at("reset").at(0), expected.size).reshape(expected.shape)
            expected = np.where(mask, w.mean() + w.std() * z if w.ndim == 2 else 0, expected)
        np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-6)


def test_the_result_computes_what_a_mixture_is(tmp_path: Path) -> None:
    """y = Σ over the chosen of softmax(chosen scores)_e · E_e(x), in numpy from the result's weights."""
    source = stream(tmp_path / "m.onnx")
    made = growc.apply(NOISY, source, tmp_path / "out.onnx", check=False).written
    w = {name: array.astype(np.float64) for name, array in stored(made).items()}
    router = next(array for name, array in w.items() if array.shape == (H, E))
    tokens = np.arange(16)

    def norm(x: np.ndarray, k: int) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * w[f"norm{k}_weight"] + w[f"norm{k}_bias"]

    x = w["table"][tokens]
    n = norm(x, 1)
    y = np.zeros_like(x)
    for row, scores in enumerate(n @ router):
        chosen = np.argsort(-scores)[:K]
        gates = np.exp(scores[chosen]) / np.exp(scores[chosen]).sum()
        for e, gate in zip(chosen, gates, strict=True):
            inner = np.maximum(n[row] @ w["up_weight"][e] + w["up_bias"][e, 0], 0)
            y[row] += gate * (inner @ w["down_weight"][e] + w["down_bias"][e, 0])
    session = onnxruntime.InferenceSession(made)
    [found] = session.run(None, {"tokens": tokens})
    np.testing.assert_allclose(found, norm(x + y, 2) @ w["table"].T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["tiny-gpt", "tiny-llama", "tiny-bert", "tiny-vit", "tiny-t5"])
def test_copies_are_exact_in_every_model(tmp_path: Path, name: str) -> None:
    judged = judge(
        "upcycle ffn to experts 4 top 2 with uniform copy", TINY / f"{name}.onnx", tmp_path / "m.onnx"
    )
    judged.assert_exact()
    seen = inspect_data(growc.inspect(judged.path))
    assert seen["experts"] == ["stacked"]
    assert set(np.atleast_1d(seen["axes"]["experts"])) == {4}


def test_noise_is_a_gap_that_names_the_router(tmp_path: Path) -> None:
    judge(NOISY, stream(tmp_path / "m.onnx"), tmp_path / "out.onnx").assert_gap("noise on experts", "scores")


def test_reset_is_a_gap_that_names_the_router(tmp_path: Path) -> None:
    recipe = f"{UPCYCLE} reset 0.5"
    judge(recipe, stream(tmp_path / "m.onnx"), tmp_path / "out.onnx").assert_gap("units of experts", "scores")


def test_parts_of_a_copy_are_chosen_together(tmp_path: Path) -> None:
    """Expert c·M + s has the s-th part of the units, M times its matrix reads them, and all parts of a copy
    have one row in the router (He et al. 2024, virtual groups).
    """
    source = stream(tmp_path / "m.onnx")
    recipe = "upcycle ffn to experts 6 top 4 with cyclic copy in 2 parts seed 7"
    judged = judge(recipe, source, tmp_path / "out.onnx")
    judged.assert_exact()
    before, after = stored(source), stored(judged.path)
    for e in range(6):
        own = slice(e % 2 * F // 2, (e % 2 + 1) * F // 2)
        np.testing.assert_array_equal(after["up_weight"][e], before["up_weight"][:, own])
        np.testing.assert_array_equal(after["up_bias"][e, 0], before["up_bias"][own])
        np.testing.assert_array_equal(after["down_weight"][e], 2 * before["down_weight"][own])
        np.testing.assert_array_equal(after["down_bias"][e, 0], before["down_bias"])
    [router] = (array for array in after.values() if array.shape == (H, 6))
    drawn = 0.02 * normal(Draws.of(7, 1, "experts", "", 0).at(0, 4).at(0), H * 3).reshape(H, 3)
    np.testing.assert_allclose(router, drawn.repeat(2, axis=1), rtol=1e-5)


@pytest.mark.parametrize("name", ["tiny-gpt", "tiny-llama", "tiny-bert", "tiny-vit", "tiny-t5"])
def test_parts_of_copies_are_exact_in_every_model(tmp_path: Path, name: str) -> None:
    recipe = "upcycle ffn to experts 8 top 4 with uniform copy in 4 parts"
    judge(recipe, TINY / f"{name}.onnx", tmp_path / "m.onnx").assert_exact()


COMBINED = {
    "others before": f"widen hidden to 16 with cyclic copy\nwiden ffn to 18 with uniform copy\n{UPCYCLE}",
    "others behind": f"{UPCYCLE}\nwiden ffn to 24 with tail copy\nwiden hidden to 32 with cyclic copy",
    "all experts": "upcycle ffn to experts 3 top 3 with last copy\nexpect experts == 3",
    "one of them": "upcycle ffn to experts 3 top 1 with tail copy",
    "a single one": "upcycle ffn to experts 1 top 1 with neighbor copy",
    "parts, others before": f"widen ffn to 18 with uniform copy\n{PARTS}",
    "parts, others behind": f"{PARTS}\nwiden ffn to 10 with tail copy\nwiden hidden to 16 with cyclic copy",
    "parts in another order": f"{PARTS}\nreorder experts by random seed 5",
    "in another order afterwards": f"{UPCYCLE}\nreorder experts by random seed 5",
}


@pytest.mark.parametrize("recipe", COMBINED.values(), ids=COMBINED)
def test_recipes_around_it_are_exact(tmp_path: Path, recipe: str) -> None:
    judge(f"{recipe}\nexpect exact", stream(tmp_path / "m.onnx"), tmp_path / "out.onnx").assert_exact()


FURTHER = {
    "hidden": "widen hidden to 16 with cyclic copy split random",
    "ffn": "widen ffn to 20 with neighbor copy split random",
    "experts": "reorder experts by magnitude",
}


@pytest.mark.parametrize("statement", FURTHER.values(), ids=FURTHER)
def test_a_mixture_takes_further_surgery(tmp_path: Path, statement: str) -> None:
    mixture = growc.apply(NOISY, stream(tmp_path / "m.onnx"), tmp_path / "mixture.onnx", check=False).written
    judge(statement, mixture, tmp_path / "out.onnx").assert_exact()


def test_a_layers_copies_have_the_experts_of_its_source_or_draws_of_their_own(tmp_path: Path) -> None:
    """Before `stack`, a copied layer has what its source has; behind it, every layer has its own draws."""
    noisy, deeper = "upcycle ffn to experts 3 top 2 with cyclic copy noise 0.1", "stack layers to 5 by last"
    name = "transformer.h.{}.mlp.{}"
    for recipe, same in ((f"{noisy}\n{deeper}", True), (f"{deeper}\n{noisy}", False)):
        out = tmp_path / f"{same}.onnx"
        found = stored(growc.apply(recipe, TINY / "tiny-gpt.onnx", out, check=False).written)
        for tensor in ("c_fc.weight", "router.weight"):
            one, other = (found[name.format(layer, tensor)] for layer in (3, 4))
            assert (one == other).all() == same


def test_a_scope_leaves_other_layers_dense(tmp_path: Path) -> None:
    recipe = "in layers 1..3 { upcycle ffn to experts 4 top 2 with cyclic copy }\nexpect exact"
    out = growc.apply(recipe, TINY / "tiny-gpt.onnx", tmp_path / "out.onnx").written
    ranks = [stored(out)[f"transformer.h.{k}.mlp.c_fc.weight"].ndim for k in range(4)]
    assert ranks == [2, 3, 3, 2]


def test_the_lineage_says_copies_and_new_routers(tmp_path: Path) -> None:
    plan = api.compile(api.recipe(UPCYCLE), stream(tmp_path / "m.onnx")).plan
    lineage = lineage_of(plan)
    up = lineage["weights"]["up_weight"]
    assert (up["source"], lineage["maps"][up["axes"]["0"]["map"]]["from"]) == ("up_weight", [0] * E)
    [router] = [w for w in lineage["weights"].values() if not w["source"]]
    assert router["shape"] == [H, E]
    assert plan.axes["experts"].before == (1,)
    assert plan.axes["experts"].after == (E,)


def test_the_same_bytes_come_out_twice(tmp_path: Path) -> None:
    source = stream(tmp_path / "m.onnx")
    one, two = (growc.apply(NOISY, source, tmp_path / f"{k}.onnx", check=False).written for k in "ab")
    assert Path(one).read_bytes() == Path(two).read_bytes()


# ---- what is refused, and where

SHARED = STREAM.replace(
    "x1 = Add(x0, db)",
    "e = MatMul(n1, up_weight)  f = Relu(e)  g = MatMul(f, down_weight)\n x2 = Add(x0, db)  x1 = Add(x2, g)",
)
SOFT = STREAM.replace("act = Relu(ub)", "act = Softmax <axis = -1> (ub)")
REFUSED = {
    "experts already": (STREAM, f"{UPCYCLE}\n{UPCYCLE}", "in a statement above"),
    "weights that are used twice": (SHARED, UPCYCLE, "cannot become experts"),
    "an operator over all units": (SOFT, UPCYCLE, "Softmax"),
    "experts that change before": (STREAM, f"reorder experts by first\n{UPCYCLE}", "behind it only"),
    "layers that move before": (
        STREAM,
        f"drop layers 0\nin layers 0 {{ {UPCYCLE} }}",
        "above every statement",
    ),
}


@pytest.mark.parametrize(("text", "recipe", "words"), REFUSED.values(), ids=REFUSED)
def test_networks_that_cannot_become_experts_are_refused(
    tmp_path: Path, text: str, recipe: str, words: str
) -> None:
    with pytest.raises(GrowError) as error:
        growc.plan(recipe, stream(tmp_path / "m.onnx", text))
    assert words in str(error.value)
    assert error.value.diagnostics[0].code == "G304"


def blocks(path: Path, count: int) -> Path:
    """A stream with blocks that are feed-forward networks alone."""
    block = "n{k} = LayerNormalization <axis = -1> (x{k}, g{k})  u{k} = MatMul(n{k}, up{k})  "
    block += "a{k} = Relu(u{k})  d{k} = MatMul(a{k}, down{k})  x{j} = Add(x{k}, d{k})"
    weights = ", ".join(f"float[8] g{k}, float[8, 12] up{k}, float[12, 8] down{k}" for k in range(count))
    nodes = "\n ".join(block.format(k=k, j=k + 1) for k in range(count))
    ports = "(float[N, 8] x0) => (float[N, 3] y)"
    return save(
        path, f"blocks {ports}\n<{weights}, float[8, 3] head>\n{{ {nodes}\n y = MatMul(x{count}, head) }}"
    )


IN_TWO = "upcycle ffn to experts 4 top 2 with cyclic copy in 2 parts"


LAYERS = {
    "parts in the last layer": (f"in layers -1 {{ {IN_TWO} }}", ["up3", "down3"]),
    "all in parts": (IN_TWO, [f"{name}{k}" for k in range(4) for name in ("up", "down")]),
    "another layer wider": (
        f"in layers 0 {{ {UPCYCLE} }}\nin layers 1 {{ widen ffn to 24 with cyclic copy }}",
        ["up0", "down0", "up1", "down1"],
    ),
    "layers counted": (f"in layers 1 {{ {UPCYCLE} }}\nexpect layers == 4", ["up1", "down1"]),
}


@pytest.mark.parametrize(("recipe", "changed"), LAYERS.values(), ids=LAYERS)
def test_layers_keep_their_numbers_beside_mixtures(tmp_path: Path, recipe: str, changed: list[str]) -> None:
    done = growc.apply(recipe, blocks(tmp_path / "m.onnx", 4), tmp_path / "mixed.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    mixed = [t.name for t in done.plan.weights if t.steps and not t.name.endswith("router.weight")]
    assert sorted(mixed) == sorted(changed)


def test_layers_beside_mixtures_move(tmp_path: Path) -> None:
    recipe = f"in layers 1 {{ {UPCYCLE} }}\nstack layers to 6 by last with zero outputs\nexpect layers == 6"
    done = growc.apply(recipe, blocks(tmp_path / "m.onnx", 4), tmp_path / "mixed.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    dropped = growc.plan(f"in layers 1 {{ {UPCYCLE} }}\ndrop layers 0", blocks(tmp_path / "m.onnx", 4))
    assert [gap.cause for gap in dropped.certificate.gaps] == ["layer 0 is left out"]


def chain(path: Path, count: int) -> Path:
    """Layers without residual sums: a product and a ReLU each."""
    nodes = "  ".join(f"u{k} = MatMul(x{k}, up{k})  x{k + 1} = Relu(u{k})" for k in range(count))
    weights = ", ".join(f"float[8, 8] up{k}" for k in range(count))
    return save(path, f"chain (float[N, 8] x0) => (float[N, 8] x{count})\n<{weights}>\n{{ {nodes} }}")


@pytest.mark.parametrize(
    ("count", "recipe", "words"),
    [
        (2, f"{UPCYCLE}\nexpect layers == 2", "end inside networks"),
        (4, UPCYCLE, "`u1` is in two networks, which both would become experts"),
    ],
)
def test_networks_across_layers_are_refused(tmp_path: Path, count: int, recipe: str, words: str) -> None:
    with pytest.raises(GrowError, match=words) as error:
        growc.plan(recipe, chain(tmp_path / "m.onnx", count))
    assert error.value.diagnostics[0].code == "G304"


def test_a_network_of_two_layers_becomes_experts(tmp_path: Path) -> None:
    done = growc.apply(UPCYCLE, chain(tmp_path / "m.onnx", 2), tmp_path / "mixed.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.relative < 1e-5


INSIDE = {
    "a size inside": "s = Shape <start = -1> (u)  c = Cast <to = 1> (s)  v = Div(u, c)  h = Tanh(v)",
    "a shape that leads back": "s = Shape (u)  r = Reshape(u, flat)  t = Tanh(r)  h = Reshape(t, s)",
}


@pytest.mark.parametrize("inside", INSIDE.values(), ids=INSIDE)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_networks_that_read_their_own_sizes_become_experts(tmp_path: Path, inside: str, dtype: type) -> None:
    kind = {np.float32: "float", np.float16: "float16"}[dtype]
    random = np.random.default_rng(1)
    weights = {"up": random.standard_normal((8, 12)) / 3, "down": random.standard_normal((12, 8)) / 3}
    model = save(
        tmp_path / "m.onnx",
        f"m ({kind}[N, 8] x) => ({kind}[N, 8] y) <{kind}[8, 12] up, {kind}[12, 8] down, int64[2] flat>"
        f"{{ u = MatMul(x, up)  {inside.replace('to = 1', 'to = 10' if dtype == np.float16 else 'to = 1')}  "
        "d = MatMul(h, down)  y = Add(x, d) }",
        flat=np.array([-1, 12], np.int64),
        **{name: value.astype(dtype) for name, value in weights.items()},
    )
    done = growc.apply(UPCYCLE, model, tmp_path / "mixed.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.relative < (1e-5 if dtype == np.float32 else 5e-3)


@pytest.mark.parametrize("middle", ["a = Add(b, u)", "a = Mul(half, u)", "a = Sub(b, u)", "a = Div(half, u)"])
def test_the_first_operand_may_be_the_smaller_one(tmp_path: Path, middle: str) -> None:
    ports = (
        "m (float[N, 8] x) => (float[N, 8] y) <float[8, 12] up, float[12] b, float[12, 8] down, float half>"
    )
    nodes = f"u = MatMul(x, up)  {middle}  h = Tanh(a)  d = MatMul(h, down)  y = Add(x, d)"
    model = save(tmp_path / "m.onnx", f"{ports} {{ {nodes} }}", half=np.float32(0.5))
    for recipe in (UPCYCLE, IN_TWO):
        done = growc.apply(recipe, model, tmp_path / f"{len(recipe)}.onnx")
        assert done.plan.certificate.exact
        assert done.verification is not None
        assert done.verification.relative < 1e-5


def test_a_network_of_a_single_position_is_refused(tmp_path: Path) -> None:
    text = "m (float[8] x) => (float[8] y) <float[8, 12] up, float[12, 8] down>"
    model = save(
        tmp_path / "m.onnx",
        f"{text} {{ u = MatMul(x, up)  h = Relu(u)  d = MatMul(h, down)  y = Add(x, d) }}",
    )
    with pytest.raises(GrowError, match="without an axis of positions"):
        growc.plan(UPCYCLE, model)


@pytest.mark.parametrize(
    "recipe",
    [
        f"{UPCYCLE}\nstack layers to layers + 1 by last\nsubclone experts to 2 by magnitude",
        f"{IN_TWO}\nstack layers to layers + 1 by last",
        f"{UPCYCLE}\ndrop layers -1\nsubclone ffn to ffn / 2 by first",
    ],
)
def test_units_of_mixtures_are_dropped_where_layers_move(recipe: str) -> None:
    plan = growc.plan(recipe, TINY / "tiny-llama.onnx")
    assert not plan.certificate.exact


def test_experts_do_not_become_experts(tmp_path: Path) -> None:
    mixture = growc.apply(
        UPCYCLE, stream(tmp_path / "m.onnx"), tmp_path / "mixture.onnx", check=False
    ).written
    with pytest.raises(GrowError, match="that of experts already"):
        growc.plan(UPCYCLE, mixture)


# ---- planted faults


def _weight(plan: WeightPlan, axis: int, change: Change) -> WeightPlan:
    steps = [replace(s, layout=edited(s.layout, change)) if s.axis == axis else s for s in plan.steps]
    return replace(plan, steps=tuple(steps))


def _louder(leaf: LeafStep) -> LeafStep:
    return replace(leaf, weight=np.where(np.arange(leaf.after) > 0, 1.1, 1.0))


def _other(leaf: LeafStep) -> LeafStep:
    return replace(leaf, weight=leaf.weight * 99)


def test_experts_that_are_no_copies_are_seen(tmp_path: Path) -> None:
    source = stream(tmp_path / "m.onnx")
    c = api.compile(api.recipe(UPCYCLE), source)
    numbers = [k for k, w in enumerate(c.assembled.weights) if any(s.name == "experts" for s in w.steps)]
    spoilable = [k for k in numbers if not c.assembled.weights[k].new]
    assert len(spoilable) == 4
    for k in spoilable:
        mutant = Mutant("louder copies", {k: _weight(c.assembled.weights[k], 0, _louder)})
        (tmp_path / str(k)).mkdir()
        seen = spoilt(source, UPCYCLE, tmp_path / str(k), mutant)
        assert seen.relative > 50 * seen.limit


def test_any_router_is_right(tmp_path: Path) -> None:
    """A router of equal experts decides nothing: the reason why upcycling is exact."""
    source = stream(tmp_path / "m.onnx")
    c = api.compile(api.recipe(UPCYCLE), source)
    [k] = [k for k, w in enumerate(c.assembled.weights) if w.new]
    mutant = Mutant("another router", {k: _weight(c.assembled.weights[k], 0, _other)})
    seen = spoilt(source, UPCYCLE, tmp_path, mutant)
    assert seen.relative <= seen.limit


def _another_part(leaf: LeafStep) -> LeafStep:
    within = leaf.within
    return (
        leaf if within is None else replace(leaf, within=replace(within, index=np.roll(within.index, 1, 0)))
    )


def _unscaled(leaf: LeafStep) -> LeafStep:
    return replace(leaf, weight=np.ones(leaf.after))


def _rows_of_their_own(leaf: LeafStep) -> LeafStep:
    rows = np.arange(leaf.after) // 2 % leaf.before
    return replace(leaf, index=rows) if leaf.before > 1 else leaf


@pytest.mark.parametrize(("change", "changed"), [(_another_part, 3), (_unscaled, 1), (_rows_of_their_own, 1)])
def test_parts_of_copies_that_do_not_fit_are_seen(tmp_path: Path, change: Change, changed: int) -> None:
    """A tensor with parts in another order, a matrix without its factor, parts that are chosen alone."""
    source = stream(tmp_path / "m.onnx")
    c = api.compile(api.recipe(PARTS), source)
    count = 0
    for k, weight in enumerate(c.assembled.weights):
        axis = 1 if weight.new else 0
        spoiled = _weight(weight, axis, change)
        if [s.layout.signature for s in spoiled.steps] == [s.layout.signature for s in weight.steps]:
            continue
        if weight.new != (change is _rows_of_their_own):
            continue
        count += 1
        (tmp_path / str(k)).mkdir()
        seen = spoilt(source, PARTS, tmp_path / str(k), Mutant("parts", {k: spoiled}))
        assert seen.relative > 50 * seen.limit
    assert count == changed
