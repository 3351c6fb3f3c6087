"""A plan makes a module of a module: judged by torch, on the source and on the result."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

import growc
from growc import api
from growc.dialects.torch.emit.emit import grown_module, planned_graph

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
TEXT = {"vocab_size": 40, "max_position_embeddings": 16}
IDS = torch.tensor([[3, 7, 1, 30, 2], [5, 5, 0, 11, 39]])


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).reshape(-1, 8))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.deep, self.head = nn.Conv2d(4, 6, 3), nn.Linear(6, 2)

    def forward(self, image):
        x = torch.relu(self.norm(self.stem(image)))
        return self.head(torch.relu(self.deep(x)).mean((2, 3)))


class Decaying(nn.Module):
    """Units are scaled by numbers that calls make of a range."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)) * (torch.arange(1, 9) / -8).exp())


class Expanding(nn.Module):
    """Units of all rows stand in one row; a size that is computed counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.shift = nn.Linear(5, 8), nn.Linear(8, 3), nn.Parameter(torch.ones(1))

    def forward(self, x):
        flat = torch.relu(self.first(x)).reshape(-1)
        return self.last((flat + self.shift.expand(8 * x.shape[0])).reshape(-1, 8))


class Normed(nn.Module):
    """A norm without gain and bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 8), nn.LayerNorm(8, 1e-5, False), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


def gpt2():
    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=4, use_cache=False)
    return GPT2LMHeadModel(config), {"input_ids": IDS}


def llama():
    config = LlamaConfig(**SIZES, **TEXT, num_key_value_heads=2, use_cache=False)
    return LlamaForCausalLM(config), {"input_ids": IDS}


def bert():
    return BertForMaskedLM(BertConfig(**SIZES, **TEXT)), {"input_ids": IDS}


def vit():
    config = ViTConfig(**SIZES, image_size=8, patch_size=4)
    return ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 8, 8)}


def perceptron():
    return Perceptron(), {"x": torch.randn(4, 5)}


def decaying():
    return Decaying(), {"x": torch.randn(4, 5)}


def expanding():
    return Expanding(), {"x": torch.randn(4, 5)}


def normed():
    return Normed(), {"x": torch.randn(4, 5)}


def convolutions():
    module = Convolutions()
    module.norm.running_mean.normal_()
    return module, {"image": torch.randn(2, 3, 7, 7)}


def built(make):
    torch.manual_seed(0)
    module, inputs = make()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return module.eval(), inputs


def grown(module, inputs, recipe, make=grown_module):
    compilation = api.compile(api.recipe(recipe), module, example_inputs=inputs)
    assert compilation.plan.certificate.exact
    return make(compilation)


def first(outputs):
    return outputs if isinstance(outputs, torch.Tensor) else outputs[0]


def assert_same(module, result, inputs) -> None:
    with torch.no_grad():
        torch.testing.assert_close(first(result(**inputs)), first(module(**inputs)), rtol=2e-4, atol=2e-5)


WIDER = "widen hidden to 2 * hidden with cyclic copy\nwiden heads to 2 * heads with neighbor copy\n"
FFN = "widen ffn to 3 * ffn / 2 with uniform copy"
CASES = [
    (gpt2, WIDER + FFN),
    (llama, WIDER + FFN),
    (bert, WIDER + FFN),
    (vit, WIDER + FFN),
    (gpt2, "widen head_dim to 6 with neighbor copy"),
    (gpt2, "untie head\nwiden hidden to 32 with cyclic copy"),
    (llama, "widen kv_heads to 4 with neighbor copy"),
    (llama, "widen vocab to 50 with zero fill"),
    (perceptron, 'widen axis 0 of "first.weight" to 12 with uniform copy'),
    (convolutions, "widen channels to 2 * channels with cyclic copy"),
    (decaying, 'widen axis 0 of "first.weight" to 12 with uniform copy'),
    (decaying, 'reorder axis 0 of "first.weight" by magnitude'),
    (expanding, 'widen axis 0 of "first.weight" to 12 with uniform copy'),
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("make", "recipe"), CASES, ids=lambda case: getattr(case, "__name__", "_"))
def test_the_result_computes_what_the_module_does(make, recipe):
    module, inputs = built(make)
    result = grown(module, inputs, recipe)
    if "vocab" in recipe:
        with torch.no_grad():
            torch.testing.assert_close(first(result(**inputs))[..., :40], first(module(**inputs)))
        return
    assert_same(module, result, inputs)
    assert type(result(**inputs)) is type(module(**inputs))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [gpt2, llama, vit, convolutions])
def test_gradients_reach_every_parameter(make):
    module, inputs = built(make)
    recipe = "widen channels to 2 * channels with cyclic copy" if make is convolutions else FFN
    result = grown(module, inputs, recipe)
    first(result(**inputs)).square().sum().backward()
    assert [name for name, p in result.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_names_ties_and_what_is_trained_stay():
    module, inputs = built(gpt2)
    module.transformer.wpe.weight.requires_grad_(False)
    result = grown(module, inputs, FFN)
    assert list(result.state_dict()) == list(module.state_dict())
    assert result.lm_head.weight is result.transformer.wte.weight
    assert [n for n, p in result.named_parameters() if not p.requires_grad] == ["transformer.wpe.weight"]


def test_a_head_that_parted_has_the_name_that_it_had():
    module, inputs = built(gpt2)
    result = grown(module, inputs, "untie head\nwiden hidden to 32 with cyclic copy")
    assert set(result.state_dict()) == set(module.state_dict())
    assert result.lm_head.weight is not result.transformer.wte.weight


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_copy_and_what_was_pickled_compute_the_same_and_keep_ties(way):
    module, inputs = built(gpt2)
    result = grown(module, inputs, WIDER + FFN)
    again = way(result)
    with torch.no_grad():
        torch.testing.assert_close(again(**inputs)[0], result(**inputs)[0], rtol=0, atol=0)
    assert again.lm_head.weight is again.transformer.wte.weight
    assert again.lm_head.weight is not result.lm_head.weight
    assert list(again.state_dict()) == list(result.state_dict())


def test_the_planned_graph_has_the_sizes_of_the_result_and_no_values():
    module, inputs = built(gpt2)
    stored = module.state_dict()
    emit = partial(planned_graph, outline=lambda name: stored[name].to("meta"))
    planned = grown(module, inputs, WIDER + FFN, emit)
    result = grown(module, inputs, WIDER + FFN)
    shapes = {name: tuple(p.shape) for name, p in result.named_parameters()}
    assert {name: tuple(p.shape) for name, p in planned.named_parameters()} == shapes
    assert all(p.is_meta for p in planned.parameters())
    assert planned(IDS.to("meta")).logits.shape == (2, 5, 40)


def test_the_result_takes_other_sizes_of_its_inputs():
    module, inputs = built(llama)
    result = grown(module, inputs, WIDER + FFN)
    assert_same(module, result, {"input_ids": torch.randint(0, 40, (3, 9))})


def test_the_result_can_be_grown_again():
    module, inputs = built(llama)
    result = grown(grown(module, inputs, FFN), inputs, WIDER)
    assert_same(module, result, inputs)


def test_a_norm_that_has_no_gain_gets_none_where_it_would_be_one():
    module, inputs = built(normed)
    result = grown(module, inputs, 'widen axis 0 of "first.weight" to 16 with cyclic copy')
    assert_same(module, result, inputs)
    assert set(result.state_dict()) == set(module.state_dict())
    assert list(result.buffers()) == []


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class WithSpare(nn.Module):
    """The third entry of its list is never called."""

    def __init__(self) -> None:
        super().__init__()
        spare = nn.Module()
        spare.up = nn.Linear(8, 4)
        self.stem, self.blocks = nn.Linear(3, 8), nn.ModuleList([Residual(), Residual(), spare])

    def forward(self, x):
        x = self.stem(x)
        for block in list(self.blocks)[:2]:
            x = block(x)
        return x


def test_a_new_layer_leaves_the_names_of_tensors_that_nothing_reads() -> None:
    torch.manual_seed(0)
    recipe = "widen hidden to 16 with cyclic copy\nstack layers to 3 by last with zero outputs\nexpect exact"
    source = WithSpare()
    grown = growc.apply(source, recipe, torch.randn(2, 3))
    assert torch.equal(grown.state_dict()["blocks.2.up.weight"], source.blocks[2].up.weight)
    assert grown.state_dict()["blocks.2.up.weight_"].shape == (16, 16)
    assert len(growc.param_groups(grown, grown.lineage)) == 3


class Stacked(nn.Module):
    """It takes the last of as many states as it has: one."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        states = torch.stack([x + self.down(torch.tanh(self.up(x)))])
        return states[-1], states


def test_an_element_that_is_counted_from_the_end_of_one_is_still_taken():
    torch.manual_seed(0)
    module, x = Stacked(), torch.randn(2, 6)
    result = growc.apply(module, "widen ffn to 2 * ffn with neighbor copy\nexpect exact", {"x": x})
    for expected, found in zip(module(x), result(x), strict=True):
        torch.testing.assert_close(found, expected)
