"""A module's program, lowered, computes what the module does; what is planned for it are its own tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from lowered import difference, lowered, opaque
from torch import nn

import growc
from growc.dialects.torch.capture.example_inputs import real_inputs
from growc.dialects.torch.capture.export import export
from growc.dialects.torch.lowering.lower import OWNER, lower
from growc.dialects.torch.operators.call import SITE
from growc.plans import execute as weights

TEXT = {"vocab_size": 40, "max_position_embeddings": 32, "num_hidden_layers": 2, "hidden_size": 16}
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2LMHeadModel",
        {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40, "use_cache": False},
    ),
    "llama": (
        "LlamaForCausalLM",
        {
            "intermediate_size": 24,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
            "use_cache": False,
        }
        | TEXT,
    ),
    "bert": ("BertForMaskedLM", {"intermediate_size": 32, "num_attention_heads": 2} | TEXT),
    "vit": (
        "ViTForImageClassification",
        {"intermediate_size": 32, "num_attention_heads": 2, "image_size": 16, "patch_size": 4}
        | {"num_hidden_layers": 2, "hidden_size": 16},
    ),
}


def made(name: str) -> nn.Module:
    kind, config = CLASSES[name]
    torch.manual_seed(1)
    chosen = getattr(transformers, kind)
    return chosen(chosen.config_class(**config)).eval()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CLASSES)
def test_a_lowered_program_computes_what_the_class_does(name):
    module = made(name)
    feed = {k: v for k, v in real_inputs(module).items() if isinstance(v, torch.Tensor)}
    model = lowered(module, feed)
    assert opaque(model) == []
    assert difference(module, model, feed) <= 1e-5


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", CLASSES)
def test_a_module_is_planned_like_a_file(name):
    module = made(name)
    plan = growc.plan("widen ffn to 2 * ffn with uniform copy", module)
    assert plan.certificate.exact
    stored = dict(module.state_dict())
    changed = [w for w in plan.weights if w.changed]
    assert {w.name for w in changed} <= set(stored)
    for weight in changed:
        read = stored[weight.name].numpy()
        assert weights.execute(weight, read, lambda name: stored[name].numpy()).shape == weight.after


def test_a_tied_weight_is_one_initializer_under_its_first_name():
    module = made("llama")
    model = lowered(module, {"input_ids": torch.zeros(2, 5, dtype=torch.long)})
    owned = {n for n, v in model.graph.initializers.items() if v.meta[OWNER] == "state"}
    assert "model.embed_tokens.weight" in owned
    assert "lm_head.weight" not in owned
    assert owned <= set(module.state_dict())


def test_constants_of_the_class_are_no_part_of_a_checkpoint():
    model = lowered(made("llama"), {"input_ids": torch.zeros(2, 5, dtype=torch.long)})
    owner = {n: v.meta[OWNER] for n, v in model.graph.initializers.items()}
    assert owner["model.rotary_emb.inv_freq"] == "class"


def test_literals_of_a_call_are_found_in_the_nodes_that_took_them():
    model = lowered(made("gpt2"), {"input_ids": torch.zeros(2, 5, dtype=torch.long)})
    nodes = [n for n in model.graph if n.op_type == "Reshape"]
    sites = [n.meta[SITE] for n in nodes]
    assert all(site.node.args[path[0]] is not None for site in sites for path in site.carried)
    assert sum(place.where == 1 for site in sites for place in site.carried.values()) == len(nodes)


def test_no_weight_is_read_where_a_program_is_lowered():
    module, asked = made("bert"), set()

    def read(name: str) -> torch.Tensor:
        asked.add(name)
        return dict(module.named_parameters())[name]

    model = lower(export(module, (), {"input_ids": torch.zeros(2, 5, dtype=torch.long)}), read)
    assert len(model.graph.initializers) > 30
    assert not asked


def test_a_program_in_a_file_is_planned(tmp_path):
    module = made("llama")
    program = torch.export.export(module, (torch.zeros(2, 5, dtype=torch.long),), strict=False)
    torch.export.save(program, tmp_path / "llama.pt2")
    plan = growc.plan("widen ffn to 2 * ffn with uniform copy", tmp_path / "llama.pt2")
    assert plan.certificate.exact
    assert {w.name for w in plan.weights if w.changed} <= set(module.state_dict())
