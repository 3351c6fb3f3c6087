"""Of a trained model, units chosen by importance do better right after surgery than units drawn at random."""

from __future__ import annotations

import shutil

import numpy as np
import onnxruntime
from published import example
from sklearn.datasets import load_digits

import growc


def told_apart(path):
    """Of every fifth image, which the model has not seen in training."""
    digits = load_digits()
    held_out = np.arange(len(digits.target)) % 5 == 4
    images = (digits.images[held_out, None] / 16).astype(np.float32)
    (logits,) = onnxruntime.InferenceSession(path).run(None, {"pixel_values": images})
    return (logits.argmax(-1) == digits.target[held_out]).mean()


def test_importance_keeps_more_of_a_vit_than_chance(tmp_path):
    of = example("subcloning-vit")
    model = shutil.copy(of.model, tmp_path)
    shutil.copy(of.folder / "digits.npz", tmp_path)
    text = of.recipe.read_text(encoding="utf-8")
    found = {}
    for ranking in ("importance", "random seed 1", "random seed 2"):
        recipe = tmp_path / "r.grow"
        recipe.write_text(text.replace("by importance", f"by {ranking}"), encoding="utf-8")
        out = growc.apply(recipe, model, tmp_path / "out.onnx", check=False, force=True).written
        found[ranking] = told_apart(out)
    assert told_apart(model) > 0.95
    assert found.pop("importance") > max(found.values()) + 0.02
