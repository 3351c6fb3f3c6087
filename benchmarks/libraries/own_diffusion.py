"""Networks of diffusers: U-nets, autoencoders and transformers, of small sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from own_row import Made, Noise, Row, Same, Tokens
from subjects import declare_torchvision

CHANNELS, BOTH = ("channels",), ("ffn", "heads")
STEP = {"timestep": Tokens((2,), 1000)}
IMAGE, LATENT = {"sample": Noise((2, 3, 16, 16))}, {"sample": Noise((2, 4, 16, 16))}
FILM = {"sample": Noise((2, 4, 3, 16, 16))}
WORDS = {"encoder_hidden_states": Noise((2, 6, 24))}
ALL_WORDS = Same((2, 6), True)
SIZES = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 4}
CODES = {
    **SIZES,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}
CROSSED = {
    **SIZES, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 24, "attention_head_dim": 4,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}  # fmt: skip
PLAIN = {**SIZES, "down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2,
         "add_attention": False}  # fmt: skip
HEADS = {"num_attention_heads": 4, "attention_head_dim": 8, "num_layers": 2}
PATCHES = {**HEADS, "in_channels": 4, "patch_size": 2, "sample_size": 8}
PATCHED = {"hidden_states": Noise((2, 4, 8, 8)), **STEP}
ADAPTED = {
    **PATCHES, "out_channels": 8, "attention_bias": True, "activation_fn": "gelu-approximate",
    "num_embeds_ada_norm": 1000, "norm_elementwise_affine": False,
}  # fmt: skip
JOINT = {**PATCHES, "joint_attention_dim": 24, "caption_projection_dim": 32, "pooled_projection_dim": 20,
         "out_channels": 4, "pos_embed_max_size": 8}  # fmt: skip
POOLED = {"pooled_projections": Noise((2, 20))}
PLACES = {"img_ids": Noise((16, 3)), "txt_ids": Noise((6, 3))}
ROTATED = {**HEADS, "num_single_layers": 1, "num_layers": 1, "patch_size": 1, "in_channels": 4,
           "joint_attention_dim": 24, "axes_dims_rope": (2, 2, 4)}  # fmt: skip

UNETS: tuple[tuple[str, str, tuple[str, ...], str, Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("unet-2d", "unet", CHANNELS, "UNet2DModel", PLAIN, {**IMAGE, **STEP}),
    ("unet-2d-attention", "unet", CHANNELS, "UNet2DModel",
     {**SIZES, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "attention_head_dim": 8,
      "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}, {**IMAGE, **STEP}),
    ("unet-2d-resnet-sampling", "unet", CHANNELS, "UNet2DModel",
     {**PLAIN, "down_block_types": ("ResnetDownsampleBlock2D",) * 2,
      "up_block_types": ("ResnetUpsampleBlock2D",) * 2, "resnet_time_scale_shift": "scale_shift"},
     {**IMAGE, **STEP}),
    ("unet-2d-skip", "unet", CHANNELS, "UNet2DModel",
     {**SIZES, "norm_num_groups": None, "time_embedding_type": "fourier",
      "down_block_types": ("SkipDownBlock2D",) * 2, "up_block_types": ("SkipUpBlock2D",) * 2,
      "add_attention": False}, {**IMAGE, "timestep": Same((2,), 10)}),
    ("unet-2d-condition", "unet", CHANNELS, "UNet2DConditionModel", CROSSED, {**LATENT, **STEP, **WORDS}),
    ("unet-2d-condition-linear", "unet", CHANNELS, "UNet2DConditionModel",
     {**CROSSED, "use_linear_projection": True, "transformer_layers_per_block": 2},
     {**LATENT, **STEP, **WORDS}),
    ("unet-2d-condition-simple", "unet", CHANNELS, "UNet2DConditionModel",
     {**CROSSED, "down_block_types": ("SimpleCrossAttnDownBlock2D", "ResnetDownsampleBlock2D"),
      "up_block_types": ("ResnetUpsampleBlock2D", "SimpleCrossAttnUpBlock2D"),
      "mid_block_type": "UNetMidBlock2DSimpleCrossAttn"}, {**LATENT, **STEP, **WORDS}),
    ("unet-1d", "unet", CHANNELS, "UNet1DModel",
     {"block_out_channels": (16, 32), "in_channels": 6, "out_channels": 6, "use_timestep_embedding": True,
      "time_embedding_type": "positional", "flip_sin_to_cos": False, "freq_shift": 1.0, "act_fn": "swish",
      "down_block_types": ("DownResnetBlock1D",) * 2, "up_block_types": ("UpResnetBlock1D",),
      "mid_block_type": "MidResTemporalBlock1D", "out_block_type": "OutConv1DBlock"},
     {"sample": Noise((2, 6, 16)), **STEP}),
    ("unet-3d-condition", "unet", CHANNELS, "UNet3DConditionModel",
     {**CROSSED, "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
      "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D")}, {**FILM, **STEP, **WORDS}),
    ("unet-motion", "unet", CHANNELS, "UNetMotionModel",
     {**{k: v for k, v in CROSSED.items() if k != "attention_head_dim"}, "num_attention_heads": 2,
      "motion_num_attention_heads": 2, "down_block_types": ("CrossAttnDownBlockMotion", "DownBlockMotion"),
      "up_block_types": ("UpBlockMotion", "CrossAttnUpBlockMotion")},
     {**FILM, **STEP, "encoder_hidden_states": Noise((6, 6, 24))}),
    ("unet-spatio-temporal", "unet", CHANNELS, "UNetSpatioTemporalConditionModel",
     {"block_out_channels": (32, 64), "in_channels": 4, "out_channels": 4, "layers_per_block": 1,
      "cross_attention_dim": 24, "num_attention_heads": 4, "addition_time_embed_dim": 8,
      "projection_class_embeddings_input_dim": 24,
      "down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
      "up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal")},
     {"sample": Noise((2, 3, 4, 16, 16)), **STEP, **WORDS, "added_time_ids": Noise((2, 3))}),
    ("unet-cascade", "unet", CHANNELS, "StableCascadeUNet",
     {"in_channels": 4, "out_channels": 4, "conditioning_dim": 32, "block_out_channels": (16, 32),
      "num_attention_heads": (2, 4), "down_num_layers_per_block": (1, 1), "up_num_layers_per_block": (1, 1),
      "clip_text_pooled_in_channels": 20, "clip_seq": 2, "timestep_ratio_embedding_dim": 16},
     {"sample": Noise((2, 4, 8, 8)), "timestep_ratio": Noise((2,)), "clip_text_pooled": Noise((2, 1, 20))}),
    ("unet-kandinsky", "unet", CHANNELS, "Kandinsky3UNet",
     {"time_embedding_dim": 32, "groups": 4, "attention_head_dim": 8, "layers_per_block": 2,
      "block_out_channels": (16, 32), "cross_attention_dim": 24, "encoder_hid_dim": 24},
     {**LATENT, **STEP, **WORDS, "encoder_attention_mask": Same((2, 6), 1.0)}),
    ("control-net", "adapter", CHANNELS, "ControlNetModel",
     {**{k: v for k, v in CROSSED.items() if k not in ("up_block_types", "out_channels")},
      "conditioning_embedding_out_channels": (16, 32)},
     {**LATENT, **STEP, **WORDS, "controlnet_cond": Noise((2, 3, 32, 32))}),
    ("t2i-adapter", "adapter", CHANNELS, "T2IAdapter",
     {"channels": [16, 32], "num_res_blocks": 1, "downscale_factor": 4}, {"x": Noise((2, 3, 32, 32))}),
    ("t2i-adapter-light", "adapter", CHANNELS, "T2IAdapter",
     {"channels": [16, 32], "num_res_blocks": 1, "downscale_factor": 4, "adapter_type": "light_adapter"},
     {"x": Noise((2, 3, 32, 32))}),
)  # fmt: skip
"""A name, a family, axes, a class, its options, its inputs."""

AUTOENCODERS: tuple[tuple[str, str, tuple[str, ...], str, Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("autoencoder-kl", "autoencoder", CHANNELS, "AutoencoderKL", CODES, IMAGE),
    ("autoencoder-kl-plain", "autoencoder", CHANNELS, "AutoencoderKL",
     {**CODES, "mid_block_add_attention": False}, IMAGE),
    ("autoencoder-asymmetric", "autoencoder", CHANNELS, "AsymmetricAutoencoderKL",
     {"norm_num_groups": 4, "down_block_out_channels": (16, 32), "up_block_out_channels": (24, 48),
      "down_block_types": CODES["down_block_types"], "up_block_types": CODES["up_block_types"]},
     {**IMAGE, "mask": Same((2, 1, 16, 16), 1.0)}),
    ("autoencoder-vq", "autoencoder", CHANNELS, "VQModel", {**CODES, "num_vq_embeddings": 32}, IMAGE),
    ("autoencoder-tiny", "autoencoder", CHANNELS, "AutoencoderTiny",
     {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16),
      "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}, IMAGE),
    ("autoencoder-dc", "autoencoder", CHANNELS, "AutoencoderDC",
     {"latent_channels": 4, "attention_head_dim": 4, "encoder_block_out_channels": (16, 16),
      "decoder_block_out_channels": (16, 16), "encoder_layers_per_block": (1, 1),
      "decoder_layers_per_block": (1, 1), "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
      "decoder_block_types": ("ResBlock", "EfficientViTBlock"), "encoder_qkv_multiscales": ((), (5,)),
      "decoder_qkv_multiscales": ((), (5,)), "downsample_block_type": "conv",
      "upsample_block_type": "interpolate"}, IMAGE),
    ("autoencoder-oobleck", "autoencoder", CHANNELS, "AutoencoderOobleck",
     {"encoder_hidden_size": 16, "decoder_channels": 16, "decoder_input_channels": 8,
      "downsampling_ratios": [2, 4], "channel_multiples": [1, 2]}, {"sample": Noise((2, 2, 64))}),
    ("autoencoder-temporal", "autoencoder", CHANNELS, "AutoencoderKLTemporalDecoder",
     {"block_out_channels": (32, 64), "layers_per_block": 1, "down_block_types": CODES["down_block_types"]},
     {"sample": Noise((3, 3, 16, 16)), "num_frames": 3}),
)  # fmt: skip
"""As above."""

TRANSFORMERS: tuple[tuple[str, str, tuple[str, ...], str, Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("dit", "transformer", BOTH, "DiTTransformer2DModel",
     {**ADAPTED, "num_embeds_ada_norm": 10, "norm_type": "ada_norm_zero"},
     {**PATCHED, "class_labels": Tokens((2,), 10)}),
    ("pixart", "transformer", BOTH, "PixArtTransformer2DModel",
     {**ADAPTED, "cross_attention_dim": 32, "caption_channels": 24, "norm_type": "ada_norm_single",
      "use_additional_conditions": False}, {**PATCHED, **WORDS}),
    ("sd3", "transformer", BOTH, "SD3Transformer2DModel", JOINT, {**PATCHED, **WORDS, **POOLED}),
    ("sd3-dual", "transformer", BOTH, "SD3Transformer2DModel",
     {**JOINT, "dual_attention_layers": (0,), "qk_norm": "rms_norm"}, {**PATCHED, **WORDS, **POOLED}),
    ("flux", "transformer", BOTH, "FluxTransformer2DModel", {**ROTATED, "pooled_projection_dim": 20},
     {"hidden_states": Noise((2, 16, 4)), **WORDS, **POOLED, **PLACES, **STEP}),
    ("chroma", "transformer", BOTH, "ChromaTransformer2DModel",
     {**ROTATED, "approximator_num_channels": 8, "approximator_hidden_dim": 16, "approximator_layers": 1},
     {"hidden_states": Noise((2, 16, 4)), **WORDS, **PLACES, **STEP}),
    ("hunyuan-dit", "transformer", BOTH, "HunyuanDiT2DModel",
     {**PATCHES, "hidden_size": 32, "cross_attention_dim": 24, "cross_attention_dim_t5": 24,
      "pooled_projection_dim": 8, "text_len": 6, "text_len_t5": 6},
     {**PATCHED, "timestep": Same((2,), 10.0), **WORDS, "encoder_hidden_states_t5": Noise((2, 6, 24)),
      "text_embedding_mask": Same((2, 6), 1.0), "text_embedding_mask_t5": Same((2, 6), 1.0),
      "image_meta_size": Same((2, 6), 16.0), "style": Same((2,), 0)}),
    ("transformer-2d", "transformer", CHANNELS, "Transformer2DModel",
     {**HEADS, "in_channels": 16, "norm_num_groups": 4, "cross_attention_dim": 24},
     {"hidden_states": Noise((2, 16, 8, 8)), **WORDS}),
    ("transformer-2d-linear", "transformer", BOTH, "Transformer2DModel",
     {**HEADS, "in_channels": 16, "norm_num_groups": 4, "use_linear_projection": True,
      "double_self_attention": True}, {"hidden_states": Noise((2, 16, 8, 8))}),
    ("transformer-temporal", "transformer", BOTH, "TransformerTemporalModel",
     {**HEADS, "in_channels": 16, "norm_num_groups": 4}, {"hidden_states": Noise((4, 16, 4, 4))}),
    ("prior", "transformer", BOTH, "PriorTransformer",
     {**HEADS, "embedding_dim": 24, "num_embeddings": 6, "additional_embeddings": 4},
     {"hidden_states": Noise((2, 24)), **STEP, "proj_embedding": Noise((2, 24)), **WORDS}),
    ("uvit", "transformer", CHANNELS, "UVit2DModel",
     {"hidden_size": 32, "cond_embed_dim": 20, "micro_cond_encode_dim": 4, "micro_cond_embed_dim": 20,
      "encoder_hidden_size": 24, "vocab_size": 33, "codebook_size": 32, "in_channels": 16,
      "block_out_channels": 16, "num_res_blocks": 1, "block_num_heads": 2, "num_hidden_layers": 2,
      "num_attention_heads": 4, "intermediate_size": 64, "sample_size": 8},
     {"input_ids": Tokens((2, 8, 8), 33), **WORDS, "pooled_text_emb": Noise((2, 20)),
      "micro_conds": Noise((2, 5))}),
    ("aura-flow", "transformer", BOTH, "AuraFlowTransformer2DModel",
     {"sample_size": 8, "patch_size": 2, "in_channels": 4, "out_channels": 4, "num_mmdit_layers": 1,
      "num_single_dit_layers": 1, "attention_head_dim": 8, "num_attention_heads": 4,
      "caption_projection_dim": 32, "joint_attention_dim": 24, "pos_embed_max_size": 16},
     {**PATCHED, **WORDS}),
    ("cog-video-x", "transformer", BOTH, "CogVideoXTransformer3DModel",
     {**HEADS, "in_channels": 4, "out_channels": 4, "time_embed_dim": 16, "text_embed_dim": 24,
      "patch_size": 2, "sample_width": 8, "sample_height": 8, "sample_frames": 1, "max_text_seq_length": 6},
     {"hidden_states": Noise((2, 1, 4, 8, 8)), **WORDS, **STEP}),
    ("cog-view-4", "transformer", BOTH, "CogView4Transformer2DModel",
     {**HEADS, "patch_size": 2, "in_channels": 4, "out_channels": 4, "text_embed_dim": 24,
      "time_embed_dim": 16, "condition_dim": 4},
     {**PATCHED, **WORDS, "original_size": Same((2, 2), 64.0), "target_size": Same((2, 2), 64.0),
      "crop_coords": Same((2, 2), 0.0)}),
    ("ltx-video", "transformer", BOTH, "LTXVideoTransformer3DModel",
     {**HEADS, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 32, "caption_channels": 24},
     {"hidden_states": Noise((2, 32, 4)), **WORDS, **STEP, "encoder_attention_mask": ALL_WORDS,
      "num_frames": 2, "height": 4, "width": 4}),
    ("sana", "transformer", CHANNELS, "SanaTransformer2DModel",
     {**HEADS, "in_channels": 4, "out_channels": 4, "num_cross_attention_heads": 4, "patch_size": 1,
      "cross_attention_head_dim": 8, "cross_attention_dim": 32, "caption_channels": 24, "sample_size": 8},
     {**PATCHED, **WORDS}),
    ("lumina-2", "transformer", BOTH, "Lumina2Transformer2DModel",
     {"sample_size": 8, "patch_size": 2, "in_channels": 4, "hidden_size": 32, "num_layers": 2,
      "num_refiner_layers": 1, "num_attention_heads": 4, "num_kv_heads": 2, "multiple_of": 2,
      "axes_dim_rope": (4, 2, 2), "axes_lens": (32, 32, 32), "cap_feat_dim": 24},
     {"hidden_states": Noise((2, 4, 8, 8)), **WORDS, "timestep": Noise((2,)),
      "encoder_attention_mask": ALL_WORDS}),
    ("mochi", "transformer", BOTH, "MochiTransformer3DModel",
     {**HEADS, "patch_size": 2, "in_channels": 4, "text_embed_dim": 24, "time_embed_dim": 8,
      "pooled_projection_dim": 16, "max_sequence_length": 6},
     {"hidden_states": Noise((2, 4, 2, 8, 8)), **WORDS, **STEP, "encoder_attention_mask": ALL_WORDS}),
    ("wan", "transformer", BOTH, "WanTransformer3DModel",
     {"num_attention_heads": 4, "attention_head_dim": 12, "num_layers": 2, "in_channels": 4,
      "out_channels": 4, "text_dim": 24, "freq_dim": 16, "ffn_dim": 64,
      "rope_max_seq_len": 32, "cross_attn_norm": True},
     {"hidden_states": Noise((2, 4, 2, 8, 8)), **WORDS, **STEP}),
    ("stable-audio", "transformer", BOTH, "StableAudioDiTModel",
     {**HEADS, "sample_size": 16, "in_channels": 6, "out_channels": 6, "num_key_value_attention_heads": 2,
      "cross_attention_dim": 16, "time_proj_dim": 8, "global_states_input_dim": 12,
      "cross_attention_input_dim": 24},
     {"hidden_states": Noise((2, 6, 16)), **STEP, **WORDS, "global_hidden_states": Noise((2, 1, 12))}),
    ("latte", "transformer", BOTH, "LatteTransformer3DModel",
     {**ADAPTED, "caption_channels": 24, "cross_attention_dim": 32, "norm_type": "ada_norm_single",
      "video_length": 2}, {"hidden_states": Noise((2, 4, 2, 8, 8)), **WORDS, **STEP}),
)  # fmt: skip
"""As above."""

ROWS = tuple(
    Row("diffusers", name, family, axes, Made(f"diffusers:{kind}", options), feed, declare_torchvision)
    for name, family, axes, kind, options, feed in (*UNETS, *AUTOENCODERS, *TRANSFORMERS)
)
