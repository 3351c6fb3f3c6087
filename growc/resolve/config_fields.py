"""The sizes in a Hugging Face config.json, with one table of fields by axis.

Needs: the parsed file. Gives: `SizesByPart`, the sizes of each axis, of the whole model and of its encoder
and decoder where the fields name these. Sizes that depend on the code of the model are left out. So
`positions` is never read from a config: tables of positions may have a few reserved rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from growc.errors.json_data import Json
from growc.resolve.match import SizesByPart

FIELDS: dict[str, Sequence[str]] = {
    "hidden": ("hidden_size", "d_model", "n_embd", "n_embed", "dim", "model_dim", "embed_dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "multi_query_group_num"),
    "head_dim": ("head_dim", "d_kv", "attention_head_dim", "kv_channels"),
    "ffn": (
        *("intermediate_size", "d_ff", "ffn_dim", "n_inner", "d_inner", "ffn_hidden_size", "dff", "ffn_size"),
        "hidden_dim",
    ),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks"),
    "vocab": ("vocab_size", "n_vocab", "padded_vocab_size"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
}
"""The fields of each axis, the most specific first: beside it, a later one may mean something else."""

SCOPED: dict[str, dict[str, Sequence[str]]] = {
    side: {
        "heads": (f"{side}_attention_heads",),
        "ffn": (f"{side}_ffn_dim",),
        "layers": (f"{side}_layers", f"num_{side}_layers"),
    }
    for side in ("encoder", "decoder")
}
"""Fields about one part of a model. A plain field is about both parts."""

NESTED = ("text_config", "llm_config", "language_config")
"""Configs inside a config that describe the language model."""

SINGLE_KEY, NO_SINGLE_KEY = "multi_query", "new_decoder_architecture"
"""The first field, if true, gives all query heads one key/value head, unless the second is true as well."""

FOUR_TIMES = "n_inner"
"""A field that is null where the feed-forward block is four times as wide as the stream."""

ROUTED = "moe_intermediate_size"
"""A field of models that have feed-forward blocks of two widths."""


def sizes_of_config(config: Mapping[str, Json]) -> SizesByPart:
    """The sizes in a config. Empty where none of its fields is known."""
    nested = next((sizes for name in NESTED if isinstance(sizes := config.get(name), dict)), None)
    if nested is not None and _number(config, FIELDS["hidden"]) is None:
        return sizes_of_config(nested)
    plain = _numbers(config, FIELDS)
    scoped = {scope: _numbers(config, fields) for scope, fields in SCOPED.items()}
    if not any(scoped.values()):
        return SizesByPart({"": _complete(plain, config)})
    sides = {scope: _complete(plain | sizes, config) for scope, sizes in scoped.items()}
    roles = dict.fromkeys(role for sizes in sides.values() for role in sizes)
    all_sizes = {
        role: tuple(dict.fromkeys(n for sizes in sides.values() for n in sizes.get(role, ())))
        for role in roles
    }
    return SizesByPart({"": all_sizes} | sides)


def _numbers(config: Mapping[str, Json], table: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {role: n for role, fields in table.items() if (n := _number(config, fields)) is not None}


def _number(config: Mapping[str, Json], fields: Sequence[str]) -> int | None:
    values = (config.get(field) for field in fields)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


def _complete(known: Mapping[str, int], config: Mapping[str, Json]) -> dict[str, tuple[int, ...]]:
    """The sizes, with those that a config implies without a field for them."""
    hidden, heads, implied = known.get("hidden"), known.get("heads"), dict(known)
    if hidden and "ffn" not in known and FOUR_TIMES in config and config[FOUR_TIMES] is None:
        implied["ffn"] = 4 * hidden
    if hidden and heads and "head_dim" not in known and hidden % heads == 0:
        implied["head_dim"] = hidden // heads
    if config.get(SINGLE_KEY) is True and config.get(NO_SINGLE_KEY) is not True:
        implied["kv_heads"] = 1
    sizes: dict[str, tuple[int, ...]] = {role: (n,) for role, n in implied.items()}
    routed = _number(config, (ROUTED,))
    if routed and "ffn" in implied and routed != implied["ffn"]:
        return sizes | {"ffn": (implied["ffn"], routed)}
    return sizes
