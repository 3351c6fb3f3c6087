"""A module is compared with its plan, in training with its source; where that says nothing, this is said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_moved_modules import WIDTH, Plain, Stack
from torch import nn

import growc
from growc import api
from growc.dialects.torch.emit.emit import grown_module
from growc.dialects.torch.emit.parameters import SourceTensors
from growc.dialects.torch.run.cases import Case
from growc.modules.check_against_plan import WAY, inconclusive_reason, nonzero_branches, require_planned
from growc.modules.check_training import IN_TRAINING, in_training

X = torch.randn(2, 6, 3)
DEEPER = "stack layers to 4 by last with zero outputs"


def emitted(recipe: str):
    torch.manual_seed(2)
    c = api.compile(api.recipe(recipe), Stack(Plain).eval(), example_inputs=X)
    return c, grown_module(c)


def judge(c, result):
    case = Case(((X,), {}), ((X,), {}))
    with nonzero_branches(c.model.source, result, SourceTensors.of(c)):
        return require_planned(c.model.source, result, [case], result.descent)


@pytest.mark.parametrize("recipe", ["arrange layers as 1, 0, 1", DEEPER])
def test_a_module_that_is_not_its_plan_is_refused(recipe):
    c, result = emitted(recipe)
    assert judge(c, result).relative < 1e-6
    with torch.no_grad():  # where nothing shows, if the layer adds nothing
        result.get_submodule("layers.2.up").weight[0, 0] += 1
    with pytest.raises(growc.GrowError, match="G406"):
        judge(c, result)


def test_layers_that_add_nothing_do_so_when_they_were_judged():
    c, result = emitted(DEEPER)
    before = {name: value.clone() for name, value in result.state_dict().items()}
    judge(c, result)
    for name, value in result.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert not result.get_submodule("layers.2.down").weight.any()


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x):
        return torch.fft.fft(self.down(torch.relu(self.up(x)))).real


WIDER = 'widen axis 0 of "up.weight" to 18 with uniform copy'


def test_a_note_says_that_onnxruntime_cannot_run_the_model():
    result = growc.apply(Spectrum(), WIDER, torch.randn(3, WIDTH))
    assert result.verification.relative < 1e-6
    assert WAY not in result.verification.beside
    assert any(note.startswith(WAY) and "no operator in ONNX" in note for note in result.verification.notes)


class Dropping(Plain):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.3, self.training))


class Unseen(Plain):
    """Layers with a random factor in training that torch does not see."""

    def forward(self, x):
        return super().forward(x * float(np.random.rand()) if self.training else x)


def test_training_is_compared_without_chance():
    result = growc.apply(Stack(Dropping), "widen ffn to 18 with uniform copy", X)
    assert result.verification.beside[IN_TRAINING].relative < 1e-6
    result.train()
    assert not torch.equal(result(X), result(X))


def test_statistics_are_as_they_were_before():
    module = nn.Sequential(nn.Linear(WIDTH, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))
    result = growc.apply(module, 'widen axis 0 of "0.weight" to 18 with uniform copy', torch.randn(5, WIDTH))
    assert result.verification.beside[IN_TRAINING].relative < 1e-5
    for one in (module, result):
        assert one.get_submodule("1").num_batches_tracked == 0
        assert not one.get_submodule("1").running_mean.any()


def test_a_graph_for_training_with_numbers_that_were_drawn_once_is_dropped():
    result = growc.apply(Stack(Unseen), "widen ffn to 18 with uniform copy", X)
    assert result.verification.relative < 1e-6
    with pytest.raises(growc.GrowError, match="draws numbers that torch does not see"):
        result.train()


def test_a_graph_for_training_that_is_something_else_is_dropped():
    result = growc.apply(Stack(Dropping), "widen ffn to 18 with uniform copy", X, check=False)
    case = result.descent.case(((X,), {}))
    for node in result.graphs[True].find_nodes(op="call_function", target=torch.ops.aten.relu.default):
        node.target = torch.ops.aten.gelu.default
    assert "is something else" in in_training(Stack(Dropping), result, [case])
    with pytest.raises(growc.GrowError, match="is something else"):
        result.train()


class Tied(Spectrum):
    """The best of scores that are all the same: which these are is the runtime's choice."""

    def forward(self, x):
        h = self.down(torch.relu(self.up(x)))
        best = torch.relu(h - 1e3).topk(2).indices
        return h * torch.zeros_like(h).scatter(-1, best, 1.0)


def test_a_note_says_that_onnxruntime_chooses_otherwise_in_the_source():
    torch.manual_seed(0)
    result = growc.apply(Tied(), WIDER, torch.randn(3, WIDTH))
    assert result.verification.relative < 1e-6
    assert any(
        f"{WAY}: onnxruntime and torch differ on the source, too" in n for n in result.verification.notes
    )


def test_runtimes_that_agree_on_the_source_excuse_nothing():
    c, result = emitted(DEEPER)
    torch.manual_seed(2)
    source = Stack(Plain).eval()
    assert (
        inconclusive_reason(c.model.file(c.path), source, [Case(((X,), {}), ((X,), {}))], result.descent)
        == ""
    )
