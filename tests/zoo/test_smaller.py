"""A halved model is what its torch module is with a configuration of half the size, weight by weight."""

from __future__ import annotations

import numpy as np
import pytest
from registry import _name_arguments, build
from smaller import load_into, smaller
from zoo import ZOO

import growc
from growc.verification.ort_session import Session

HALVED = """
subclone hidden to hidden / 2 by magnitude
subclone heads to heads / 2 by magnitude
subclone ffn to ffn / 2 by magnitude
"""

MODELS = ("gpt2", "bert", "llama_gqa", "opt", "gpt_neox", "qwen2", "mistral", "phi", "vit")
"""Models of which a configuration says everything: no constant of theirs follows from a size."""


@pytest.mark.parametrize(
    "name", [MODELS[0], *(pytest.param(name, marks=pytest.mark.soak) for name in MODELS[1:])]
)
def test_a_halved_model_is_the_module_of_the_smaller_configuration(files, tmp_path, name):
    source = files(name)
    built = build(name)
    made = growc.apply(HALVED, source, tmp_path / "half.onnx", check=False).written
    module = smaller(built)
    assert load_into(module, made, source, built.module) == []
    module.tie_weights()
    feed = built.feeds[0]
    _name_arguments(module, ZOO[name], list(feed))
    with np.load(source.with_name(f"{name}.inputs.npz")) as given, Session(made) as session:
        found = session.run({key.removeprefix("in0."): given[key] for key in given if key.startswith("in0.")})
    wanted = module(*feed.values())
    for a, b in zip(wanted if isinstance(wanted, tuple) else (wanted,), found.values(), strict=True):
        assert np.abs(a.numpy() - b).max() <= 2e-5 * np.abs(a.numpy()).max()
