"""A class that reads `per_layer_config` holds sizes that differ from layer to layer."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import growc


class Uneven(LlamaForCausalLM):
    """A LLaMA each of whose layers is built from a config of its own."""

    def __init__(self, config: LlamaConfig) -> None:
        config.allow_global_per_layer_attribute_access = True
        super().__init__(config)
        self.model = UnevenModel(config)
        self.post_init()


class UnevenModel(LlamaModel):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        own = [config.per_layer_config[k] for k in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(LlamaDecoderLayer(one, k) for k, one in enumerate(own))


def test_units_of_all_layers_compete_in_a_checkpoint(tmp_path: Path) -> None:
    """The sizes stand in the config, and transformers' own loading builds them."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=32,
        max_position_embeddings=32,
    )
    source = Uneven(config)
    with torch.no_grad():
        source.model.layers[0].mlp.down_proj.weight *= 3
    source.save_pretrained(tmp_path / "source")
    recipe = "subclone ffn to total 24 by magnitude"
    done = growc.apply(recipe, tmp_path / "source", tmp_path / "small", model_class=Uneven, check=False)
    sizes = done.plan.axes["ffn"].after
    assert sum(sizes) == 24
    assert len(set(sizes)) == 2
    small = Uneven.from_pretrained(tmp_path / "small")
    assert [layer.mlp.gate_proj.out_features for layer in small.model.layers] == list(sizes)
    written = json.loads((tmp_path / "small/config.json").read_text(encoding="utf-8"))
    assert written["per_layer_config"]
