"""Stored shares of each token of a batch: rows are no heads, though a weight has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save

from growc import api

MASKED = """
m (float[2, 5, 12] x) => (float[2, 5, 12] y)
<float[12, 12] wq, float[12, 12] wk, float[12, 12] wv, float[12, 12] wo, float[2, 1, 5, 5] mask,
 int64[4] apart = {2, 5, 4, 3}, int64[3] whole = {2, 5, 12},
 int64[3] flat = {-1, 5, 3}, int64[4] again = {2, 4, 3, 5},
 int64[2] each = {10, 12}, float[10, 1] shares, int64[1] wide = {12}>
{
  q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)
  qs = Reshape(q, apart)  ks = Reshape(k, apart)  vs = Reshape(v, apart)
  qt = Transpose<perm = [0, 2, 1, 3]>(qs)
  kh = Transpose<perm = [0, 2, 1, 3]>(ks)
  kf = Reshape(kh, flat)
  kx = Transpose<perm = [0, 2, 1]>(kf)
  kt = Reshape(kx, again)
  vt = Transpose<perm = [0, 2, 1, 3]>(vs)
  s = MatMul(qt, kt)
  m = Add(s, mask)
  p = Softmax<axis = -1>(m)
  c = MatMul(p, vt)
  ct = Transpose<perm = [0, 2, 1, 3]>(c)
  j = Reshape(ct, whole)
  o = MatMul(j, wo)
  a = Add(x, o)
  tokens = Reshape(a, each)
  turned = Transpose<perm = [1, 0]>(tokens)
  mean = MatMul(turned, shares)
  line = Reshape(mean, wide)
  y = Add(a, line)
}
"""


@pytest.mark.parametrize("fill", ["neighbor copy", "average fill", "tail copy"])
def test_heads_grow_beside_weights_for_each_row(fill: str, tmp_path: Path) -> None:
    source = save(tmp_path / "source.onnx", MASKED, opset=18)
    done = api.apply(f"widen heads to 8 with {fill}\nexpect exact", source, tmp_path / "wide.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
