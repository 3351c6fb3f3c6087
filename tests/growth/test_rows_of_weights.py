"""Stored shares of each token of a batch: its rows are no heads, though a weight has them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from graphs import save

from growc import api

SHARED = """
m (float[2, 5, 12] x) => (float[2, 5, 12] y)
<float[12, 12] wq, float[12, 12] wk, float[12, 12] wv, float[12, 12] wo, float[10, 1] shares,
 int64[4] apart = {2, 5, 4, 3}, int64[3] whole = {2, 5, 12}, int64[2] each = {10, 12}, int64[1] wide = {12}>
{
  q = MatMul(x, wq)  qs = Reshape(q, apart)  qt = Transpose<perm = [0, 2, 1, 3]>(qs)
  k = MatMul(x, wk)  ks = Reshape(k, apart)  kt = Transpose<perm = [0, 2, 3, 1]>(ks)
  v = MatMul(x, wv)  vs = Reshape(v, apart)  vt = Transpose<perm = [0, 2, 1, 3]>(vs)
  s = MatMul(qt, kt)  p = Softmax<axis = -1>(s)  c = MatMul(p, vt)
  ct = Transpose<perm = [0, 2, 1, 3]>(c)  j = Reshape(ct, whole)  o = MatMul(j, wo)  a = Add(x, o)
  tokens = Reshape(a, each)  turned = Transpose<perm = [1, 0]>(tokens)
  mean = MatMul(turned, shares)  line = Reshape(mean, wide)
  y = Add(a, line)
}
"""


@pytest.mark.parametrize("fill", ["neighbor copy", "average fill", "tail copy"])
def test_heads_grow_beside_weights_for_each_row(fill: str, tmp_path: Path) -> None:
    source = save(tmp_path / "source.onnx", SHARED, opset=18)
    done = api.apply(
        f"widen heads to 2 * heads with {fill}\nexpect exact\nexpect heads == 8",
        source,
        tmp_path / "wide.onnx",
    )
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    sizes = {w.name: tuple(w.dims) for w in onnx.load(tmp_path / "wide.onnx").graph.initializer}
    assert (sizes["wq"], sizes["wo"]) == ((12, 24), (24, 12))
