"""Requests as true configs, for tests that hide them: what a person would write into a config.json."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from growc.dialects.transformers.classes import build
from growc.dialects.transformers.config.shapes import among, read_by, shapes_of, ties_of
from growc.dialects.transformers.config.trials import Target
from growc.dialects.transformers.log.record import operator_log

Config = dict[str, Any]
FIELDS = {
    "hidden": (
        *("hidden_size", "n_embd", "d_model", "dim", "embedding_size", "word_embed_proj_dim"),
        *("hidden_sizes", "embed_dim"),
    ),
    "heads": (
        *("num_attention_heads", "n_head", "n_heads", "num_heads"),
        *("encoder_attention_heads", "decoder_attention_heads", "num_key_value_heads", "num_kv_heads"),
    ),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "ffn": (
        *("intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim"),
        *("encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size", "shared_expert_intermediate_size"),
    ),
    "ratio": ("mlp_ratio", "mlp_ratios", "expansion_ratio"),
    "layers": (
        *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"),
        *("encoder_layers", "decoder_layers"),
    ),
}


def times(config: Config, axis: str, ratio: float) -> bool:
    """Multiply the fields of an axis; whether there is one."""
    has_field = False
    for name in FIELDS[axis]:
        value = config.get(name)
        if isinstance(value, list):
            config[name] = [type(v)(v * ratio) for v in value]
        elif value and not isinstance(value, bool):
            config[name] = type(value)(value * ratio)
        has_field = has_field or bool(value)
    parts = [part for name in ("text_config", "vision_config") if (part := config.get(name))]
    inside = [times(part, axis, ratio) for part in parts]
    return has_field or any(inside)


def wider_ffn(config: Config) -> bool:
    """ffn times 1.5."""
    return ffn_times(config, 1.5)


def ffn_times(config: Config, ratio: float) -> bool:
    """Multiply the width between the two matrices, given as a size or in relation to the stream."""
    if "n_inner" in config and config["n_inner"] is None:
        config["n_inner"] = 4 * config["n_embd"]
    return times(config, "ffn", ratio) or times(config, "ratio", ratio)


def doubled(config: Config) -> bool:
    """hidden, heads and ffn times 2."""
    times(config, "heads", 2)
    times(config, "ffn", 2)
    return times(config, "hidden", 2)


def deeper(config: Config) -> bool:
    """Two more layers, each the last one's copy."""
    return relayered(config, lambda count: count + 2)


def more_keys(config: Config) -> bool:
    """kv_heads times 2, where queries are grouped."""
    heads, keys = (config.get(n) for n in ("num_attention_heads", "num_key_value_heads"))
    return (keys or config.get("num_kv_heads", heads)) != heads and times(config, "kv_heads", 2)


def halved(config: Config) -> bool:
    """Half of the layers and of ffn."""
    return relayered(config, lambda count: count // 2) and ffn_times(config, 0.5)


def relayered(config: Config, new: Callable[[int], int]) -> bool:
    """Another number of layers; lists with an entry for each go along."""
    has_field = False
    for name in FIELDS["layers"]:
        count = config.get(name)
        if isinstance(count, int) and count:
            lists = {n: v for n, v in config.items() if isinstance(v, list) and len(v) == count}
            for listed, values in lists.items():
                if listed in ("layer_types", "no_rope_layers", "mlp_layer_types"):
                    config[listed] = [values[min(i, count - 1)] for i in range(new(count))]
            config[name], has_field = new(count), True
    parts = [part for name in ("text_config", "vision_config") if (part := config.get(name))]
    inside = [relayered(part, new) for part in parts]
    return has_field or any(inside)


REQUESTS: dict[str, Callable[[Config], bool]] = {
    "ffn": wider_ffn,
    "double": doubled,
    "layers": deeper,
    "kv_heads": more_keys,
    "half": halved,
}


def full(config: Config) -> Config:
    """A config with all fields that its class has."""
    module: Any = build(config)
    return module.config.to_dict() | {"architectures": config["architectures"]}


def true_config(config: Config, request: str) -> Config | None:
    """The config with what is asked for, or None where it has no field for it."""
    changed = deepcopy(full(config))
    return changed if REQUESTS[request](changed) else None


def target_of(config: Config, inputs: dict[str, Any]) -> Target:
    """The target of the solver that a plan for this config would give."""
    module = build(config, constants=True)
    log, ties = operator_log(module, inputs), ties_of(module)
    shapes = read_by(log.reads, shapes_of(module), ties)
    return Target(shapes, among(ties, shapes), log, inputs)


def on_meta(feed: dict[str, Any]) -> dict[str, Any]:
    """Inputs of which only sizes count."""
    sizes_only: dict[str, Any] = tree_map_only(Tensor, lambda t: torch.empty_like(t, device="meta"), feed)
    return sizes_only
