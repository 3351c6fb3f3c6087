"""Axes that only a class ties to others follow these with the same fill, and are listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from checkpoints import tiny_config
from torch import nn
from watching import watched

import growc
from growc import api
from growc.checkpoint.check import compare as comparing
from growc.checkpoint.classes.fit_config import FittingModel
from growc.cli.main import main
from growc.formats.compiler import outside
from growc.passes import FIT_CONFIG, PLANNING, run
from growc.passes.compilation import Source

IDS = torch.randint(4, 48, (2, 9), generator=torch.Generator().manual_seed(1))
POOLER = 'axis 0 of "bert.pooler.dense.bias"'


def built(class_name: str, config) -> nn.Module:
    torch.manual_seed(0)
    module = getattr(transformers, class_name)(config).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return module


def sequences(**changes) -> nn.Module:
    return built("BertForSequenceClassification", tiny_config("Bert", **changes))


def assert_same(result: nn.Module, module: nn.Module, **inputs) -> None:
    with torch.no_grad():
        for ours, theirs in zip(result(**inputs).to_tuple(), module(**inputs).to_tuple(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=3e-4, atol=3e-4)


@pytest.mark.soak
def test_heads_and_a_pooler_follow_the_stream_that_their_class_makes_them_as_wide_as():
    module = sequences()
    result = growc.apply(module, "widen hidden to 2 * hidden with cyclic copy\nexpect exact")
    assert (result.config.hidden_size, result.config.num_attention_heads) == (64, 8)
    assert result.bert.pooler.dense.weight.shape == (64, 64)
    assert_same(result, module, input_ids=IDS)
    listed = {summary.axis: (summary.before, summary.after) for summary in result.plan.summaries}
    assert listed == {"hidden": ((32,), (64,)), "heads": ((4,), (8,)), POOLER: ((32,), (64,))}
    assert result.plan.notes == (
        "`heads` follows `hidden`, to which the config of `BertForSequenceClassification` ties it",
        f"`{POOLER}` follows `hidden`, to which the config of `BertForSequenceClassification` ties it",
    )


@pytest.mark.soak
def test_a_following_axis_takes_the_fill_of_the_leading_statement():
    recipe = "widen heads to 8 with neighbor copy\nwiden ffn to 64 with tail copy\n"
    result = growc.apply(sequences(), f"{recipe}widen hidden to 64 with average fill split random seed 3")
    weights = {weight.name: weight for weight in result.plan.weights}
    rows = [step for step in weights["bert.pooler.dense.weight"].steps if step.axis == 0]
    written = 'widen axis 0 of "bert.pooler.dense.bias" to 64 with average fill split random seed 3'
    asked = growc.plan(
        f"{recipe}widen hidden to 64 with average fill split random seed 3\n{written}", sequences()
    )
    same = {weight.name: weight for weight in asked.weights}["bert.pooler.dense.weight"]
    assert [step.signature for step in rows] == [step.signature for step in same.steps if step.axis == 0]
    assert rows
    assert not [note for note in asked.notes if "follows" in note]


@pytest.mark.soak
def test_a_following_axis_drops_the_same_units():
    result = growc.apply(sequences(), "subclone hidden to 16 by first", check=False)
    assert (result.config.hidden_size, result.config.num_attention_heads) == (16, 2)
    pooler = next(s for s in result.plan.summaries if s.axis == POOLER)
    assert (pooler.before, pooler.after, pooler.note) == ((32,), (16,), "first")


@pytest.mark.soak
def test_axes_of_several_sizes_follow_each_its_own():
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 4}
    text = {"hidden_size": 32, "intermediate_size": 40, "vocab_size": 48, "eos_token_id": 2, **sizes}
    vision = {"hidden_size": 48, "intermediate_size": 56, "image_size": 8, "patch_size": 4, **sizes}
    module = built("CLIPModel", transformers.CLIPConfig(text_config=text, vision_config=vision))
    result = growc.apply(module, "widen hidden to 3 * hidden / 2 with cyclic copy")
    found = [
        (part.hidden_size, part.num_attention_heads)
        for part in (result.config.text_config, result.config.vision_config)
    ]
    assert found == [(48, 6), (72, 6)]


@pytest.mark.soak
def test_the_config_with_the_fewest_changes_is_taken():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 48}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    module = built("Phi3ForCausalLM", transformers.Phi3Config(**sizes, **heads, pad_token_id=0))
    result = growc.apply(module, "widen hidden to 64 with cyclic copy\nexpect exact")
    found = result.config.hidden_size, result.config.num_attention_heads, result.config.head_dim
    assert found == (64, 4, 8)  # a field that the class asks for, and the config lacked


@pytest.mark.soak
def test_heads_of_groups_follow_where_a_class_asks_for_no_size_of_theirs():
    sizes = {"hidden_size": 32, "ffn_hidden_size": 48, "num_hidden_layers": 2, "vocab_size": 48}
    heads = {"num_attention_heads": 4, "num_kv_heads": 2, "new_decoder_architecture": True}
    module = built("FalconForCausalLM", transformers.FalconConfig(**sizes, **heads))
    result = growc.apply(module, "widen hidden to 64 with cyclic copy\nexpect exact")
    assert (result.config.hidden_size, result.config.num_attention_heads) == (64, 8)


@pytest.mark.soak
def test_an_axis_follows_a_stream_that_groups_part():
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    convolutions = {"conv_dim": (8,), "conv_stride": (2,), "conv_kernel": (3,), "squeeze_factor": 2}
    places = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False}
    module = built("SEWForCTC", transformers.SEWConfig(**sizes, **convolutions, **places, vocab_size=8))
    recipe = "widen hidden to 32 with cyclic copy\nwiden heads to 4 with neighbor copy\nexpect exact"
    result = growc.apply(module, recipe, check=False)
    assert (result.config.squeeze_factor, result.lm_head.in_features) == (2, 32)
    assert [note for note in result.plan.notes if "follows `hidden`" in note]
    assert_same(result, module, input_values=torch.randn(2, 64, generator=torch.Generator().manual_seed(1)))


@pytest.mark.soak
def test_a_difference_of_two_sizes_grows_as_both():
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    inner = {"embedding_size": 8, "intra_bottleneck_size": 8, "vocab_size": 48, "max_position_embeddings": 16}
    module = built("MobileBertForMaskedLM", transformers.MobileBertConfig(**sizes, **inner))
    recipe = "widen hidden to 2 * hidden with cyclic copy\nwiden heads to 4 with neighbor copy\nexpect exact"
    result = growc.apply(module, recipe, check=False)
    assert (result.config.hidden_size, result.config.embedding_size) == (32, 16)
    assert_same(result, module, input_ids=IDS)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:The tensor attribute:UserWarning")
@pytest.mark.soak
def test_an_axis_of_a_near_size_by_chance_does_not_lead():
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 48}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 4, "lru_width": 16}
    kinds = {"block_types": ["recurrent", "attention"], "attention_window_size": 4}
    module = built("RecurrentGemmaForCausalLM", transformers.RecurrentGemmaConfig(**sizes, **heads, **kinds))
    recipe = "widen hidden to 32 with cyclic copy\nwiden heads to 8 with neighbor copy\nexpect exact"
    result = growc.apply(module, recipe, check=False)
    grown = result.config  # twice as deep heads would give the queries their size, and change the one key
    assert (grown.num_attention_heads, grown.num_key_value_heads, grown.head_dim) == (8, 1, 4)
    assert (grown.lru_width, len(result.model.layers[0].temporal_block.rg_lru.input_gate_bias)) == (32, 8)
    assert_same(result, module, input_ids=IDS)


@pytest.mark.soak
def test_an_axis_that_a_statement_sizes_does_not_follow():
    with pytest.raises(growc.GrowError, match="G318"):
        growc.plan("widen heads to 8 with neighbor copy", sequences())


@pytest.mark.soak
def test_a_directory_says_so_too(save, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(comparing, "_exported", lambda *_: {})
    path = save("BertForSequenceClassification", tiny_config("Bert"))
    statement = "widen hidden to 64 with cyclic copy"
    for command in (["plan"], ["apply", "-o", str(tmp_path / "out")]):
        assert main([*command, "-e", f"{statement}\nexpect exact", str(path)]) == 0
        assert f"`{POOLER}` follows `hidden`" in capsys.readouterr().out
    grown = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert_same(grown, transformers.BertForSequenceClassification.from_pretrained(path).eval(), input_ids=IDS)
    assert main(["verify", str(path), str(tmp_path / "out")]) == 0


@pytest.mark.soak
def test_axes_of_new_layers_follow_as_those_do_that_they_come_from():
    module = sequences()
    stacked = growc.apply(module, "stack layers to 2 * layers by each", check=False)
    widened = growc.apply(
        module, "stack layers to 2 * layers by each\nwiden hidden to 2 * hidden with cyclic copy"
    )
    assert (widened.config.num_hidden_layers, widened.config.num_attention_heads) == (4, 8)
    assert_same(widened, stacked, input_ids=IDS)


@pytest.mark.parametrize(
    ("recipe", "follows"),
    [("widen hidden to 2 * hidden with cyclic copy", True), ("widen ffn to 2 * ffn with zero fill", False)],
)
def test_the_pass_hold_reads_what_it_requires(recipe, follows):
    names: list[str] = []
    model = FittingModel.of_module(sequences())
    given = Source(Path("Bert"), model, outside(), api.recipe(recipe).statements)
    planned = replace(run(PLANNING, given), after=lambda name, made, filled: names.append(name))
    read: set[str] = set()
    held = FIT_CONFIG.function(watched(planned, read))
    changed = {name for name, value in vars(held).items() if vars(planned).get(name, read) is not value}
    assert read <= {*FIT_CONFIG.requires}
    assert ("lowered" in changed) == follows
    assert {"plan", "grown"} <= changed <= {*FIT_CONFIG.remakes}
    FIT_CONFIG.run(planned)
    assert names == ["fit_config"]
