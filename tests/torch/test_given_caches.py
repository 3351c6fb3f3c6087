"""Modules of transformers that are given a cache: it is an input as all others."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

import growc
from growc.dialects.transformers.first_step import first_step
from growc.errors.diagnostic import GrowError
from growc.modules.check_against_plan import WAY

ROWS, HEADS, PAST, DEPTH, NEW = 2, 2, 5, 4, 3


@pytest.fixture
def module() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"n_embd": HEADS * DEPTH, "n_layer": 2, "n_head": HEADS, "n_positions": 16, "vocab_size": 24}
    made = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made


def inputs(copies: int = 1) -> dict:
    """A step with a cache of so many heads for each one of the module's."""
    torch.manual_seed(1)
    shape = (ROWS, HEADS, PAST, DEPTH)
    pairs = [tuple(torch.randn(shape).repeat_interleave(copies, 1) for _ in range(2)) for _ in range(2)]
    return {
        "input_ids": torch.randint(0, 24, (ROWS, NEW)),
        "attention_mask": torch.ones(ROWS, PAST + NEW, dtype=torch.long),
        "past_key_values": DynamicCache(pairs),
        "use_cache": True,
    }


@pytest.mark.soak
def test_heads_and_their_cache_are_grown_together(module):
    recipe = "widen heads to 2 * heads with neighbor copy"
    result = growc.apply(module, recipe, inputs(), keep_class=False)
    assert not result.verification.refutes_exact()
    assert WAY in result.verification.beside
    expected, found = module(**inputs()), result(**inputs(2))
    torch.testing.assert_close(found["logits"], expected.logits, rtol=1e-4, atol=1e-5)
    cache = found["past_key_values"]
    assert isinstance(cache, DynamicCache)
    assert cache.layers[1].keys.shape == (ROWS, 2 * HEADS, PAST + NEW, DEPTH)
    wanted = expected.past_key_values.layers[1].values.repeat_interleave(2, 1)
    torch.testing.assert_close(cache.layers[1].values, wanted, rtol=1e-4, atol=1e-5)


def test_a_cache_is_left_as_it_was_given(module):
    given = inputs()
    growc.apply(module, "widen ffn to 2 * ffn with uniform copy", given, keep_class=False)
    assert given["past_key_values"].layers[0].keys.shape == (ROWS, HEADS, PAST, DEPTH)


def test_a_class_is_found_on_a_step_without_its_cache(module):
    given = inputs()
    result = growc.apply(module, "widen ffn to 48 with uniform copy", given)
    assert (type(result), result.config.n_inner) == (GPT2LMHeadModel, 48)
    assert result.verification.relative < 1e-5
    assert given["past_key_values"].layers[0].keys.shape == (ROWS, HEADS, PAST, DEPTH)
    found = result(**inputs()).logits
    torch.testing.assert_close(found, module(**inputs()).logits, rtol=1e-4, atol=1e-5)


def test_the_mask_of_a_step_without_a_cache_is_that_of_the_new_positions(module):
    given = inputs()
    given["attention_mask"][0, PAST + 1] = 0
    step = first_step(module, given)
    assert step["attention_mask"].tolist() == [[1, 0, 1], [1, 1, 1]]
    assert step["use_cache"] is False
    assert "past_key_values" not in step


def test_a_class_is_not_looked_for_on_lists_of_tensors(module):
    pairs = [(torch.randn(ROWS, HEADS, PAST, DEPTH),) * 2] * 2
    with pytest.raises(GrowError, match="`past_key_values` holds several tensors") as caught:
        growc.apply(module, "widen ffn to 2 * ffn with uniform copy", inputs() | {"past_key_values": pairs})
    assert caught.value.diagnostics[0].code == "G309"
