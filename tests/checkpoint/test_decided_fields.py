"""Fields of a class's config that the caller decides: the rest is found, and the program is compared."""

from __future__ import annotations

import json

import pytest
from checkpoints import tiny_config

import growc
from growc import api
from growc.cli.main import main
from growc.dialects.transformers.config.fields import path_of, spelled
from growc.errors.diagnostic import GrowError

FFN = "widen ffn to 160 with zero fill"


@pytest.fixture
def gpt2(save):
    return save("GPT2LMHeadModel", tiny_config("GPT2"))


def test_a_field_that_is_decided_has_its_value_and_the_record_says_it(gpt2, tmp_path):
    out = tmp_path / "out"
    words = ["apply", "-e", FFN, str(gpt2), "-o", str(out), "--json", "--config", "n_inner=160"]
    assert main(words) == 0
    assert json.loads((out / "config.json").read_text())["n_inner"] == 160
    record = next(path for path in tmp_path.rglob("*.json") if '"n_inner": 160' in path.read_text())
    assert record is not None
    assert api.verify(gpt2, out).relative < 1e-5


@pytest.mark.parametrize("config", [{"n_inner": 64}, {"n_embd": 64}, {"n_head": 8}, {"n_layer": 3}], ids=str)
def test_a_wrong_value_is_refused_and_never_written(gpt2, config):
    with pytest.raises(GrowError) as caught:
        growc.plan(FFN, gpt2, config=config)
    assert caught.value.diagnostics[0].code in ("G318", "G319")


def test_a_refusal_says_which_value_the_plan_asks_for(gpt2):
    with pytest.raises(GrowError) as caught:
        growc.plan(FFN, gpt2, config={"n_head": 8})
    assert "the plan asks for `n_head` = 4, and 8 is decided" in caught.value.diagnostics[0].notes


def test_a_field_that_is_none_is_named_with_the_nearest(gpt2):
    with pytest.raises(GrowError, match="no field `n_iner`") as caught:
        growc.plan(FFN, gpt2, config={"n_iner": 96})
    assert "n_inner" in caught.value.diagnostics[0].help


def test_a_file_without_a_config_decides_nothing(tmp_path):
    from graphs import STREAM, save

    path = tmp_path / "m.onnx"
    save(path, STREAM)
    with pytest.raises(GrowError, match="`config` is for classes"):
        growc.plan("widen hidden to 12 with average fill", path, config={"n_inner": 160})


@pytest.mark.parametrize("spelling", ["n_inner", "text_config.depths[0]", "a.b.c[2]"])
def test_a_path_is_read_as_it_is_spelled(spelling):
    assert spelled(path_of(spelling)) == spelling


@pytest.mark.parametrize("spelling", ["", ".a", "a..b", "a[x]", "a."])
def test_a_wrong_path_is_refused(spelling):
    with pytest.raises(ValueError, match="no path"):
        path_of(spelling)
