"""GPT-2 small and BERT-base grow exactly where that is possible, and honestly where it is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from models import FLAVOURS

INSIDE = "widen heads to 16 with uniform copy\nwiden ffn to 4096 with uniform copy"
DOUBLE = "widen hidden to 1536 with cyclic copy"
AVERAGE = "widen hidden to 1024 with average fill"
ALL = "\n".join(f"{line} split random noise 0.05 balanced" for line in f"{INSIDE}\n{AVERAGE}".splitlines())
GROWTHS = {
    "heads 16, ffn 4096": INSIDE,
    "hidden 1536 cyclic": DOUBLE,
    "hidden 1024 average": AVERAGE,
    "all three, noise": ALL,
}
LIMIT = 2e-5


def assert_exact(done, limit=LIMIT):
    assert done.status == 0, done.said or done.report
    assert done.report["certificate"] == {"exact": True, "gaps": []}
    verification = done.report["verification"]
    assert verification["relative"] <= min(limit, max(20 * verification["rounding"], 1e-6))
    assert verification["cases"] >= 2


def tables(path: Path) -> tuple[int, int]:
    """How many matrices over the vocabulary are stored, and how many pairs of them are transposes."""
    found = []
    for value in ir.load(path).graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and len(tensor.shape) == 2 and max(tensor.shape) > 30000:
            found.append(tensor)
    return len(found), sum(_turned(a, b) for i, a in enumerate(found) for b in found[:i])


def _turned(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    return tuple(a.shape) == tuple(b.shape)[::-1] and np.array_equal(a.numpy(), b.numpy().T)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("name", GROWTHS)
@pytest.mark.parametrize("model", ["gpt2", "gpt2-default"])
def test_gpt2_grows_exactly_and_its_head_stays_tied(real_model, grow, folder, model, name, flavour):
    source = real_model(model, flavour)
    assert_exact(grow(source, name, GROWTHS[name]))
    stored, pairs = tables(folder / "grown.onnx")
    assert (stored, pairs) == tables(source)
    assert stored - pairs == 1


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_gpt2_with_unequal_copies_names_25_norms_and_expectations_write_nothing(
    real_model, grow, folder, flavour
):
    recipe = "widen hidden to 1024 with neighbor copy"
    done = grow(real_model("gpt2", flavour), "hidden 1024 neighbor", recipe)
    assert done.status == 0
    certificate = done.report["certificate"]
    assert not certificate["exact"]
    assert len({gap["node"] for gap in certificate["gaps"] if "LayerNorm" in gap["cause"]}) == 25
    assert done.report["verification"]["relative"] > 1e-3
    for path in folder.iterdir():
        path.unlink()
    refused = grow(
        real_model("gpt2", flavour), "expect within 1e-5", f"{recipe}\nexpect preserved within 1e-5"
    )
    assert refused.status == 1
    assert refused.report["error"]["code"] == "G401"
    assert "average fill" in refused.report["error"]["help"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("hidden 1536 cyclic", DOUBLE),
        ("heads 15, ffn 4000", "widen heads to 15 with neighbor copy\nwiden ffn to 4000 with tail copy"),
    ],
)
@pytest.mark.parametrize("model", ["bert", "bert-bare"])
def test_bert_grows_exactly(real_model, grow, model, name, recipe, flavour):
    assert_exact(grow(real_model(model, flavour), name, recipe))


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("model", ["bert", "bert-bare"])
def test_bert_with_average_fill_is_not_exact_because_norms_make_the_stream(real_model, grow, model, flavour):
    done = grow(real_model(model, flavour), "hidden 1024 average", AVERAGE)
    assert done.status == 0
    certificate = done.report["certificate"]
    assert not certificate["exact"]
    assert any("post-norm" in gap["cause"] for gap in certificate["gaps"])
    assert done.report["verification"]["relative"] > 1e-3
