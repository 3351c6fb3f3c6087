"""Heads that stand end to end with those of the attention: ConvBERT's, of a convolution beside it."""

from __future__ import annotations

import torch
import transformers
from torch import nn

import growc

IDS = torch.randint(4, 40, (2, 9), generator=torch.Generator().manual_seed(1))


def module() -> nn.Module:
    sizes = {"hidden_size": 32, "embedding_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "head_ratio": 2, "conv_kernel_size": 3}
    torch.manual_seed(0)
    made = transformers.ConvBertForMaskedLM(transformers.ConvBertConfig(**sizes, **heads, vocab_size=40))
    for parameter in made.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return made.eval()


def test_heads_of_both_kinds_become_more_together():
    source = module()
    recipe = "widen hidden to 64 with cyclic copy\nwiden heads to 2 * heads with neighbor copy\nexpect exact"
    result = growc.apply(source, recipe, check=False)
    assert (result.config.num_attention_heads, result.config.head_ratio) == (8, 2)
    inside = result.convbert.encoder.layer[0].attention.self
    assert inside.conv_out_layer.weight.shape == inside.value.weight.shape == (32, 64)
    assert len(inside.conv_kernel_layer.bias) == 4 * 3
    with torch.no_grad():
        ours, theirs = result(IDS).logits, source(IDS).logits
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
