"""Mean units behind a factor for each unit: exact where weights alone make what the factors scale."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save
from judging import Judged, judge
from onnx import numpy_helper

from growc import api
from growc.plans.execute import execute
from growc.plans.plan_to_json import from_json, to_json

SCALED = """
scaled (int64[N] tokens) => (float[N, 16] logits)
<float[16, 8] table, float[8] norm_weight, float[8] norm_bias, float[8, 12] up, float[12, 8] down,
 float[8] down_bias, float[8] gamma, float[8] last_weight, float[8] last_bias, float[8, 16] head>
{{
    x0 = Gather(table, tokens)
    n = LayerNormalization <axis = -1, epsilon = 0.01> (x0, norm_weight, norm_bias)
    u = MatMul(n, up)
    r = Relu(u)
    d = MatMul(r, down)
    b = Add(d, down_bias)
    s = {scale}
    x1 = Add(x0, s)
    x2 = {last}
    l = LayerNormalization <axis = -1, epsilon = 0.01> (x2, last_weight, last_bias)
    logits = MatMul(l, head)
}}
"""

MEANS = "widen hidden to 3 * hidden / 2 with average fill"


def model(tmp_path: Path, scale: str = "Mul(b, gamma)", last: str = "Identity(x1)") -> Path:
    return save(tmp_path / "scaled.onnx", SCALED.format(scale=scale, last=last))


def judged(path: Path, recipe: str = MEANS) -> Judged:
    return judge(recipe, path, path.with_name("grown.onnx"))


@pytest.mark.parametrize("scale", ["Mul(b, gamma)", "Mul(gamma, b)"])
def test_means_behind_a_layer_scale_are_exact(tmp_path, scale):
    judged(model(tmp_path, scale)).assert_exact()


def test_new_rows_are_means_of_rows_times_the_scale(tmp_path):
    path = model(tmp_path)
    before, after = (
        {t.name: numpy_helper.to_array(t) for t in onnx.load(p).graph.initializer}
        for p in (path, judged(path).path)
    )
    wanted = (before["down"] * before["gamma"]).mean(axis=1)
    np.testing.assert_allclose(after["down"][:, 8:], np.repeat(wanted[:, None], 4, axis=1), rtol=1e-6)
    np.testing.assert_array_equal(after["gamma"], [*before["gamma"], 1, 1, 1, 1])


def test_units_read_in_front_of_the_scale_too_have_to_be_means_there(tmp_path):
    judged(model(tmp_path, last="Add(x1, b)")).assert_gap("a per-channel weight cannot carry")


def test_means_that_are_divided_by_a_scale_are_a_gap(tmp_path):
    judged(model(tmp_path, "Div(b, gamma)")).assert_gap("a per-channel weight cannot carry")


def test_a_scale_that_an_earlier_statement_changed_is_a_gap(tmp_path):
    twice = "widen hidden to 12 with average fill\nwiden hidden to 15 with average fill"
    judged(model(tmp_path), twice).assert_gap("a per-channel weight cannot carry")


def test_a_plan_from_json_knows_the_scale(tmp_path):
    plan = api.plan(MEANS, model(tmp_path))
    again = from_json(json.loads(json.dumps(to_json(plan))))
    [one], [other] = ([w for w in p.weights if w.source == "down"] for p in (plan, again))
    array, gamma = np.ones((12, 8), np.float32), np.arange(8, dtype=np.float32)
    for weight in (one, other):
        np.testing.assert_array_equal(execute(weight, array, {"gamma": gamma}.get)[0, 8:], [3.5] * 4)
