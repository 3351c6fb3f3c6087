"""Language models with experts, low-rank projections, or a state space, from transformers."""

from __future__ import annotations

from facts import Facts, attention
from feeds import fixed_text
from models_decoders import RMS, decoder, llama_like, special

llama_like(
    "deepseek_v3",
    attention(
        head_dim=(24, 16),
        ffn=(96, 48),
        norm=RMS,
        traits=("low-rank keys and values", "experts", "shared expert", "interleaved rotary"),
    ),
    "DeepseekV3ForCausalLM",
    moe_intermediate_size=48,
    n_routed_experts=4,
    num_experts_per_tok=2,
    n_shared_experts=1,
    n_group=1,
    topk_group=1,
    first_k_dense_replace=1,
    q_lora_rank=32,
    kv_lora_rank=24,
    qk_rope_head_dim=8,
    qk_nope_head_dim=16,
    v_head_dim=16,
    tie_word_embeddings=False,
)
llama_like(
    "mixtral",
    attention(kv_heads=(2,), ffn=(96,), norm=RMS, traits=("experts stacked",)),
    "MixtralForCausalLM",
    num_local_experts=4,
    num_experts_per_tok=2,
)
llama_like(
    "qwen2_moe",
    attention(kv_heads=(2,), ffn=(48, 64), norm=RMS, traits=("experts stacked", "shared expert")),
    "Qwen2MoeForCausalLM",
    moe_intermediate_size=48,
    shared_expert_intermediate_size=64,
    num_experts=4,
    num_experts_per_tok=2,
    decoder_sparse_step=1,
)
llama_like(
    "olmoe",
    attention(
        ffn=(48,), norm=RMS, whole_norm=True, traits=("experts stacked", "QK-norm over the projection")
    ),
    "OlmoeForCausalLM",
    num_experts=4,
    num_experts_per_tok=2,
)
decoder(
    "mamba",
    Facts(hidden=(64,), ffn=(128,), vocab=(128,), norm=RMS, traits=("state space", "tied head")),
    "MambaForCausalLM",
    inputs=fixed_text(),
    hidden_size=64,
    num_hidden_layers=2,
    state_size=8,
    expand=2,
    conv_kernel=4,
    time_step_rank=8,
    use_mambapy=False,
    **special(),
)
