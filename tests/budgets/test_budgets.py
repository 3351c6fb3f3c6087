"""Budgets come to sizes that meet them, that lose least by the scores, and that stand in the record."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import budgets
import numpy as np
import onnx
import pytest
from graphs import ROOT, TINY

import growc
from growc.budgets import choose, growing, quantities, shrinking_budget
from growc.budgets.polynomial import Polynomial
from growc.cli.main import main
from growc.errors.source import SourceText
from growc.plans.plan_to_json import from_json, to_json
from growc.resolve.resolve import load

MODELS = ROOT / "examples/models"
CALIBRATION = ROOT / "examples/24-subcloning/calibration.npz"
HALF = "subclone to parameters <= parameters / 2"


def weights(path: Path) -> dict[str, np.ndarray]:
    """The float weights of a file, as they are stored."""
    model = onnx.load(path)
    found = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    return {name: value for name, value in found.items() if value.dtype == np.float32 and value.size > 1}


def sizes(plan: growc.api.Plan) -> dict[str, int]:
    return dict(zip(plan.decided[0].axes, map(int, plan.decided[0].rows[0].sizes), strict=True))


def of_tiny_gpt(hidden: int, ffn: int, heads: int, layers: int) -> int:
    """The parameters of the tiny GPT, by its formula: 16 units a head, 256 bytes, 128 places, a tied head."""
    wide = 16 * heads
    layer = (
        4 * hidden + hidden * 3 * wide + 3 * wide + wide * hidden + hidden + 2 * hidden * ffn + ffn + hidden
    )
    return (256 + 128) * hidden + 2 * hidden + layers * layer


def test_the_formula_of_the_tiny_gpt_is_that_of_its_weights():
    assert of_tiny_gpt(96, 384, 6, 4) == growc.plan("", TINY).parameters[0] == 484416


def test_sizes_meet_the_budget_within_two_percent_and_the_record_has_them(tmp_path):
    part = 3
    recipe = f"subclone to parameters <= parameters / {part} over hidden, ffn, heads, layers by magnitude"
    done = growc.apply(f"{recipe} layers by even", TINY, tmp_path / "small.onnx")
    limit = 484416 // part
    assert done.plan.decided[0].limit == limit
    assert 0.98 * limit <= done.plan.parameters[1] <= limit
    assert done.plan.parameters[1] == of_tiny_gpt(**sizes(done.plan))
    record = json.loads((tmp_path / "small.grown.json").read_text())["recipe"]
    assert record == list(done.plan.decided[0].plain)
    again = growc.apply("\n".join(record), TINY, tmp_path / "again.onnx")
    ours, theirs = (weights(one.written) for one in (done, again))
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def scores_by_magnitude(found: dict[str, np.ndarray], places: list[tuple[str, int]]) -> np.ndarray:
    """L2 over weights along one axis of each, each divided by its Frobenius norm."""
    total = 0.0
    for name, axis in places:
        squares = found[name].astype(np.float64) ** 2
        total = total + squares.sum(axis=tuple(k for k in range(squares.ndim) if k != axis)) / squares.sum()
    return np.sqrt(total)


def test_the_choice_is_the_best_of_all_by_the_scores():
    """Brute force over all sizes of two axes, from the weights alone."""
    plan = growc.plan(f"{HALF} over ffn, heads by magnitude", TINY)
    found = weights(TINY)
    lost: dict[str, list[float]] = {"ffn": [], "heads": []}
    for layer in range(4):
        h = f"transformer.h.{layer}"
        ffn = [(f"{h}.mlp.c_fc.weight", 1), (f"{h}.mlp.c_fc.bias", 0), (f"{h}.mlp.c_proj.weight", 0)]
        lost["ffn"].append(scores_by_magnitude(found, ffn))
        qkv = found[f"{h}.attn.c_attn.weight"].reshape(96, 3, 6, 16).astype(np.float64) ** 2
        bias = found[f"{h}.attn.c_attn.bias"].reshape(3, 6, 16).astype(np.float64) ** 2
        out = found[f"{h}.attn.c_proj.weight"].reshape(6, 16, 96).astype(np.float64) ** 2
        squares = [(qkv, (0, 1, 3)), (bias, (0, 2)), (out, (1, 2))]
        lost["heads"].append(np.sqrt(sum(s.sum(axis=axes) / s.sum() for s, axes in squares)))

    def share(axis: str, kept: int) -> float:
        gone = [1 - np.sort(s)[::-1][:kept].sum() / s.sum() for s in lost[axis]]
        return math.sqrt(np.mean(np.square(gone)) / 2)

    limit = 484416 // 2
    fitting = [
        (math.hypot(share("ffn", f), share("heads", h)), f, h)
        for f, h in itertools.product(range(1, 385), range(1, 7))
        if 0.98 * limit <= of_tiny_gpt(96, f, h, 4) <= limit
    ]
    best = min(fitting)
    assert sizes(plan) == {"ffn": best[1], "heads": best[2]}
    assert plan.decided[0].rows[0].lost == pytest.approx(best[0], rel=1e-6)


def test_a_wrong_cost_is_found_out_by_the_plan(monkeypatch):
    """A planted fault: the polynomial forgets a third of the weights. The plan still meets the budget."""
    whole = quantities.QUANTITIES["parameters"]

    def forgetful(c, shares, held):
        parts = list(whole(c, shares, held))
        yield from parts[: len(parts) * 2 // 3]

    monkeypatch.setitem(quantities.QUANTITIES, "parameters", forgetful)
    plan = growc.plan("subclone to parameters <= 200K over hidden, ffn by magnitude", TINY)
    assert plan.parameters[1] <= 200_000


def test_a_budget_out_of_reach_names_the_smallest_sizes():
    with pytest.raises(growc.GrowError, match="no sizes of these axes have parameters <= 1000") as error:
        growc.plan("subclone to parameters <= 1K over ffn by magnitude", TINY)
    assert "with ffn 1" in error.value.diagnostics[0].notes[0]


def test_an_axis_that_cannot_shrink_is_named_and_left_out_as_the_note_says():
    heads = "subclone heads to kv_heads by magnitude"
    over = f"{heads}\nsubclone to parameters <= 3 * parameters / 4 over"
    with pytest.raises(growc.GrowError, match="cannot share") as refused:
        growc.plan(f"{over} heads, ffn by magnitude", MODELS / "tiny-llama.onnx")
    assert "without `heads` the budget may be met" in refused.value.diagnostics[0].notes[-1]
    growc.plan(f"{over} ffn by magnitude", MODELS / "tiny-llama.onnx")


def test_multiples_hold_and_the_neighbours_are_shown():
    plan = growc.plan(f"{HALF} over hidden, ffn by magnitude multiples of 32", TINY)
    found = plan.decided[0]
    assert all(size % 32 == 0 for size in sizes(plan).values())
    assert plan.parameters[1] <= found.limit
    if plan.parameters[1] < 0.98 * found.limit:
        assert [row.amount > found.limit for row in found.near] == [False, True]


def test_a_budget_that_holds_already_changes_nothing():
    plan = growc.plan("subclone to parameters <= 1B over hidden, ffn by magnitude", TINY)
    assert plan.parameters == (484416, 484416)
    assert plan.decided[0].plain == ()


def test_candidates_are_measured_and_the_one_with_the_least_loss_is_taken(tmp_path):
    measure = f'measure importance on "{CALIBRATION}" samples 2\n'
    plan = growc.plan(f"{measure}{HALF} over hidden, ffn by importance candidates 2", TINY)
    costs = [float(row.cost.split()[1]) for row in plan.decided[0].rows]
    assert len(costs) == 2
    assert costs == sorted(costs)
    plain = "\n".join(plan.decided[0].plain)
    done = growc.apply(measure + plain, TINY, tmp_path / "best.onnx")
    assert done.calibration is not None
    assert done.calibration.after is not None
    assert done.calibration.after.mean == pytest.approx(costs[0], abs=1e-4)


# ---------------------------------------------------------------------- other quantities


def test_memory_is_that_of_weights_and_of_keys_and_values():
    batch, length = 2, 100
    recipe = f"subclone to memory <= 1200K at batch {batch} length {length} over ffn, heads by magnitude"
    plan = growc.plan(recipe, TINY)
    found = sizes(plan)
    weights_of = 4 * of_tiny_gpt(96, found["ffn"], found["heads"], 4)
    kept = 4 * 4 * 2 * 16 * found["heads"] * batch * length
    assert plan.decided[0].rows[0].amount == pytest.approx(weights_of + kept, abs=512)  # tables of numbers
    assert 0.98 * 1_200_000 <= plan.decided[0].rows[0].amount <= 1_200_000


def test_flops_are_those_that_the_plan_counts():
    recipe = growc.Recipe().subclone_to("flops <= flops / 2", over=["hidden", "ffn"], by="first")
    plan = growc.plan(recipe, TINY)
    before = growc.flops(TINY).forward
    assert plan.decided[0].limit == math.floor(before / 2)
    assert 0.98 * before / 2 <= plan.decided[0].rows[0].amount <= before / 2


def test_a_polynomial_is_what_it_says():
    x, y = (Polynomial.share(k, 2) for k in range(2))
    made = (x + Polynomial.constant(3, 2)) * y.times(2)
    assert made.at((Fraction(1, 2), Fraction(1, 4))) == Fraction(7, 2) * Fraction(1, 2)


# ---------------------------------------------------------------------- in proportion


def test_the_smallest_sizes_in_proportion_reach_the_budget():
    """All factors, from the formula alone: each axis takes the nearest size."""
    plan = growc.plan(
        "widen to parameters >= 2 * parameters over hidden, ffn, heads in proportion with neighbor copy", TINY
    )

    def at(factor: Fraction) -> tuple[int, int, int]:
        return tuple(math.floor(factor * size + Fraction(1, 2)) for size in (96, 384, 6))

    factors = sorted({Fraction(2 * k + 1, 2 * size) for size in (96, 384, 6) for k in range(size, 2 * size)})
    first = next(f for f in factors if of_tiny_gpt(*at(f), 4) >= 2 * 484416)
    assert tuple(sizes(plan).values()) == at(first)
    assert plan.parameters[1] == of_tiny_gpt(*at(first), 4)


def test_layers_are_in_proportion_too_and_growth_can_be_exact(tmp_path):
    recipe = growc.Recipe().widen_to(
        "parameters >= 2 * parameters",
        over=["hidden", "ffn", "heads", "layers"],
        fill="average fill",
        layers="last",
        layers_zero_outputs=True,
    )
    done = growc.apply(recipe.expect("exact"), TINY, tmp_path / "large.onnx")
    found = sizes(done.plan)
    assert found["layers"] > 4
    assert done.plan.parameters[1] == of_tiny_gpt(**found) >= 2 * 484416
    assert done.verification is not None
    assert done.verification.relative < 1e-5


# ---------------------------------------------------------------------- by layer


def test_units_of_all_layers_compete_for_a_total():
    """The units with the largest part of their layer's scores, from the weights alone."""
    plan = growc.plan("subclone ffn to total layers * ffn / 2 by magnitude", TINY)
    found, parts = weights(TINY), []
    for layer in range(4):
        h = f"transformer.h.{layer}.mlp"
        places = [(f"{h}.c_fc.weight", 1), (f"{h}.c_fc.bias", 0), (f"{h}.c_proj.weight", 0)]
        scores = scores_by_magnitude(found, places)
        parts += [(float(s / scores.sum()), layer) for s in scores]
    kept = [layer for _, layer in sorted(parts, reverse=True)[:768]]
    assert list(sizes(plan).values()) == [kept.count(layer) for layer in range(4)]
    assert sum(sizes(plan).values()) == 768


def test_a_recipe_with_sizes_by_layer_is_replayed_by_its_record(tmp_path):
    done = growc.apply("subclone heads to total 15 by magnitude", TINY, tmp_path / "small.onnx")
    record = json.loads((tmp_path / "small.grown.json").read_text())["recipe"]
    assert any(line.startswith("in layers") for line in record)
    again = growc.apply("\n".join(record), TINY, tmp_path / "again.onnx")
    assert again.plan.parameters == done.plan.parameters


# ---------------------------------------------------------------------- the language


def test_new_words_are_names_where_version_1_had_names():
    text = "let total = 8\nlet over = total + 8\nsubclone ffn to total by first\n"
    text += "widen ffn to over with zero fill"
    assert growc.plan(text, TINY).axes["ffn"].after == (16,)


def test_numbers_of_statements_are_those_of_the_plain_recipe():
    text = f"{HALF} over ffn, heads by magnitude\nreorder ffn by random"
    decided = growc.plan(text, TINY).decided
    resolved = load([SourceText("-e", text)], {}, decided=decided)
    assert [bound.number for bound in resolved.statements] == [1, 2, 3]


def test_a_plan_with_a_budget_is_json_and_back():
    plan = growc.plan(f"{HALF} over ffn, heads by magnitude", TINY)
    assert to_json(from_json(json.loads(json.dumps(to_json(plan))))) == to_json(plan)


def test_passes_take_no_budget():
    with pytest.raises(growc.GrowError, match="a budget has no sizes yet"):
        growc.api.compile(load([SourceText("-e", f"{HALF} over ffn by magnitude")], {}), TINY)


def test_the_table_is_shown(capsys):
    assert main(["plan", "-e", f"{HALF} over ffn, heads by magnitude", str(TINY)]) == 0
    shown = capsys.readouterr().out
    assert "taken" in shown
    assert "parameters    lost" in shown


def test_every_kind_of_budget_has_a_place():
    assert {choose.Shrinking, choose.Growing} == {shrinking_budget.Shrinking, growing.Growing}


def test_the_record_of_budgets_is_made_by_what_it_measures(tmp_path: Path) -> None:
    (tmp_path / "gpt2.torchscript.onnx").write_bytes(TINY.read_bytes())
    measured = budgets.on_zoo("gpt2", tmp_path)
    assert 0.98 <= measured["part"] <= 1
    assert measured["plans"] <= 200
