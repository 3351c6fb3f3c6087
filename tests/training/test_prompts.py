"""Soft prompts: planted, trained, and removed without a trace."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from growc.training.prompts import SoftPrompts, plant, remove

IDS = torch.tensor([[3, 7, 1, 30, 2], [5, 5, 0, 11, 39]])


class Bag(nn.Module):
    """A class of nobody's, whose head reads the table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix = nn.Embedding(40, 16), nn.Linear(16, 16)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        return (x + torch.tanh(self.mix(x.mean(1, keepdim=True)))) @ self.table.weight.T


SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
CLASSES: dict[str, Callable[[], nn.Module]] = {
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=40, bos_token_id=0, eos_token_id=0)
    ),
    "bert": lambda: BertForMaskedLM(BertConfig(vocab_size=40, **SIZES)),
    "module": Bag,
}


def drawn(name: str) -> tuple[nn.Module, nn.Embedding]:
    torch.manual_seed(0)
    module = CLASSES[name]().eval()
    for parameter in module.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    table = module.table if isinstance(module, Bag) else module.get_input_embeddings()
    return module, table


def logits(module: nn.Module, ids: Tensor) -> Tensor:
    made = module(input_ids=ids)
    return made if isinstance(made, Tensor) else made.logits


def hooks(module: nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(part, kind)) for part in module.modules() for kind in kinds)


@pytest.mark.parametrize("name", CLASSES)
def test_prompts_leave_no_trace(name: str) -> None:
    module, table = drawn(name)
    before, state, names = logits(module, IDS), copy.deepcopy(module.state_dict()), list(module.state_dict())
    attributes = {part: set(vars(part)) for part in module.modules()}
    prompts = SoftPrompts(table, ["news", "law"], 3, seed=5)
    plant(table, prompts)
    assert torch.equal(logits(module, IDS), before), "without a prompt in it"
    longer = prompts.in_front({"input_ids": IDS}, ["law", "news"])["input_ids"]
    optimizer = torch.optim.Adam(prompts.parameters(), 0.05)
    losses = []
    for _ in range(4):
        loss = nn.functional.cross_entropy(logits(module, longer)[:, 3:].flatten(0, 1), IDS.flip(1).flatten())
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1] + 1e-3
    assert torch.equal(logits(module, IDS), before)
    assert remove(table) is prompts
    assert torch.equal(logits(module, IDS), before)
    assert list(module.state_dict()) == names
    assert all(torch.equal(tensor, state[key]) for key, tensor in module.state_dict().items())
    assert hooks(module) == 0
    assert {part: set(vars(part)) for part in module.modules()} == attributes
    with pytest.raises(IndexError):
        logits(module, longer)


def test_every_row_has_the_prompt_of_its_domain() -> None:
    module, table = drawn("module")
    prompts = SoftPrompts(table, ["news", "law"], 2)
    plant(table, prompts)
    batch = {"input_ids": IDS, "labels": IDS, "attention_mask": torch.ones_like(IDS), "weight": torch.ones(2)}
    longer = prompts.in_front(batch, ["law", "news"])
    made = table(longer["input_ids"])
    assert torch.equal(made[:, :2], prompts.vectors[[1, 0]])
    assert torch.equal(made[:, 2:], table.weight[IDS])
    assert longer["labels"][:, :2].eq(-100).all()
    assert longer["attention_mask"].shape == (2, 7)
    assert torch.equal(longer["weight"], torch.ones(2))
    made[0].sum().backward()
    assert prompts.vectors.grad is not None
    assert prompts.vectors.grad[1].eq(1).all()
    assert prompts.vectors.grad[0].eq(0).all()
    table(IDS).sum().backward()  # as processes that average gradients need it
    assert all(name in dict(module.named_parameters()) for name in ("table.prompts.vectors", "table.weight"))


def test_a_prompt_begins_as_embeddings_of_tokens() -> None:
    _, table = drawn("gpt2")
    prompts = SoftPrompts(table, ["news"], 4, seed=1)
    rows = table.weight.detach().tolist()
    assert all(vector in rows for vector in prompts.vectors.detach()[0].tolist())
    assert torch.equal(SoftPrompts(table, ["news"], 4, seed=1).vectors, prompts.vectors)


def test_a_copy_of_a_model_has_prompts_of_its_own() -> None:
    module, table = drawn("module")
    prompts = SoftPrompts(table, ["news"], 2)
    plant(table, prompts)
    longer = prompts.in_front({"input_ids": IDS}, ["news", "news"])["input_ids"]
    before, other = logits(module, longer), copy.deepcopy(module)
    assert torch.equal(logits(other, longer), before)
    assert isinstance(other, Bag)
    remove(other.table).vectors.data += 1
    assert hooks(other) == 0
    assert torch.equal(logits(module, longer), before)


def test_prompts_that_cannot_be_planted_are_refused() -> None:
    _, table = drawn("module")
    for domains, length in (([], 1), (["a", "a"], 1), (["a"], 0)):
        with pytest.raises(ValueError, match="no prompts"):
            SoftPrompts(table, domains, length)
    prompts = SoftPrompts(table, ["a"], 1)
    with pytest.raises(ValueError, match="has no prompts"):
        remove(table)
    plant(table, prompts)
    with pytest.raises(ValueError, match="remove its prompts first"):
        plant(table, prompts)
    with pytest.raises(ValueError, match="position_ids"):
        prompts.in_front({"input_ids": IDS, "position_ids": IDS}, ["a", "a"])
    with pytest.raises(ValueError, match="not in"):
        prompts.numbers("b")
