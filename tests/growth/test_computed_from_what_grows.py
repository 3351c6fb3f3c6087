"""A weight that the model computes from a tensor with uses of its own, where that tensor changes alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graphs import save
from judging import judge
from models import stored
from torch import nn

import growc
from growc import api
from growc.plans.plan_to_json import from_json, to_json

HEAD = """
m (int64[N] tokens) => (float[N, 16] logits)
<float[16, 6] wte, float[6, 6] w, float[16, 1] gain>
{{ a = Gather(wte, tokens)
   h = MatMul(a, w)
   {computed}
   t = Transpose<perm = [1, 0]>(u)
   logits = MatMul(h, t) }}
"""
COMPUTED = {
    "by its rows' lengths": "n = ReduceL2<axes = [1], keepdims = 1>(wte) u = Div(wte, n)",
    "by a gain and lengths": "n = ReduceL2<axes = [1], keepdims = 1>(wte) d = Div(wte, n) u = Mul(d, gain)",
    "by LpNormalization": "u = LpNormalization<axis = 1, p = 2>(wte)",
    "element by element": "u = Tanh(wte)",
    "less its mean": "n = ReduceMean<axes = [0], keepdims = 1>(wte) s = Sub(wte, n) u = Relu(s)",
    "as a softmax": "u = Softmax<axis = 1>(wte)",
}


@pytest.mark.parametrize("computed", COMPUTED.values(), ids=COMPUTED)
@pytest.mark.parametrize("fill", ["random fill", "uniform copy"])
def test_rows_of_the_table_grow_and_the_head_stays(tmp_path: Path, computed: str, fill: str) -> None:
    source = save(tmp_path / "m.onnx", HEAD.format(computed=computed))
    out = tmp_path / "o.onnx"
    judge(f'widen axis 0 of "wte" to 23 with {fill}', source, out).assert_exact()
    assert stored(out)["wte"].shape == (23, 6)


@pytest.mark.parametrize("computed", COMPUTED.values(), ids=COMPUTED)
def test_columns_of_the_table_grow_and_the_head_stays(tmp_path: Path, computed: str) -> None:
    source = save(tmp_path / "m.onnx", HEAD.format(computed=computed))
    judge('widen axis 1 of "wte" to 11 with uniform copy', source, tmp_path / "o.onnx").assert_exact()


@pytest.mark.parametrize("computed", COMPUTED.values(), ids=COMPUTED)
def test_both_grow_together_by_their_name(tmp_path: Path, computed: str) -> None:
    source = save(tmp_path / "m.onnx", HEAD.format(computed=computed))
    judge("widen vocab to 23 with random fill", source, tmp_path / "o.onnx").assert_exact()


def test_the_plan_says_that_the_head_is_stored(tmp_path: Path) -> None:
    source = save(tmp_path / "m.onnx", HEAD.format(computed=COMPUTED["by its rows' lengths"]))
    plan = api.plan('widen axis 0 of "wte" to 23 with random fill', source)
    assert any("becomes a stored tensor itself" in w for w in plan.warnings)
    assert from_json(to_json(plan)).weights[2].stored
    assert not any(w.stored for w in api.plan("widen vocab to 23 with random fill", source).weights)


def test_a_head_that_is_computed_from_what_stays_stays_computed(tmp_path: Path) -> None:
    source = save(tmp_path / "m.onnx", HEAD.format(computed=COMPUTED["by its rows' lengths"]))
    out = tmp_path / "o.onnx"
    api.apply('widen axis 0 of "wte" to 16 with random fill', source, out, check=False)
    assert stored(out).keys() <= stored(source).keys()


def test_a_module_with_such_a_head() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.w = nn.Embedding(16, 6), nn.Linear(6, 6)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            head = nn.functional.normalize(self.wte.weight, dim=-1)
            return self.w(self.wte(tokens)) @ head.t()

    torch.manual_seed(0)
    module, tokens = Model(), torch.arange(12).reshape(3, 4)
    made = growc.apply(module, 'widen axis 0 of "wte.weight" to 23 with random fill', (tokens,))
    assert made.plan.certificate.exact
    torch.testing.assert_close(made(tokens), module(tokens))
