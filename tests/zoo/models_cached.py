"""Decoders exported with a cache: keys and values of earlier tokens come in, those of all tokens go out."""

from __future__ import annotations

from dataclasses import replace

from facts import Facts, attention
from feeds import with_cache
from models_decoders import RMS, sizes, special
from registry import Blueprint, add
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel


class Stepper(nn.Module):
    """One step of decoding as a function of tensors."""

    def __init__(self, model: PreTrainedModel, layers: int) -> None:
        super().__init__()
        self.model, self.layers = model, layers

    def step(self, input_ids: Tensor, attention_mask: Tensor, past: list[Tensor]) -> tuple[Tensor, ...]:
        cache = DynamicCache(config=self.model.config)
        for i in range(self.layers):
            cache.update(past[2 * i], past[2 * i + 1], i)
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True
        )
        present = [part for layer in output.past_key_values.layers for part in (layer.keys, layer.values)]
        return (output.logits, *present)


class TwoLayers(Stepper):
    """Its arguments spelt out: exporters read the signature."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        past_0_key: Tensor,
        past_0_value: Tensor,
        past_1_key: Tensor,
        past_1_value: Tensor,
    ) -> tuple[Tensor, ...]:
        return self.step(input_ids, attention_mask, [past_0_key, past_0_value, past_1_key, past_1_value])


PRESENT = tuple(f"present_{layer}_{part}" for layer in range(2) for part in ("key", "value"))


def cached(name: str, facts: Facts, kind: str, **config: object) -> None:
    """Add a decoder of two layers with its cache."""

    def make(attention: str) -> nn.Module:
        import transformers

        chosen = getattr(transformers, kind)
        configuration = chosen.config_class(**config)
        configuration._attn_implementation = attention
        return TwoLayers(chosen(configuration), 2)

    inputs = with_cache(2, facts.kv_heads[0], facts.head_dim[0])
    add(Blueprint(name, replace(facts, layers=(2,)), make, inputs, ("logits", *PRESENT)))


cached(
    "gpt2_cache",
    attention(traits=("cache", "packed by part", "tied head")),
    "GPT2LMHeadModel",
    n_embd=64,
    n_head=4,
    n_layer=2,
    n_positions=64,
    **special(),
)
cached(
    "llama_gqa_cache",
    attention(kv_heads=(2,), ffn=(160,), norm=RMS, traits=("cache", "grouped queries")),
    "LlamaForCausalLM",
    num_key_value_heads=2,
    tie_word_embeddings=False,
    **sizes(160, 2),
)
