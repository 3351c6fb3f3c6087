"""The judge of whole libraries: it calls right what is right, and sees a fault."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks" / "libraries"))

import judge
import measure
import subjects
import trained
from safetensors.torch import load_file

import growc

FEEDS = subjects.images(8)


def first(module: nn.Module, feeds: subjects.Feeds, text: str) -> measure.Outcome:
    """The outcome of a statement, without those of an optimizer's state."""
    return next(measure.outcomes(module, feeds, text))


class Normed(nn.Module):
    """A convolution under a batch norm, one under a layer norm over channels, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.batch = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.last, self.layer, self.head = nn.Conv2d(4, 6, 1), nn.LayerNorm(6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        """One row for each image."""
        x = self.last(self.batch(self.first(x)).relu()).permute(0, 2, 3, 1)
        return self.head(self.layer(x).mean((1, 2)))


@pytest.fixture
def module() -> nn.Module:
    torch.manual_seed(0)
    return judge.drawn(Normed(), FEEDS[0])


def test_a_right_result_is_called_right(module: nn.Module) -> None:
    for name, text in measure.statements("channels").items():
        found = first(module, FEEDS, text)
        assert found.status == measure.RIGHT, name
        assert found.difference < 1e-9


@pytest.mark.parametrize("spoilt", ["first.weight", "batch.running_var", "layer.bias", "head.weight"])
def test_a_spoilt_number_is_seen(module: nn.Module, spoilt: str) -> None:
    made = growc.apply(module, measure.statements("channels")["channels ×2"], example_inputs=FEEDS[0])
    with torch.no_grad():
        made.state_dict()[spoilt].view(-1)[0] += 1.0
    assert measure.distance(module, made, FEEDS) > 50 * judge.CLOSE


def test_drawing_moves_every_number_off_its_start(module: nn.Module) -> None:
    assert all(float(p.detach().std()) > 0 for p in module.parameters())
    running = module.get_buffer("batch.running_mean"), module.get_buffer("batch.running_var")
    assert all(float(one.std()) > 0 for one in running)


def test_a_model_that_hides_its_input_says_nothing() -> None:
    same = [torch.ones(2, 3)]
    assert not judge.informative(same, same)


def test_an_axis_that_a_model_lacks_is_not_asked_for(module: nn.Module) -> None:
    heads = measure.statements("heads")["heads ×2"]
    assert first(module, FEEDS, heads).status == measure.NO_AXIS
    odd = first(module, FEEDS, "subclone channels to channels / 4 by magnitude")
    assert odd.status == measure.ODD


def test_an_output_may_have_more_of_the_same_units() -> None:
    source = [torch.tensor([[1.0, 2.0, 4.0]])]
    assert judge.difference(source, [torch.tensor([[1.0, 1.0, 2.0, 2.0, 4.0, 4.0]])]) == 0
    assert judge.difference(source, [torch.tensor([[1.0, 1.0, 2.0, 2.0, 2.0, 2.0]])]) > 50 * judge.CLOSE
    assert judge.difference(source, [torch.tensor([[1.0, 1.0, 2.0, 3.0, 4.0, 4.0]])]) > 50 * judge.CLOSE


class OwnNorm(nn.Module):
    """A norm of a library's own, with a gain for each unit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)


def test_norms_of_ones_own_kind_are_taken_over_the_units_that_stay() -> None:
    torch.manual_seed(0)
    feeds = {"input": torch.randn(3, 6)}, {"input": torch.randn(3, 6)}
    module = judge.drawn(nn.Sequential(nn.Linear(6, 16), OwnNorm(16), nn.GELU(), nn.Linear(16, 5)), feeds[0])
    found = first(module, feeds, "subclone ffn to ffn / 2 by magnitude unscaled")
    assert found.status == measure.RIGHT
    assert found.difference < 1e-9


class Stream(nn.Module):
    """A residual stream with one feed-forward block, and a parameter that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 8), nn.Linear(8, 6)
        self.head, self.unused = nn.Linear(6, 5), nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        """One row for each vector."""
        return self.head(x + self.down(torch.tanh(self.up(self.norm(x)))))


def test_a_list_of_modules_without_any_gives_on_what_it_is_given() -> None:
    empty, x = nn.Sequential(), torch.randn(2, 3)
    with judge.statistics_of({}):
        assert empty(x) is x


def test_the_state_of_an_optimizer_is_judged_by_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [{"x": torch.randn(3, 6)} for _ in range(2)]
    module, text = judge.drawn(Stream(), feeds[0]), "widen ffn to 2 * ffn with neighbor copy"
    _, state = measure.outcomes(module, feeds, text)
    assert (state.status, state.beside) == (measure.RIGHT, ", state")
    usual = trained.carry

    def spoilt(*given: Any) -> Any:
        made = usual(*given)
        next(iter(made.state["state"].values()))["exp_avg"] *= 1.01
        return made

    monkeypatch.setattr(trained, "carry", spoilt)
    _, state = measure.outcomes(module, feeds, text)
    assert state.status == measure.WRONG


class Bound(Stream):
    """Its last product, by the first weight, is a function that it holds; it gives out a number beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 6)
        self.back = lambda x: x @ self.head.weight

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One row for each vector, and the mean of all squares."""
        made = self.head(x)
        made = self.back(made + self.down(torch.tanh(self.up(self.norm(made)))))
        return made, made.pow(2).mean()


def test_the_state_of_an_optimizer_is_judged_where_a_model_holds_functions_and_gives_out_a_number() -> None:
    feeds = [{"x": torch.randn(3, 6)} for _ in range(2)]
    module = judge.drawn(Bound(), feeds[0])
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    _, state = measure.outcomes(module, feeds, "widen ffn to 2 * ffn with neighbor copy")
    assert (state.status, state.beside) == (measure.RIGHT, ", state")
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)


def test_computed_weights_of_a_module_are_put_back_too() -> None:
    with pytest.warns(FutureWarning, match="weight_norm"):
        module = nn.utils.weight_norm(nn.Linear(3, 2))
    judge.outputs(module, {"input": torch.ones(1, 3)})
    with judge.put_back(module):
        module.double()(torch.ones(1, 3).double())
    assert copy.deepcopy(module)(torch.ones(1, 3)).dtype == torch.float32


def test_an_adapter_that_is_merged_adds_its_product(tmp_path: Path) -> None:
    module = Stream()
    trained.write_adapter(module, tmp_path)
    up = module.up.weight.detach().clone()
    trained.merged(module, tmp_path)
    held = load_file(tmp_path / "adapter_model.safetensors")
    a, b = (held[f"base_model.model.up.lora_{kind}.weight"] for kind in "AB")
    torch.testing.assert_close(module.up.weight.detach(), up + 2 * b @ a)
