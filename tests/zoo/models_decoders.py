"""Language models that read from left to right, from transformers."""

from __future__ import annotations

from typing import Any

from facts import Facts, attention
from feeds import VOCAB, Inputs, text
from registry import from_transformers

NO_CACHE = {"use_cache": False}
RMS = "rms"


def special(vocab: int = VOCAB) -> dict[str, int]:
    """The vocabulary's size and its special tokens, as configurations name them."""
    return {"vocab_size": vocab, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def sizes(ffn: int, layers: int, vocab: int = VOCAB, **more: Any) -> dict[str, Any]:
    """The usual sizes, as most configurations name them."""
    usual = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": layers,
        "intermediate_size": ffn,
        "max_position_embeddings": 64,
    }
    return usual | special(vocab) | more


def decoder(
    name: str, facts: Facts, kind: str, inputs: Inputs | None = None, optimiser: str = "", **config: Any
) -> None:
    """Add a causal language model without a cache."""
    vocab = facts.vocab[0]
    from_transformers(name, facts, kind, inputs or text(vocab), fixed=NO_CACHE, optimiser=optimiser, **config)


# ------------------------------------------------------------------------------------------- LayerNorm

decoder(
    "gpt2",
    attention(vocab=(192,), traits=("packed by part", "tied head")),
    "GPT2LMHeadModel",
    optimiser="gpt2",
    n_embd=64,
    n_head=4,
    n_layer=4,
    n_positions=64,
    **special(192),
)
decoder(
    "gpt_neox",
    attention(traits=("packed by head", "partial rotary", "parallel residual")),
    "GPTNeoXForCausalLM",
    rotary_pct=0.25,
    use_parallel_residual=True,
    tie_word_embeddings=False,
    **sizes(256, 4),
)
decoder(
    "opt",
    attention(traits=("tied head",)),
    "OPTForCausalLM",
    hidden_size=64,
    num_attention_heads=4,
    num_hidden_layers=4,
    ffn_dim=256,
    word_embed_proj_dim=64,
    max_position_embeddings=64,
    **special(),
)
decoder(
    "bloom",
    attention(embedding_norm=True, traits=("packed by head", "ALiBi", "tied head")),
    "BloomForCausalLM",
    hidden_size=64,
    n_head=4,
    n_layer=4,
    **special(),
)
decoder(
    "phi",
    attention(traits=("partial rotary", "parallel residual")),
    "PhiForCausalLM",
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    tie_word_embeddings=False,
    **sizes(256, 4),
)
decoder(
    "falcon",
    attention(kv_heads=(2,), traits=("packed by group", "parallel residual", "tied head")),
    "FalconForCausalLM",
    hidden_size=64,
    num_attention_heads=4,
    num_hidden_layers=2,
    num_kv_heads=2,
    new_decoder_architecture=True,
    bias=True,
    **special(),
)
decoder(
    "gpt_bigcode",
    attention(kv_heads=(1,), traits=("packed by part", "multi-query", "tied head")),
    "GPTBigCodeForCausalLM",
    n_embd=64,
    n_head=4,
    n_layer=2,
    n_positions=64,
    multi_query=True,
    **special(),
)
decoder(
    "gptj",
    attention(traits=("interleaved rotary", "partial rotary", "parallel residual")),
    "GPTJForCausalLM",
    n_embd=64,
    n_head=4,
    n_layer=2,
    n_positions=64,
    rotary_dim=8,
    n_inner=256,
    **special(),
)
decoder(
    "codegen",
    attention(traits=("packed by shard", "interleaved rotary", "parallel residual")),
    "CodeGenForCausalLM",
    n_embd=64,
    n_head=4,
    n_layer=2,
    n_positions=64,
    n_ctx=64,
    rotary_dim=8,
    **special(),
)
decoder(
    "mpt",
    attention(traits=("ALiBi", "norms without bias", "tied head")),
    "MptForCausalLM",
    d_model=64,
    n_heads=4,
    n_layers=2,
    expansion_ratio=4,
    max_seq_len=64,
    **special(),
)
decoder(
    "persimmon",
    attention(traits=("packed by head", "QK-norm by head", "partial rotary")),
    "PersimmonForCausalLM",
    tie_word_embeddings=False,
    **sizes(256, 2),
)
decoder(
    "starcoder2",
    attention(kv_heads=(2,), traits=("grouped queries", "tied head")),
    "Starcoder2ForCausalLM",
    num_key_value_heads=2,
    **sizes(256, 2),
)
decoder(
    "cohere",
    attention(
        kv_heads=(2,),
        ffn=(160,),
        traits=("interleaved rotary", "norms without bias", "parallel residual", "tied head"),
    ),
    "CohereForCausalLM",
    num_key_value_heads=2,
    logit_scale=0.5,
    **sizes(160, 2),
)
decoder(
    "stablelm",
    attention(ffn=(176,), traits=("partial rotary",)),
    "StableLmForCausalLM",
    num_key_value_heads=4,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    **sizes(176, 2),
)
decoder(
    "nemotron",
    attention(kv_heads=(2,), traits=("partial rotary", "1 + gain")),
    "NemotronForCausalLM",
    num_key_value_heads=2,
    head_dim=16,
    **sizes(256, 2),
)
decoder(
    "olmo",
    attention(ffn=(176,), traits=("norms without gain",)),
    "OlmoForCausalLM",
    num_key_value_heads=4,
    **sizes(176, 2),
)

# --------------------------------------------------------------------------------------------- RMSNorm


def llama_like(
    name: str, facts: Facts, kind: str, layers: int = 2, optimiser: str = "", **config: Any
) -> None:
    """Add a model whose configuration is like LLaMA's."""
    given = sizes(facts.ffn[0], layers, facts.vocab[0]) | {"num_key_value_heads": facts.kv_heads[0]}
    decoder(name, facts, kind, optimiser=optimiser, **(given | config))


llama_like(
    "llama",
    attention(ffn=(176,), norm=RMS, traits=("half rotary",)),
    "LlamaForCausalLM",
    4,
    "gpt2",
    tie_word_embeddings=False,
)
llama_like(
    "llama_gqa",
    attention(kv_heads=(2,), ffn=(128,), norm=RMS, traits=("grouped queries", "tied head")),
    "LlamaForCausalLM",
    4,
    "gpt2",
    tie_word_embeddings=True,
)
llama_like(
    "mistral",
    attention(kv_heads=(2,), ffn=(192,), norm=RMS, traits=("sliding window",)),
    "MistralForCausalLM",
    4,
    tie_word_embeddings=False,
    sliding_window=8,
)
llama_like(
    "qwen2",
    attention(kv_heads=(2,), ffn=(160,), norm=RMS, traits=("tied head",)),
    "Qwen2ForCausalLM",
    4,
    tie_word_embeddings=True,
)
llama_like(
    "gemma",
    attention(
        kv_heads=(1,), head_dim=(32,), vocab=(256,), norm=RMS, traits=("multi-query", "1 + gain", "tied head")
    ),
    "GemmaForCausalLM",
    4,
    tie_word_embeddings=True,
    head_dim=32,
)
llama_like(
    "smollm3",
    attention(kv_heads=(2,), ffn=(176,), norm=RMS, traits=("tied head",)),
    "SmolLM3ForCausalLM",
    4,
    tie_word_embeddings=True,
    no_rope_layer_interval=4,
)
llama_like(
    "gemma2",
    attention(
        kv_heads=(2,),
        ffn=(160,),
        norm=RMS,
        stream="sandwich",
        traits=("sandwich norms", "soft caps", "1 + gain", "sliding window", "tied head"),
    ),
    "Gemma2ForCausalLM",
    head_dim=16,
    sliding_window=8,
    query_pre_attn_scalar=16,
)
llama_like(
    "gemma3",
    attention(
        kv_heads=(2,),
        ffn=(160,),
        norm=RMS,
        stream="sandwich",
        traits=("sandwich norms", "QK-norm by head", "1 + gain", "sliding window", "tied head"),
    ),
    "Gemma3ForCausalLM",
    head_dim=16,
    sliding_window=8,
    query_pre_attn_scalar=16,
)
llama_like(
    "olmo2",
    attention(
        ffn=(160,),
        norm=RMS,
        stream="branch",
        whole_norm=True,
        traits=("branch norms", "QK-norm over the projection"),
    ),
    "Olmo2ForCausalLM",
    tie_word_embeddings=False,
)
llama_like(
    "qwen3",
    attention(kv_heads=(2,), head_dim=(24,), ffn=(160,), norm=RMS, traits=("QK-norm by head", "tied head")),
    "Qwen3ForCausalLM",
    head_dim=24,
    tie_word_embeddings=True,
)
llama_like(
    "granite",
    attention(kv_heads=(2,), ffn=(160,), norm=RMS, traits=("multipliers", "tied head")),
    "GraniteForCausalLM",
    tie_word_embeddings=True,
    embedding_multiplier=3.0,
    residual_multiplier=0.5,
    attention_multiplier=0.2,
    logits_scaling=2.0,
)
llama_like(
    "phi3",
    attention(kv_heads=(2,), ffn=(160,), norm=RMS, traits=("packed by part", "packed gate")),
    "Phi3ForCausalLM",
    tie_word_embeddings=False,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
llama_like(
    "glm",
    attention(
        kv_heads=(2,), ffn=(160,), norm=RMS, traits=("interleaved rotary", "partial rotary", "packed gate")
    ),
    "GlmForCausalLM",
    head_dim=16,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
)
llama_like(
    "glm4",
    attention(
        kv_heads=(2,),
        ffn=(160,),
        norm=RMS,
        stream="sandwich",
        traits=("sandwich norms", "interleaved rotary", "packed gate"),
    ),
    "Glm4ForCausalLM",
    head_dim=16,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
)
