"""More classes of transformers for images and sound, in the table of checkpoints: see further_texts."""

from __future__ import annotations

from typing import Any

import torch
from facts import Facts, attention
from feeds import BATCH, Inputs, image, image_and_text
from models_decoders import special
from more import IMAGE, SIZES, vision
from registry import from_transformers

# --------------------------------------------------------------------------------------------- images

NETWORK: dict[str, Any] = {"norm": "batch", "stream": "branch", "convolutional": True}


def staged(name: str, kind: str, heads: bool = True, stream: str = "pre", **config: Any) -> None:
    """A classifier of two stages of widths 32 and 64."""
    named: dict[str, Any] = {"heads": (2, 4)} if heads else {"heads": (), "head_dim": ()}
    facts = attention(vocab=(), hidden=(32, 64), ffn=(128, 256), stream=stream, **named)
    from_transformers(name, facts, kind, image(), num_labels=10, **config)


PYRAMID: dict[str, Any] = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "hidden_sizes": [32, 64],
    "strides": [4, 2],
}
ATTENDING: dict[str, Any] = {"num_attention_heads": [2, 4], "mlp_ratios": [4, 4]}
WINDOWS: dict[str, Any] = {"image_size": 32, "patch_size": 4, "embed_dim": 32, "mlp_ratio": 4.0}

from_transformers(
    "convnextv2",
    Facts(hidden=(32, 64), ffn=(128, 256), stream="branch", embedding_norm=True, convolutional=True),
    "ConvNextV2ForImageClassification",
    image(),
    image_size=32,
    patch_size=4,
    hidden_sizes=[32, 64],
    depths=[2, 2],
    num_stages=2,
    num_labels=10,
)
staged(
    "swinv2",
    "Swinv2ForImageClassification",
    stream="post",
    depths=[2, 2],
    num_heads=[2, 4],
    window_size=4,
    **WINDOWS,
)
staged(
    "pvt",
    "PvtForImageClassification",
    image_size=32,
    sequence_reduction_ratios=[2, 1],
    patch_sizes=[4, 2],
    **PYRAMID,
    **ATTENDING,
)
staged(
    "pvt_v2",
    "PvtV2ForImageClassification",
    image_size=32,
    sr_ratios=[2, 1],
    patch_sizes=[7, 3],
    **PYRAMID,
    **ATTENDING,
)
staged(
    "poolformer",
    "PoolFormerForImageClassification",
    heads=False,
    patch_sizes=[7, 3],
    padding=[2, 1],
    mlp_ratio=4.0,
    **PYRAMID,
)
staged(
    "focalnet",
    "FocalNetForImageClassification",
    heads=False,
    depths=[1, 1],
    focal_levels=[2, 2],
    focal_windows=[3, 3],
    **WINDOWS,
)
staged(
    "hiera",
    "HieraForImageClassification",
    image_size=[32, 32],
    patch_size=[3, 3],
    patch_stride=[4, 4],
    patch_padding=[1, 1],
    embed_dim=32,
    num_heads=[2, 4],
    depths=[1, 1],
    masked_unit_size=[4, 4],
    query_stride=[2, 2],
    num_query_pool=1,
    embed_dim_multiplier=2.0,
)
from_transformers(
    "glpn",
    attention(vocab=(), hidden=(32, 64), heads=(2, 4), ffn=(128, 256)),
    "GLPNForDepthEstimation",
    image(),
    ("predicted_depth",),
    sr_ratios=[2, 1],
    patch_sizes=[7, 3],
    decoder_hidden_size=32,
    **PYRAMID,
    **ATTENDING,
)
from_transformers(
    "dpt",
    attention(vocab=()),
    "DPTForDepthEstimation",
    image(),
    ("predicted_depth",),
    num_hidden_layers=4,
    backbone_out_indices=[0, 1, 2, 3],
    neck_hidden_sizes=[16, 16, 32, 32],
    fusion_hidden_size=16,
    reassemble_factors=[4, 2, 1, 0.5],
    **{k: v for k, v in (SIZES | IMAGE).items() if k not in ("num_hidden_layers", "num_labels")},
)
vision(
    "data2vec_vision",
    "Data2VecVisionForImageClassification",
    use_relative_position_bias=True,
    layer_scale_init_value=0.5,
)
from_transformers(
    "mobilenet_v1",
    Facts(**NETWORK),
    "MobileNetV1ForImageClassification",
    image(),
    depth_multiplier=0.25,
    min_depth=8,
    image_size=32,
    num_labels=10,
)
from_transformers(
    "efficientnet",
    Facts(**NETWORK),
    "EfficientNetForImageClassification",
    image(),
    width_coefficient=0.5,
    depth_coefficient=0.3,
    image_size=32,
    hidden_dim=640,
    num_labels=10,
)
from_transformers(
    "bit",
    Facts(**(NETWORK | {"norm": "group"})),
    "BitForImageClassification",
    image(),
    embedding_size=32,
    hidden_sizes=[32, 64],
    depths=[2, 2],
    num_groups=4,
    num_labels=10,
)
from_transformers(
    "mobilevit",
    Facts(**NETWORK),
    "MobileViTForImageClassification",
    image(),
    image_size=32,
    hidden_sizes=[32, 48, 64],
    neck_hidden_sizes=[8, 16, 16, 24, 24, 32, 64],
    num_attention_heads=4,
    num_labels=10,
)
from_transformers(
    "hgnet",
    Facts(**NETWORK),
    "HGNetV2ForImageClassification",
    image(),
    num_labels=10,
    embedding_size=16,
    hidden_sizes=[16, 32],
    stage_in_channels=[16, 16],
    stage_mid_channels=[8, 16],
    stage_out_channels=[16, 32],
    stage_num_blocks=[1, 1],
    stage_downsample=[False, True],
    stage_light_block=[False, True],
    stage_kernel_size=[3, 3],
    stage_numb_of_layers=[2, 2],
    stem_channels=[3, 8, 16],
)


def spectrogram() -> Inputs:
    """32 frames of 16 bins."""
    return Inputs(
        lambda case: {"input_values": torch.randn(BATCH[case], 32, 16)}, {"input_values": {0: "batch"}}
    )


from_transformers(
    "ast",
    attention(vocab=()),
    "ASTForAudioClassification",
    spectrogram(),
    patch_size=8,
    frequency_stride=4,
    time_stride=4,
    max_length=32,
    num_mel_bins=16,
    num_labels=10,
    **SIZES,
)

# ------------------------------------------------------------------------------------ text and images

WORDS: dict[str, Any] = SIZES | special() | {"max_position_embeddings": 66, "projection_dim": 32}
PIXELS: dict[str, Any] = SIZES | {"image_size": 32, "patch_size": 8, "projection_dim": 32}


def towers(name: str, kind: str, **text_config: Any) -> None:
    """Two towers that are compared."""
    from_transformers(
        name,
        attention(),
        kind,
        image_and_text(),
        ("logits_per_text",),
        text_config=WORDS | text_config,
        vision_config=PIXELS,
        projection_dim=32,
    )


towers("altclip", "AltCLIPModel", project_dim=32, pad_token_id=1)
towers("chinese_clip", "ChineseCLIPModel")
towers("blip", "BlipModel", encoder_hidden_size=64)
from_transformers(
    "git",
    attention(stream="post"),
    "GitForCausalLM",
    image_and_text(),
    vision_config=PIXELS,
    **SIZES,
    **special(),
)
from_transformers(
    "vilt",
    attention(),
    "ViltForImageAndTextRetrieval",
    image_and_text(length=16),
    image_size=32,
    patch_size=8,
    max_position_embeddings=40,
    **SIZES,
    **special(),
)
