"""`nest`: the same model with its units sorted on several axes, whose prefixes are smaller models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import ROOT, STREAM, save
from models import stored

import growc
from growc import api
from growc.cli.main import main
from growc.dialects.onnx.emit import rewrite
from growc.dialects.onnx.files.save import save as save_model
from growc.errors.diagnostic import GrowError
from growc.passes.finish.interface import ports_of
from growc.verification.verify import verify

NEST = 'measure importance on "data.npz"\nnest hidden, ffn by importance at 1/2, 1/4\nexpect exact\n'
TOKENS = np.random.default_rng(0).integers(0, 16, 40)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    np.savez(tmp_path / "data.npz", tokens=TOKENS)
    (tmp_path / "nest.grow").write_text(NEST)
    return save(tmp_path / "m.onnx", STREAM)


@pytest.fixture
def nested(source: Path, tmp_path: Path) -> Path:
    return growc.apply(tmp_path / "nest.grow", source, tmp_path / "nested.onnx").written


def refused(model: Path, of: str) -> str:
    with pytest.raises(GrowError) as caught:
        growc.prefix(model, of)
    [problem] = caught.value.diagnostics
    assert problem.code == "G200"
    return f"{problem.message}; {problem.help}"


def sorted_by_hand(weights: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The units of hidden and ffn, the most important first, by the formulas of weight subcloning."""
    stream = weights["table"][TOKENS].astype(np.float64)
    centred = stream - stream.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    normal = normal * weights["norm1_weight"] + weights["norm1_bias"]
    inner = np.maximum(normal @ weights["up_weight"] + weights["up_bias"], 0)
    branch = inner @ weights["down_weight"] + weights["down_bias"]
    hidden = sum(np.abs(x).mean(0) for x in (stream, branch, stream + branch))
    return np.argsort(-hidden, kind="stable"), np.argsort(-np.abs(inner).mean(0), kind="stable")


def cut_by_hand(weights: dict[str, np.ndarray], hidden: np.ndarray, ffn: np.ndarray) -> dict[str, np.ndarray]:
    along = {
        "table": (None, hidden),
        "up_weight": (hidden, ffn),
        "up_bias": (ffn,),
        "down_weight": (ffn, hidden),
    }
    found = {}
    for name, values in weights.items():
        for axis, units in enumerate(along.get(name, (hidden,))):
            values = values if units is None else np.take(values, units, axis)
        found[name] = values
    return found


def test_a_nested_model_is_its_source_and_its_prefixes_have_the_most_important_units(
    source, nested, tmp_path
):
    weights = stored(source)
    hidden, ffn = sorted_by_hand(weights)
    for name, values in cut_by_hand(weights, hidden, ffn).items():
        assert (stored(nested)[name] == values).all(), name
    half = growc.apply(growc.prefix(nested, "1/2"), nested, tmp_path / "half.onnx").written
    for name, values in cut_by_hand(weights, hidden[:4], ffn[:6]).items():
        assert (stored(half)[name] == values).all(), name


def test_a_prefix_computes_what_subcloning_by_the_ranking_gives(source, nested, tmp_path):
    half = growc.apply(growc.prefix(nested, " 2 / 4"), nested, tmp_path / "half.onnx").written
    recipe = tmp_path / "subclone.grow"
    cuts = "\n".join(f"subclone {axis} to {axis} / 2 by importance unscaled" for axis in ("hidden", "ffn"))
    recipe.write_text(f'measure importance on "data.npz"\n{cuts}\n')
    other = growc.apply(recipe, source, tmp_path / "subcloned.onnx").written
    assert growc.verify(other, half).relative < 1e-6


def test_the_record_has_the_sizes_of_the_prefixes(nested, tmp_path):
    record = json.loads((tmp_path / "nested.grown.json").read_text())
    assert record["nested"] == {"1/4": {"hidden": [2], "ffn": [3]}, "1/2": {"hidden": [4], "ffn": [6]}}
    assert record["certificate"]["exact"]
    assert record["recipe"][1] == "nest hidden, ffn by importance at 1/2, 1/4"


def test_sizes_of_some_axes_cut_these(nested, tmp_path):
    recipe = growc.prefix(nested, "ffn=5")
    assert str(recipe) == "subclone ffn to 5 by first unscaled\n"
    cut = growc.apply(recipe, nested, tmp_path / "cut.onnx").written
    assert (stored(cut)["up_weight"] == stored(nested)["up_weight"][:, :5]).all()


def test_the_command_cuts_a_prefix_out(nested, tmp_path, capsys):
    out = tmp_path / "half.onnx"
    assert main(["apply", "--prefix", "1/2", str(nested), "-o", str(out)]) == 0
    assert "ffn      12 -> 6" in capsys.readouterr().out
    record = json.loads((tmp_path / "half.grown.json").read_text())
    cuts = [f"subclone {axis} to {axis} / 2 by first unscaled" for axis in ("hidden", "ffn")]
    assert [" ".join(line.split()) for line in record["recipe"]] == cuts
    assert main(["apply", "--prefix", "1/2", "r.grow", str(nested)]) == 2
    assert "`--prefix` stands in the place of RECIPE" in capsys.readouterr().err
    assert main(["apply", "--prefix", "1/2", "-e", "untie head", str(nested)]) == 2


def test_a_wrong_prefix_is_refused(source, nested, tmp_path):
    assert "has no record of a `nest`" in refused(source, "1/2")
    assert "its shares are `1/2`, `1/4`" in refused(nested, "1/3")
    assert "its shares" in refused(nested, "1/0")
    assert "did not sort `vocab`; it sorted `hidden`, `ffn`" in refused(nested, "vocab=3")
    assert "is no prefix" in refused(nested, "half")
    assert "one size" in refused(nested, "ffn=3,ffn=4")
    with pytest.raises(GrowError, match="larger"):
        growc.plan(growc.prefix(nested, "ffn=13"), nested)


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("widen vocab to 20 with zero fill", True),
        ("widen ffn to 16 with tail copy", False),
        ("reorder ffn by random", False),
        ('widen axis 0 of "up_bias" to 16 with tail copy', False),
    ],
)
def test_a_later_change_of_a_sorted_axis_ends_the_nest(nested, tmp_path, statement, kept):
    later = growc.apply(statement, nested, tmp_path / "later.onnx").written
    if kept:
        assert len(growc.prefix(later, "1/2").body) == 2
    else:
        assert "was changed behind it" in refused(later, "1/2")


@pytest.mark.parametrize(
    ("first", "then", "left"),
    [
        ("in layers 1..3 { nest ffn by magnitude at 1/2 }", "drop layers 0", 0),
        ("in layers 1..3 { nest ffn by magnitude at 1/2 }", "stack layers to 5 by each", 0),
        ("nest ffn by magnitude at 1/2", "drop layers 0", 1),
        ("nest ffn by magnitude at 1/2", "merge layers 0..2 by mean", 0),
        ("nest ffn by magnitude at 1/2", "nest ffn by random seed 3 at 1/4", 0),
        ("nest ffn by magnitude at 1/2", "nest hidden by random seed 3 at 1/4", 1),
        ("in layers 0 { nest ffn by magnitude at 1/2 }", "in layers 1 { nest ffn by magnitude at 1/2 }", 2),
        ("in layers 0..2 { nest ffn by first at 1/2 }", "in layers 1..3 { nest ffn by random at 1/4 }", 0),
    ],
)
def test_layers_that_move_and_a_second_nest_end_the_first(tmp_path, first, then, left):
    model = ROOT / "examples/models/tiny-gpt.onnx"
    nested = growc.apply(f"{first}\n{then}", model, tmp_path / "nested.onnx", check=False).written
    if left:
        assert len(growc.prefix(nested, "1/2").body) == left
    else:
        with pytest.raises(GrowError):
            growc.prefix(nested, "1/2")


def test_scopes_are_those_of_the_nest(tmp_path):
    layers = save(tmp_path / "m.onnx", STREAM)
    recipe = "in layers 0 { nest ffn by magnitude at 1/3 }"
    nested = growc.apply(recipe, layers, tmp_path / "nested.onnx").written
    assert (
        str(growc.prefix(nested, "1/3"))
        == "in layers 0 {\n    subclone ffn to ffn / 3 by first unscaled\n}\n"
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("nest ffn, ffn by magnitude", "G204"),
        ("nest ffn by magnitude at 2/2", "G206"),
        ("nest ffn by magnitude at 1/0", "G206"),
        ("nest vocab by magnitude", "G210"),
        ("nest hidden, ffn by importance", "G214"),
        ("nest ffn, layers by magnitude", "G210"),
        ("language 1\nnest ffn by magnitude", "G209"),
        ("nest ffn by mean", "G210"),
    ],
)
def test_a_nest_without_sense_is_refused_without_a_model(text, code):
    with pytest.raises(GrowError) as caught:
        api.recipe(text)
    assert {problem.code for problem in caught.value.diagnostics} == {code}


@pytest.mark.parametrize(("text", "code"), [("at 1/5", "G312"), ("at 1/2, 5/8", "G312")])
def test_a_share_that_is_not_whole_is_refused_with_its_size(source, text, code):
    with pytest.raises(GrowError, match="is not whole") as caught:
        growc.plan(f"nest hidden, ffn by magnitude {text}", source)
    assert caught.value.diagnostics[0].code == code


def test_an_order_that_one_reader_misses_is_seen(source, tmp_path):
    """A planted fault: one weight keeps the old order of its units."""
    c = api.compile(api.recipe(tmp_path / "nest.grow"), source)
    for number, weight in enumerate(c.assembled.weights):
        if not any(size > 1 for size in weight.after) or not weight.steps:
            continue
        weights = [*c.assembled.weights]
        weights[number] = replace(weight, steps=weight.steps[1:])
        spoilt, _ = rewrite(c.graph, replace(c.assembled, weights=weights), c.repairs, c.attributes)
        files = save_model(spoilt.source, tmp_path, "spoilt.onnx", False, lambda name, count: None)
        assert verify(source, files[-1], output_maps=ports_of(c).output_maps()).refutes_exact(), weight.name
