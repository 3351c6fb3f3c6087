"""Exactness beyond the first step: training the grown model is training the source.

If every unit of an axis has the same number of equal copies, a weight W becomes c·W on each of its entries,
and its gradient G becomes g·G. One step of the grown model is then the source's step, scaled by c, with these
numbers for each parameter (compare µpscaling, arXiv 2602.10545, for a single factor of width):

    SGD, momentum or not    rate·c/g    decay·g/c
    Adam with AdamW's decay rate·c      decay/c      eps·g

Two things break this. Dropout draws separately for every copy, and clipping by the norm of all gradients sees
another norm. Functional dropout inside a forward pass cannot be detected: its rate must be zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from growc.plans.plan import Layout, Plan, WeightPlan
from growc.training.optimizer_state import all_names, gradient_plan, uneven_axes

if TYPE_CHECKING:
    from torch import nn

Method = Literal["sgd", "adamw"]

PLAIN = (1.0, 1.0)
"""c and g of unchanged parameters."""


class Held(list[dict[str, object]]):
    """Groups for a torch optimizer. `gaps` lists the reasons why training them is not training the source."""

    def __init__(self, groups: Iterable[dict[str, object]], gaps: Iterable[str]) -> None:
        super().__init__(groups)
        self.gaps = tuple(gaps)

    @property
    def exact(self) -> bool:
        """Whether every step is the source's, provided that the forward pass draws nothing."""
        return not self.gaps


def held_groups(
    module: nn.Module, plan: Plan, method: Method, *, lr: float, weight_decay: float = 0.0, eps: float = 1e-8
) -> Held:
    """Return groups with which training `module`, the result of a plan, is training the source.

    `lr`, `weight_decay` and `eps` are those of the source. A parameter that cannot be held keeps them, and is
    a gap.
    """
    weights = {weight.name: weight for weight in plan.weights}
    uneven = uneven_axes(plan)
    members: dict[tuple[float, float], list[tuple[str, nn.Parameter]]] = {}
    gaps = [f"the plan is not exact: {gap.cause}" for gap in plan.certificate.gaps]
    gaps += [f"`{name}` draws for every copy by itself" for name in _drawing(module)]
    for parameter, names in all_names(module).items():
        planned = [weights[name] for name in names if name in weights]
        factors, why = _factors(planned[0], uneven, plan) if planned else (PLAIN, "is not in the plan")
        if why:
            gaps.append(f"`{names[0]}` {why}")
        members.setdefault(factors, []).append((names[0], parameter))
    groups = []
    for (value, gradient), pairs in sorted(members.items(), key=lambda item: item[0]):
        if method == "sgd":
            numbers = {"lr": lr * value / gradient, "weight_decay": weight_decay * gradient / value}
        else:
            numbers = {"lr": lr * value, "weight_decay": weight_decay / value, "eps": eps * gradient}
        groups.append({"params": pairs, **numbers})
    return Held(groups, gaps)


def _drawing(module: nn.Module) -> Iterator[str]:
    """Yield the names of dropout modules that are active in training."""
    from torch import nn

    drops = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout
    for name, part in module.named_modules():
        if isinstance(part, drops) and part.training and part.p > 0:
            yield name


def _factors(weight: WeightPlan, uneven: set[str], plan: Plan) -> tuple[tuple[float, float], str]:
    """Return c and g of a parameter, and the reason if it has none."""
    if weight.name in plan.later_copies or weight.zero or weight.normed is not None or weight.shift:
        return PLAIN, "is new, computed, or stored as a distance"
    if any(step.name in uneven or step.next is not None for step in weight.steps):
        return PLAIN, "has new entries, or copies that do not count alike"
    value, gradient = _uniform(weight), _uniform(gradient_plan(weight))
    if value is None or gradient is None or min(value, gradient) <= 0:
        return PLAIN, "has entries of several factors, or of none above zero"
    return (value, gradient), ""


def _uniform(weight: WeightPlan) -> float | None:
    """Return the common factor of all entries of a weight.

    The result is None if factors differ or entries are no copies.
    """
    factors = [_factor(step.layout) for step in weight.steps]
    return None if None in factors else math.prod([weight.scale, *(f for f in factors if f is not None)])


def _factor(layout: Layout) -> float | None:
    """Return the common factor of all entries along an axis, or None.

    For a product it is the product of factors, for a sum the factor that all segments have in common.
    """
    if layout.step is not None:
        weights, copies = layout.step.weight, layout.step.index >= 0
        equal = len(weights) and copies.all() and layout.step.even
        return float(weights[0]) if equal and np.allclose(weights, weights[0], rtol=1e-12, atol=0) else None
    factors = [_factor(part) for part in layout.parts]
    known = [factor for factor in factors if factor is not None]
    if len(known) < len(factors):
        return None
    if layout.kind == "product":
        return math.prod(known)
    return known[0] if np.allclose(known, known[0], rtol=1e-12, atol=0) else None
