"""A dense checkpoint becomes one of a class of mixtures, which is found by how the class computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, MixtralForCausalLM

import growc
from growc.errors.diagnostic import GrowError

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "vocab_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-3,
    "initializer_range": 0.3,
}
UPCYCLE = "upcycle ffn to experts 8 top 2 with cyclic copy"


def dense(folder: Path, kind: type[Any] = LlamaForCausalLM, **more: Any) -> Path:
    """A checkpoint with random norms, in whose outputs a wrong weight shows."""
    torch.manual_seed(0)
    module = kind(kind.config_class(**SIZES | more))
    for name, parameter in module.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 1.0, 0.4)
    module.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["MixtralForCausalLM", "Qwen3MoeForCausalLM"])
def test_parts_of_copies_become_narrower_experts_of_a_class(tmp_path: Path, kind: str) -> None:
    more: dict[str, Any] = {"model_type": "qwen3"} if kind.startswith("Qwen3") else {}
    dense_kind = transformers.Qwen3ForCausalLM if more else LlamaForCausalLM
    source = dense(tmp_path / "dense", dense_kind, **({"head_dim": 8} if more else {}))
    recipe = "upcycle ffn to experts 8 top 4 with cyclic copy in 2 parts\nexpect exact"
    done = growc.apply(recipe, source, tmp_path / "mixture", model_class=f"transformers:{kind}")
    assert done.verification is not None
    assert done.verification.relative <= done.verification.limit
    mixture = getattr(transformers, kind).from_pretrained(tmp_path / "mixture")
    before = dense_kind.from_pretrained(source).state_dict()
    after = mixture.state_dict()
    down = before["model.layers.1.mlp.down_proj.weight"]
    for e in range(8):
        own = slice(e % 2 * 24, e % 2 * 24 + 24)
        assert torch.equal(after["model.layers.1.mlp.experts.down_proj"][e], 2 * down[:, own])


def test_reset_reaches_all_tensors_of_an_expert(tmp_path: Path) -> None:
    """The units that are drawn are the same in gate, up and down; the rest are copies."""
    source = dense(tmp_path / "llama")
    recipe = "upcycle ffn to experts 8 top 2 with cyclic copy reset 0.5 seed 1"
    done = growc.apply(
        recipe, source, tmp_path / "mixture", model_class="transformers:MixtralForCausalLM", check=False
    )
    assert not done.plan.certificate.exact
    before = LlamaForCausalLM.from_pretrained(source).state_dict()
    after = MixtralForCausalLM.from_pretrained(tmp_path / "mixture").state_dict()
    gate_up, down = (after[f"model.layers.0.mlp.experts.{name}"] for name in ("gate_up_proj", "down_proj"))
    mlp = "model.layers.0.mlp"
    for e in range(8):
        kept = [
            (gate_up[e, :48] == before[f"{mlp}.gate_proj.weight"]).all(dim=1),
            (gate_up[e, 48:] == before[f"{mlp}.up_proj.weight"]).all(dim=1),
            (down[e] == before[f"{mlp}.down_proj.weight"]).all(dim=0),
        ]
        assert [int(one.sum()) for one in kept] == [24, 24, 24]
        assert torch.equal(kept[0], kept[1])
        assert torch.equal(kept[0], kept[2])


def test_a_llama_becomes_a_mixtral_that_computes_the_same_and_trains(tmp_path: Path) -> None:
    """The acceptance: exact, every expert the source's network, loaded by transformers, and trained."""
    source = dense(tmp_path / "llama")
    done = growc.apply(
        f"{UPCYCLE}\nexpect exact",
        source,
        tmp_path / "mixtral",
        model_class="transformers:MixtralForCausalLM",
    )
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.relative <= done.verification.limit
    config = json.loads((tmp_path / "mixtral/config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["MixtralForCausalLM"]
    before = LlamaForCausalLM.from_pretrained(source).state_dict()
    mixture = MixtralForCausalLM.from_pretrained(tmp_path / "mixtral")
    assert (mixture.config.num_local_experts, mixture.config.num_experts_per_tok) == (8, 2)
    after = mixture.state_dict()
    for k in range(2):
        mlp = f"model.layers.{k}.mlp"
        gate, up, down = (before[f"{mlp}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        assert all(torch.equal(one, torch.cat([gate, up])) for one in after[f"{mlp}.experts.gate_up_proj"])
        assert all(torch.equal(one, down) for one in after[f"{mlp}.experts.down_proj"])
        assert 0.015 < float(after[f"{mlp}.gate.weight"].std()) < 0.025
    tokens = torch.arange(48).reshape(2, 24) % 64
    steps = torch.optim.Adam(mixture.parameters(), 1e-3)
    losses = []
    for _ in range(8):
        loss = mixture(input_ids=tokens, labels=tokens).loss
        losses.append(float(loss.detach()))
        steps.zero_grad()
        loss.backward()
        steps.step()
    assert losses[-1] < losses[0]
    assert all(p.grad is not None for n, p in mixture.named_parameters() if "gate.weight" in n)
    first = mixture.state_dict()["model.layers.0.mlp.experts.down_proj"]
    assert not torch.equal(first[0], first[1])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("dense_class", "mixture_class", "more"),
    [
        ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", {"head_dim": 8}),
        # The mixture's config has no `head_dim`, and its class asks for it.
        ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", {"head_dim": 16}),
        ("GraniteForCausalLM", "GraniteMoeForCausalLM", {}),
    ],
)
def test_other_pairs_of_classes_fit_as_well(
    tmp_path: Path, dense_class: str, mixture_class: str, more: dict[str, Any]
) -> None:
    """Qwen3's mixture divides the weights only where a switch says so, which is found."""
    source = dense(tmp_path / "dense", getattr(transformers, dense_class), **more)
    recipe = "upcycle ffn to experts 6 top 3 with tail copy\nexpect exact"
    done = growc.apply(recipe, source, tmp_path / "out", model_class=f"transformers:{mixture_class}")
    assert done.verification is not None
    assert done.verification.relative <= done.verification.limit


def test_noise_is_a_gap_and_shows(tmp_path: Path) -> None:
    source = dense(tmp_path / "llama", num_hidden_layers=1)
    recipe = f"{UPCYCLE} noise 0.5"
    kind = "transformers:MixtralForCausalLM"
    done = growc.apply(recipe, source, tmp_path / "out", model_class=kind, check=False)
    assert [gap.cause.split(":")[0] for gap in done.plan.certificate.gaps][:1] == ["noise on experts"]
    stacks = MixtralForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    found = stacks["model.layers.0.mlp.experts.down_proj"].numpy()
    [origin] = (
        p.detach().numpy()
        for n, p in LlamaForCausalLM.from_pretrained(source).named_parameters()
        if n == "model.layers.0.mlp.down_proj.weight"
    )
    assert (found[0] == origin).all()
    assert all(0.4 < np.std(one - origin) / origin.std() < 0.6 for one in found[1:])


REFUSED = {
    "no class": (UPCYCLE, None, "needs the class that holds the mixture"),
    "another statement": (
        f"widen ffn to 64 with cyclic copy\n{UPCYCLE}",
        "transformers:MixtralForCausalLM",
        "takes no other statement",
    ),
    "a class without experts": (UPCYCLE, "transformers:LlamaForCausalLM", "has no experts"),
}


@pytest.mark.parametrize(("recipe", "kind", "words"), REFUSED.values(), ids=REFUSED)
def test_a_mixture_that_no_class_holds_is_refused(
    tmp_path: Path, recipe: str, kind: str | None, words: str
) -> None:
    with pytest.raises(GrowError, match=words):
        growc.apply(
            recipe, dense(tmp_path / "llama", num_hidden_layers=1), tmp_path / "out", model_class=kind
        )
    assert not (tmp_path / "out").exists()


def test_a_module_in_memory_is_refused_with_the_reason(tmp_path: Path) -> None:
    module = LlamaForCausalLM(LlamaConfig(**SIZES | {"num_hidden_layers": 1}))
    with pytest.raises(GrowError, match="no calls that route"):
        growc.apply(UPCYCLE, module)
