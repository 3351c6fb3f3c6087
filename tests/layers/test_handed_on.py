"""Layers that hand on more than the stream: who reads what a layer made goes around that layer's sums."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save
from judging import judge

from growc import api
from growc.errors.diagnostic import GrowError

MODEL = """
layers (float[B, S, 3] x) => (float[B, S, 4] y)
<float[3, 8] rows, float[3, 8] others, float[8, 4] columns, {weights}>
{{
    x0 = MatMul(x, rows)
    z0 = MatMul(x, others)
{layers}
    last = Add(x4, {beside})
    y = MatMul(last, columns)
}}
"""

QUERIES = """
    m{k} = LayerNormalization <axis = -1> (x{k}, before{k})
    q{k} = MatMul(m{k}, query{k})
"""
KEYS = """
    k{k} = MatMul(m{k}, key{k})
    v{k} = MatMul(m{k}, value{k})
"""
ATTENTION = """
    t{k} = Transpose <perm = [0, 2, 1]> (KEYS)
    e{k} = MatMul(q{k}, t{k})
    SCORES
    p{k} = Softmax(f{k})
    c{k} = MatMul(p{k}, VALUES)
    o{k} = MatMul(c{k}, out{k})
    s{k} = Add(x{k}, o{k})
"""
FEED_FORWARD = """
    n{k} = LayerNormalization <axis = -1> (s{k}, behind{k})
    w{k} = Add(n{k}, BESIDE)
    u{k} = MatMul(w{k}, up{k})
    a{k} = Relu(u{k})
    d{k} = MatMul(a{k}, down{k})
    x{n} = Add(s{k}, d{k})
"""
SECOND = """
    i{k} = MatMul(x{n}, turn{k})
    j{k} = Tanh(i{k})
    z{n} = Add(z{k}, j{k})
"""
SHAPES = dict.fromkeys(("query", "key", "value", "out", "turn"), "8, 8")
SHAPES |= {"up": "8, 12", "down": "12, 8", "before": "8", "behind": "8"}

FORMS = {
    "keys and values of pairs": (0, 1, 2, 1),
    "the first layer's values": (0, 1, 1, 1),
    "scores": (0, 1, 1, 2),
    "a second stream": (0, 1, 1, 2),
}
"""The values that layers hand on, with the kinds of four layers: the first reads its start twice, the last
may hand on nothing."""
PAIRS, FIRST, SCORES, SECOND_STREAM = FORMS


def layer(form: str, k: int) -> str:
    """The lines of one of four layers."""
    own = k % 2 == 0 or form != PAIRS
    lines = QUERIES + (KEYS if own else "")
    values = "v{k}" if own else "v{b}"
    if form == FIRST and k:
        lines += "    vv{k} = Add(v{k}, v0)\n"
        values = "vv{k}"
    scores = "f{k} = Add(e{k}, f{b})" if form == SCORES and k else "f{k} = Identity(e{k})"
    lines += ATTENTION.replace("KEYS", "k{k}" if own else "k{b}").replace("VALUES", values)
    lines += FEED_FORWARD.replace("BESIDE", "z{k}" if form == SECOND_STREAM else "x0")
    lines += SECOND if form == SECOND_STREAM else ""
    return lines.replace("SCORES", scores).format(k=k, n=k + 1, b=k - 1)


def model(folder: Path, form: str) -> Path:
    """Four layers on a stream of eight."""
    lines = "".join(layer(form, k) for k in range(4))
    named = [(name, k) for k in range(4) for name in SHAPES if f" {name}{k})" in lines]
    weights = ", ".join(f"float[{SHAPES[name]}] {name}{k}" for name, k in named)
    beside = "z4" if form == SECOND_STREAM else "z0"
    return save(folder / "m.onnx", MODEL.format(weights=weights, layers=lines, beside=beside))


@pytest.mark.parametrize("form", FORMS)
def test_every_layer_is_one(tmp_path: Path, form: str) -> None:
    [run] = api.inspect(model(tmp_path, form)).layers.runs
    assert [one.start.name for one in run.layers] == ["x0", "x1", "x2", "x3"]
    assert run.layers[-1].end.name == "x4"
    assert run.kinds == FORMS[form]


RECIPES = {
    "stack layers to 8 by each with zero outputs": True,
    "stack layers to 7 by last with zero outputs": True,
    "arrange layers as 0, 1, 0, 1, 2, 3 with zero outputs": True,
    "stack layers to 8 by whole": False,
    "drop layers 2": False,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("form", FORMS)
def test_layers_are_copied_and_dropped(tmp_path: Path, form: str, recipe: str) -> None:
    judged = judge(recipe, model(tmp_path, form), tmp_path / "deep.onnx")
    if RECIPES[recipe]:
        judged.assert_exact()
    else:
        assert not judged.certificate.exact
        assert judged.difference > 1e-4


def test_a_refusal_names_the_first_layer_that_is_needed(tmp_path: Path) -> None:
    with pytest.raises(GrowError, match="layer 1 cannot go: `MatMul` reads it"):
        api.plan("subclone layers to 1 by first", model(tmp_path, SECOND_STREAM))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("recipe", ["widen hidden to 16 with cyclic copy", "widen ffn to 20 with tail copy"])
def test_layers_that_hand_on_values_grow_in_width(tmp_path: Path, form: str, recipe: str) -> None:
    judge(recipe, model(tmp_path, form), tmp_path / "wide.onnx").assert_exact()
