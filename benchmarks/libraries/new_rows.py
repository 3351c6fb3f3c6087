"""Classes of transformers that came in 2026: what their small configs have, and what they are fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from new_configs import IMAGE, SOUND

Shape = tuple[int, ...]


class Ids(tuple[int, ...]):
    """The shape of random words."""

    __slots__ = ()


@dataclass(frozen=True)
class Row:
    """A class, by name, and its config beyond what is small by itself.

    feed: by argument, normal numbers of a shape, words of a shape, or a list as it is. media: the method that
    gives what stands for images or sound: the words have as many places for it. under: another config class.
    """

    kind: str
    config: Mapping[str, Any]
    feed: Mapping[str, Any]
    media: str = ""
    under: str = ""


ROWS: dict[str, Row] = {}
WORDS = Ids((2, 10))
IMAGES: dict[str, Any] = {"pixel_values": (2, 3, 32, 32)}
BIG: dict[str, Any] = {"pixel_values": (2, 3, 64, 64)}


def fed(kind: str, feed: Mapping[str, Any], **config: Any) -> None:
    """A model with inputs of its own."""
    ROWS[kind] = Row(kind, config, feed)


def text(kind: str, **config: Any) -> None:
    """A model of text alone."""
    fed(kind, {"input_ids": WORDS}, **config)


def image(kind: str, **config: Any) -> None:
    """A model of images alone."""
    fed(kind, IMAGES, **config)


def seeing(kind: str, feed: Mapping[str, Any], **config: Any) -> None:
    """A model of images and text."""
    ROWS[kind] = Row(kind, config, feed, "get_image_features")


def hearing(kind: str, feed: Mapping[str, Any], **config: Any) -> None:
    """A model of sound and text."""
    ROWS[kind] = Row(kind, config, feed, "get_audio_features")


def under(config_kind: str, kind: str, feed: Mapping[str, Any], media: str = "", **config: Any) -> None:
    """An older class that a new config is for."""
    name = config_kind.removesuffix("Config") + kind[kind.index("For") :]
    ROWS[name] = Row(kind, config, feed, media, config_kind)


def patches(frames: int = 2, side: int = 8) -> dict[str, Any]:
    """Two images of four patches by four, each a row."""
    return {"pixel_values": (32, 3 * frames * side * side), "image_grid_thw": [[1, 4, 4], [1, 4, 4]]}


# fmt: off
ROPES = {"rope_type": "default", "rope_theta": 10000.0}

for name in (
    "AXK1", "AXK2", "BailingHybrid", "Beam", "Cohere2Moe", "DeepseekV32", "ExaoneMoe", "Flint", "Glm4MoeLite",
    "GlmMoeDsa", "GraniteSWA", "GraniteMoeSWA", "HYV3", "HYV4", "HyperCLOVAX", "KimiLinear", "Kolibri1",
    "Lfm3", "MiMoV2Flash", "MiniCPM3", "MiniMaxM2", "Mistral4", "NemotronH", "OlmoHybrid", "Qwen3_5",
    "Qwen3_5Moe", "SolarOpen", "Youtu", "HrmText",
):
    text(f"{name}ForCausalLM")
SLIDING = ["sliding_attention", "full_attention"]
text("CohereCompassForCausalLM", layer_types=SLIDING,
    rope_parameters={"sliding_attention": ROPES, "full_attention": None})
text("DeepseekV4ForCausalLM", o_groups=2, hc_mult=2,
    compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 4})
SWA = {f"swa_{n}": v for n, v in {"num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 32,
    "kv_lora_rank": 24, "head_dim": 24, "qk_nope_head_dim": 16, "v_head_dim": 16}.items()}
text("Dots3NoteForCausalLM", shared_experts_intermediate_size=48, head_dim=24, **SWA)
PER_LAYER = {"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 112}
text("Gemma4ForCausalLM", global_head_dim=32, **PER_LAYER)
text("Gemma4UnifiedForCausalLM", global_head_dim=32)
text("InklingForCausalLM", mlp_layer_types=["dense", *["sparse"] * 65], swa_num_key_value_heads=2, d_rel=8)
text("Inkling2ForCausalLM", swa_num_key_value_heads=2, d_rel=8, unpadded_vocab_size=112)
text("LagunaForCausalLM", layer_types=["full_attention", "sliding_attention"])
text("MellumForCausalLM", layer_types=SLIDING)
text("MiniMaxM3VLForCausalLM", layer_types=["full_attention", "minimax_m3_sparse"],
    mlp_layer_types=["dense", "sparse"], rotary_dim=8, index_block_size=4, index_topk_blocks=2)
text("Qwen4ExpForCausalLM", hc_count=2, hc_lowrank=16, ple_layer_ids=[1], ngram_vocab_size_base=50,
    make_ngram_vocab_size_divisible_by=8, split_ngram_parts=2, heads_per_ngram=2, indexer_n_heads=2,
    indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=4, indexer_compress_ratio=2, eos_token_id=2)
text("ZayaForCausalLM", num_experts_per_tok=1)
for name in ("Gte", "JinaEmbeddingsV3", "NomicBert", "NeoMME", "Ultrabert"):
    text(f"{name}ForMaskedLM")
text("EsmcForMaskedLM", num_key_value_heads=4)
text("OpenAIPrivacyFilterForTokenClassification")
fed("JevForDecision", {"input_ids": Ids((1, 10)), "marks": [[5, 8]], "num_options": [[2, 4]],
    "question_type_ids": [[0, 1]]}, hidden_size=64)

# ----------------------------------------------------------------------------------------------------- images

HGNET = {"stem_channels": [3, 16, 16], "stage_in_channels": [16, 32, 48, 64],
    "stage_mid_channels": [16, 16, 24, 32], "stage_out_channels": [32, 48, 64, 96],
    "stage_num_blocks": [1, 1, 1, 1], "stage_numb_of_layers": [2, 2, 2, 2], "depths": [1, 1, 1, 1],
    "hidden_sizes": [32, 48, 64, 96], "embedding_size": 16}
SEEN = HGNET | {"out_features": ["stage2", "stage3", "stage4"]}
DETR = {"encoder_in_channels": [48, 64, 96], "decoder_in_channels": [64, 64, 64], "num_queries": 6,
    "backbone_config": SEEN, "num_labels": 5, "freeze_backbone_batch_norms": False}
BLOCKS = [[[3, 16, 16, 1, False]], [[3, 16, 32, 2, False]], [[3, 32, 32, 2, False]], [[3, 32, 64, 2, False]],
    [[5, 64, 64, 2, True]]]
BLOCKS_V4 = [[[3, 32, 32, 1, True]], [[3, 32, 48, 2, False], [3, 48, 48, 1, False]], [[3, 48, 64, 2, False]],
    [[5, 64, 96, 2, True]]]
LCNET = {"block_configs": BLOCKS, "divisor": 4}
LCNET_V4 = {"block_configs": BLOCKS_V4, "stem_channels": [3, 16, 32]}
DINO = {"out_features": ["stage1", "stage2"], "num_hidden_layers": 2, "mlp_ratio": 2}
DPT = {"out_features": ["stage1", "stage2", "stage3", "stage4"], "num_hidden_layers": 4, "mlp_ratio": 2}
image("CHMv2ForDepthEstimation", backbone_config=DPT | {"return_class_token": True,
    "initializer_range": 0.2}, initializer_range=0.2, patch_size=8, post_process_channels=[16, 24, 32, 48],
    fusion_hidden_size=32, head_hidden_size=16, number_output_channels=16)
fed("Deimv2ForObjectDetection", BIG, lqe_hidden_dim=16, top_prob_values=2, max_num_bins=8, **DETR)
image("EomtDinov3ForUniversalSegmentation", num_queries=6, num_blocks=1, num_labels=5)
fed("LwDetrForObjectDetection", BIG, backbone_config={"num_windows": 4, "out_features": ["stage1", "stage2"],
    "image_size": 64, "pretrain_image_size": 64, "window_block_indices": [0]}, projector_scale_factors=[1.0],
    decoder_self_attention_heads=4, decoder_cross_attention_heads=4, num_queries=6, group_detr=2,
    c2f_num_blocks=1, num_labels=5)
LOUD = {"initializer_range": 0.2}
READING = {"coordinate_size": 11, "shape_size": 10, "rel_pos_bins": 8, "rel_2d_pos_bins": 8,
    "global_pointer_head_size": 16, "max_2d_position_embeddings": 1024}
fed("PPDocLayoutV2ForObjectDetection", BIG, class_thresholds=[0.5] * 5, class_order=list(range(5)),
    reading_order_config=READING, **DETR)
MASKS = {"mask_feature_channels": [16, 16], "x4_feat_dim": 32, "num_prototypes": 8,
    "global_pointer_head_size": 16}
ALL = {"backbone_config": HGNET | {"out_features": ["stage1", "stage2", "stage3", "stage4"]}}
fed("PPDocLayoutV3ForObjectDetection", BIG, **DETR | MASKS | ALL)
fed("PPDocLayoutV4ForObjectDetection", BIG, global_pointer_head_size=16, **DETR)
fed("PPLCNetForImageClassification", BIG, class_expand=32, num_labels=5, **LCNET)
fed("PPLCNetV3Backbone", BIG, out_features=["stage3", "stage5"], **LCNET)
fed("PPLCNetV4Backbone", BIG, out_features=["stage3", "stage4"], **LCNET_V4)
FIVE = {"out_features": ["stage2", "stage3", "stage4", "stage5"]}
FOUR = {"out_features": ["stage1", "stage2", "stage3", "stage4"]}
MOBILE = {"neck_out_channels": 32, "layer_list_out_channels": [8, 12, 16, 24]}
fed("PPOCRV5MobileDetForObjectDetection", BIG, backbone_config=LCNET | FIVE, **MOBILE)
LINE = {"pixel_values": (2, 3, 80, 96)}
READ = {"head_out_channels": 30}
fed("PPOCRV5MobileRecForTextRecognition", LINE, backbone_config=LCNET, **READ)
CONVOLVE = {"reduce_channel": [1, 1, 0], "return_channel": [1, 1, 0]}
for ratio, side in (("long", 7), ("mid", 5), ("short", 3)):
    CONVOLVE[f"vertical_long_to_small_conv_{ratio}ratio"] = [[side, 1], [1, 1], [side // 2, 0]]
    CONVOLVE[f"horizontal_small_to_long_conv_{ratio}ratio"] = [[1, side], [1, 1], [0, side // 2]]
    CONVOLVE[f"symmetric_conv_long_{ratio}ratio"] = [[side, side], [1, 1], [side // 2, side // 2]]
NECK = {"kernel_list": [3, 2, 2], "scale_factor_list": [1, 2, 4, 8], "intraclass_block_config": CONVOLVE,
    "neck_out_channels": 32, "intraclass_block_number": 4}
fed("PPOCRV5ServerDetForObjectDetection", BIG, backbone_config=HGNET | FOUR, **NECK)
fed("PPOCRV5ServerRecForTextRecognition", LINE, backbone_config=HGNET, **READ)
fed("PPOCRV6MediumDetForObjectDetection", BIG, backbone_config=LCNET_V4 | FOUR, **NECK)
fed("PPOCRV6SmallDetForObjectDetection", BIG, backbone_config=LCNET_V4 | FOUR,
    **MOBILE | {"layer_list_out_channels": [32, 48, 64, 96]})
fed("PPOCRV6SmallRecForTextRecognition", LINE, backbone_config=LCNET_V4, **READ)
fed("PPOCRV6TinyRecForTextRecognition", LINE, backbone_config=LCNET_V4, **READ)
image("RadioModel", mlp_ratio=2.0, max_img_size=64, patch_dim=192)
fed("RfDetrForObjectDetection", BIG, backbone_config=DINO | {"num_windows": 2, "image_size": 64},
    decoder_self_attention_heads=4, decoder_cross_attention_heads=4, num_queries=6, group_detr=2,
    c2f_num_blocks=1, num_labels=5)
VIT = {"backbone_config": {"image_size": 64, "window_size": 2, "global_attn_indexes": [1],
    "pretrain_image_size": 32}, "fpn_hidden_size": 64, "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]]}
fed("Sam3LiteTextModel", BIG | {"input_ids": WORDS}, vision_config=VIT,
    text_config={"repmixer_kernel_size": 3, "num_hidden_layers": 3}, geometry_encoder_config={"roi_size": 3},
    detr_decoder_config={"num_queries": 6})
image("Sapiens2ForSemanticSegmentation", num_key_value_heads_per_layer=[4, 2], num_labels=5,
    head_config={"upsample_out_channels": [32, 24], "conv_out_channels": [24]})
fed("SLANetForTableRecognition", BIG, backbone_config=LCNET | FIVE, post_conv_out_channels=32,
    max_text_length=6, out_channels=12)
fed("SLANeXtForTableRecognition", BIG, vision_config=LOUD | {"image_size": 64, "output_channels": 32,
    "window_size": 3, "global_attn_indexes": [1]}, post_conv_in_channels=32, post_conv_out_channels=48,
    max_text_length=6, out_channels=12)
fed("TimesFm2_5ModelForPrediction", {"past_values": (2, 32)}, patch_length=8, context_length=32,
    horizon_length=16, output_quantile_len=16)
fed("Tipsv2Model", IMAGES | {"input_ids": WORDS}, vision_config={"mlp_ratio": 2})
image("Tipsv2DptForDepthEstimation", backbone_config=DPT | {"reshape_hidden_states": False},
    neck_hidden_sizes=[16, 24, 32, 48], fusion_hidden_size=32, num_depth_bins=16)
UVDOC = {"out_features": [f"stage{n}" for n in range(1, 4)], "resnet_head": [[3, 8], [8, 8]],
    "resnet_configs": [[[8, 8, 1, False]], [[8, 16, 1, True]], [[16, 32, 1, True], [32, 32, 3, False]]],
    "stage_configs": [[[32, 1]], [[32, 2]], [[32, 3], [32, 2]]]}
fed("UVDocModel", BIG, backbone_config=UVDOC, bridge_connector=[32, 32],
    out_point_positions2D=[[32, 16], [16, 2]])
fed("VideomtForUniversalSegmentation", {"pixel_values_videos": (1, 2, 3, 32, 32)}, num_queries=6,
    num_blocks=1, num_labels=5, mlp_ratio=2)
FILM = {"pixel_values_videos": (2, 2, 3, 32, 32)}
FRAMES = {"num_frames": 2, "tubelet_size": [1, 8, 8], "num_spatial_layers": 2, "num_temporal_layers": 2,
    "num_auxiliary_layers": 2}
fed("VideoPrismVideoModel", FILM, **FRAMES)
fed("VideoPrismForVideoClassification", FILM, num_labels=5, **FRAMES)
fed("VideoPrismClipModel", FILM | {"input_ids": WORDS}, vision_config=FRAMES)
FORMULA = {"image_size": 64, "output_channels": 32, "window_size": 3, "global_attn_indexes": [1],
    "post_conv_in_channels": 32, "post_conv_mid_channels": 48, "post_conv_out_channels": 64}
fed("PPFormulaNetForConditionalGeneration", BIG | {"decoder_input_ids": WORDS}, vision_config=FORMULA)

# -------------------------------------------------------------------------------------------- images and text

AXES = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
QUARTER = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1],
    "partial_rotary_factor": 0.5}
QWEN_TEXT = {"rope_parameters": QUARTER | {"mrope_interleaved": True}}
CONVEYED = {"deepstack_visual_indexes": [0, 1]}
seeing("CohereCompassForConditionalGeneration", patches(), vision_config=CONVEYED,
    text_config={"layer_types": SLIDING, "rope_parameters": {"sliding_attention": AXES,
    "full_attention": None}})
seeing("Cosmos3EdgeForConditionalGeneration", patches(1), text_config={"rope_parameters": AXES},
    vision_config={"num_patches": 16})
seeing("Cosmos3OmniForConditionalGeneration", patches(),
    text_config={"rope_parameters": AXES | {"mrope_interleaved": True}}, vision_config=CONVEYED)
SAM = {"image_size": 64, "output_channels": 32, "window_size": 3, "global_attn_indexes": [1],
    "downsample_channels": [48, 64]}
seeing("DeepseekOcr2ForConditionalGeneration", BIG, vision_config={"sam_config": SAM},
    text_config={"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2})
seeing("Dots3NoteForConditionalGeneration", patches(1),
    text_config={"shared_experts_intermediate_size": 48, "head_dim": 24, **SWA},
    vision_config={"adapter_in_dim": 64}, audio_config={"adapter_input_size": 64, "feature_size": 16,
    "downsample_hidden_size": 16})
GEMMA = {"global_head_dim": 32, **PER_LAYER}
GEMMA_SEEN = {"vision_config": {"pooling_kernel_size": 2, "position_embedding_size": 16}}
GRID = [[[x, y] for y in range(4) for x in range(4)]] * 2
GEMMA_FEED = {"pixel_values": (2, 16, 192), "image_position_ids": GRID}
seeing("EmbeddingGemma2Model", GEMMA_FEED, text_config=GEMMA, **GEMMA_SEEN)
seeing("Exaone4_5_ForConditionalGeneration", patches(),
    vision_config={"window_size": 16, "fullatt_block_indexes": [1]})
seeing("Gemma4ForConditionalGeneration", GEMMA_FEED, text_config=GEMMA, **GEMMA_SEEN)
seeing("Gemma4UnifiedForConditionalGeneration", GEMMA_FEED, text_config={"global_head_dim": 32},
    vision_config={"pooling_kernel_size": 1, "mm_embed_dim": 64, "mm_posemb_size": 16})
seeing("Glm5NextForConditionalGeneration", patches(),
    text_config={"hc_mult": 2, "index_kpool": 2, "qk_rope_head_dim": 0})
fed("GlmImageForConditionalGeneration", {"input_ids": WORDS},
    text_config={"rope_parameters": AXES, "vision_vocab_size": 96},
    vq_config={"num_embeddings": 64, "latent_channels": 32})
GLM = {"rope_parameters": AXES}
seeing("GlmOcrForConditionalGeneration", patches(), text_config=GLM)
under("GlmgaConfig", "Glm46VForConditionalGeneration", patches(), "get_image_features", text_config=GLM)
seeing("Granite4VisionForConditionalGeneration",
    {"pixel_values": (2, 2, 3, 32, 32), "image_sizes": [[32, 32], [32, 32]]}, image_seq_length=16,
    spatial_target_layers=[1], deepstack_layer_map=[[0, 0]], downsample_rate="2/4", projector_dropout=0.0,
    qformer_config={"encoder_hidden_size": 64}, image_grid_pinpoints=[[32, 32]])
seeing("GraniteDoclingForConditionalGeneration",
    {"pixel_values": (2, 1, 3, 32, 32), "pixel_attention_mask": [[True], [True]]},
    vision_config={"scale_factor": 2, "deepstack_visual_indexes": [0, 1]})
seeing("HunYuanVLForConditionalGeneration", patches(1), text_config={"head_dim": 16, "rope_parameters": AXES})
seeing("HyperCLOVAXVisionV2ForConditionalGeneration", patches(),
    vision_config={"window_size": 16, "fullatt_block_indexes": [1]})
seeing("InklingForConditionalGeneration", {"pixel_values": (8, 2, 8, 8, 3)},
    text_config=dict(ROWS["InklingForCausalLM"].config), audio_config={"n_mel_bins": 8, "mel_vocab_size": 8})
seeing("Inkling2ForConditionalGeneration", {"pixel_values": (8, 16, 16, 3),
    "image_grid_thw": [[1, 2, 2], [1, 2, 2]]}, text_config=dict(ROWS["Inkling2ForCausalLM"].config),
    vision_config={"projection_hidden_dim": 64})
seeing("Kimi_K25ForConditionalGeneration", {"pixel_values": (32, 3, 8, 8),
    "image_grid_thw": [[1, 4, 4], [1, 4, 4]]}, text_config={"first_k_dense_replace": 1})
seeing("Lfm3VlForConditionalGeneration", patches())
seeing("LightOnOcrForConditionalGeneration", IMAGES | {"image_sizes": [[32, 32], [32, 32]]})
MINI = {"image_token_id": IMAGE, "insert_layer_id": 0, "text_config": QWEN_TEXT,
    "vision_config": {"insert_layer_id": 0}}
SLICES = {"pixel_values": (1, 3, 8, 256), "target_sizes": [[4, 4], [4, 4]]}
seeing("MiniCPMOcrForConditionalGeneration", SLICES, **MINI)
seeing("MiniCPMV4_6ForConditionalGeneration", SLICES, **MINI)
seeing("MiniCPMV4_7ForConditionalGeneration", SLICES, **MINI)
seeing("MiniMaxM3SparseForConditionalGeneration", patches(),
    text_config=dict(ROWS["MiniMaxM3VLForCausalLM"].config))
seeing("MistralLarge4ForConditionalGeneration", IMAGES | {"image_sizes": [[32, 32], [32, 32]]})
POOLED = [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
seeing("Molmo2ForConditionalGeneration", {"pixel_values": (2, 16, 192),
    "image_token_pooling": POOLED + [[n + 16 for n in row] for row in POOLED],
    "image_grids": [[2, 2, 0, 0]] * 2, "image_num_crops": [1, 1]},
    vision_config={"num_position_embeddings": 16}, adapter_config={"vision_feature_layer": [1, 0]})
seeing("MuseGlimmerForConditionalGeneration", patches(), out_hidden_size=256)
seeing("MuseSparkForConditionalGeneration", patches(), out_hidden_size=256,
    audio_config={"num_hidden_layers": 4, "hidden_sizes": [16, 24, 32, 64], "depths": [1, 1, 1, 1]})
seeing("NemotronH_Omni_Reasoning_V3", {"pixel_values": (32, 192), "image_grid_hw": [[4, 4], [4, 4]]},
    image_token_id=IMAGE, vision_config={"video_temporal_patch_size": 2, "max_img_size": 64,
    "patch_dim": 192, "mlp_ratio": 2.0}, vision_hidden_size=64)
under("PPChart2TableConfig", "GotOcr2ForConditionalGeneration", BIG, "get_image_features", vision_config=SAM)
seeing("QianfanOCRForConditionalGeneration", IMAGES,
    vision_config={"image_size": [32, 32], "patch_size": [8, 8]})
seeing("Qwen3_5ForConditionalGeneration", patches(), text_config=QWEN_TEXT)
seeing("Qwen3_5MoeForConditionalGeneration", patches(), text_config=QWEN_TEXT)
seeing("Qwen4ExpForConditionalGeneration", patches(),
    text_config=QWEN_TEXT | dict(ROWS["Qwen4ExpForCausalLM"].config))
seeing("Step3p7ForConditionalGeneration", IMAGES,
    text_config={"layer_types": SLIDING, "mlp_layer_types": ["dense", "sparse"], "sliding_window": 6,
    "num_sliding_attention_heads": 4, "share_expert_dim": 48, "query_pre_attn_scalar": 16})
seeing("UnlimitedOcrForConditionalGeneration", BIG, vision_config={"sam_config": SAM})
fed("PI0ForConditionalGeneration", {"pixel_values": (2, 1, 3, 32, 32),
    "pixel_attention_mask": [[True], [True]], "attention_mask": [[1] * 20] * 2, "state": (2, 8),
    "noise": (2, 4, 8), "timestep": [0.3, 0.7], "input_ids": [[*[IMAGE] * 16, 5, 6, 7, 8]] * 2},
    chunk_size=4, max_state_dim=8, max_action_dim=8)
fed("DiffusionGemmaForBlockDiffusion", {"input_ids": WORDS, "decoder_input_ids": Ids((2, 8))},
    text_config={"global_head_dim": 32, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 48},
    canvas_length=8)
for name in ("ModernVBert", "UltraVBert"):
    seeing(f"{name}ForMaskedLM", {"pixel_values": (2, 1, 3, 32, 32)}, pixel_shuffle_factor=2)
seeing("ColModernVBertForRetrieval", {"pixel_values": (2, 1, 3, 32, 32)},
    vlm_config={"pixel_shuffle_factor": 2})
fed("MuseGlimmerAssistantModel", {"noise_embeds": (2, 6, 64), "context_hidden_states": (2, 4, 128),
    "attention_mask": [[1] * 10] * 2}, target_layer_ids=[0, 1], layer_types=SLIDING)
for name in ("InternLM3", "IQuestCoder"):
    under(f"{name}Config", "LlamaForCausalLM", {"input_ids": WORDS})

# ------------------------------------------------------------------------------------------------------ sound

PARAKEET = {"subsampling_conv_channels": 16}
SPEECH = {"input_features": (2, 64, 16)}
fed("CanaryForConditionalGeneration", SPEECH | {"decoder_input_ids": WORDS}, encoder_config=PARAKEET)
fed("CohereAsrForConditionalGeneration", SPEECH | {"decoder_input_ids": WORDS}, encoder_config=PARAKEET)
MASK = {"input_features_mask": [[1] * 64] * 2}
hearing("FunAsrNanoForConditionalGeneration", {"input_features": (2, 24, 112),
    "input_features_mask": [[1] * 24] * 2}, audio_config={"num_timestamp_prediction_layers": 2},
    adaptor_config={"intermediate_size": 16})
fed("GraniteSpeech5ForCTC", {"input_features": (2, 64, 64)}, encoder_config={"context_size": 8})
hearing("GraniteSpeechPlusForConditionalGeneration", {"input_features": (2, 30, 16)},
    encoder_config={"input_dim": 16, "dim_head": 16, "context_size": 8, "max_pos_emb": 16},
    projector_config={"encoder_hidden_size": 64})
fed("HiggsAudioV2ForConditionalGeneration", {"input_ids": [[5, 6, 7, *[SOUND] * 4, 8, 9, 10]] * 2,
    "audio_input_ids": Ids((2, 4, 3))}, num_codebooks=3, codebook_size=108)
fed("MoonshineStreamingForConditionalGeneration", {"input_values": (2, 1600), "decoder_input_ids": WORDS},
    encoder_config={"sliding_windows": [[8, 2], [8, 0]]}, num_key_value_heads=4)
hearing("MossTranscribeDiarizeForConditionalGeneration",
    {"input_features": (2, 16, 64), "padding_mask": [[1] * 64] * 2} | MASK,
    audio_config={"max_source_positions": 32})
fed("MusicFlamingoForConditionalGeneration", {"input_features": (2, 16, 64),
    "input_ids": [[5, 6, *[SOUND] * 16, 7, 8]] * 2} | MASK, audio_config={"max_source_positions": 32})
RNNT = {"encoder_config": PARAKEET | {"initializer_range": 0.2}, "initializer_range": 0.2,
    "blank_token_id": 111}
fed("Nemotron3_5AsrForRNNT", SPEECH | {"decoder_input_ids": Ids((2, 1)), "prompt_ids": [1, 2]}, num_prompts=8,
    prompt_intermediate_size=32, default_prompt_id=1, **RNNT)
fed("NemotronAsrStreamingForRNNT", SPEECH | {"decoder_input_ids": Ids((2, 1))}, **RNNT)
fed("Nemotron3DiarizationForAudioFrameClassification", SPEECH, head_config={"audio_hidden_size": 64},
    chunk_length=8, chunk_right_context=2, fifo_length=4)
hearing("Nemotron3_5TranscribeForConditionalGeneration", SPEECH | MASK,
    audio_config={"diarization_config": {"head_config": {"audio_hidden_size": 64}, "chunk_length": 8,
    "chunk_right_context": 2, "fifo_length": 4}}, word_timestamp_config={"blank_token_id": 111})
CODEC = {"initializer_range": 0.3, "encoder_hidden_size": 8, "downsampling_ratios": [2, 2, 2, 2, 4],
    "quantization_dim": 128, "semantic_model_config": {"feature_projection_input_dim": 16,
    "apply_spec_augment": False, "output_hidden_size": 64}}
fed("NeuCodecModel", {"input_values": (2, 1, 1280), "input_features": (2, 20, 16)}, **CODEC)
fed("Xcodec2Model", {"input_values": (2, 1, 1280), "input_features": (2, 20, 16)}, **CODEC)
FLOW = {"latent_dim": 8, "condition_dim": 64, "frequency_embedding_size": 16, "loss_weighting_hidden_size": 8}
fed("PocketTTSForConditionalGeneration", {"input_ids": WORDS}, flow_head_config=FLOW, latent_dim=8)
fed("GradiumPhononTTSForConditionalGeneration", {"input_ids": WORDS}, flow_head_config=FLOW, latent_dim=8,
    audio_prompt_dim=16, duration_delta_embedding_dim=16)
fed("PocketTTSAudioTokenizerModel", {"input_values": (2, 1, 1920)}, num_filters=8, upsampling_ratios=[4, 2],
    upsample_groups=8, latent_dim=8, latent_stride=4)
hearing("Qwen3ASRForConditionalGeneration", {"input_features": (2, 16, 200),
    "input_features_mask": [[1] * 200] * 2})
ACOUSTIC = {"vae_std": 0.0, "num_filters": 4, "downsampling_ratios": [2, 4], "depths": [1, 1, 1],
    "hidden_size": 16, "layer_scale_init_value": 0.5, "initializer_range": 0.2}
fed("VibeVoiceAcousticTokenizerModel", {"input_values": (2, 1, 64)}, **ACOUSTIC)
hearing("VibeVoiceAsrForConditionalGeneration", {"input_values": (2, 1, 64)},
    acoustic_tokenizer_encoder_config=ACOUSTIC, semantic_tokenizer_encoder_config=ACOUSTIC)
hearing("VibeVoiceForConditionalGeneration", {"input_values": (2, 1, 64), "padding_mask": [[1] * 64] * 2},
    audio_config=ACOUSTIC, semantic_model_config=ACOUSTIC,
    diffusion_head_config={"latent_size": 16, "frequency_embedding_size": 16})
fed("VoxtralRealtimeForConditionalGeneration", {"input_features": (2, 16, 64), "input_ids": Ids((2, 8))})
