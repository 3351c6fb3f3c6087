"""A variance of a sample divides by n − 1: a grown one keeps its ratio to the mean square."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import growc
from growc.dialects.transformers.log.compensation import compensate
from growc.dialects.transformers.log.record import operator_log

WIDTH, TOKENS = 8, torch.arange(6).reshape(2, 3)


class Norm(nn.Module):
    """The LayerNorm of the Annotated Transformer, or another one."""

    def __init__(self, scale: Callable[[Tensor], Tensor], width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(1 + 0.3 * torch.randn(width))
        self.bias = nn.Parameter(torch.randn(width))
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * (x - x.mean(-1, keepdim=True)) / self.scale(x) + self.bias


class Normed(nn.Module):
    def __init__(self, scale: Callable[[Tensor], Tensor], width: int = WIDTH) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(7, width)
        self.up, self.down = nn.Linear(width, 12), nn.Linear(12, width)
        self.norm = Norm(scale, width)
        self.head = nn.Linear(width, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        return self.head(self.norm(x + self.down(torch.relu(self.up(x)))))


SCALES = {
    "std": lambda x: x.std(-1, keepdim=True) + 0.3,
    "var": lambda x: torch.sqrt(x.var(-1, keepdim=True) + 0.3),
    "std_mean": lambda x: torch.std_mean(x, -1, keepdim=True)[0] + 0.3,
    "var_mean": lambda x: torch.sqrt(torch.var_mean(x, -1, correction=2, keepdim=True)[0] + 0.3),
}
RECIPES = {
    "copies": "widen hidden to 16 with cyclic copy",
    "means": "widen hidden to 13 with average fill",
    "both": "widen hidden to 12 with average fill\nwiden hidden to 36 with cyclic copy",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_a_norm_by_the_deviation_of_a_sample_is_exact(scale, recipe):
    module = Normed(scale).eval()
    result = growc.apply(module, recipe, (TOKENS,))  # the module against its plan, too
    assert result.plan.certificate.exact
    torch.testing.assert_close(result(TOKENS), module(TOKENS), rtol=1e-5, atol=1e-5)


def test_the_plan_of_a_trained_module_holds_in_training_too():
    module = Normed(SCALES["std"]).train()
    result = growc.apply(module, RECIPES["copies"], (TOKENS,))
    assert result.training
    torch.testing.assert_close(result(TOKENS), module(TOKENS), rtol=1e-5, atol=1e-5)


def test_more_corrections_than_elements_are_no_known_operator():
    module = Normed(lambda x: x.var(-1, correction=WIDTH, keepdim=True)).eval()
    with pytest.raises(growc.GrowError, match=r"aten::var\.correction is not known"):
        growc.plan(RECIPES["copies"], module, example_inputs=(TOKENS,))


def test_a_class_that_divides_by_its_own_size_is_made_up_for_in_weights():
    """As planned: 16 units of which every one stands twice, whose deviation is that of 8."""
    planned = Normed(lambda x: x.std(-1, correction=2.0, keepdim=True) + 0.3, 16).eval()
    rebuilt = Normed(lambda x: x.std(-1, keepdim=True) + 0.3, 16).eval()
    given = {"tokens": TOKENS}
    found = compensate(operator_log(planned, given), operator_log(rebuilt, given))
    assert not found.gaps
    state = rebuilt.state_dict()
    with torch.no_grad():
        for name, factor in found.factors.items():
            state[name].copy_(torch.from_numpy(factor.of(state[name].numpy())))
    assert found.factors
    torch.testing.assert_close(rebuilt(TOKENS), planned(TOKENS), rtol=1e-5, atol=1e-5)
