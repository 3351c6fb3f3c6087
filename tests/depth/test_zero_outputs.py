"""Zeros of a new layer that adds nothing: in bodies of If and Loop, and in constants of nodes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from graphs import save
from judging import judge

from growc import api

BRANCHED = """
branched (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] rows, {weights}, float[8, 3] columns>
{{
    x0 = MatMul(x, rows)
    sum = ReduceSum <keepdims = 0> (x)
    none = Sub(sum, sum)
    first = Greater(sum, none)
{layers}
    y = MatMul(x3, columns)
}}
"""

IN_AN_IF = """
    h{k} = MatMul(x{k}, up{k})
    r{k} = Relu(h{k})
    b{k} = If (first) <
        then_branch = yes{k} () => (float[N, 8] p{k}) {{ p{k} = MatMul(r{k}, one{k}) }},
        else_branch = no{k} () => (float[N, 8] q{k})
            <float[8] shift{k} = {{1, -2, 3, -4, 5, -6, 7, -8}}> {{
            turned{k} = Transpose <perm = [1, 0]> (two{k})
            t{k} = MatMul(r{k}, turned{k})
            q{k} = Add(t{k}, shift{k})
        }}
    >
    x{n} = Add(x{k}, b{k})
"""

IN_A_LOOP = """
    trips{k} = Constant <value_int = 3> ()
    true{k} = Constant <value = bool {{1}}> ()
    like{k} = Shape(x{k})
    zeros{k} = ConstantOfShape (like{k})
    b{k} = Loop (trips{k}, true{k}, {start}) <
        body = once{k} (int64 i{k}, bool on{k}, float[N, 8] s{k}) => (bool still{k}, float[N, 8] t{k}) {{
        still{k} = Identity(on{k})
        h{k} = MatMul(x{k}, up{k})
        r{k} = Relu(h{k})
        d{k} = MatMul(r{k}, one{k})
        t{k} = Add(s{k}, d{k})
    }}>
    x{n} = Add(x{k}, b{k})
"""

NORMED = """
    h{k} = MatMul(x{k}, up{k})
    r{k} = Relu(h{k})
    d{k} = MatMul(r{k}, one{k})
    beta{k} = Constant <value = float[8] {{1, 2, 3, 4, 5, 6, 7, 8}}> ()
    b{k} = LayerNormalization <axis = -1> (d{k}, gain{k}, beta{k})
    x{n} = Add(x{k}, b{k})
"""


def model(folder: Path, layer: str, **places: str) -> Path:
    weights = ", ".join(
        f"float[8, 12] up{k}, float[12, 8] one{k}, float[8, 12] two{k}, float[8] gain{k}" for k in range(3)
    )
    layers = "".join(
        layer.format(k=k, n=k + 1, **{p: t.format(k=k) for p, t in places.items()}) for k in range(3)
    )
    return save(folder / "model.onnx", BRANCHED.format(weights=weights, layers=layers))


@pytest.mark.parametrize("layer", [IN_AN_IF, NORMED], ids=["if", "constants"])
def test_new_layers_add_nothing(tmp_path: Path, layer: str) -> None:
    source = model(tmp_path, layer)
    judge("stack layers to 5 by last with zero outputs", source, tmp_path / "deep.onnx").assert_exact(0)


def test_a_carried_value_of_a_loop_is_zero_where_it_starts_as_zeros(tmp_path: Path) -> None:
    recipe, out = "stack layers to 5 by last with zero outputs", tmp_path / "deep.onnx"
    judge(recipe, model(tmp_path, IN_A_LOOP, start="zeros{k}"), out).assert_exact(0)
    judge(recipe, model(tmp_path, IN_A_LOOP, start="x{k}"), out).assert_gap("is not zero")


CARRIED = """
    trips{k} = Constant <value_int = 3> ()
    true{k} = Constant <value = bool {{1}}> ()
    like{k} = Shape(x{k})
    zeros{k} = ConstantOfShape (like{k})
    a{k}, b{k} = Loop (trips{k}, true{k}, zeros{k}, zeros{k}) <
        body = once{k} (int64 i{k}, bool on{k}, float[N, 8] s{k}, float[N, 8] c{k})
            => (bool still{k}, float[N, 8] t{k}, float[N, 8] d{k}) {{
        still{k} = Identity(on{k})
        h{k} = MatMul(x{k}, up{k})
        m{k} = MatMul(h{k}, one{k})
        t{k} = Add(s{k}, m{k})
        f{k} = Tanh(x{k})
        g{k} = Tanh(s{k})
        d{k} = Mul(g{k}, f{k})
    }}>
    x{n} = Add(x{k}, b{k})
"""


def test_a_carried_value_that_changes_is_not_zero(tmp_path: Path) -> None:
    """The branch is a product with what another iteration made of zeros."""
    recipe = "stack layers to 5 by last with zero outputs"
    judge(recipe, model(tmp_path, CARRIED), tmp_path / "deep.onnx").assert_gap("is not zero")


def test_layers_have_weights_of_their_own_in_bodies_too(tmp_path: Path) -> None:
    source, out = model(tmp_path, IN_A_LOOP, start="x{k}"), tmp_path / "deep.onnx"
    api.apply("stack layers to 5 by last", source, out, check=False)
    names = {w.name for w in onnx.load(out).graph.initializer}
    assert {f"{name}{k}" for name in ("up", "one") for k in range(5)} <= names


@pytest.mark.parametrize("order", ["stack layers to 5 by last", "stack layers to 5 by each", "drop layers 2"])
def test_the_output_of_the_last_layer_keeps_its_name(tmp_path: Path, order: str) -> None:
    """An encoder without a head gives out its stream."""
    source, out = model(tmp_path, NORMED), tmp_path / "deep.onnx"
    bare = onnx.load(source)
    bare.graph.output[0].name = "x3"
    bare.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 8
    del bare.graph.node[-1]
    onnx.save(bare, source)
    api.apply(order, source, out, check=False)
    made = onnx.load(out)
    onnx.checker.check_model(made, full_check=True)
    assert [o.name for o in made.graph.output] == ["x3"]
    if "stack" in order:
        judge(f"{order} with zero outputs", source, tmp_path / "same.onnx").assert_exact(0)
