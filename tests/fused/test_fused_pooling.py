"""`subclone kv_heads to N by mean` on files whose attention onnxruntime has fused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from fused.graphs_of_onnxruntime import BERT, GRAPHS
from fused.test_fused_files import operators
from graphs import save
from judging import run
from models import stored

import growc

onnxruntime.set_default_logger_severity(4)

TWINS = "widen heads to 2 * heads with neighbor copy\nsubclone kv_heads to kv_heads / 2 by mean"
"""The mean of a head and its copy is the head."""

MASKED = BERT.replace("int32[N, S] segments)", "int32[N, S] segments, int32[N, S] mask)").replace(
    "(x, qkv, qkv_bias)", "(x, qkv, qkv_bias, mask)"
)
FAR = BERT.replace("int32[N, S] segments)", "int32[N, S] segments, float[1, 1, S, S] far)").replace(
    "num_heads = 2> (x, qkv, qkv_bias)", "num_heads = 2, scale = 0.3> (x, qkv, qkv_bias, , , far)"
)
MODELS = {
    **{name: GRAPHS[name] for name in ("bert", "gpt", "rope", "whisper")},
    "masked": MASKED,
    "lengths": MASKED.replace("[N, S] mask", "[N] mask"),
    "far": FAR,
}


def random(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    made = np.random.default_rng(3)
    return (
        made.integers(0, 2, shape).astype(kind)
        if kind != "float32"
        else made.standard_normal(shape).astype(kind)
    )


INPUTS: dict[str, Callable[[int], np.ndarray]] = {
    "segments": lambda past: random("int32", (2, 5)),
    "places": lambda past: np.arange(past, past + 5)[None].repeat(2, 0),
    "past": lambda past: random("float32", (2, 2, 2, past, 4)),
    "past_k": lambda past: random("float32", (2, 2, past, 16)),
    "past_v": lambda past: random("float32", (2, 2, past, 16)) + 1,
    "sound": lambda past: random("float32", (2, 7, 6)),
    "far": lambda past: random("float32", (1, 1, 5, 5)),
    "mask": lambda past: np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=np.int32),
}


def inputs(model: Path, past: int) -> dict[str, np.ndarray]:
    """The arrays to feed a model."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found = {i.name: INPUTS[i.name](past) for i in session.get_inputs() if i.name != "ids"}
    if any(i.name == "mask" and len(i.shape) == 1 for i in session.get_inputs()):
        found["mask"] = np.array([5, 3], dtype=np.int32)
    kind = next(i.type for i in session.get_inputs() if i.name == "ids")
    return found | {"ids": np.random.default_rng(1).integers(0, 16, (2, 5)).astype(f"int{kind[-3:-1]}")}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("name", MODELS)
def test_the_mean_of_a_head_and_its_copy_is_the_head(tmp_path: Path, name: str, past: int) -> None:
    model = save(tmp_path / "m.onnx", MODELS[name])
    made = growc.apply(TWINS, model, tmp_path / "out.onnx").written
    assert ("com.microsoft", "MultiHeadAttention") in operators(made)
    given = inputs(model, past)
    before, after = run(model, given), run(made, given)
    for output, value in before.items():
        assert after[output].shape == value.shape
        assert np.allclose(after[output], value, atol=1e-4), output


@pytest.mark.parametrize("name", ["bert", "gpt", "rope", "whisper"])
def test_keys_and_values_become_means(tmp_path: Path, name: str) -> None:
    model = save(tmp_path / "m.onnx", MODELS[name])
    made = growc.apply("subclone kv_heads to 1 by mean", model, tmp_path / "out.onnx").written
    before, after = stored(model), stored(made)
    if "qkv" in before:
        q, k, v = np.split(before["qkv"], 3, axis=1)
        mean = [np.concatenate([q, *(w.reshape(8, 2, 4).mean(1) for w in (k, v))], axis=1)]
        assert np.allclose(after["qkv"], mean[0], atol=1e-6)
    else:
        heads = before["wk"].reshape(8, 2, -1)
        assert np.allclose(after["wk"], heads.mean(1), atol=1e-6)
    assert all(np.isfinite(v).all() for v in run(made, inputs(made, 0) | small(made)).values())


def small(model: Path) -> dict[str, np.ndarray]:
    """Caches of one head, which are empty."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    shapes = {"past": (2, 2, 1, 0, 4), "past_k": (2, 1, 0, 16), "past_v": (2, 1, 0, 16)}
    names = {i.name for i in session.get_inputs()}
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items() if name in names}
