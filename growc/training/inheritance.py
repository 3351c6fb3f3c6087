"""Knowledge Inheritance: a large model learns from a small one's predictions while these still help.

Qin et al. 2022, "Knowledge Inheritance for Pre-trained Language Models", section 3: the loss
(1 - α)·CE + α·τ²·KL(teacher ‖ student), and the rate α_t = max(1 - α_T·t/T, 0). Needs torch alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100
"""The label of a place that counts for no loss, as in torch."""


def inheritance_rate(step: int, steps: int, decay: float = 1.0) -> float:
    """α_t = max(1 - α_T·t/T, 0): which part of the loss is the teacher's at a step.

    `decay` is α_T: with 1 the rate reaches zero at the last step, with 2 half-way. Raises ValueError.
    """
    if steps < 1 or step < 0 or decay < 0:
        raise ValueError(f"no rate at step {step} of {steps} with decay {decay}")
    return max(1 - decay * step / steps, 0.0)


class TopLogits(NamedTuple):
    """The K largest logits of each place: `values` and `indices` [..., K], and `rest` [...], the logarithm of
    the sum of exp(logit/τ) over all others, for one temperature τ.
    """

    values: Tensor
    indices: Tensor
    rest: Tensor
    temperature: float


def top_logits(logits: Tensor, count: int, temperature: float = 1.0) -> TopLogits:
    """The `count` largest of logits [..., V]. The sum of the others is kept, so that no mass is lost.

    Raises ValueError where no others are left.
    """
    if not 0 < count < logits.shape[-1]:
        raise ValueError(f"{count} of {logits.shape[-1]} logits leave no others, or are none")
    values, indices = logits.float().topk(count, dim=-1)
    others = logits.float().scatter(-1, indices, -torch.inf)
    return TopLogits(values, indices, torch.logsumexp(others / temperature, -1), temperature)


def soft_loss(
    student: Tensor, teacher: Tensor | TopLogits, temperature: float = 1.0, kept: Tensor | None = None
) -> Tensor:
    """τ²·KL(teacher ‖ student) of logits [..., V], the mean over places, or over those that are `kept` [...].

    Of a teacher whose largest K logits are known, all other tokens count as one. With r as the probability
    that the teacher gives to them, the gradient by a place's logits then differs from that of the whole
    teacher by at most 2·r·τ in the sum of magnitudes. Raises ValueError where temperatures differ.
    """
    if isinstance(teacher, TopLogits):
        if teacher.temperature != temperature:
            raise ValueError(f"logits kept for temperature {teacher.temperature}, and not for {temperature}")
        student = _with_rest(student, teacher.indices, temperature)
        scaled = torch.cat([teacher.values / temperature, teacher.rest.unsqueeze(-1)], -1)
    else:
        student, scaled = student.float() / temperature, teacher.float() / temperature
    target, own = functional.log_softmax(scaled, -1), functional.log_softmax(student, -1)
    apart = functional.kl_div(own, target, reduction="none", log_target=True).sum(-1)
    return temperature**2 * (apart.mean() if kept is None else apart[kept].mean())


def _with_rest(logits: Tensor, indices: Tensor, temperature: float) -> Tensor:
    """Logits of the tokens at `indices`, and one for all others together, divided by the temperature."""
    scaled = logits.float() / temperature
    others = torch.logsumexp(scaled.scatter(-1, indices, -torch.inf), -1)
    return torch.cat([scaled.gather(-1, indices), others.unsqueeze(-1)], -1)


def inherited_loss(
    logits: Tensor,
    labels: Tensor,
    teachers: Sequence[Tensor | TopLogits],
    rate: float,
    temperature: float = 1.0,
) -> Tensor:
    """(1 - α)·CE + α·τ²·KL for logits [..., V] and labels [...]; of several teachers, the mean of their KL.

    Both parts are means over the places whose label is not -100. Labels stand where their logits do: shift
    those of a causal model before.
    """
    kept = labels != IGNORED
    own = functional.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORED)
    if rate == 0 or not teachers:
        return own
    soft = torch.stack([soft_loss(logits, teacher, temperature, kept) for teacher in teachers]).mean()
    return (1 - rate) * own + rate * soft


@dataclass(frozen=True)
class Generation:
    """One student of a series, which is the teacher of the next: for how many steps, and how fast α falls."""

    steps: int
    decay: float = 1.0

    def rate(self, step: int) -> float:
        """α at a step of this generation."""
        return inheritance_rate(step, self.steps, self.decay)
