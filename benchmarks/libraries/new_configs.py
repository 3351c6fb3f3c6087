"""Small configs of transformers: what a config class has by default, with its sizes made small."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from huggingface_hub.errors import StrictDataclassError

HIDDEN, FFN, EXPERT, HEADS, HEAD, VOCAB = 64, 128, 48, 4, 16, 112
LAST_WORD = 98
IMAGE, SOUND, FILM = 100, 101, 102
"""The ids that stand in a text for what is seen or heard: no words."""

SMALL: Mapping[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "embed_dim", "projection_dim", "hidden_dim"), HIDDEN),
    **dict.fromkeys(("output_dim", "projector_hidden_size", "projection_hidden_size"), HIDDEN),
    **dict.fromkeys(("out_hidden_size", "text_hidden_size", "encoder_hidden_dim"), HIDDEN),
    **dict.fromkeys(("decoder_hidden_size", "output_proj_dims", "adapter_out_dim"), HIDDEN),
    **dict.fromkeys(("moe_hidden_size", "downsample_hidden_size"), HIDDEN),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "mlp_dim"), FFN),
    **dict.fromkeys(("dense_intermediate_size", "projection_intermediate_size"), FFN),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), EXPERT),
    **dict.fromkeys(("moe_shared_expert_intermediate_size", "shared_intermediate_size"), EXPERT),
    **dict.fromkeys(("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_heads", "swa_num_attention_heads", "index_n_heads"), HEADS),
    **dict.fromkeys(("linear_num_heads", "linear_num_value_heads", "linear_num_key_heads"), HEADS),
    **dict.fromkeys(("head_dim", "swa_head_dim", "index_head_dim", "linear_head_dim"), HEAD),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "mamba_head_dim"), HEAD),
    **dict.fromkeys(("qk_nope_head_dim", "v_head_dim", "router_hidden_size", "rel_extent"), HEAD),
    **dict.fromkeys(("num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "depth"), 2),
    **dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "top_k_experts", "moe_k"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "num_shared_experts"), 1),
    **dict.fromkeys(("image_token_id", "image_token_index", "image_patch_id"), IMAGE),
    **dict.fromkeys(("audio_token_id", "audio_token_index"), SOUND),
    **dict.fromkeys(("video_token_id", "video_token_index"), FILM),
    **dict.fromkeys(("max_position_embeddings", "num_position_embeddings", "max_image_size"), 64),
    **dict.fromkeys(("sliding_window", "sliding_window_size"), 6),
    **dict.fromkeys(("patch_size", "pos_emb_height", "pos_emb_width"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "ssm_state_size", "mamba_num_heads"), 8),
    **dict.fromkeys(("num_mel_bins", "position_embedding_size", "o_lora_rank"), 16),
    "kv_lora_rank": 24,
    "q_lora_rank": 32,
    "image_size": 32,
    "index_topk": 4,
    "n_groups": 2,
    "vocab_size": VOCAB,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}
"""The value of a field wherever a config has a number there."""
KINDS = ("layer_types", "mlp_layer_types")
"""Lists of what a layer is, one for each."""


def small(kind: type, given: Mapping[str, Any]) -> Any:
    """A config of a class with its sizes made small. given: further values, of configs within it too."""
    there = vars(_default(kind, given))
    fields = {field.name for field in dataclasses.fields(kind)}
    stored = {name: there.get(kind.attribute_map.get(name, name)) for name in fields}
    values = {n: v for n, v in SMALL.items() if isinstance(stored.get(n), int)}
    if "num_key_value_heads" in fields:
        values["num_key_value_heads"] = _groups(stored)
    for name in kind.sub_configs:
        asked = given.get(name, {} if there.get(name) is not None else None)
        if isinstance(asked, Mapping):
            values[name] = small(_within(kind, name, there), asked)
    values |= {n: v for n, v in given.items() if n not in kind.sub_configs or not isinstance(v, Mapping)}
    if "num_hidden_layers" in fields and "num_hidden_layers" not in given:
        values |= _layers(there, given)
    return kind(**values)


def _default(kind: type, given: Mapping[str, Any]) -> Any:
    """The default config of a class, or where that is not sound, the config of the given fields."""
    try:
        return kind()
    except StrictDataclassError:
        return kind(**given)


def _within(kind: Any, name: str, there: Mapping[str, Any]) -> type:
    """The class of a config within a config, which may have none there by default."""
    from transformers import CONFIG_MAPPING

    if there.get(name) is not None:
        return type(there[name])
    spec = kind.sub_configs_defaults[name]
    if isinstance(spec, type):
        return spec
    return CONFIG_MAPPING[spec.model_type] if spec.model_type else spec.config_class


def _groups(stored: Mapping[str, Any]) -> int:
    """Heads of keys: as many as of queries where the default has as many, one where it has one, else two."""
    given = stored["num_key_value_heads"]
    return HEADS if given in (None, stored.get("num_attention_heads")) else min(given, 2)


def _layers(there: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """As many layers as show every kind that there is, at least two; of given lists the shortest counts."""
    lists = {name: given.get(name, there.get(name)) for name in KINDS}
    lists = {name: kinds for name, kinds in lists.items() if isinstance(kinds, list)}
    if not lists:
        return {}
    rows = list(dict.fromkeys(zip(*lists.values(), strict=False)))
    rows = rows * 2 if len(rows) == 1 else rows
    columns = [list(column) for column in zip(*rows, strict=True)]
    return {"num_hidden_layers": len(rows), **dict(zip(lists, columns, strict=True))}
