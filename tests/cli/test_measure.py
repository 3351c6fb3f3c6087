"""`growc measure` at the command line."""

from __future__ import annotations

import io
import re
import sys
import time

import numpy as np
import pytest

from growc.render.progress import progress
from growc.verification.ort_session import Session


@pytest.fixture
def inputs(tmp_path):
    np.savez(tmp_path / "data.npz", tokens=np.random.default_rng(0).integers(0, 16, 20))
    return "data.npz"


def test_scores_are_printed_and_kept(growc, inputs, tmp_path):
    done = growc("measure", "stream.onnx", "--inputs", inputs, "-o", "scores.npz")
    assert done.status == 0
    assert "ffn.0" in done.out
    assert "12 units" in done.out
    assert (tmp_path / "scores.npz").exists()
    assert not (tmp_path / "stream.importance.npz").exists()


def test_scores_as_json_have_a_number_for_each_unit(growc, inputs):
    found = growc("measure", "stream.onnx", "--inputs", inputs, "--samples", "5", "--json").json
    assert len(found["scores"]["ffn.0"]) == 12
    assert len(found["scores"]["hidden.0"]) == 8


def test_scores_of_other_inputs_are_replaced_by_force_only(growc, inputs, tmp_path):
    assert growc("measure", "stream.onnx", "--inputs", inputs, "-o", "scores.npz").status == 0
    other = ("measure", "stream.onnx", "--inputs", inputs, "--samples", "3", "-o", "scores.npz")
    refused = growc(*other)
    assert refused.status == 4
    assert "other inputs" in refused.err
    assert growc(*other, "--force").status == 0


def test_a_number_of_samples_is_at_least_one(growc, inputs):
    assert growc("measure", "stream.onnx", "--inputs", inputs, "--samples", "0").status == 2


def test_how_fast_it_went_is_said_and_kept_scores_say_that_they_are(growc, inputs):
    first, again = (growc("measure", "stream.onnx", "--inputs", inputs).out for _ in range(2))
    assert re.search(r"Measured: 20 samples in [\d.]+ s, [\d.e+]+ a second\.", first)
    assert "Nothing was run" in again


class Screen(io.StringIO):
    """A terminal, as far as a program asks."""

    def isatty(self):
        return True


def test_a_terminal_is_shown_samples_their_rate_and_the_time_left(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress() as show:
        for done in (0, 32, 64):
            show("measuring samples", done, 128)
            time.sleep(0.25)
    assert re.search(r"measuring samples .* 64/128  [\d.]+/s  \d+ s left", screen.getvalue())


def test_the_cost_of_a_reduction_on_given_inputs_is_in_the_text_and_the_json(growc, inputs):
    smaller = ("apply", "-e", "subclone ffn to 6 by first", "stream.onnx", "--inputs", inputs, "--force")
    shown = growc(*smaller).out
    assert "Calibration: on 20 samples," in shown
    assert "no loss: no output predicts the next token of an input." in shown
    found = growc(*smaller, "--json").json["calibration"]
    assert found["outputs"]["logits"]["places"] == found["samples"] == 20
    assert found["loss"] is None
    bare = growc("apply", "-e", "subclone ffn to 6 by first", "stream.onnx", "--force").out
    assert "no loss before and after was measured: no inputs are given" in bare


def test_layers_are_shown_as_bars_and_stand_in_the_json(growc, inputs):
    shown = growc("measure", "stream.onnx", "--inputs", inputs, "--layers").out
    assert "‖f(x)‖/‖x + f(x)‖" in shown
    assert re.search(r"^    ffn +[\d.]+ +█", shown, re.MULTILINE)
    found = growc("measure", "stream.onnx", "--inputs", inputs, "--layers", "--json").json
    [layer] = found["layers"]
    assert [branch["kind"] for branch in layer["branches"]] == ["ffn"]
    assert layer["doubled"]["outputs"]["logits"]["kl"] > 0
    plain = growc("measure", "stream.onnx", "--inputs", inputs, "--json").json
    assert plain["layers"][0]["ratio"] == layer["ratio"]
    assert "removed" not in plain["layers"][0]


def test_an_interrupted_measurement_says_that_it_goes_on_and_does(growc, inputs, monkeypatch):
    run, calls = Session.run, []

    def interrupted(self, feeds):
        calls.append(feeds)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(self, feeds)

    monkeypatch.setattr(Session, "run", interrupted)
    stopped = growc("measure", "stream.onnx", "--inputs", inputs)
    assert stopped.status == 130
    assert "interrupted: what was measured is kept" in stopped.err
    assert "Measured: 12 samples" in growc("measure", "stream.onnx", "--inputs", inputs).out
