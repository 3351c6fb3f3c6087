"""Checkpoints of classes for which growc finds no inputs: they are captured on those of a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import growc
from growc.cli.main import main
from growc.errors.diagnostic import GrowError
from growc.files.commit import RECORD

RECIPE = "widen channels to 2 * channels with neighbor copy\nexpect exact"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A codec of sound that takes one channel, which its config says in no usual field."""
    config = transformers.VibeVoiceAcousticTokenizerConfig(
        vae_std=0.0,
        num_filters=4,
        downsampling_ratios=[2, 4],
        depths=[1, 1, 1],
        hidden_size=16,
        layer_scale_init_value=0.5,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("given") / "codec"
    transformers.VibeVoiceAcousticTokenizerModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def inputs(source: Path) -> Path:
    """The file of inputs, beside the checkpoint."""
    sound = np.random.default_rng(0).standard_normal((2, 1, 64)).astype(np.float32)
    file = source.with_name("inputs.npz")
    np.savez(file, input_values=sound)
    return file


def test_a_refusal_for_lack_of_inputs_says_where_they_are_given(source: Path) -> None:
    with pytest.raises(GrowError) as caught:
        growc.plan(RECIPE, source)
    assert caught.value.diagnostics[0].code == "G317"
    assert "--inputs" in (caught.value.diagnostics[0].help or "")


def test_a_checkpoint_grows_on_given_inputs_and_is_verified_again(
    source: Path, inputs: Path, tmp_path: Path
) -> None:
    done = growc.apply(RECIPE, source, tmp_path / "grown", inputs=inputs)
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    record = json.loads((tmp_path / "grown" / RECORD).read_text())
    assert "ports" in record  # the recipe alone does not say them again
    assert growc.verify(source, done.written, inputs=inputs).relative < 1e-5


def test_plan_and_inspect_take_the_same_file(
    source: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(source), "--inputs", str(inputs)]) == 0
    assert main(["plan", "-e", RECIPE, str(source), "--inputs", str(inputs)]) == 0
    said = capsys.readouterr().out
    assert "channels" in said
    assert "exact" in said


def test_inputs_of_a_plan_are_for_checkpoints(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(inputs), "--inputs", str(inputs)]) == 2
    assert "checkpoint directory" in capsys.readouterr().err
