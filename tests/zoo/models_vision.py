"""Networks for images and sound, and pairs of towers, from transformers."""

from __future__ import annotations

from typing import Any

from facts import Facts, attention
from feeds import image, image_and_text, sound
from models_decoders import special
from registry import from_transformers

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 10,
}

from_transformers(
    "vit",
    attention(vocab=()),
    "ViTForImageClassification",
    image(),
    optimiser="vit",
    num_hidden_layers=4,
    **SIZES,
)
from_transformers(
    "dinov2",
    attention(vocab=(), traits=("layer scale",)),
    "Dinov2ForImageClassification",
    image(),
    num_hidden_layers=2,
    mlp_ratio=4,
    **SIZES,
)
from_transformers(
    "beit",
    attention(vocab=(), traits=("layer scale", "relative bias baked")),
    "BeitForImageClassification",
    image(),
    num_hidden_layers=2,
    use_relative_position_bias=True,
    use_mean_pooling=True,
    layer_scale_init_value=0.5,
    **SIZES,
)
from_transformers(
    "swin",
    attention(
        hidden=(32, 64),
        heads=(2, 4),
        ffn=(128, 256),
        vocab=(),
        embedding_norm=True,
        traits=("windows", "stages", "relative bias baked"),
    ),
    "SwinForImageClassification",
    image(),
    image_size=32,
    patch_size=4,
    embed_dim=32,
    depths=[2, 2],
    num_heads=[2, 4],
    window_size=4,
    mlp_ratio=4.0,
    num_labels=10,
)
from_transformers(
    "segformer",
    attention(
        hidden=(32, 64),
        heads=(2, 4),
        ffn=(64, 128),
        vocab=(),
        embedding_norm=True,
        traits=("stages", "depthwise"),
    ),
    "SegformerForImageClassification",
    image(),
    num_encoder_blocks=2,
    depths=[1, 1],
    sr_ratios=[2, 1],
    hidden_sizes=[32, 64],
    patch_sizes=[3, 3],
    strides=[4, 2],
    num_attention_heads=[2, 4],
    mlp_ratios=[2, 2],
    num_labels=10,
)
from_transformers(
    "convnext",
    Facts(
        hidden=(32, 64),
        ffn=(128, 256),
        stream="branch",
        embedding_norm=True,
        convolutional=True,
        traits=("depthwise", "layer scale", "stages"),
    ),
    "ConvNextForImageClassification",
    image(),
    image_size=32,
    patch_size=4,
    hidden_sizes=[32, 64],
    depths=[2, 2],
    num_stages=2,
    layer_scale_init_value=0.5,
    num_labels=10,
)
from_transformers(
    "resnet",
    Facts(
        hidden=(32, 64),
        layers=(1,),
        norm="batch",
        stream="branch",
        convolutional=True,
        traits=("batch norm", "stages"),
    ),
    "ResNetForImageClassification",
    image(),
    embedding_size=16,
    hidden_sizes=[32, 64],
    depths=[2, 2],
    layer_type="bottleneck",
    num_labels=10,
)
from_transformers(
    "mobilenet_v2",
    Facts(
        hidden=(8, 16, 24, 32, 56),
        layers=(1, 2, 3),
        norm="batch",
        stream="branch",
        convolutional=True,
        traits=("depthwise", "batch norm"),
    ),
    "MobileNetV2ForImageClassification",
    image(),
    image_size=32,
    depth_multiplier=0.35,
    num_labels=10,
)
from_transformers(
    "regnet",
    Facts(
        hidden=(32, 64),
        layers=(1,),
        norm="batch",
        stream="branch",
        convolutional=True,
        traits=("grouped convolution", "batch norm"),
    ),
    "RegNetForImageClassification",
    image(),
    embedding_size=16,
    hidden_sizes=[32, 64],
    depths=[2, 2],
    groups_width=8,
    layer_type="y",
    num_labels=10,
)
from_transformers(
    "wav2vec2",
    attention(vocab=(), stream="post", embedding_norm=True, traits=("convolutional stem", "weight norm")),
    "Wav2Vec2ForCTC",
    sound(),
    hidden_size=64,
    num_attention_heads=4,
    num_hidden_layers=2,
    intermediate_size=256,
    conv_dim=(32, 32, 32),
    conv_stride=(5, 2, 2),
    conv_kernel=(10, 3, 3),
    num_feat_extract_layers=3,
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4,
    vocab_size=32,
)

# ------------------------------------------------------------------------------------------- two towers

VISION = {"image_size": 32, "patch_size": 8}

from_transformers(
    "clip",
    attention(hidden=(64, 48), heads=(4, 3), ffn=(256, 192), embedding_norm=True, traits=("two towers",)),
    "CLIPModel",
    image_and_text(last=127),
    outputs=("logits_per_image", "text_embeds", "image_embeds"),
    projection_dim=40,
    text_config={
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
        "projection_dim": 40,
        **special(),
        "eos_token_id": 127,
    },
    vision_config={
        "hidden_size": 48,
        "intermediate_size": 192,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "projection_dim": 40,
        **VISION,
    },
)
from_transformers(
    "siglip",
    attention(
        hidden=(64, 48),
        heads=(4, 6),
        head_dim=(16, 8),
        ffn=(256, 192),
        traits=("two towers", "attention pooling"),
    ),
    "SiglipModel",
    image_and_text(length=16, masked=False),
    outputs=("logits_per_image", "text_embeds", "image_embeds"),
    text_config={
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 16,
        "projection_size": 48,
        **special(),
    },
    vision_config={
        "hidden_size": 48,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        **VISION,
    },
)
