"""Knowledge Inheritance: a large model learns from a small one's predictions while these still help.

Qin et al. 2022, "Knowledge Inheritance for Pre-trained Language Models", section 3: the loss
(1 - α)·CE + α·τ²·KL(teacher ‖ student), and the rate α_t = max(1 - α_T·t/T, 0). Only torch is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100
"""The label of a position that is excluded from losses, as in torch."""


def inheritance_rate(step: int, steps: int, decay: float = 1.0) -> float:
    """α_t = max(1 - α_T·t/T, 0): the weight of the teacher's loss at a step.

    `decay` is α_T. With 1 the rate reaches zero at the last step, with 2 half-way. Raises ValueError for a
    negative step or decay, and for less than one step.
    """
    if steps < 1 or step < 0 or decay < 0:
        raise ValueError(f"no rate at step {step} of {steps} with decay {decay}")
    return max(1 - decay * step / steps, 0.0)


class TopLogits(NamedTuple):
    """The K largest logits of each position: `values` and `indices` [..., K], and `rest` [...].

    `rest` is the logarithm of the sum of exp(logit/τ) over all other tokens, for one temperature τ.
    """

    values: Tensor
    indices: Tensor
    rest: Tensor
    temperature: float


def top_logits(logits: Tensor, count: int, temperature: float = 1.0) -> TopLogits:
    """Return the `count` largest of logits [..., V]. The sum of the others is kept, so that no mass is lost.

    Raises ValueError if no others are left, or if `count` is not positive.
    """
    if not 0 < count < logits.shape[-1]:
        raise ValueError(f"{count} of {logits.shape[-1]} logits leave no others, or are none")
    values, indices = logits.float().topk(count, dim=-1)
    others = logits.float().scatter(-1, indices, -torch.inf)
    return TopLogits(values, indices, torch.logsumexp(others / temperature, -1), temperature)


def soft_loss(
    student: Tensor, teacher: Tensor | TopLogits, temperature: float = 1.0, kept: Tensor | None = None
) -> Tensor:
    """τ²·KL(teacher ‖ student) of logits [..., V]: the mean over positions, or over those in `kept` [...].

    If only the teacher's largest K logits are known, all other tokens count as one. Let r be the teacher's
    probability of these. The gradient by a position's logits then differs from that of the whole teacher by
    at most 2·r·τ in the sum of magnitudes. Raises ValueError if temperatures differ.
    """
    if isinstance(teacher, TopLogits):
        if teacher.temperature != temperature:
            raise ValueError(f"logits kept for temperature {teacher.temperature}, and not for {temperature}")
        student = _with_rest(student, teacher.indices, temperature)
        scaled = torch.cat([teacher.values / temperature, teacher.rest.unsqueeze(-1)], -1)
    else:
        student, scaled = student.float() / temperature, teacher.float() / temperature
    target, student_log = functional.log_softmax(scaled, -1), functional.log_softmax(student, -1)
    divergence = functional.kl_div(student_log, target, reduction="none", log_target=True).sum(-1)
    return temperature**2 * (divergence.mean() if kept is None else divergence[kept].mean())


def _with_rest(logits: Tensor, indices: Tensor, temperature: float) -> Tensor:
    """Return the logits at `indices`, and one for all other tokens together, divided by the temperature."""
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
    """(1 - α)·CE + α·τ²·KL for logits [..., V] and labels [...], with the mean KL of several teachers.

    Both parts are means over the positions whose label is not -100. A label must be at the position of its
    logits, so the labels of a causal model are shifted beforehand.
    """
    counted = labels != IGNORED
    cross_entropy = functional.cross_entropy(
        logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORED
    )
    if rate == 0 or not teachers:
        return cross_entropy
    soft = torch.stack([soft_loss(logits, teacher, temperature, counted) for teacher in teachers]).mean()
    return (1 - rate) * cross_entropy + rate * soft


@dataclass(frozen=True)
class Generation:
    """One student of a series, which is the teacher of the next.

    steps: the length of its training. decay: how fast α falls.
    """

    steps: int
    decay: float = 1.0

    def rate(self, step: int) -> float:
        """Return α at a step of this generation."""
        return inheritance_rate(step, self.steps, self.decay)
