"""Knowledge Inheritance: the loss by hand, its rate, and what the largest logits alone lose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from growc.training.inheritance import (
    Generation,
    TopLogits,
    inheritance_rate,
    inherited_loss,
    soft_loss,
    top_logits,
)


def logits(seed: int, *shape: int) -> torch.Tensor:
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def by_hand(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> np.ndarray:
    """τ²·Σ p·log(p / q) of each place, in float64."""
    q, p = (softmax(x.double().numpy() / temperature) for x in (student, teacher))
    return temperature**2 * (p * np.log(p / q)).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 0.5])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_the_loss_is_that_of_the_paper(rate: float, temperature: float) -> None:
    student, teachers = logits(0, 2, 4, 9), [logits(1, 2, 4, 9), logits(2, 2, 4, 9)]
    labels = torch.tensor([[1, 8, -100, 0], [-100, 3, 3, 7]])
    kept = (labels != -100).numpy()
    picked = np.take_along_axis(
        np.log(softmax(student.double().numpy())), np.maximum(labels.numpy(), 0)[..., None], -1
    )
    own = -picked[..., 0][kept].mean()
    soft = np.mean([by_hand(student, teacher, temperature)[kept].mean() for teacher in teachers])
    found = inherited_loss(student, labels, teachers, rate, temperature)
    assert float(found) == pytest.approx((1 - rate) * own + rate * soft, rel=1e-5)


def test_the_rate_falls_to_zero_and_stays() -> None:
    assert [inheritance_rate(t, 10, 2.0) for t in (0, 1, 4, 5, 10)] == [
        1.0,
        0.8,
        pytest.approx(0.2),
        0.0,
        0.0,
    ]
    assert Generation(4).rate(1) == 0.75
    with pytest.raises(ValueError, match="no rate"):
        inheritance_rate(1, 0)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("count", [1, 3, 11])
def test_top_logits_stay_within_the_stated_bound(count: int, temperature: float) -> None:
    """In the sum of magnitudes the gradient is at most 2·r·τ away, r being the teacher's mass elsewhere."""
    teacher, student = logits(3, 6, 12), logits(4, 6, 12).requires_grad_()
    top = top_logits(teacher, count, temperature)
    gradients = []
    for given in (teacher, top):
        loss = soft_loss(student, given, temperature) * len(student)
        gradients.append(torch.autograd.grad(loss, student)[0])
    mass = torch.softmax(teacher / temperature, -1)
    rest = 1 - mass.gather(-1, top.indices).sum(-1)
    apart = (gradients[0] - gradients[1]).abs().sum(-1)
    assert (apart <= 2 * rest * temperature + 1e-5).all()
    if count < 11:
        assert (apart > 0.01 * rest).all(), "what is left out shows"
    else:
        assert (apart < 1e-5).all(), "one other token is known as well as all"


def test_top_logits_of_another_temperature_are_refused() -> None:
    top = top_logits(logits(5, 2, 7), 3, temperature=2.0)
    with pytest.raises(ValueError, match="for temperature 2"):
        soft_loss(logits(6, 2, 7), top, temperature=1.0)
    with pytest.raises(ValueError, match="leave no others"):
        top_logits(logits(5, 2, 7), 7)


def test_a_student_that_says_what_its_teacher_says_loses_nothing() -> None:
    teacher = logits(7, 3, 20)
    top = top_logits(teacher, 4, 1.0)
    assert isinstance(top, TopLogits)
    assert float(soft_loss(teacher, top)) == pytest.approx(0, abs=1e-6)
    assert float(soft_loss(teacher, teacher)) == pytest.approx(0, abs=1e-6)
