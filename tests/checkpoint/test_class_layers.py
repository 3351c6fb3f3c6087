"""Layers of classes that number them, name their stages, or learn something beside the stream."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

import growc

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
IMAGE = {"image_size": 8, "patch_size": 4}
PIXELS = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def seeded(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return module.eval()


def beit() -> nn.Module:
    config = transformers.BeitConfig(**SIZES, **IMAGE, use_relative_position_bias=True)
    return seeded(transformers.BeitForImageClassification(config))


def assert_same(result: nn.Module, source: nn.Module, pixels: torch.Tensor = PIXELS) -> None:
    with torch.no_grad():
        torch.testing.assert_close(result(pixels).logits, source(pixels).logits, rtol=3e-4, atol=3e-4)


@pytest.mark.soak
def test_each_layer_has_its_own_weights_beside_the_stream():
    source = beit()
    result = growc.apply(source, "stack layers to 3 by last with zero outputs\nexpect exact", check=False)
    name = "beit.layers.{}.relative_position_bias.relative_position_bias_table"
    state = result.state_dict()
    assert torch.equal(state[name.format(2)], source.state_dict()[name.format(1)])
    assert not torch.equal(state[name.format(2)], state[name.format(0)])
    assert_same(result, source)


def test_names_of_stages_follow_the_number_of_layers():
    result = growc.apply(beit(), "subclone layers to 1 by first", check=False)
    assert result.config.num_hidden_layers == 1
    assert result.config.stage_names == ["stem", "stage1"]
    assert result.config.out_features == ["stage1"]


def test_a_layer_that_stands_alone_in_its_stage_is_numbered_on():
    config = transformers.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[3, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
    )
    source = seeded(transformers.SegformerForImageClassification(config))
    result = growc.apply(
        source, "stack layers to layers + 1 by last with zero outputs\nexpect exact", check=False
    )
    assert result.config.depths == [2, 2]
    assert_same(result, source, torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)))


def yolos(layers: int) -> nn.Module:
    sizes = SIZES | {"num_hidden_layers": layers}
    return seeded(
        transformers.YolosForObjectDetection(
            transformers.YolosConfig(**sizes, image_size=[8, 8], patch_size=4, num_detection_tokens=3)
        )
    )


def test_rows_between_layers_are_as_many_as_the_class_has():
    source, name = yolos(2), "vit.encoder.interpolation.mid_position_embeddings"
    result = growc.apply(source, "stack layers to 3 by each with zero outputs\nexpect exact", check=False)
    rows, before = result.state_dict()[name], source.state_dict()[name]
    assert torch.equal(rows, torch.cat([before, torch.zeros_like(before)]))
    assert_same(result, source)
    shorter = growc.apply(source, "subclone layers to 1 by first", check=False)
    assert shorter.state_dict()[name].shape == (0, *before.shape[1:])


def swin(depth: int) -> nn.Module:
    config = transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[depth], num_heads=[2], window_size=4
    )
    return seeded(transformers.SwinForImageClassification(config))


def test_the_only_layer_of_a_class_is_numbered_on_where_it_has_many_constants():
    config = transformers.MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=24, state_size=4)
    source = seeded(transformers.MambaForCausalLM(config))
    words = {"input_ids": torch.tensor([[3, 5, 7, 11]])}
    recipe = "stack layers to 3 by last with zero outputs\nexpect exact"
    result = growc.apply(source, recipe, words, check=False)
    assert result.config.num_hidden_layers == 3
    state = result.state_dict()
    for layer in (1, 2):
        log, out = (state[f"backbone.layers.{layer}.mixer.{n}"] for n in ("A_log", "out_proj.weight"))
        assert torch.equal(log, source.state_dict()["backbone.layers.0.mixer.A_log"])
        assert not out.any()
    with torch.no_grad():
        torch.testing.assert_close(result(**words).logits, source(**words).logits)


@pytest.mark.soak
def test_a_class_that_alternates_its_layers_says_where_it_parts():
    with pytest.raises(growc.GrowError, match="G318") as caught:
        growc.plan("stack layers to 3 by last", swin(2))
    assert "roll" in str(caught.value)
    deeper = growc.plan("stack layers to 4 by top 2 with zero outputs", swin(2))
    assert deeper.certificate.exact
    assert not [note for note in deeper.notes if "zero yet" in note]


@pytest.mark.soak
def test_a_class_that_alternates_its_layers_does_so_in_those_that_add_nothing_yet():
    source = swin(1)
    result = growc.apply(source, "stack layers to 2 by last with zero outputs\nexpect exact", check=False)
    assert result.config.depths == [2]
    assert [note for note in result.plan.notes if "`swin.encoder.layers.0.blocks.1" in note]
    assert_same(result, source, torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1)))


@pytest.mark.soak
def test_numbers_that_a_class_makes_from_the_place_of_a_layer_are_no_gap_while_it_adds_nothing():
    sizes = SIZES | {"num_key_value_heads": 2, "vocab_size": 20, "pad_token_id": 0}
    source = seeded(transformers.DiffLlamaForCausalLM(transformers.DiffLlamaConfig(**sizes)))
    result = growc.apply(source, "stack layers to 3 by last with zero outputs\nexpect exact", check=False)
    assert_same(result, source, torch.arange(2, 14).view(2, 6))
    [note] = [note for note in result.plan.notes if "`model.layers.2.mlp.down_proj.weight`" in note]
    assert "`DiffLlamaForCausalLM` computes what it computes at their place" in note


def fnet(**more: object) -> nn.Module:
    sizes = {key: size for key, size in SIZES.items() if key != "num_attention_heads"}
    config = transformers.FNetConfig(**sizes, vocab_size=20, max_position_embeddings=12, **more)
    return seeded(transformers.FNetForMaskedLM(config))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "more", [{}, {"use_tpu_fourier_optimizations": True, "tpu_short_seq_length": 12}], ids=["fft", "product"]
)
def test_layers_that_mix_without_a_weight_are_counted(more):
    recipe = "subclone layers to layers / 2 by even\nsubclone ffn to ffn / 2 by magnitude"
    result = growc.apply(fnet(**more), recipe, check=False)
    assert (result.config.num_hidden_layers, result.config.intermediate_size) == (1, 12)


def test_a_fourier_transform_is_what_forbids_a_wider_stream():
    with pytest.raises(growc.GrowError, match="Fourier transform"):
        growc.plan("widen hidden to 32 with cyclic copy", fnet())


def test_a_class_that_has_no_layers_of_a_part_says_which_part():
    config = transformers.HieraConfig(
        image_size=[16, 16],
        patch_size=[3, 3],
        patch_stride=[2, 2],
        patch_padding=[1, 1],
        embed_dim=8,
        num_heads=[1, 2],
        depths=[1, 1],
        masked_unit_size=[4, 4],
        num_query_pool=1,
    )
    source = seeded(transformers.HieraForImageClassification(config))
    deeper = "stack layers to layers + 1 by last with zero outputs"
    [note] = growc.plan(deeper, source).notes
    assert note.startswith("1 of 2 runs of `layers` stays as before")
    with pytest.raises(growc.GrowError, match="G318") as caught:
        growc.plan(f'in "hiera.encoder.stages.1.*" {{ {deeper} }}', source)
    layer = "hiera.encoder.stages.1.layers.0"
    assert f"{layer}.layernorm_after.weight` is planned 2 times, and the class has it once" in str(
        caught.value
    )
    assert f"only a part of `{layer}` repeats" in str(caught.value)


@pytest.mark.parametrize(
    ("recipe", "counts"),
    [
        ("stack layers to 7 by last with zero outputs\nexpect exact", (2, 2, 3)),
        pytest.param("arrange layers as 0, 0, 1, 2, 3, 4, 5", (3, 2, 2), marks=pytest.mark.soak),
        pytest.param("drop layers 2", (2, 1, 2), marks=pytest.mark.soak),
    ],
)
def test_layers_of_one_stream_are_numbered_in_the_lists_they_stand_in(
    recipe: str, counts: tuple[int, ...]
) -> None:
    """The layers of a film model: of single frames, of frames together, and auxiliary ones."""
    lists = {f"num_{kind}_layers": 2 for kind in ("spatial", "temporal", "auxiliary")}
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    film = {"image_size": 8, "tubelet_size": [1, 4, 4], "num_frames": 2}
    config = transformers.VideoPrismVisionConfig(**sizes, **lists, **film)
    source = seeded(transformers.VideoPrismVideoModel(config))
    pixels = torch.randn(2, 2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    result = growc.apply(source, recipe, (pixels,), check=False)
    assert tuple(getattr(result.config, name) for name in lists) == counts
    if "exact" in recipe:
        with torch.no_grad():
            torch.testing.assert_close(result(pixels)[0], source(pixels)[0], rtol=3e-4, atol=3e-4)
