"""Encoders of text, and encoder-decoders, from transformers."""

from __future__ import annotations

from typing import Any

from facts import attention
from feeds import Inputs, fixed_text, speech, text, translation
from models_decoders import NO_CACHE, RMS, sizes, special
from registry import from_transformers

POST: dict[str, Any] = {"stream": "post", "embedding_norm": True}


def encoder(
    name: str,
    kind: str,
    inputs: Inputs | None = None,
    facts: dict[str, Any] | None = None,
    optimiser: str = "",
    **config: Any,
) -> None:
    """Add an encoder; `facts` are what differs from the usual post-norm transformer."""
    from_transformers(
        name, attention(**(POST | (facts or {}))), kind, inputs or text(), optimiser=optimiser, **config
    )


encoder(
    "bert",
    "BertForMaskedLM",
    text(segments=True),
    {"traits": ("tied head",)},
    "bert",
    **sizes(256, 4),
)
encoder(
    "bert_cls",
    "BertForSequenceClassification",
    text(segments=True),
    {"ffn": (64,)},
    num_labels=3,
    **sizes(64, 4),
)
encoder(
    "roberta",
    "RobertaForMaskedLM",
    text(160),
    {"vocab": (160,), "traits": ("tied head",)},
    **(sizes(256, 4, 160) | {"pad_token_id": 1, "max_position_embeddings": 66, "type_vocab_size": 1}),
)
encoder(
    "distilbert",
    "DistilBertForMaskedLM",
    None,
    {"traits": ("tied head",)},
    dim=64,
    n_heads=4,
    n_layers=4,
    hidden_dim=256,
    max_position_embeddings=64,
    **special(),
)
encoder(
    "albert",
    "AlbertForMaskedLM",
    text(segments=True),
    {"traits": ("factorised embeddings", "shared layers", "tied head")},
    embedding_size=32,
    **sizes(256, 4),
)
encoder(
    "electra",
    "ElectraForMaskedLM",
    text(segments=True),
    {"traits": ("factorised embeddings", "tied head")},
    embedding_size=32,
    **sizes(256, 2),
)
encoder(
    "mpnet",
    "MPNetForMaskedLM",
    text(),
    {"traits": ("relative bias gathered", "tied head")},
    **(sizes(256, 2) | {"pad_token_id": 1, "max_position_embeddings": 66}),
)
encoder(
    "deberta_v2",
    "DebertaV2ForMaskedLM",
    text(),
    {"traits": ("disentangled attention", "norm over weights", "tied head")},
    relative_attention=True,
    position_buckets=8,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    pos_att_type="p2c|c2p",
    position_biased_input=False,
    **sizes(256, 2),
)
encoder(
    "modernbert",
    "ModernBertForMaskedLM",
    text(),
    {
        "ffn": (96,),
        "stream": "pre",
        "embedding_norm": True,
        "traits": ("packed by part", "packed gate", "half rotary", "sliding window", "tied head"),
    },
    global_attn_every_n_layers=2,
    local_attention=8,
    cls_token_id=1,
    sep_token_id=2,
    **sizes(96, 2),
)
encoder(
    "roformer",
    "RoFormerForMaskedLM",
    text(segments=True),
    {"traits": ("interleaved rotary", "tied head")},
    embedding_size=64,
    **sizes(256, 2),
)
encoder(
    "esm",
    "EsmForMaskedLM",
    text(),
    {"stream": "pre", "embedding_norm": False, "traits": ("half rotary", "tied head")},
    position_embedding_type="rotary",
    mask_token_id=3,
    token_dropout=False,
    **sizes(256, 2),
)
encoder(
    "fnet",
    "FNetForMaskedLM",
    fixed_text(),
    {"heads": (), "kv_heads": (), "head_dim": (), "traits": ("Fourier mixer", "tied head")},
    use_tpu_fourier_optimizations=True,
    tpu_short_seq_length=16,
    **sizes(256, 2),
)

# ---------------------------------------------------------------------------------- encoder-decoders

T5 = {
    "d_model": 64,
    "num_heads": 4,
    "d_kv": 16,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
    "decoder_start_token_id": 0,
    "vocab_size": 128,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
BART = {
    "d_model": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256,
}
STARTS = {"decoder_start_token_id": 2, "forced_eos_token_id": 2}

from_transformers(
    "t5",
    attention(norm=RMS, traits=("relative bias gathered", "tied head")),
    "T5ForConditionalGeneration",
    translation(),
    fixed=NO_CACHE,
    d_ff=256,
    num_layers=4,
    **T5,
)
from_transformers(
    "mt5",
    attention(ffn=(160,), norm=RMS, traits=("relative bias gathered",)),
    "MT5ForConditionalGeneration",
    translation(),
    fixed=NO_CACHE,
    d_ff=160,
    num_layers=2,
    feed_forward_proj="gated-gelu",
    tie_word_embeddings=False,
    **T5,
)
from_transformers(
    "bart",
    attention(traits=("tied head",), **POST),
    "BartForConditionalGeneration",
    translation(),
    fixed=NO_CACHE,
    optimiser="bart",
    encoder_layers=4,
    decoder_layers=4,
    max_position_embeddings=64,
    **BART,
    **STARTS,
    **special(),
)
from_transformers(
    "pegasus",
    attention(traits=("baked sinusoids", "tied head")),
    "PegasusForConditionalGeneration",
    translation(),
    fixed=NO_CACHE,
    encoder_layers=2,
    decoder_layers=2,
    max_position_embeddings=64,
    scale_embedding=True,
    **BART,
    **STARTS,
    **special(),
)
from_transformers(
    "whisper",
    attention(traits=("convolutional stem", "baked sinusoids", "tied head")),
    "WhisperForConditionalGeneration",
    speech(),
    fixed=NO_CACHE,
    encoder_layers=4,
    decoder_layers=4,
    num_mel_bins=16,
    max_source_positions=32,
    max_target_positions=64,
    decoder_start_token_id=1,
    suppress_tokens=None,
    begin_suppress_tokens=None,
    **BART,
    **special(),
)
