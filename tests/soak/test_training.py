"""Grown models go on training where their sources stopped: the whole loop of a user, on real text and images.

A GPT-2, a LLaMA and a ViT are trained for a while, saved with the state of their optimizer, grown, loaded by
their class, and trained on. Judged are the loss at the seam, the loss after 50 steps against that of a fresh
optimizer, and the module of growc's own against the class of transformers.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import growc

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.append(str(EXAMPLES))

BEFORE, AFTER = 400, 50
"""Steps of training before the seam and behind it."""
SEAM = 1e-3
RATE = 1e-3
ORDERS = (1, 2, 3)
"""Orders of the batches behind the seam: after 50 steps they differ by more than optimizers do."""
SAME = 0.002
"""Share of a loss that the mean of these orders does not tell apart."""

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Subject:
    """A class of transformers with a small config, batches to train on, and one to be judged by."""

    model: Callable[[float], Any]
    batches: Callable[[int], Iterator[Batch]]
    recipe: str


def bytes_of_the_library(seed: int) -> Iterator[Batch]:
    from train_tiny_gpt import corpus

    text = corpus(validation=False)[:2_000_000].astype(np.int64)
    random = np.random.default_rng(seed)
    while True:
        starts = random.integers(0, len(text) - 33, 16)
        ids = torch.from_numpy(text[starts[:, None] + np.arange(33)])
        yield {"input_ids": ids, "labels": ids}


def digits(seed: int) -> Iterator[Batch]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(seed)
    while True:
        rows = random.integers(0, 1500, 32)
        pixels = torch.from_numpy(images[rows].reshape(-1, 1, 8, 8).astype(np.float32) / 8 - 1)
        yield {"pixel_values": pixels, "labels": torch.from_numpy(labels[rows])}


def gpt2(dropout: float) -> Any:
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=64, n_embd=48, n_layer=2, n_head=4,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama(dropout: float) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, attention_dropout=dropout,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def vit(dropout: float) -> Any:
    config = transformers.ViTConfig(
        image_size=8, patch_size=2, num_channels=1, hidden_size=48, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=4, num_labels=10, hidden_dropout_prob=dropout,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


WIDE = "widen ffn to 2 * ffn with cyclic copy"
BOTH = "widen hidden to 2 * hidden with cyclic copy\nwiden heads to 2 * heads with neighbor copy\n" + WIDE
DEEP = "stack layers to layers + 1 by last with zero outputs"
SUBJECTS = {
    "gpt2": Subject(gpt2, bytes_of_the_library, BOTH),
    "llama": Subject(llama, bytes_of_the_library, f"{WIDE}\n{DEEP}"),
    "vit": Subject(vit, digits, f"{WIDE}\n{DEEP}"),
}


def optimizer_of(model: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)


def loss_of(model: Any, batch: Batch) -> float:
    model.eval()
    with torch.no_grad():
        return float(model(**batch).loss)


def train(
    model: Any,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Batch],
    steps: int,
    falling: bool = False,
) -> list[float]:
    """The losses of some steps at one rate, or at one that falls to nothing."""
    model.train()
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / steps if falling else 1)
        loss = model(**next(batches)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def trained(subject: Subject, path: Path, dropout: float = 0.0) -> Any:
    """A model that has been trained, saved as a Trainer saves it."""
    torch.manual_seed(0)
    model = subject.model(dropout)
    optimizer = optimizer_of(model)
    train(model, optimizer, subject.batches(0), BEFORE)
    model.save_pretrained(path)
    torch.save(optimizer.state_dict(), path / "optimizer.pt")
    return model


@pytest.fixture(params=SUBJECTS)
def subject(request) -> Subject:
    return SUBJECTS[request.param]


def test_training_goes_on_as_if_nothing_had_happened(subject, tmp_path):
    source = trained(subject, tmp_path / "source")
    out = tmp_path / "grown"
    done = growc.apply(subject.recipe, tmp_path / "source", out, optimizer=tmp_path / "source/optimizer.pt")
    assert done.plan.certificate.exact
    grown = type(source).from_pretrained(out)
    assert sum(p.numel() for p in grown.parameters()) > sum(p.numel() for p in source.parameters())
    fixed = next(subject.batches(99))
    assert abs(loss_of(grown, fixed) - loss_of(source, fixed)) <= SEAM

    judges = [next(batches) for batches in [subject.batches(98)] for _ in range(16)]

    def after(order: int, state: Any) -> float:
        model = copy.deepcopy(grown)
        optimizer = optimizer_of(model)
        if state is not None:
            optimizer.load_state_dict(state)
        train(model, optimizer, subject.batches(order), AFTER, falling=True)
        return sum(loss_of(model, batch) for batch in judges) / len(judges)

    kept = torch.load(out / "optimizer.pt", weights_only=True)
    carried, fresh = (np.mean([after(order, state) for order in ORDERS]) for state in (kept, None))
    print(f"after {AFTER} steps: {carried:.4f} with the state, {fresh:.4f} with a fresh optimizer")
    assert carried <= fresh * (1 + SAME)


def test_dropout_and_gradient_checkpointing_work_on_the_result(subject, tmp_path):
    source = trained(subject, tmp_path / "source", dropout=0.1)
    growc.apply(subject.recipe, tmp_path / "source", tmp_path / "grown")
    grown = type(source).from_pretrained(tmp_path / "grown")
    batch = next(subject.batches(99))
    grown.train()
    one, other = (float(grown(**batch).loss.detach()) for _ in range(2))
    assert one != other, "dropout is on"
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            grown.activation_checkpointing_enable()
        grown.zero_grad()
        torch.manual_seed(3)
        grown(**batch).loss.backward()
        gradients.append([p.grad.clone() for p in grown.parameters() if p.grad is not None])
    for plain, saved in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, saved, rtol=1e-4, atol=1e-6)
    losses = train(grown, optimizer_of(grown), subject.batches(1), AFTER)
    assert np.isfinite(losses).all()


class Loss(torch.nn.Module):
    """A model with its loss: a module of the user's own."""

    def __init__(self, model: Any, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.forward_of = model, forward

    def forward(self, data: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.forward_of(self.model, data, labels)


def _text(model: Any, data: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=data, use_cache=False).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())


def _image(model: Any, data: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(pixel_values=data).logits, labels)


def test_a_module_trains_to_the_losses_of_the_class(subject, tmp_path):
    source = trained(subject, tmp_path / "source")
    growc.apply(subject.recipe, tmp_path / "source", tmp_path / "grown")
    grown = type(source).from_pretrained(tmp_path / "grown")
    forward = _image if subject.batches is digits else _text
    first = next(subject.batches(5))
    given = tuple(first.values())
    module = growc.apply(Loss(source, forward), subject.recipe, given)
    seen: list[list[float]] = []
    for model in (Loss(grown, forward), module):
        model.train()
        optimizer, batches, losses = optimizer_of(model), subject.batches(1), []
        for _ in range(AFTER):
            loss = model(*next(batches).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        seen.append(losses)
    np.testing.assert_allclose(seen[0], seen[1], atol=5e-3)
