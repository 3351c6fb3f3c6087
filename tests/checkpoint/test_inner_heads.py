"""Classes with a fixed number of parts, one head in each: more heads are in the parts, not more parts."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

import growc

IDS = torch.randint(3, 40, (2, 7), generator=torch.Generator().manual_seed(1))
BOTH = "widen hidden to {0} with cyclic copy\nwiden heads to {1} with {2}\n"


def codegen(heads: int) -> nn.Module:
    config = transformers.CodeGenConfig(
        vocab_size=40,
        n_positions=16,
        n_embd=8 * heads,
        n_layer=1,
        n_head=heads,
        rotary_dim=4,
        n_inner=24,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    module = transformers.CodeGenForCausalLM(config)
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return module.eval()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("heads", "more", "fill"),
    [
        (4, 8, "neighbor copy"),
        pytest.param(4, 12, "uniform copy split random", marks=pytest.mark.soak),
        pytest.param(8, 16, "neighbor copy", marks=pytest.mark.soak),
    ],
)
def test_heads_are_more_in_each_part(heads, more, fill):
    source = codegen(heads)
    recipe = BOTH.format(8 * more, more, fill) + "expect exact"
    result = growc.apply(source, recipe, check=False)
    assert result.config.n_head == more
    with torch.no_grad():
        torch.testing.assert_close(result(IDS).logits, source(IDS).logits, rtol=3e-4, atol=3e-4)


@pytest.mark.soak
def test_heads_that_do_not_come_out_whole_in_each_part_are_refused():
    with pytest.raises(growc.GrowError, match="G318"):
        growc.plan(BOTH.format(48, 6, "neighbor copy"), codegen(4))
