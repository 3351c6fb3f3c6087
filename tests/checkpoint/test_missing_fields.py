"""Fields that a class asks its config for and does not find: configs of results get them where that helps."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

import growc
from growc.dialects.transformers.missing_fields import asking

IDS = torch.randint(3, 40, (2, 7), generator=torch.Generator().manual_seed(1))
SIZES = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
GTE = SIZES | {"intermediate_size": 48, "max_position_embeddings": 32, "pad_token_id": 0}


@pytest.mark.parametrize(
    ("recipe", "exact"),
    [
        ("widen heads to 2 * heads with neighbor copy", True),
        ("subclone heads to heads / 2 by magnitude unscaled", False),
    ],
)
def test_heads_change_alone_where_a_config_lacks_their_width(save, tmp_path, recipe, exact):
    folder = save("GteForMaskedLM", transformers.GteConfig(**GTE))
    assert "head_dim" not in json.loads((folder / "config.json").read_text())
    made = growc.apply(recipe, folder, tmp_path / "grown")
    config = json.loads((tmp_path / "grown" / "config.json").read_text())
    assert made.plan.certificate.exact is exact
    assert config["head_dim"] == 8
    assert config["num_attention_heads"] == (8 if exact else 2)
    source, result = (
        transformers.GteForMaskedLM.from_pretrained(place).eval() for place in (folder, tmp_path / "grown")
    )
    with torch.no_grad():
        one, other = source(IDS).logits, result(IDS).logits
    assert bool(torch.allclose(one, other, atol=1e-5)) is exact


def test_fields_are_found_in_the_config_that_is_asked():
    """The classes of a text and of an image each ask the part of the config that is theirs."""
    part = transformers.PreTrainedConfig()
    whole = transformers.GteConfig(**GTE)
    whole.part = part
    module = transformers.GteForMaskedLM(transformers.GteConfig(**GTE))
    module.config = whole
    with asking() as asked:
        transformers.GteForMaskedLM(transformers.GteConfig(**GTE))
    assert asked.paths(module).count(("head_dim",)) == 1
    asked.names = [(part, "width"), (part, "width"), (whole, "height")]
    assert asked.paths(module) == [("part", "width"), ("height",)]
    with pytest.raises(AttributeError, match="no attribute 'lost'"):
        _ = whole.lost
