"""Streams that are scaled where they go around a branch, or normed behind the sum: RMS norms at any width."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save
from judging import judge

from growc import api

RMS = "SimplifiedLayerNormalization <axis = -1, epsilon = 0.01>"
NET = """
net (int64[N] tokens) => (float[N, 16] logits)
<float[16, 8] table, float[8] g0, float[8] g1, float[8] g2, float[8, 12] up0, float[12, 8] down0,
 float[8, 12] up1, float[12, 8] down1, float[8] r0, float[8] r1, float[8, 16] head>
{
    x0 = Gather(table, tokens)
    BLOCK0
    BLOCK1
    n2 = RMS (x2, g2)
    logits = MatMul(n2, head)
}
"""
BRANCH = "u{i} = MatMul(n{i}, up{i}) a{i} = Relu(u{i}) d{i} = MatMul(a{i}, down{i})"
FORMS = {
    "scaled in front": "n{i} = RMS (x{i}, g{i}) BRANCH s{i} = Mul(x{i}, r{i}) x{j} = Add(s{i}, d{i})",
    "scaled behind": "n{i} = RMS (x{i}, g{i}) BRANCH s{i} = Mul(r{i}, x{i}) x{j} = Add(d{i}, s{i})",
    "normed behind the sum": "n{i} = Identity(x{i}) BRANCH y{i} = Add(x{i}, d{i}) x{j} = RMS (y{i}, g{i})",
}


def model(tmp_path: Path, form: str) -> Path:
    block = FORMS[form].replace("BRANCH", BRANCH)
    text = NET.replace("BLOCK0", block.format(i=0, j=1)).replace("BLOCK1", block.format(i=1, j=2))
    return save(tmp_path / "net.onnx", text.replace("RMS", RMS))


@pytest.mark.parametrize("form", FORMS)
def test_the_stream_is_found(tmp_path, form):
    roles = api.inspect(model(tmp_path, form)).roles
    assert (roles.sizes("hidden"), roles.sizes("ffn"), roles.sizes("vocab")) == ([8], [12], [16])


@pytest.mark.parametrize("recipe", ["16 with cyclic copy split random", "13 with uniform copy"])
@pytest.mark.parametrize("form", FORMS)
def test_copies_are_exact_in_any_number(tmp_path, form, recipe):
    judge(f"widen hidden to {recipe}", model(tmp_path, form), tmp_path / "grown.onnx").assert_exact()
