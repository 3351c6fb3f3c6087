"""Plans: as people read them, as JSON, and what making one costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from graphs import DEMO, MLP, STREAM, TINY, save

from growc import api
from growc.dialects.onnx.capture.stored_values import read_tensor
from growc.plans.execute import execute
from growc.plans.lineage import axis_maps, lineage_of
from growc.plans.plan import AxisStep, Certificate, Gap, Layout, LeafStep, Plan, WeightPlan
from growc.plans.plan_to_json import from_json, to_json
from growc.render.terminal import plan_lines

GOLDEN = Path(__file__).parent / "golden"

RECIPES = {
    "stream-wider": (
        "stream",
        "widen hidden to 12 with average fill\nwiden ffn to 2 * ffn with uniform copy split random",
    ),
    "stream-not-exact": ("stream", "widen hidden to 12 with neighbor copy noise 0.1"),
    "stream-untied": (
        "stream",
        "untie head\nwiden hidden to 16 with cyclic copy split random\nwiden vocab to 20 with zero fill",
    ),
    "stream-twice": (
        "stream",
        "widen ffn to 15 with tail copy\nwiden ffn to 20 with zero fill with zero outputs",
    ),
    "stream-identity": ("stream", "widen ffn to 12 with tail copy"),
    "mlp-by-name": ("mlp", 'widen axis 1 of "fc1_weight" to 12 with random fill seed 3'),
    "tiny-demo": ("tiny", DEMO.read_text()),
}


@pytest.fixture
def path(tmp_path):
    def find(name: str) -> Path:
        return (
            TINY if name == "tiny" else save(tmp_path / f"{name}.onnx", {"stream": STREAM, "mlp": MLP}[name])
        )

    return find


def planned(path, name: str) -> Plan:
    model, recipe = RECIPES[name]
    return api.plan(recipe, path(model))


@pytest.mark.parametrize("name", RECIPES)
def test_a_plan_reads_as_agreed(name, path, golden):
    golden(
        GOLDEN / f"{name}.txt",
        "\n".join(plan_lines(planned(path, name), everything=name != "tiny-demo")) + "\n",
    )


def test_every_golden_file_belongs_to_a_recipe():
    assert {found.stem for found in GOLDEN.glob("*.txt")} == set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_plan_survives_json(name, path):
    plan = planned(path, name)
    text = json.dumps(to_json(plan), allow_nan=False)
    again = from_json(json.loads(text))
    assert json.dumps(to_json(again)) == text
    assert list(plan_lines(again, everything=True)) == list(plan_lines(plan, everything=True))


@pytest.mark.parametrize(
    "name", ["stream-wider", "stream-not-exact", "stream-twice", "mlp-by-name", "tiny-demo"]
)
def test_a_plan_from_json_makes_the_same_weights(name, path):
    plan = planned(path, name)
    again = from_json(json.loads(json.dumps(to_json(plan))))
    random = np.random.default_rng(1)
    for one, other in zip(plan.weights, again.weights, strict=True):
        if one.changed:
            source = random.standard_normal(one.before).astype(one.dtype)
            made = execute(one, source)
            assert made.shape == one.after
            assert np.array_equal(made, execute(other, source))


def test_maps_that_weights_share_are_stored_once(path):
    data = to_json(planned(path, "tiny-demo"))
    steps = sum(len(weight["steps"]) for weight in data["weights"])
    assert len(data["maps"]) < steps / 2


def test_planning_reads_no_weight_but_a_few_elements_for_ties(path, monkeypatch):
    read: dict[str, int] = {}

    def counting(tensor, index=()):
        found = read_tensor(tensor, index)
        if found.dtype.kind == "f":
            read[tensor.name] = read.get(tensor.name, 0) + found.size
        return found

    monkeypatch.setattr("growc.dialects.onnx.capture.capture.read_tensor", counting)
    planned(path, "tiny-demo")
    elements = {w.name: int(np.prod(w.before)) for w in planned(path, "tiny-demo").weights}
    assert all(n <= max(64, elements[name] // 10) for name, n in read.items())


def test_steps_know_the_axis_that_they_are_about(path):
    weights = {w.name: w for w in planned(path, "stream-wider").weights}
    assert [(s.verb, s.name) for s in weights["down_weight"].steps] == [("makes", "hidden"), ("reads", "ffn")]
    assert [(s.verb, s.name) for s in weights["norm1_weight"].steps] == [("scales", "hidden")]


def copies(index: list[int], weight: list[float]) -> AxisStep:
    step = LeafStep(2, np.array(index), np.array(weight), np.zeros(len(index), dtype=np.int64))
    return AxisStep(0, Layout("leaf", (), step), "reads", "ffn")


def test_lineage_composes_what_statements_do_to_one_axis():
    first, second = (
        copies([0, 1, 1], [1.0, 0.5, 0.5]),
        AxisStep(
            0,
            Layout(
                "leaf",
                (),
                LeafStep(
                    3, np.array([0, 1, 2, 2]), np.array([1.0, 1, 0.5, 0.5]), np.zeros(4, dtype=np.int64)
                ),
            ),
            "reads",
        ),
    )
    weight = WeightPlan("w", "w", "float32", (2, 5), (4, 5), (first, second))
    [made] = axis_maps(weight).values()
    assert made.index.tolist() == [0, 1, 1, 1]
    assert made.weight.tolist() == [1.0, 0.5, 0.25, 0.25]
    source = np.arange(10, dtype=np.float32).reshape(2, 5)
    assert np.array_equal(
        execute(weight, source), source[made.index] * made.weight[:, None].astype(np.float32)
    )


@pytest.mark.parametrize("name", ["stream-wider", "tiny-demo"])
def test_lineage_says_what_execution_does_to_copies(name, path):
    plan = planned(path, name)
    data = lineage_of(plan)
    checked = 0
    for weight in plan.weights:
        if len(weight.steps) != 1 or weight.dtype != "float32":
            continue
        entry = data["weights"][weight.name]
        [(axis, found)] = entry["axes"].items()
        lineage = data["maps"][found["map"]]
        source = np.random.default_rng(2).standard_normal(weight.before).astype(np.float32)
        made = execute(weight, source)
        for j, (i, factor) in enumerate(zip(lineage["from"], lineage["factor"], strict=True)):
            row = np.take(made, j, int(axis))
            if i >= 0 and all(leaf.noise is None for leaf in [weight.steps[0].layout.step] if leaf):
                np.testing.assert_allclose(row, np.take(source, i, int(axis)) * factor, rtol=1e-6)
                checked += 1
    assert checked > 20


def test_gaps_of_one_cause_are_one_line():
    gaps = tuple(Gap(f"node{i}", "LayerNormalization", "counts differ", "do not") for i in range(25))
    plan = Plan("m.onnx", Certificate(gaps), {}, (), (), (1, 1), 0)
    assert [line for line in plan_lines(plan) if "gap" in line or "help" in line] == [
        "  gap  counts differ   25 nodes, first: node0",
        "  help: do not",
    ]


def test_weights_without_elements_stay_as_they_are(tmp_path):
    graph = """
m (float[4, 3, 8] x) => (float[4, 3, 6] y)
<float[8, 12] up, float[12, 6] down, float[4, 3, 0] one, float[4, 3, 0] two>
{
    c = Concat <axis = 2> (x, one, two)
    h = MatMul(c, up)
    r = Relu(h)
    y = MatMul(r, down)
}
"""
    path = save(tmp_path / "empty.onnx", graph)
    done = api.apply("widen ffn to 24 with neighbor copy", path)
    assert [weight.name for weight in done.plan.weights if weight.changed] == ["up", "down"]
    assert done.plan.certificate.exact
