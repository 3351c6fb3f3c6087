"""Depth in one part of a model leaves the other as it is."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import ROOT
from test_depth import grown, weights

from growc import api
from growc.errors.diagnostic import GrowError

T5 = ROOT / "examples/models/tiny-t5.onnx"


def test_layers_of_the_decoder_leave_the_encoder_untouched(tmp_path):
    recipe = "in decoder { stack layers to layers + 1 by last with zero outputs }"
    done = api.apply(recipe, T5, tmp_path / "deep.onnx")
    assert done.plan.certificate.exact
    assert done.verification.relative == 0
    source, made = weights(T5), weights(tmp_path / "deep.onnx")
    assert all(np.array_equal(value, made[name]) for name, value in source.items())
    new = made.keys() - source.keys()
    assert any(name.startswith("decoder.block.2.") for name in new)
    assert not any(name.startswith("encoder.") for name in new)


def test_without_a_scope_a_statement_is_for_all_runs(tmp_path):
    made = grown("stack layers to layers + 1 by last with zero outputs", T5, tmp_path / "deep.onnx")
    parts = {name.split(".")[0] for name in made if name not in weights(T5)}
    assert {"encoder", "decoder"} <= parts


def test_a_scope_that_the_model_lacks_is_named():
    with pytest.raises(GrowError, match="no `layers` lie in"):
        api.plan('in "vision*" { drop layers 0 }', T5)


def test_a_head_is_untied_in_the_scope_that_it_lies_in(tmp_path):
    done = api.apply("in decoder { untie head }", T5, tmp_path / "untied.onnx")
    assert done.plan.certificate.exact
    before, after = done.plan.parameters
    assert after == before + weights(T5)["lm_head.weight"].size
    with pytest.raises(GrowError, match="no head that is tied"):
        api.plan('in "encoder.block*" { untie head }', T5)
