"""Tensors that the captured program does not read are as large as their class makes them, and are listed."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

import growc

IDS = torch.randint(4, 33, (2, 9), generator=torch.Generator().manual_seed(1))
PIXELS = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def seeded(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return module.eval()


def esm(layers: int = 2) -> nn.Module:
    config = transformers.EsmConfig(
        vocab_size=33,
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=48,
        position_embedding_type="rotary",
        pad_token_id=1,
        mask_token_id=32,
    )
    return seeded(transformers.EsmForMaskedLM(config))


def dinov2() -> nn.Module:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.Dinov2Config(**sizes, image_size=16, patch_size=8)
    return seeded(transformers.Dinov2ForImageClassification(config))


def said(result: nn.Module, name: str) -> bool:
    return any(note.startswith(f"`{name}` is as large as") for note in result.plan.notes)


def test_a_token_that_only_training_reads_takes_the_units_of_the_stream():
    source = dinov2()
    recipe = "widen hidden to 64 with tail copy\nwiden heads to 8 with cyclic copy"
    result = growc.apply(source, recipe, check=False)
    name = "dinov2.embeddings.mask_token"
    old, new = source.state_dict()[name], result.state_dict()[name]
    assert torch.equal(new, torch.cat([old, old], dim=1))
    assert said(result, name)


@pytest.mark.soak
def test_a_size_that_no_axis_explains_is_kept_or_padded_with_zeros():
    name, source = "esm.contact_head.regression.weight", esm()
    old = source.state_dict()[name]
    deep = growc.apply(source, "stack layers to 3 by last with zero outputs\nexpect exact")
    assert torch.equal(deep.state_dict()[name], torch.cat([old, old.new_zeros(1, 4)], dim=1))
    flat = growc.apply(source, "subclone layers to 1 by first", check=False)
    assert torch.equal(flat.state_dict()[name], old[:, :4])
    assert said(deep, name)
    assert said(flat, name)


def test_batch_counters_of_new_layers_are_those_of_the_layer_that_they_copy():
    sizes = {"embedding_size": 8, "hidden_sizes": [16], "depths": [2], "layer_type": "basic"}
    source = seeded(transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes)))
    for name, buffer in source.named_buffers():
        if name.endswith("num_batches_tracked"):
            buffer.fill_(7)
    result = growc.apply(source, "stack layers to layers + 1 by last with zero outputs\nexpect exact")
    assert result.config.depths == [3]
    with torch.no_grad():
        difference = result(PIXELS).logits - source(PIXELS).logits
    assert difference.abs().max() < 1e-4
    state = result.state_dict()
    counters = [
        n for n in state if n.startswith("resnet.encoder.stages.0.layers.2") and n.endswith("tracked")
    ]
    assert counters
    assert all(state[name] == 7 for name in counters)


def test_a_wrong_size_of_what_is_read_is_still_refused():
    with pytest.raises(growc.GrowError, match="G318"):
        growc.plan("widen ffn to 130 with zero fill", dinov2())
