"""GPT-2 124M to 355M by hand in torch and transformers, as papers' scripts do it.

python widen_torch.py SOURCE_DIRECTORY OUT_DIRECTORY
"""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

BEFORE, AFTER, HEAD = 768, 1024, 64
HEADS = (torch.arange(16) * 12 // 16)[:, None] * HEAD + torch.arange(HEAD)
Q = HEADS.flatten()
QKV = torch.cat([part * BEFORE + Q for part in range(3)])
UNIT = torch.arange(4096) % 3072


def stream(x):
    """The last axis of what writes to the stream: new units are the mean."""
    return torch.cat([x, x.mean(-1, keepdim=True).expand(*x.shape[:-1], AFTER - BEFORE)], -1)


def read(x):
    """The first axis of what reads the stream: anything of new units, zero behind norms."""
    return torch.cat([x, torch.randn(AFTER - BEFORE, *x.shape[1:]) * x.std()])


def gain(x):
    """The gain of a norm: new units are zero behind it."""
    return torch.cat([x * (BEFORE / AFTER) ** 0.5, x.new_zeros(AFTER - BEFORE)])


def shared(x, index):
    """The first axis of what reads copies: each has its share."""
    return x[index] / torch.bincount(index)[index][:, None]


@torch.no_grad()
def main():
    """Grow the model."""
    source = GPT2LMHeadModel.from_pretrained(sys.argv[1]).transformer
    config = GPT2Config(
        n_embd=AFTER, n_head=16, n_inner=4096, n_layer=24, layer_norm_epsilon=1e-5 * BEFORE / AFTER
    )
    model = GPT2LMHeadModel(config)
    result = model.transformer
    result.wte.weight.copy_(stream(source.wte.weight))
    result.wpe.weight.copy_(stream(source.wpe.weight))

    def norm(new, old):
        new.weight.copy_(gain(old.weight))
        new.bias.copy_(stream(old.bias))

    norm(result.ln_f, source.ln_f)
    for number, block in enumerate(result.h):
        old = source.h[number % 12]
        norm(block.ln_1, old.ln_1)
        norm(block.ln_2, old.ln_2)
        block.attn.c_attn.weight.copy_(read(old.attn.c_attn.weight[:, QKV]))
        block.attn.c_attn.bias.copy_(old.attn.c_attn.bias[QKV])
        block.mlp.c_fc.weight.copy_(read(old.mlp.c_fc.weight[:, UNIT]))
        block.mlp.c_fc.bias.copy_(old.mlp.c_fc.bias[UNIT])
        for new, before, index in (
            (block.attn.c_proj, old.attn.c_proj, Q),
            (block.mlp.c_proj, old.mlp.c_proj, UNIT),
        ):
            new.weight.copy_(stream(shared(before.weight, index)) if number < 12 else torch.zeros(()))
            new.bias.copy_(stream(before.bias) if number < 12 else torch.zeros(()))
    model.save_pretrained(sys.argv[2])


main()
