"""Experts of which each has a network of its own: they change places, or leave with all that is theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save
from judging import run
from models import stored
from planted import difference

import growc
from growc import api
from growc.errors.diagnostic import GrowError
from growc.render.inspection import inspect_data, inspect_lines

E, H, F = 4, 6, 7
WEIGHTS = ", ".join(
    f"float[{H}, {F}] up{e}, float[{F}] ub{e}, float[{F}, {H}] down{e}, int64[1] n{e}" for e in range(E)
)
NETWORK = """
    h{e}a = MatMul({x}, up{e})
    h{e}b = Add(h{e}a, ub{e})
    h{e}c = Relu(h{e}b)
    o{e} = MatMul(h{e}c, down{e})
"""
SHARES = """
    l0 = MatMul(x, router)
    l = Add(l0, bias)
    p = Softmax <axis = -1> (l)
"""
CHOSEN = """
    w, i = TopK <axis = -1> (p, n2)
"""
CUTS = {
    "slice": "    s{e} = Slice(p, n{e}, n{f}, n1)\n    t{e} = Mul(s{e}, o{e})\n",
    "gather": "    s{e} = Gather <axis = -1> (p, n{e})\n    t{e} = Mul(o{e}, s{e})\n",
    "split": "    t{e} = Mul(s{e}, o{e})\n",
    "compare": """
    m{e}a = Equal(i, n{e})
    m{e}b = Cast <to = 1> (m{e}a)
    m{e}c = Mul(w, m{e}b)
    s{e} = ReduceSum(m{e}c, n1)
    t{e} = Mul(s{e}, o{e})
""",
}
WRITTEN = """
    m{e}a = Gather <axis = 2> (hot, n{e})
    m{e}b = Squeeze(m{e}a, n2)
    m{e}c = NonZero(m{e}b)
    tok{e}, slot{e} = Split <axis = 0, num_outputs = 2> (m{e}c)
    tok{e}a = Squeeze(tok{e}, n0)
    x{e} = Gather <axis = 0> (x, tok{e}a)
"""
PLACED = """
    w{e}a = Transpose(m{e}c)
    w{e}b = GatherND(w, w{e}a)
    w{e}c = Unsqueeze(w{e}b, n1)
    t{e} = Mul(o{e}, w{e}c)
    at{e} = Unsqueeze(tok{e}a, n1)
    y{e} = ScatterND <reduction = "add"> ({y}, at{e}, t{e})
"""


MASKS = {
    "written": "    hot = OneHot(i, depth, onoff)\n",
    "counted": "    at = Unsqueeze(i, n2)\n    eq = Equal(at, row)\n    hot = Cast <to = 7> (eq)\n",
}
RANKED = ("compare", *MASKS)


def text(kind: str) -> str:
    body = SHARES
    numbers = f"int64[1] n4, int64[1] depth, int64[2] onoff, int64[{E}] row"
    if kind in RANKED:
        body += CHOSEN
    if kind == "split":
        body += "    s0, s1, s2, s3 = Split <axis = -1, num_outputs = 4> (p)\n"
    body += MASKS.get(kind, "")
    total = "shared"
    for e in range(E):
        if kind in MASKS:
            body += (WRITTEN + NETWORK + PLACED).format(e=e, x=f"x{e}", y=f"y{e - 1}" if e else "shared")
            total = f"y{e}"
        else:
            body += (NETWORK + CUTS[kind]).format(e=e, f=e + 1, x="x")
            body += f"    y{e} = Add({total}, t{e})\n"
            total = f"y{e}"
    return f"""experts (float[N, {H}] x) => (float[N, {H}] y)
<float[{H}, {E}] router, float[{E}] bias, float[{H}, {H}] common, {numbers}, {WEIGHTS}>
{{
    shared = MatMul(x, common)
{body}
    y = Add(x, {total})
}}"""


def weights(seed: int = 7) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = {"router": (H, E), "bias": (E,)}
    for e in range(E):
        shapes |= {f"up{e}": (H, F), f"ub{e}": (F,), f"down{e}": (F, H)}
    made = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return (
        made
        | {f"n{e}": np.array([e]) for e in range(E + 1)}
        | {"depth": np.array([E]), "onoff": np.array([0, 1]), "row": np.arange(E)}
    )


def model(path: Path, kind: str, **values: np.ndarray) -> Path:
    return save(path, text(kind), opset=18, **weights() | values)


KINDS = [*CUTS, *MASKS]


def test_inspect_says_that_they_are_listed(tmp_path: Path) -> None:
    found = api.inspect(model(tmp_path / "m.onnx", "compare"))
    assert inspect_data(found)["experts"] == ["listed one by one"]
    assert "experts 4 1 space, listed one by one" in [" ".join(line.split()) for line in inspect_lines(found)]


@pytest.mark.parametrize("kind", KINDS)
def test_experts_in_another_order_compute_the_same(tmp_path: Path, kind: str) -> None:
    path = model(tmp_path / "m.onnx", kind)
    done = growc.apply("reorder experts by magnitude\nexpect exact", path, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    before, after = stored(path), stored(done.written)
    assert (before["router"] != after["router"]).any()
    assert all((before[f"up{e}"] == after[f"up{e}"]).all() for e in range(E))


@pytest.mark.parametrize("kind", KINDS)
def test_those_that_leave_take_their_networks_along(tmp_path: Path, kind: str) -> None:
    path = model(tmp_path / "m.onnx", kind)
    (tmp_path / "keep.txt").write_text("1\n3\n")
    recipe = tmp_path / "r.grow"
    recipe.write_text('subclone experts to 2 by keep "keep.txt"\nexpect experts == 2\n')
    made = growc.apply(recipe, path, tmp_path / "out.onnx")
    after = stored(made.written)
    assert (after["router"] == weights()["router"][:, [1, 3]]).all()
    assert {n for n in after if n.startswith("up")} == {"up1", "up3"}
    assert made.plan.parameters[0] - made.plan.parameters[1] == 2 * (H + 1 + 2 * H * F + F)
    x = np.random.default_rng(1).standard_normal((9, H)).astype(np.float32)
    assert np.allclose(run(made.written, {"x": x})["y"], expected(x, kind, [1, 3], path), atol=1e-4)


def expected(x: np.ndarray, kind: str, kept: list[int], path: Path) -> np.ndarray:
    """The outputs of a model of these experts."""
    w = stored(path)
    scores = x @ w["router"][:, kept] + w["bias"][kept]
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    if kind in RANKED:
        shares *= shares >= np.sort(shares, axis=-1)[:, [-2]]
    outs = [np.maximum(x @ w[f"up{e}"] + w[f"ub{e}"], 0) @ w[f"down{e}"] for e in kept]
    return x + x @ w["common"] + sum(s[:, None] * o for s, o in zip(shares.T, outs, strict=True))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranking", ["importance", "magnitude"])
def test_dead_experts_leave_without_a_trace(tmp_path: Path, kind: str, ranking: str) -> None:
    values = weights()
    values["bias"][[0, 2]] = -1e4
    for e in (0, 2):
        values["router"][:, e] = 0
        values["bias"][e] = -1e4
        for name in (f"up{e}", f"ub{e}", f"down{e}"):
            values[name] *= 1e-3
    if ranking == "magnitude":
        values["bias"][[1, 3]] = 2e4
    path = model(tmp_path / "m.onnx", kind, **values)
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(2).standard_normal((50, H)).astype(np.float32))
    recipe = tmp_path / "r.grow"
    recipe.write_text(f'measure importance on "data.npz"\nsubclone experts to 2 by {ranking}\n')
    assert difference(recipe, path, tmp_path / "out.onnx") <= 2e-5
    assert "up1" in stored(tmp_path / "out.onnx")
    assert "up0" not in stored(tmp_path / "out.onnx")


def test_two_statements_compose(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", "slice")
    made = []
    for recipe in (
        "reorder experts by magnitude\nsubclone experts to 2 by first",
        "subclone experts to 2 by magnitude",
    ):
        out = growc.apply(recipe, path, tmp_path / "out.onnx", check=False, force=True).written
        made.append(run(out, {"x": np.ones((3, H), np.float32)})["y"])
    assert np.allclose(made[0], made[1], atol=1e-5)


def test_other_axes_change_along(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", "compare")
    recipe = 'subclone experts to 3 by first\nwiden axis 1 of "up1" to 10 with tail copy'
    assert growc.apply(recipe, path, tmp_path / "out.onnx").verification is not None
    assert stored(tmp_path / "out.onnx")["up1"].shape == (H, 10)


@pytest.mark.parametrize("row", [np.arange(1, E + 1), np.arange(E)[::-1], np.array([0, 1, 2, 2])])
def test_numbers_compared_with_others_than_all_in_a_row_are_refused(tmp_path: Path, row: np.ndarray) -> None:
    path = model(tmp_path / "m.onnx", "counted", row=row)
    with pytest.raises(GrowError, match="the model has no `experts`"):
        growc.plan("reorder experts by magnitude", path)


def test_a_refusal_names_the_node_where_units_meet_in_more_than_a_sum(tmp_path: Path) -> None:
    joined = text("slice").replace("y3 = Add(y2, t3)", "y3 = Max(y2, t3)")
    path = save(tmp_path / "m.onnx", joined, opset=18, **weights())
    proto = onnx.load(path)
    next(n for n in proto.graph.node if n.op_type == "Max").name = "larger"
    onnx.save(proto, path)
    with pytest.raises(GrowError, match=r"cut apart.*`larger` \(Max\)"):
        growc.plan("subclone experts to 2 by first", path)


@pytest.mark.parametrize("kind", CUTS)
def test_networks_of_an_axis_in_parts_follow_its_parts(tmp_path: Path, kind: str) -> None:
    """A router stored in two halves: its units lie in two atoms, each of which ranks and orders its own."""
    joined = text(kind).replace(
        "l0 = MatMul(x, router)", "whole = Concat <axis = 1> (first, second)\n    l0 = MatMul(x, whole)"
    )
    joined = joined.replace(f"float[{H}, {E}] router", f"float[{H}, 2] first, float[{H}, 2] second")
    values = weights()
    for name in ("up1", "ub1", "down1"):
        values[name] *= 100
    first, second = np.split(values.pop("router"), 2, axis=1)
    source = save(tmp_path / "m.onnx", joined, opset=18, **values, first=first, second=second)
    out = growc.apply('reorder axis 1 of "first" by magnitude', source, tmp_path / "out.onnx").written
    np.testing.assert_array_equal(stored(out)["first"], first[:, ::-1])
    assert growc.plan('subclone axis 1 of "up0" to 4 by magnitude', source).weights
