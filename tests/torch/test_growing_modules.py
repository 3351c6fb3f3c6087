"""`growc.apply` on a module: verified in torch, trainable, and in training what the source is in training."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from test_emission import FFN, IDS, SIZES, TEXT, WIDER, built, convolutions, gpt2, llama
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, Phi3Config, Phi3ForCausalLM

import growc

DEEPER = "stack layers to 4 by each with zero outputs"


def dropping():
    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=4, use_cache=False)
    return GPT2LMHeadModel(config), gpt2()[1]


def test_the_result_says_how_it_came_to_be():
    module, inputs = built(llama)
    recipe = growc.Recipe().widen("ffn", to=36, fill="uniform copy")
    result = growc.apply(module, recipe, inputs, keep_class=False)
    assert result.plan.certificate.exact
    assert result.verification.relative < 1e-5
    assert 0 < result.verification.rounding < 1e-5
    assert result.lineage["weights"]["model.layers.0.mlp.up_proj.weight"]["shape"] == [36, 16]
    assert growc.verify(module, result, inputs=inputs).relative < 1e-5


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, labels):
        logits = self.model(input_ids=ids).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


@pytest.mark.soak
def test_a_tensor_that_is_given_twice_is_two_inputs():
    module, ids = Loss(built(gpt2)[0]).eval(), IDS
    result = growc.apply(module, "widen ffn to 64 with tail copy", (ids, ids))
    torch.testing.assert_close(result(ids, ids.flip(0)), module(ids, ids.flip(0)))
    assert (result(ids, ids.flip(0)) - result(ids, ids)).abs() > 1e-3


def test_an_expectation_that_fails_gives_no_module():
    module, inputs = built(gpt2)
    for expected in ("exact", "preserved within 1e-6"):
        recipe = f"widen hidden to 24 with neighbor copy\nexpect {expected}"
        with pytest.raises(growc.GrowError, match="G401"):
            growc.apply(module, recipe, inputs, keep_class=False)


def test_in_training_dropout_works_as_in_the_source():
    module, inputs = built(dropping)
    result = growc.apply(module, "widen ffn to 64 with tail copy", inputs, check=False, keep_class=False)
    for one in (module, result):
        one.train()
    torch.manual_seed(1)
    expected = module(**inputs).logits
    torch.manual_seed(1)
    torch.testing.assert_close(result(**inputs).logits, expected)
    torch.manual_seed(2)
    assert not torch.allclose(result(**inputs).logits, expected)
    assert torch.allclose(result.eval()(**inputs).logits, module.eval()(**inputs).logits, atol=1e-5)


class Skipping(nn.Module):
    """A residual block that, in training, is left out of some rows, and gets noise of the row in others."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        branch = self.down(torch.tanh(self.up(self.norm(x))))
        if self.training:
            kept, noise, more, other = (branch.new_empty((len(x), 1)) for _ in range(4))
            branch = branch * kept.bernoulli_(0.75).div_(0.75) + noise.normal_(std=0.5)
            branch = branch + more.bernoulli_() + other.uniform_(0.5, 1)
        return x + branch


def test_in_training_blocks_are_skipped_as_in_the_source():
    torch.manual_seed(0)
    module, x = Skipping().eval(), torch.randn(9, 6)
    result = growc.apply(module, "widen ffn to 16 with neighbor copy", {"x": x})
    assert not result.missing
    drawn = []
    for one in (module.train(), result.train(), result):
        torch.manual_seed(1 if len(drawn) < 2 else 2)
        drawn.append(one(x))
    torch.testing.assert_close(drawn[1], drawn[0])
    assert not torch.allclose(drawn[2], drawn[0], atol=1e-2)


def test_in_training_statistics_of_a_batch_are_kept():
    module, inputs = built(convolutions)
    result = growc.apply(module, "widen channels to 2 * channels with cyclic copy", inputs)
    for one in (module, result):
        one.train()
        one(**inputs)
    assert result.norm.num_batches_tracked == module.norm.num_batches_tracked == 1
    torch.testing.assert_close(result.norm.running_mean, module.norm.running_mean.repeat(2))
    torch.testing.assert_close(result.eval()(**inputs), module.eval()(**inputs), rtol=1e-4, atol=1e-5)


def losses(module: nn.Module, inputs, steps: int) -> list[float]:
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    found = []
    for _ in range(steps):
        logits = module(**inputs).logits
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), inputs["input_ids"][:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_the_result_trains_as_the_class_of_its_sizes_does():
    module, inputs = built(llama)
    result = growc.apply(module, FFN, inputs, keep_class=False)
    config = copy.deepcopy(module.config)
    config.intermediate_size = 36
    rebuilt = type(module)(config)
    rebuilt.load_state_dict(result.state_dict())
    torch.testing.assert_close(losses(result, inputs, 20), losses(rebuilt, inputs, 20), rtol=1e-4, atol=1e-5)


def test_both_modes_survive_a_pickle():
    module, inputs = built(dropping)
    result = pickle.loads(pickle.dumps(growc.apply(module, WIDER, inputs, keep_class=False).train()))
    assert result.training
    assert losses(result, inputs, 3)[-1] < 10
    assert result.plan.certificate.exact


@pytest.mark.soak
@pytest.mark.parametrize("order", ["1, 0, 1", "0"])
def test_layers_are_those_that_torch_has_in_this_order(order):
    module, inputs = built(gpt2)
    result = growc.apply(module, f"arrange layers as {order}", inputs, keep_class=False)
    numbers = [int(n) for n in order.split(",")]
    module.transformer.h = nn.ModuleList(copy.deepcopy(module.transformer.h[n]) for n in numbers)
    assert list(result.state_dict()) == list(module.state_dict())
    torch.testing.assert_close(result(**inputs).logits, module(**inputs).logits)
    assert result.train().training


@pytest.mark.soak
def test_layers_that_join_a_part_with_nothing_stay_apart():
    def rotated():  # in whole: what is not rotated is empty
        config = Phi3Config(**SIZES, **TEXT, num_key_value_heads=2, use_cache=False, pad_token_id=0)
        return Phi3ForCausalLM(config), {"input_ids": IDS}

    module, inputs = built(rotated)
    result = growc.apply(module, "arrange layers as 1, 0, 1", inputs, keep_class=False)
    module.model.layers = nn.ModuleList(copy.deepcopy(module.model.layers[n]) for n in (1, 0, 1))
    module.config.num_hidden_layers = 3
    torch.testing.assert_close(result(**inputs).logits, module(**inputs).logits)


def test_a_deeper_module_trains_all_its_layers():
    module, inputs = built(llama)
    result = growc.apply(module, DEEPER, inputs, keep_class=False).train()
    assert result.plan.certificate.exact
    assert losses(result, inputs, 3)[0] == pytest.approx(losses(module, inputs, 1)[0], rel=1e-5)
    assert {name.split(".")[2] for name, _ in result.named_parameters() if "layers" in name} == set("0123")
