"""Small configs of transformers' classes."""

from __future__ import annotations

from typing import Any


def tiny_config(kind: str, **changes: Any) -> Any:
    """A config of a few thousand parameters."""
    import transformers

    sizes: dict[str, dict[str, Any]] = {
        "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 48},
        "Llama": {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 48,
        },
        "Mixtral": {
            "hidden_size": 32,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_local_experts": 3,
            "vocab_size": 48,
        },
        "Bert": {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 32,
            "vocab_size": 48,
        },
    }
    sizes["Phi3"] = sizes["Llama"]
    return getattr(transformers, f"{kind}Config")(**(sizes[kind] | changes))
