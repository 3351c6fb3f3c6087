"""More classes of transformers for text, chosen before it was known what becomes of them."""

from __future__ import annotations

from typing import Any

import torch
from facts import Facts, attention
from feeds import Feed, Inputs, fixed_text, text, translation
from models_decoders import NO_CACHE, RMS, special
from models_encoders import POST, STARTS, T5
from more import PAIR, SIZES, decoder, encoder, pair
from registry import from_transformers

GROUPS: dict[str, Any] = SIZES | {"num_key_value_heads": 2}
WIDE: dict[str, Any] = GROUPS | {"head_dim": 16}
EXPERTS: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED: dict[str, Any] = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 48,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
STATES = Facts(hidden=(64,), ffn=(128,), vocab=(128,), norm=RMS, traits=("state space",))
SMALL: dict[str, Any] = {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64}
ROBERTA: dict[str, Any] = special() | SIZES | {"max_position_embeddings": 66, "pad_token_id": 1}

# ------------------------------------------------------------------------------------------- decoders

decoder(
    "gpt_neo",
    "GPTNeoForCausalLM",
    hidden_size=64,
    num_heads=4,
    num_layers=2,
    intermediate_size=256,
    attention_types=[[["global", "local"], 1]],
    window_size=8,
    max_position_embeddings=64,
)
decoder("xglm", "XGLMForCausalLM", d_model=64, attention_heads=4, num_layers=2, ffn_dim=256)
decoder("ctrl", "CTRLLMHeadModel", dff=256, **SMALL)
from_transformers(
    "openai_gpt", attention(stream="post"), "OpenAIGPTLMHeadModel", text(), **SMALL, **special()
)
from_transformers(
    "xlnet",
    attention(stream="post"),
    "XLNetLMHeadModel",
    fixed_text(),
    d_model=64,
    n_head=4,
    n_layer=2,
    d_inner=256,
    **special(),
)
decoder(
    "qwen3_moe",
    "Qwen3MoeForCausalLM",
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=48,
    decoder_sparse_step=1,
    **WIDE,
)
decoder("phimoe", "PhimoeForCausalLM", **GROUPS, **EXPERTS)
decoder("granitemoe", "GraniteMoeForCausalLM", **GROUPS, **EXPERTS)
decoder("gpt_oss", "GptOssForCausalLM", **WIDE, **EXPERTS)
decoder("minimax", "MiniMaxForCausalLM", block_size=8, **WIDE, **EXPERTS)
decoder("glm4_moe", "Glm4MoeForCausalLM", **WIDE, **ROUTED)
decoder("dots1", "Dots1ForCausalLM", **WIDE, **ROUTED)
decoder(
    "deepseek_v2",
    "DeepseekV2ForCausalLM",
    num_key_value_heads=4,
    q_lora_rank=32,
    kv_lora_rank=24,
    qk_rope_head_dim=8,
    qk_nope_head_dim=16,
    v_head_dim=16,
    **SIZES,
    **ROUTED,
)
decoder(
    "llama4",
    "Llama4ForCausalLM",
    intermediate_size_mlp=128,
    num_local_experts=2,
    num_experts_per_tok=1,
    interleave_moe_layer_step=1,
    **WIDE,
)
decoder("cohere2", "Cohere2ForCausalLM", **GROUPS)
decoder("diffllama", "DiffLlamaForCausalLM", **GROUPS)
decoder("bitnet", "BitNetForCausalLM", **GROUPS)
decoder("apertus", "ApertusForCausalLM", **GROUPS)
decoder("nanochat", "NanoChatForCausalLM", **GROUPS)
decoder("hunyuan", "HunYuanDenseV1ForCausalLM", **WIDE)
decoder("ernie4_5", "Ernie4_5ForCausalLM", **WIDE)
decoder("vaultgemma", "VaultGemmaForCausalLM", **WIDE)
decoder("ministral3", "Ministral3ForCausalLM", **WIDE)
decoder("lfm2", "Lfm2ForCausalLM", full_attn_idxs=[1], block_auto_adjust_ff_dim=False, **GROUPS)
decoder(
    "recurrent_gemma",
    "RecurrentGemmaForCausalLM",
    num_key_value_heads=1,
    head_dim=16,
    lru_width=64,
    attention_window_size=8,
    block_types=["recurrent", "attention"],
    **SIZES,
)
decoder(
    "jamba",
    "JambaForCausalLM",
    num_experts=2,
    num_experts_per_tok=1,
    attn_layer_period=2,
    attn_layer_offset=1,
    expert_layer_period=2,
    expert_layer_offset=1,
    use_mamba_kernels=False,
    mamba_d_state=8,
    mamba_dt_rank=8,
    **GROUPS,
)
decoder(
    "gpt_neox_japanese",
    "GPTNeoXJapaneseForCausalLM",
    hidden_size=64,
    num_attention_heads=4,
    num_hidden_layers=2,
    intermediate_multiple_size=4,
)
from_transformers(
    "falcon_mamba",
    STATES,
    "FalconMambaForCausalLM",
    fixed_text(),
    fixed=NO_CACHE,
    hidden_size=64,
    num_hidden_layers=2,
    state_size=8,
    expand=2,
    conv_kernel=4,
    time_step_rank=8,
    use_mambapy=False,
    **special(),
)
from_transformers(
    "mamba2",
    STATES,
    "Mamba2ForCausalLM",
    text(),
    fixed=NO_CACHE,
    hidden_size=64,
    num_hidden_layers=2,
    state_size=8,
    expand=2,
    head_dim=16,
    num_heads=8,
    n_groups=1,
    chunk_size=8,
    **special(),
)
from_transformers(
    "rwkv",
    attention(heads=(), head_dim=()),
    "RwkvForCausalLM",
    text(masked=False),
    fixed=NO_CACHE,
    hidden_size=64,
    num_hidden_layers=2,
    attention_hidden_size=64,
    intermediate_size=256,
    context_length=64,
    **special(),
)

# ------------------------------------------------------------------------------------------- encoders

from_transformers(
    "megatron_bert",
    attention(),
    "MegatronBertForMaskedLM",
    text(segments=True),
    max_position_embeddings=64,
    **SIZES,
    **special(),
)
encoder(
    "mobilebert",
    "MobileBertForMaskedLM",
    embedding_size=32,
    intra_bottleneck_size=32,
    true_hidden_size=32,
    num_feedforward_networks=2,
)
from_transformers(  # its heads are the groups of convolutions of one width
    "squeezebert",
    attention(heads=(), **POST),
    "SqueezeBertForMaskedLM",
    text(),
    embedding_size=64,
    max_position_embeddings=66,
    **SIZES,
    **special(),
)
encoder("convbert", "ConvBertForMaskedLM", embedding_size=32, head_ratio=2, conv_kernel_size=3)
encoder("flaubert", "FlaubertWithLMHeadModel", emb_dim=64, n_heads=4, n_layers=2)
encoder("xlm", "XLMWithLMHeadModel", emb_dim=64, n_heads=4, n_layers=2)
encoder("longformer", "LongformerForMaskedLM", attention_window=[4, 4])
encoder("big_bird", "BigBirdForMaskedLM", attention_type="original_full")
encoder("data2vec_text", "Data2VecTextForMaskedLM", pad_token_id=1)
encoder("ibert", "IBertForMaskedLM", pad_token_id=1)
encoder("roc_bert", "RoCBertForMaskedLM", enable_pronunciation=False, enable_shape=False)
encoder("luke", "LukeForMaskedLM", entity_vocab_size=10, entity_emb_size=16, pad_token_id=1)
encoder("markuplm", "MarkupLMForTokenClassification", pad_token_id=1, num_labels=3)
from_transformers("xlm_roberta_xl", attention(), "XLMRobertaXLForMaskedLM", text(), **ROBERTA)
from_transformers("roberta_pre", attention(), "RobertaPreLayerNormForMaskedLM", text(), **ROBERTA)
from_transformers(
    "eurobert",
    attention(norm=RMS),
    "EuroBertForMaskedLM",
    text(),
    num_key_value_heads=4,
    **SIZES,
    **special(),
)

# ---------------------------------------------------------------------------------- encoder-decoders


def behind(name: str, kind: str, **config: Any) -> None:
    """An encoder and a decoder with the norms behind their sums."""
    given = special() | PAIR | STARTS | config
    from_transformers(name, attention(stream="post"), kind, translation(), fixed=NO_CACHE, **given)


def like_t5(name: str, kind: str, **config: Any) -> None:
    """An encoder and a decoder with biases for relative positions."""
    given = T5 | {"d_ff": 256, "num_layers": 2} | config
    from_transformers(name, attention(norm=RMS), kind, translation(), fixed=NO_CACHE, **given)


def masked_translation() -> Inputs:
    """The inputs of an encoder and of its decoder, with a mask for each."""
    plain = translation()

    def draw(case: int) -> Feed:
        feed = plain.draw(case)
        return feed | {"decoder_attention_mask": torch.ones_like(feed["decoder_input_ids"])}

    return Inputs(draw, {**plain.axes, "decoder_attention_mask": plain.axes["decoder_input_ids"]})


behind("marian", "MarianMTModel", decoder_start_token_id=0)
behind("blenderbot_small", "BlenderbotSmallForConditionalGeneration")
behind("plbart", "PLBartForConditionalGeneration")
behind("mvp", "MvpForConditionalGeneration")
from_transformers(  # without a decoder's mask it asks its data
    "fsmt",
    attention(stream="post"),
    "FSMTForConditionalGeneration",
    masked_translation(),
    fixed=NO_CACHE,
    **(special() | PAIR | STARTS | {"src_vocab_size": 128, "tgt_vocab_size": 128, "langs": ["en", "de"]}),
)
pair("blenderbot", "BlenderbotForConditionalGeneration")
pair(
    "nllb_moe",
    "NllbMoeForConditionalGeneration",
    num_experts=4,
    encoder_sparse_step=2,
    decoder_sparse_step=2,
    expert_capacity=64,
)
like_t5("umt5", "UMT5ForConditionalGeneration")
like_t5("longt5", "LongT5ForConditionalGeneration", local_radius=7)
like_t5(
    "switch",
    "SwitchTransformersForConditionalGeneration",
    num_experts=4,
    num_decoder_layers=2,
    num_sparse_encoder_layers=1,
    num_sparse_decoder_layers=1,
)
