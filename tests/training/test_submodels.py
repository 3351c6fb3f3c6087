"""Sub-models of two-stage training: what a step changes, and by which gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from growc.training.submodels import SubModels

SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
IDS = torch.tensor([[3, 7, 1, 30, 2], [5, 5, 0, 11, 39]])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Tied(nn.Module):
    """A class of nobody's, whose head reads the table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.blocks = nn.Embedding(40, 16), nn.ModuleList(Block() for _ in range(3))
        self.last = nn.LayerNorm(16)

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.last(x) @ self.table.weight.T


def t5() -> nn.Module:
    sizes = {"num_layers": 3, "num_decoder_layers": 3, "d_model": 16, "d_kv": 8, "num_heads": 2, "d_ff": 24}
    return T5ForConditionalGeneration(T5Config(vocab_size=40, decoder_start_token_id=0, **sizes))


CLASSES: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "gpt2": (
        lambda: GPT2LMHeadModel(
            GPT2Config(n_layer=3, n_embd=16, n_head=2, vocab_size=40, bos_token_id=0, eos_token_id=0)
        ),
        ("transformer.h",),
    ),
    "bert": (lambda: BertForMaskedLM(BertConfig(vocab_size=40, **SIZES)), ("bert.encoder.layer",)),
    "llama": (lambda: LlamaForCausalLM(LlamaConfig(vocab_size=40, **SIZES)), ("model.layers",)),
    "t5": (t5, ("encoder.block", "decoder.block")),
    "module": (Tied, ("blocks",)),
}
"""A small model of each class, and where its lists of layers are."""


def drawn(name: str) -> nn.Module:
    torch.manual_seed(0)
    module = CLASSES[name][0]().eval()
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return module


def loss(module: nn.Module, name: str) -> torch.Tensor:
    given: dict[str, Any] = {"input_ids": IDS, "decoder_input_ids": IDS} if name == "t5" else {}
    made = module(**given) if given else module(IDS)
    logits = made if isinstance(made, torch.Tensor) else made.logits
    return nn.functional.cross_entropy(logits.flatten(0, 1), IDS.flatten())


def by_hand(
    whole: nn.Module, name: str, layers: int, top: int, cut: tuple[str, ...]
) -> dict[str, torch.Tensor]:
    """Gradients of a copy whose lists are cut off; its streams in `cut` end in front of the top layers."""
    module = copy.deepcopy(whole)
    for path in CLASSES[name][1]:
        parent, _, last = path.rpartition(".")
        kept = module.get_submodule(path)[:layers]
        setattr(module.get_submodule(parent), last, kept)
        if path in cut:
            kept[layers - top].register_forward_pre_hook(lambda _, args: (args[0].detach(), *args[1:]))
    loss(module, name).backward()
    return {n: p.grad for n, p in module.named_parameters() if p.grad is not None}


def expected_of(whole: nn.Module, name: str, layers: int) -> dict[str, torch.Tensor]:
    """By hand. Only through the lower layers of a decoder do its upper ones reach the encoder."""
    paths = CLASSES[name][1]
    found = by_hand(whole, name, layers, 2, paths)
    if name == "t5":
        through = by_hand(whole, name, layers, 2, paths[:1])
        found |= {n: through[n] for n in found if n.startswith("encoder.")}
    return found


HEADS = {
    "gpt2": {"transformer.wte.weight", "transformer.ln_f.weight", "transformer.ln_f.bias"},
    "bert": {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"},
    "llama": {"lm_head.weight", "model.norm.weight"},
    "t5": {"shared.weight", "encoder.final_layer_norm.weight", "decoder.final_layer_norm.weight"},
    "module": {"table.weight", "last.weight", "last.bias"},
}
"""Parameters behind the last layer."""


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.sampled(4)
def test_a_step_of_a_sub_model_changes_its_top_layers_and_the_head(name: str) -> None:
    whole = drawn(name)
    found = SubModels(whole, 2, (IDS,) if name == "module" else None)
    assert [sub.layers for sub in found.models] == [2, 3]
    for sub in found.models:
        whole.zero_grad()
        loss(sub.module, name).backward()
        gradients = {n: p.grad for n, p in whole.named_parameters() if p.grad is not None}
        expected = expected_of(whole, name, sub.layers)
        lists = CLASSES[name][1]
        top = tuple(f"{path}.{k}." for path in lists for k in range(sub.layers - 2, sub.layers))
        behind = {n for n in gradients if not n.startswith(tuple(f"{path}." for path in lists))}
        assert gradients.keys() == set(sub.trained)
        assert all(n in behind or n.startswith(top) for n in gradients)
        assert HEADS[name] <= behind <= HEADS[name] | {n for n in behind if n.startswith("cls.")}
        assert {n for n in expected if n.startswith(top) and "relative" not in n} <= gradients.keys()
        for parameter, gradient in gradients.items():
            assert torch.allclose(gradient, expected[parameter], atol=1e-6), parameter


def test_a_step_is_seen_by_the_whole_model() -> None:
    whole = drawn("gpt2")
    found = SubModels(whole, 1, seed=3)
    assert torch.equal(loss(found.models[-1].module, "gpt2"), loss(whole, "gpt2"))
    before = {name: parameter.clone() for name, parameter in whole.named_parameters()}
    optimizer = torch.optim.AdamW(whole.parameters(), lr=0.01, weight_decay=0.1)
    loss(found.models[1].module, "gpt2").backward()
    optimizer.step()
    changed = {
        name for name, parameter in whole.named_parameters() if not torch.equal(parameter, before[name])
    }
    assert changed == set(found.models[1].trained)
    assert not any(name.startswith("transformer.h.0.") for name in changed)
    assert torch.equal(loss(found.models[-1].module, "gpt2"), loss(whole, "gpt2"))


def test_draws_go_on_where_they_stopped() -> None:
    whole = drawn("module")
    first, second = (SubModels(whole, 1, (IDS,), seed=7) for _ in range(2))
    drawn_before = [first.sample().layers for _ in range(5)]
    second.load_state_dict(first.state_dict())
    assert [first.sample().layers for _ in range(20)] == [second.sample().layers for _ in range(20)]
    again = SubModels(whole, 1, (IDS,), seed=7)
    assert [again.sample().layers for _ in range(5)] == drawn_before


@pytest.mark.parametrize(("layers", "message"), [(0, "cannot have 0 layers")])
def test_sub_models_without_layers_are_refused(layers: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SubModels(drawn("module"), layers, (IDS,))


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="no layers"):
        SubModels(nn.Sequential(nn.Linear(4, 4)), 1, (torch.randn(2, 4),))
