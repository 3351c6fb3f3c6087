"""Transformers of x-transformers: one row for each way that its options make a model."""

from __future__ import annotations

from typing import Any

from own_row import Made, Noise, Row, Tokens

LIBRARY = "x-transformers"
BOTH = ("ffn", "heads")
SIZES = {"dim": 64, "depth": 2, "heads": 4, "attn_dim_head": 16, "attn_flash": False, "verbose": False}
WORDS, LENGTH = 96, 16
WRITTEN = Tokens((2, LENGTH), WORDS)
READ = {"x": WRITTEN}


def layers(kind: str = "Decoder", **options: Any) -> Made:
    """A stack of blocks."""
    return Made(f"x_transformers:{kind}", {**SIZES, **options})


def text(blocks: Made, **options: Any) -> Made:
    """A model of tokens around a stack."""
    sizes = {"num_tokens": WORDS, "max_seq_len": 2 * LENGTH}
    return Made("x_transformers:TransformerWrapper", {**sizes, "attn_layers": blocks, **options})


DECODERS: tuple[tuple[str, str, tuple[str, ...], dict[str, Any]], ...] = (
    ("decoder", "plain", BOTH, {}),
    ("rotary", "positions", BOTH, {"rotary_pos_emb": True}),
    ("alibi", "positions", BOTH, {"alibi_pos_bias": True, "alibi_num_heads": 2}),
    ("t5-bias", "positions", BOTH, {"rel_pos_bias": True}),
    ("rmsnorm-swiglu", "norms", BOTH, {"use_rmsnorm": True, "ff_glu": True, "ff_swish": True}),
    ("sandwich-norm", "norms", BOTH, {"sandwich_norm": True}),
    ("post-norm", "norms", BOTH, {"pre_norm": False}),
    ("deepnorm", "norms", BOTH, {"pre_norm": False, "scale_residual": True, "scale_residual_constant": 2.0}),
    ("glu", "ffn", BOTH, {"ff_glu": True, "ff_no_bias": True}),
    ("relu-squared", "ffn", BOTH, {"ff_relu_squared": True, "ff_post_act_ln": True}),
    ("macaron", "blocks", BOTH, {"macaron": True}),
    ("sandwich-order", "blocks", BOTH, {"depth": 3, "sandwich_coef": 2}),
    ("parallel", "blocks", BOTH, {"depth": 3, "par_ratio": 3}),
    ("shared-layers", "blocks", BOTH, {"weight_tie_layers": True}),
    ("attention-only", "blocks", ("heads",), {"only_attn": True}),
    ("shift-tokens", "residual", BOTH, {"shift_tokens": 1}),
    ("gated-residual", "residual", BOTH, {"gate_residual": True}),
    ("residual-attention", "residual", BOTH, {"residual_attn": True}),
    ("value-residual", "residual", BOTH, {"add_value_residual": True}),
    ("hyper-connections", "residual", BOTH, {"num_residual_streams": 2}),
    ("talking-heads", "attention", BOTH, {"attn_pre_talking_heads": True, "attn_post_talking_heads": True}),
    ("one-kv-head", "attention", BOTH, {"attn_one_kv_head": True}),
    ("kv-heads", "attention", BOTH, {"attn_kv_heads": 2, "rotary_pos_emb": True}),
    ("memory-kv", "attention", BOTH, {"attn_num_mem_kv": 4}),
    ("qk-norm", "attention", BOTH, {"attn_qk_norm": True, "attn_qk_norm_dim_scale": True}),
    ("gated-values", "attention", BOTH, {"attn_gate_values": True}),
    ("latent-kv", "attention", BOTH, {"attn_use_latent_kv": True, "attn_dim_latent_kv": 32}),
)
"""A name, a family, axes, options of the stack."""

WRAPPED: tuple[tuple[str, str, tuple[str, ...], Made, dict[str, Any]], ...] = (
    ("encoder", "plain", BOTH, text(layers("Encoder")), READ),
    ("tied-embedding", "wrapper", BOTH, text(layers(), tie_embedding=True), READ),
    ("factored-embedding", "wrapper", BOTH, text(layers(), emb_dim=32, post_emb_norm=True), READ),
    ("cross-attention", "cross", BOTH,
     text(layers(cross_attend=True)), {"x": WRITTEN, "context": Noise((2, 8, 64))}),
    ("cross-attender", "cross", BOTH,
     layers("CrossAttender"), {"x": Noise((2, LENGTH, 64)), "context": Noise((2, 8, 64))}),
    ("encoder-decoder", "cross", BOTH,
     Made("x_transformers:XTransformer", {
         "dim": 64, "tie_token_emb": True,
         **{f"{side}_{k}": v for side in ("enc", "dec") for k, v in {
             "num_tokens": WORDS, "max_seq_len": 2 * LENGTH, "depth": 2, "heads": 4, "attn_dim_head": 16,
         }.items()},
     }), {"src": WRITTEN, "tgt": WRITTEN}),
    ("vision", "images", BOTH,
     Made("x_transformers:ViTransformerWrapper", {
         "image_size": 32, "patch_size": 8, "num_classes": 10, "num_register_tokens": 2,
         "attn_layers": layers("Encoder"),
     }), {"img": Noise((2, 3, 32, 32))}),
    ("continuous", "series", BOTH,
     Made("x_transformers:ContinuousTransformerWrapper", {
         "dim_in": 12, "dim_out": 20, "max_seq_len": 32, "attn_layers": layers("Encoder"),
     }), {"x": Noise((2, LENGTH, 12))}),
)  # fmt: skip
"""A name, a family, axes, the model, its inputs."""

ROWS = (
    *(Row(LIBRARY, name, family, axes, text(layers(**o)), READ) for name, family, axes, o in DECODERS),
    *(Row(LIBRARY, *row) for row in WRAPPED),
)
