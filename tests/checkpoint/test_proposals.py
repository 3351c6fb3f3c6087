"""Proposals in the refusal of a class: with them behind the recipe, the class holds the plan."""

from __future__ import annotations

import re

import pytest
from checkpoints import tiny_config

import growc

SIZES = {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_layers": 2, "vocab_size": 48}
BERT = "BertModel"
SOME = {
    "packed projections": (
        "GPT2LMHeadModel",
        "widen hidden to 80 with cyclic copy\nwiden heads to 8 with cyclic copy",
    ),
}
MORE = {
    "wider by a size that heads do not divide": (BERT, "widen hidden to 36 with tail copy"),
    "wider than its heads": (
        BERT,
        "widen hidden to 80 with cyclic copy\nwiden heads to 8 with uniform copy",
    ),
    "smaller where units keep their order": (BERT, "subclone heads to 2 by magnitude"),
    "a wider head": (BERT, "widen head_dim to 12 with zero fill"),
    "a stream and a wider head": (
        BERT,
        "widen hidden to 64 with cyclic copy\nwiden head_dim to 12 with zero fill",
    ),
    "wider heads than the stream": (
        BERT,
        "widen hidden to 48 with cyclic copy\nwiden head_dim to 16 with cyclic copy",
    ),
    "more heads than the stream": (
        BERT,
        "widen hidden to 44 with cyclic copy\nwiden heads to 6 with cyclic copy",
    ),
    "heads alone": (BERT, "widen heads to 5 with tail copy"),
    "a pooler": (BERT, 'widen axis 0 of "pooler.dense.weight" to 40 with zero fill'),
    "one layer": (BERT, 'widen axis 0 of "encoder.layer.0.intermediate.dense.weight" to 96 with zero fill'),
    "packed heads alone": ("GPT2LMHeadModel", "widen heads to 8 with neighbor copy"),
    "packed wider heads": ("GPT2LMHeadModel", "widen head_dim to 16 with zero fill"),
    "one gated layer": ("LlamaForCausalLM", "in layers 0 { widen ffn to 96 with uniform copy }"),
    "an encoder's heads": ("T5ForConditionalGeneration", "in encoder { widen heads to 8 with uniform copy }"),
    "a decoder's ffn": ("T5ForConditionalGeneration", "in decoder { widen ffn to 96 with uniform copy }"),
}


def config(name):
    if name.startswith("T5"):
        import transformers

        return transformers.T5Config(**SIZES, num_decoder_layers=2, decoder_start_token_id=0)
    return tiny_config(re.match(r"Bert|GPT2|Llama", name)[0])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        *(pytest.param(*case, id=key) for key, case in SOME.items()),
        *(pytest.param(*case, id=key, marks=pytest.mark.soak) for key, case in MORE.items()),
    ],
)
def test_with_what_a_refusal_proposes_the_class_holds_the_plan(save, name, recipe):
    path = save(name, config(name))
    with pytest.raises(growc.GrowError, match="G318") as caught:
        growc.plan(recipe, path)
    [said] = caught.value.diagnostics
    proposed = re.findall("`([^`]+)`", said.help)
    assert proposed
    plan = growc.plan("\n".join([recipe, *proposed]), path)
    assert plan.parameters[1] > 0


def test_a_refusal_proposes_nothing_where_no_statement_would_help(save):
    with pytest.raises(growc.GrowError, match="G318") as caught:
        growc.plan("widen hidden to 37 with tail copy", save(BERT, tiny_config("Bert")))
    [said] = caught.value.diagnostics
    assert not said.help
    assert "`hidden_size` = 37" in said.notes[1]
