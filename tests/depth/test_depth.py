"""Layers stacked, arranged and dropped: what is claimed, what they are called, what else becomes of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graphs import TINY
from judging import judge
from onnx.numpy_helper import to_array

from growc import api
from growc.errors.diagnostic import GrowError
from growc.passes.finish.assemble import resizes
from growc.passes.layers.layer_runs import Move, Run, RunHistory
from growc.passes.lowering.lower_depth import out_of_phase

ZERO = "with zero outputs"


def weights(path):
    found = {w.name: to_array(w) for w in onnx.load(path).graph.initializer}
    return {name: value for name, value in found.items() if value.ndim and value.dtype == np.float32}


def grown(recipe, model, out):
    api.apply(recipe, model, out, check=False, force=True)
    return weights(out)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", ["whole", "last", "each", "top 2", "middle"])
def test_layers_with_zero_outputs_change_nothing(tmp_path, order):
    judge(f"stack layers to 7 by {order} {ZERO}", TINY, tmp_path / "deep.onnx").assert_exact(0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("recipe", "cause"),
    [
        ("stack layers to 6 by last", "layer 4 is layer 3 once more"),
        ("drop layers 1", "layer 1 is left out"),
        ("arrange layers as 0, 2, 1, 3", "another order"),
        ("subclone layers to 2 by even", "layer 2 is left out"),
    ],
)
def test_what_other_layers_change_is_said(tmp_path, recipe, cause):
    judge(recipe, TINY, tmp_path / "other.onnx").assert_gap(cause)


def test_layers_put_in_and_taken_out_again_leave_the_source(tmp_path):
    recipe = f"arrange layers as 0, 0..4, 2 {ZERO}\ndrop layers 1\ndrop layers -1\nexpect layers == 4"
    made = grown(recipe, TINY, tmp_path / "same.onnx")
    assert all(np.array_equal(value, made[name]) for name, value in weights(TINY).items())


@pytest.mark.parametrize("order", ["whole with zero outputs", "last"])
def test_a_grown_model_has_as_many_parameters_as_its_plan_said(tmp_path, order):
    done = api.apply(f"stack layers to 7 by {order}", TINY, tmp_path / "deep.onnx", check=False)
    again = api.plan("widen ffn to 500 with tail copy", done.written)
    assert again.parameters[0] == done.plan.parameters[1]


def test_layers_are_named_by_their_place(tmp_path):
    made = grown("arrange layers as 1, 1, 3", TINY, tmp_path / "moved.onnx")
    source, name = weights(TINY), "transformer.h.{}.attn.c_attn.weight"
    assert not any(".h.3." in found for found in made)
    for place, layer in enumerate((1, 1, 3)):
        assert np.array_equal(made[name.format(place)], source[name.format(layer)])


def test_a_recipe_is_its_statements_one_after_the_other(tmp_path):
    wider, deeper = "widen ffn to 500 with random fill", "stack layers to 6 by each"
    grown(wider, TINY, tmp_path / "wide.onnx")
    apart = grown(deeper, tmp_path / "wide.onnx", tmp_path / "apart.onnx")
    at_once = grown(f"{wider}\n{deeper}", TINY, tmp_path / "once.onnx")
    assert apart.keys() == at_once.keys()
    assert all(np.array_equal(value, at_once[name]) for name, value in apart.items())


def test_copies_that_are_widened_as_layers_of_their_own_differ(tmp_path):
    recipe = "stack layers to 5 by last\nwiden ffn to 500 with random fill"
    made, name = grown(recipe, TINY, tmp_path / "deep.onnx"), "transformer.h.{}.mlp.c_fc.weight"
    last, copy = (made[name.format(layer)] for layer in (3, 4))
    assert np.array_equal(last[:, :384], copy[:, :384])
    assert not np.array_equal(last[:, 384:], copy[:, 384:])


def test_a_scope_means_layers_as_they_were_before_its_statement(tmp_path):
    recipe = """
        in layers 0 { widen ffn to 400 with tail copy }
        stack layers to 8 by each
        in layers 7 { widen ffn to 500 with tail copy }
    """
    made = grown(recipe, TINY, tmp_path / "deep.onnx")
    sizes = [made[f"transformer.h.{layer}.mlp.c_fc.weight"].shape[1] for layer in range(8)]
    assert sizes == [400, 400, 384, 384, 384, 384, 384, 500]


def test_sizes_of_axes_and_numbers_of_layers_mean_the_model_before_a_statement(tmp_path):
    recipe = "let n = layers\nstack layers to hidden / 16 by last\nstack layers to layers + n by last"
    plan = api.plan(recipe, TINY)
    assert plan.axes["layers"].after == (10,)
    api.apply(f"{recipe}\nexpect layers == 10\nexpect ffn == 384", TINY, tmp_path / "x.onnx", check=False)


def test_an_axis_of_all_layers_is_in_no_scope_of_some():
    with pytest.raises(GrowError, match="reaches out"):
        api.plan(
            'in layers 0..2 { widen axis 0 of "transformer.h.0.ln_1.weight" to 128 with tail copy }', TINY
        )


def test_parameters_are_counted_before_and_after():
    before, after = api.plan("stack layers to 8 by whole", TINY).parameters
    [(layers, _)] = [api.plan("drop layers 0..3", TINY).parameters]
    assert before == layers
    assert after - before == 4 * (before - api.plan("drop layers 3", TINY).parameters[1])


def test_layers_that_leave_their_period_are_warned_of():
    run = Run((), kinds=(0, 1, 0, 1), period=2)
    moved = [
        RunHistory.of(4).after(Move(1, order), (), (), ()) for order in ((0, 1, 2, 3, 2, 3), (0, 1, 2, 3, 3))
    ]
    assert [list(out_of_phase(run, past)) for past in moved] == [
        [],
        ["layers of several kinds have another period: A B A B B, in the source A B A B"],
    ]


def test_a_range_of_layers_may_be_counted_in_layers(tmp_path):
    recipe = """
        let half = layers / 2
        stack layers to 8 by each
        in layers half..layers - 1 { widen ffn to 400 with tail copy }
    """
    made = grown(recipe, TINY, tmp_path / "deep.onnx")
    sizes = [made[f"transformer.h.{layer}.mlp.c_fc.weight"].shape[1] for layer in range(8)]
    assert sizes == [384, 384, 400, 400, 400, 400, 400, 384]
    with pytest.raises(GrowError, match="does not know `hidden` in a range"):
        api.plan("in layers hidden / 48.. { widen ffn to 400 with tail copy }", TINY)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("drop layers layers - 6", ["`layers - 6` comes to -2: that is layer 2, counted from the end"]),
        ("let k = 1\ndrop layers k - 3..4", ["`1 - 3` comes to -2: that is layer 2, counted from the end"]),
        ("arrange layers as 0..2 - 3, 3", ["`2 - 3` comes to -1: that is layer 3, counted from the end"]),
        (
            "in layers 1 - layers { widen ffn to 400 with tail copy split random }",
            ["`1 - layers` comes to -3: that is layer 1, counted from the end"],
        ),
        ("drop layers -2..-1", []),
        ("drop layers -1", []),
        ("drop layers layers - 2..", []),
        ("in layers 3 - 1 { widen ffn to 400 with tail copy split random }", []),
        ("in layers -2..layers - 1 { widen ffn to 400 with tail copy split random }", []),
    ],
)
def test_a_difference_that_counts_layers_from_the_end_is_told(recipe, said):
    assert list(api.plan(recipe, TINY).warnings) == said


@pytest.mark.parametrize("text", ["in layers 0-2 { widen ffn to 400 with tail copy }", "drop layers 0 - 2"])
def test_a_difference_in_the_place_of_a_range_is_an_error_with_the_range_as_its_help(text):
    with pytest.raises(GrowError) as caught:
        api.recipe(text)
    assert [d.code for d in caught.value.diagnostics] == ["G206"]
    assert "write `0..2` for layers 0 to 1" in caught.value.diagnostics[0].help


@pytest.mark.parametrize("name", ["gpt", "t5", "llama"])
@pytest.mark.parametrize("recipe", ["stack layers to 2 * layers by each", "reorder ffn by magnitude"])
def test_a_plan_that_changes_no_size_needs_no_repair(name, recipe):
    c = api.compile(api.recipe(recipe), TINY.with_name(f"tiny-{name}.onnx"))
    repaired = c.model.repair(c.axes, c.sampled, c.lowered.sizes.of, c.lowered.taken)
    assert not resizes(c)
    assert not repaired.patches
    assert not repaired.constants
    assert c.repairs.sizes == repaired.sizes
