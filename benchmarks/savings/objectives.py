"""The loss that a step of a row minimises, and its operations. The pieces of training are growc's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.savings.data import Batch
from benchmarks.savings.flops import forward_flops, step_flops, sub_model_flops
from benchmarks.savings.model import Shape
from benchmarks.savings.tables import Inherit, TwoStage


class Objective(Protocol):
    """The loss of a batch at a step, the operations of that step, and what is to be remembered."""

    def loss(self, batch: Batch, step: int) -> tuple[Tensor, int]:
        """The loss, whose gradient is not yet taken, and all operations of the step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The state that a run needs to go on."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        ...


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over all places."""
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


class Plain:
    """Cross-entropy of the whole model."""

    def __init__(self, model: nn.Module, shape: Shape) -> None:
        self.model, self.shape = model, shape

    def loss(self, batch: Batch, step: int) -> tuple[Tensor, int]:
        """Cross-entropy, forward and backward."""
        inputs, labels = batch
        return cross_entropy(self.model(inputs), labels), len(inputs) * step_flops(self.shape)

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing."""


class Staged(Plain):
    """bert2BERT's two stages: a sampled sub-model a step, then the whole."""

    def __init__(self, model: nn.Module, shape: Shape, how: TwoStage, steps: int, example: Tensor) -> None:
        from growc.training.submodels import SubModels

        super().__init__(model, shape)
        self.layers, self.until = how.layers, round(how.part * steps)
        self.parts = SubModels(model, how.layers, (example,))

    def loss(self, batch: Batch, step: int) -> tuple[Tensor, int]:
        """Cross-entropy of a sub-model, whose top layers alone get a gradient, or of the whole model."""
        if step >= self.until:
            return super().loss(batch, step)
        inputs, labels = batch
        part = self.parts.sample()
        cost = sub_model_flops(self.shape, part.layers, min(self.layers, part.layers))
        return cross_entropy(part.module(inputs), labels), len(inputs) * cost

    def state_dict(self) -> dict[str, Any]:
        """The state of the draws."""
        return dict(self.parts.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Draw on as before."""
        self.parts.load_state_dict(state)


class Inherited(Plain):
    """Knowledge Inheritance from a smaller model that is trained."""

    def __init__(
        self, model: nn.Module, shape: Shape, how: Inherit, steps: int, teacher: nn.Module, small: Shape
    ) -> None:
        super().__init__(model, shape)
        self.how, self.steps, self.teacher, self.small = how, steps, teacher, small

    def loss(self, batch: Batch, step: int) -> tuple[Tensor, int]:
        """(1 − α)·CE + α·τ²·KL, and the teacher's forward pass while α is not zero."""
        from growc.training.inheritance import inheritance_rate, inherited_loss

        rate = inheritance_rate(step, self.steps, self.how.decay)
        if rate == 0:
            return super().loss(batch, step)
        inputs, labels = batch
        with torch.no_grad():
            taught = self.teacher(inputs)
        loss = inherited_loss(self.model(inputs), labels, [taught], rate, self.how.temperature)
        return loss, len(inputs) * (step_flops(self.shape) + forward_flops(self.small))
