"""A tiny model for what several processes do."""

import torch
import transformers

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
SIZES |= {"num_attention_heads": 4, "max_position_embeddings": 64}


def save_llama(folder, kind=torch.bfloat16):
    """Write one into a folder."""
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).to(kind).save_pretrained(folder)
