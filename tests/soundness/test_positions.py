"""`widen positions`: learned tables take the fill, computed tables go on by their rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from streams import VOCAB, WIDTH, Builder

from growc.algebra.sinusoid import continued_rows, is_sinusoid
from growc.api import apply

LENGTH = 12


def sines(length: int) -> np.ndarray:
    """The table of "Attention is all you need", section 3.5. Shape (length, WIDTH)."""
    angles = np.arange(length)[:, None] * 100.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(length, WIDTH).astype(np.float32)


def model(path: Path, table: np.ndarray, ids: bool) -> Path:
    """tokens + table[:seq]; with `ids` through a stored list of numbers that is cut first."""
    b = Builder()
    tokens = b.node("Gather", [b.weight("embedding", VOCAB, WIDTH), "ids"])
    b.constant("table", table)
    zero, one = (b.constant(n, np.array([k], dtype=np.int64)) for n, k in (("zero", 0), ("one", 1)))
    length = b.node(
        "Slice", [b.node("Shape", ["ids"]), one, b.constant("two", np.array([2], dtype=np.int64))]
    )
    if ids:
        numbers = b.constant("numbers", np.arange(LENGTH, dtype=np.int64)[None])
        rows = b.node("Gather", ["table", b.node("Slice", [numbers, zero, length, one])])
    else:
        rows = b.node("Slice", ["table", zero, length, zero])
    x = b.block(b.node("Add", [tokens, rows]), "first")
    return b.save(path, b.node("MatMul", [x, b.weight("head", WIDTH, VOCAB)]))


def weights(path: Path) -> dict[str, np.ndarray]:
    return {w.name: numpy_helper.to_array(w) for w in onnx.load(path).graph.initializer}


def test_a_learned_table_takes_the_fill(tmp_path: Path) -> None:
    table = np.random.default_rng(1).standard_normal((LENGTH, WIDTH)).astype(np.float32)
    source = model(tmp_path / "model.onnx", table, ids=False)
    done = apply("widen positions to 20 with cyclic copy", source, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    np.testing.assert_array_equal(weights(done.written)["table"], table[np.arange(20) % LENGTH])


def test_a_table_of_sines_goes_on_whatever_the_fill(tmp_path: Path) -> None:
    source = model(tmp_path / "model.onnx", sines(LENGTH), ids=False)
    done = apply("widen positions to 40 with zero fill", source, tmp_path / "grown.onnx")
    np.testing.assert_allclose(weights(done.written)["table"], sines(40), atol=1e-5)
    again = apply("widen hidden to 16 with cyclic copy", done.written, tmp_path / "wide.onnx")
    assert again.plan.certificate.exact


def test_a_stored_list_of_positions_goes_on_counting(tmp_path: Path) -> None:
    table = np.random.default_rng(1).standard_normal((LENGTH, WIDTH)).astype(np.float32)
    source = model(tmp_path / "model.onnx", table, ids=True)
    done = apply("widen positions to 20 with neighbor copy", source, tmp_path / "grown.onnx")
    np.testing.assert_array_equal(weights(done.written)["numbers"], np.arange(20)[None])
    np.testing.assert_array_equal(weights(done.written)["table"][:LENGTH], table)
    session = onnxruntime.InferenceSession(str(done.written))
    assert session.run(None, {"ids": np.ones((1, 20), dtype=np.int64)})[0].shape == (1, 20, VOCAB)


def test_a_trained_table_is_no_table_of_sines() -> None:
    random = np.random.default_rng(0)
    assert not is_sinusoid(random.standard_normal((64, 16)))
    assert not is_sinusoid(np.zeros((64, 16)))
    assert not is_sinusoid(sines(64) + 0.01 * random.standard_normal((64, WIDTH)))
    assert is_sinusoid(sines(64))


def test_sines_are_continued_to_float32_precision() -> None:
    np.testing.assert_allclose(continued_rows(sines(256), 512), sines(512)[256:], atol=1e-5)
