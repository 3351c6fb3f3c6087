"""Every row by which experts that stand one by one are raised to one record: a spelling, and a look-alike.

A spelling is three lines or fewer for each expert, between its share `s`, what its network gives, `o`, and
what it adds, `u`. In another order the model computes the same; without its last expert it computes what the
same text says of one expert less; without the row its experts cannot leave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge, run

from growc import api
from growc.errors.diagnostic import GrowError
from growc.passes.raising import experts as rules

E, H = 4, 6

CUT = "s{e} = Gather <axis = -1> (p, n{e})"
WEIGHED = "u{e} = Mul(s{e}, o{e})"
ADDED = "y{e} = Add(y{d}, u{e})"
RANKED = "w, i = TopK <axis = -1> (p, two)"
COMPARED = "c{e} = Cast <to = 1> (m{e}) g{e} = Mul(w, c{e}) s{e} = ReduceSum(g{e}, last)"
PLACES = "first = ArgMax <axis = 0, keepdims = 0> (x) at = Unsqueeze(first, last)"
CAST = "c{e} = Cast <to = 1> (k{e}) u{e} = Mul(c{e}, o{e})"
LARGE = "large = Greater(x, zero)"
CHOSEN = "t{e} = Mul(s{e}, o{e}) "


@dataclass(frozen=True)
class Spelling:
    """The lines in front, those for each expert, and for the first and the second where they differ."""

    each: str = WEIGHED
    front: str = ""
    cut: str = CUT
    added: str = ADDED
    first: str = ""
    second: str = ""
    start: str = ""
    """How the first one is added."""

    def text(self, count: int) -> str:
        """A model of so many experts."""
        body = ["p0 = MatMul(x, router) p = Sigmoid(p0) y_ = MatMul(x, common)", self.front]
        for e in range(count):
            own = {0: self.first, 1: self.second}.get(e) or self.each
            added = self.start or self.added if e == 0 else self.added
            lines = [f"o{e} = MatMul(x, w{e})", self.cut, own, added]
            body += [line.format(e=e, d=e - 1 if e else "_", f=e + 1) for line in lines]
        lines = "\n    ".join(body).replace("EVERY", ", ".join(f"s{e}" for e in range(count)))
        own = [f"float[{H}, {H}] w{e}, float[{H}] b{e}, int64[1] n{e}" for e in range(E)]
        stored = [f"float[{H}, {count}] router, float[{H}, {H}] common", *own, *NUMBERS.values()]
        return f"""experts (float[N, {H}] x) => (float[N, {H}] y)
<{", ".join(stored)}>
{{
    {lines.replace("COUNT", str(count))}
    y = Add(x, y{count - 1})
}}"""

    def save(self, path: Path, count: int = E) -> Path:
        """Its file, with weights that are the same for every count."""
        random = np.random.default_rng(3)
        drawn = {"router": (H, E), "common": (H, H)}
        drawn |= {f"{name}{e}": (H, H)[:k] for e in range(E) for name, k in (("w", 2), ("b", 1))}
        values = {name: random.standard_normal(shape).astype(np.float32) for name, shape in drawn.items()}
        values["router"] = values["router"][:, :count]
        values |= {f"n{e}": np.array([e]) for e in range(E)} | GIVEN
        return save(path, self.text(count), opset=18, **values)


NUMBERS = {
    "last": "int64[1] last",
    "two": "int64[1] two",
    "parts": "int64[2] parts",
    "zero": "float zero",
    "half": "float half",
    "one": "float one",
}
GIVEN = {
    "last": np.array([-1]),
    "two": np.array([2]),
    "parts": np.array([1, E - 1]),
    "zero": np.float32(0),
    "half": np.float32(0.5),
    "one": np.float32(1),
}

SPELLINGS = {
    1: Spelling(),
    2: Spelling(front="EVERY = Split <axis = -1, num_outputs = COUNT> (p)", cut=""),
    3: Spelling(front=RANKED, cut=f"m{{e}} = Equal(n{{e}}, i) {COMPARED}"),
    4: Spelling("h{e} = Shape(s0) t{e} = Expand(s{e}, h{e}) u{e} = Mul(t{e}, o{e})"),
    6: Spelling(first="h0 = Shape(o0) z0 = ConstantOfShape(h0) t0 = Mul(s0, o0) u0 = Add(z0, t0)"),
    7: Spelling(CHOSEN + "u{e} = Add(t{e}, b{e})"),
    8: Spelling(added="y{e} = Sum(y{d}, u{e})", start="y0 = Identity(u0)"),
    10: Spelling(added="y{e} = Sum(u{e}, y{d})"),
    11: Spelling(CHOSEN + "v{e} = Gather(t{e}, first) u{e} = ScatterND(t{e}, at, v{e})", PLACES),
    12: Spelling(
        CHOSEN + "u{e} = Gather(t{e}, first)",
        PLACES,
        added='y{e} = ScatterND <reduction = "add"> (y{d}, at, u{e})',
    ),
    13: Spelling("t{e} = MatMul(o{e}, w{e}) u{e} = Mul(s{e}, t{e})"),
    14: Spelling(f"m{{e}} = Greater(s{{e}}, half) k{{e}} = And(m{{e}}, large) {CAST}", LARGE),
    15: Spelling("t{e} = Div(s{e}, total) u{e} = Mul(t{e}, o{e})", "total = ReduceSum(p, last)"),
    16: Spelling(CHOSEN + "u{e} = Where(large, t{e}, zero)", LARGE),
    17: Spelling("m{e} = Greater(s{e}, half) u{e} = Where(m{e}, o{e}, zero)"),
    18: Spelling(CHOSEN + "u{e} = Tanh(t{e})"),
}
"""By the number of the row without which they are not raised."""

SEVERAL, OTHER = "joins what several of them give", "joins them with something else"
LOOK_ALIKES = {
    1: (
        Spelling(second="r1 = Slice(p, n1, n3, last) q1 = ReduceSum(r1, last) u1 = Mul(q1, o1)"),
        "no `experts`",
    ),
    2: (
        replace(
            SPELLINGS[2],
            front="s0, rest = Split <axis = -1> (p, parts) s1, s2, s3 = Split "
            "<axis = -1, num_outputs = 3> (rest)",
        ),
        "no `experts`",
    ),
    3: (replace(SPELLINGS[3], front="w, i0 = TopK <axis = -1> (p, two) i = Sub(i0, n0)"), "no `experts`"),
    4: (Spelling(second="t1 = Mul(s0, s1) u1 = Mul(t1, o1)"), rf"\(Mul\) {SEVERAL}"),
    5: (Spelling(second="m1 = Greater(s1, half) k1 = Not(m1) " + CAST), r"\(Not\) makes something else"),
    6: (Spelling(first=CHOSEN + "u0 = Add(one, t0)"), "not all have constants"),
    7: (replace(SPELLINGS[7], second=WEIGHED), "not all have constants"),
    8: (replace(SPELLINGS[8], second=CHOSEN + "u1 = ReduceMean(t1, last)"), r"\(Sum\) stretches"),
    9: (
        replace(SPELLINGS[8], second="v1 = Mul(s1, o1) l1 = Add(v1, u0) u1 = Add(l1, b1)"),
        "adds a constant to",
    ),
    10: (Spelling(second=CHOSEN + "u1 = ReduceMean(t1, last)"), r"\(Add\) stretches"),
    11: (replace(SPELLINGS[11], second=CHOSEN + "u1 = ScatterND(t1, at, v0)"), rf"\(ScatterND\) {SEVERAL}"),
    12: (replace(SPELLINGS[12], added='y{e} = ScatterND <reduction = "mul"> (y{d}, at, u{e})'), "ScatterND"),
    13: (Spelling(second="t1 = Mul(s0, o1) u1 = Mul(s1, t1)"), rf"\(Mul\) {SEVERAL}"),
    14: (replace(SPELLINGS[14], second=SPELLINGS[14].each.replace("And", "Or")), rf"\(Or\) {OTHER}"),
    15: (Spelling(second="t1 = Div(o1, s1) u1 = Mul(s1, t1)"), rf"\(Div\) {OTHER}"),
    16: (replace(SPELLINGS[16], second=CHOSEN + "u1 = Where(large, x, t1)"), rf"\(Where\) {OTHER}"),
    17: (
        replace(SPELLINGS[17], second="m1 = Greater(s1, half) u1 = Where(m1, o1, x)"),
        rf"\(Where\) {OTHER}",
    ),
    18: (replace(SPELLINGS[18], second=CHOSEN + "u1 = Pow(t1, x)"), rf"\(Pow\) {OTHER}"),
    19: (Spelling(second=CHOSEN + "u1 = Max(t1, x)"), rf"\(Max\) {OTHER}"),
    20: (Spelling(second=CHOSEN + "u1 = Max(t1, u0)"), rf"\(Max\) {SEVERAL}"),
}
"""By the number of the row that they look like, or that refuses them; with what the error says."""

FEWER = f"subclone experts to {E - 1} by first"


def test_every_row_has_a_spelling_or_refuses() -> None:
    refusing = {row.number for row in rules.ROWS if row.result == "refusal"}
    assert [row.number for row in rules.ROWS] == list(range(len(rules.CUTS) + 1, 21))
    assert SPELLINGS.keys() | refusing == LOOK_ALIKES.keys() == set(range(1, 21))


@pytest.mark.parametrize("number", SPELLINGS)
def test_raised_experts_compute_the_same_in_another_order(tmp_path: Path, number: int) -> None:
    path = SPELLINGS[number].save(tmp_path / "m.onnx")
    judge("reorder experts by random seed 4", path, tmp_path / "out.onnx").assert_exact()


@pytest.mark.parametrize("number", SPELLINGS)
def test_without_one_it_is_the_model_of_one_less(tmp_path: Path, number: int) -> None:
    path, less = SPELLINGS[number].save(tmp_path / "m.onnx"), tmp_path / "less.onnx"
    made = api.apply(FEWER, path, tmp_path / "out.onnx", check=False).written
    SPELLINGS[number].save(less, E - 1)
    x = np.random.default_rng(5).standard_normal((9, H)).astype(np.float32)
    np.testing.assert_allclose(run(made, {"x": x})["y"], run(less, {"x": x})["y"], atol=1e-5)


@pytest.mark.parametrize("number", SPELLINGS)
def test_without_its_row_it_is_not_raised(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "ROWS", [row for row in rules.ROWS if row.number != number])
    monkeypatch.setattr(rules, "CUTS", [cut for k, cut in enumerate(rules.CUTS, 1) if k != number])
    with pytest.raises(GrowError):
        api.plan(FEWER, SPELLINGS[number].save(tmp_path / "m.onnx"))


@pytest.mark.parametrize("number", LOOK_ALIKES)
def test_a_look_alike_is_refused_by_its_node(tmp_path: Path, number: int) -> None:
    spelling, said = LOOK_ALIKES[number]
    with pytest.raises(GrowError, match=said):
        api.plan(FEWER, spelling.save(tmp_path / "m.onnx"))
