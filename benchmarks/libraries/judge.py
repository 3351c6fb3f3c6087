"""Whether a grown module is right: growc's own verification has no part in it.

A model's weights, norms and running statistics are drawn off their start. A result that should be equal is
run beside the source. A result that has dropped units is run beside the source with those units at zero, and
norms that take their statistics over the units that stay.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves

from growc.plans.plan import Plan, WeightPlan

CLOSE = 2e-4
"""Outputs that are equal differ by no more, relative to the largest number."""
Feed = Mapping[str, Any]


def drawn(module: nn.Module, feed: Feed, seed: int = 0) -> nn.Module:
    """The module in evaluation mode, its weights and statistics off their start, in place.

    Running statistics are near those of the feed in a model where they are so already, so that signals
    neither vanish nor explode.
    """
    torch.manual_seed(seed)
    noise = torch.Generator().manual_seed(seed)

    def off_the_feed(norm: Any, args: tuple[Tensor, ...]) -> None:
        if norm.running_mean is None or norm.running_var is None:
            return
        var, mean = torch.var_mean(args[0], [k for k in range(args[0].ndim) if k != 1], correction=0)
        if args[0].numel() > var.numel():  # else there is nothing to vary
            least = float(var.mean())  # some channels vary on other inputs only
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(var.clamp_min(least))
        deviation = norm.running_var.sqrt()
        norm.running_mean.add_(0.2 * deviation * torch.randn(deviation.shape, generator=noise))
        norm.running_var.mul_(1 + torch.rand(deviation.shape, generator=noise))

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                off = torch.randn(parameter.shape, generator=noise).to(parameter.dtype)
                spread = float(parameter.std()) if parameter.numel() > 1 else 0.0
                parameter.add_(off * (0.2 if parameter.ndim < 2 else 0.2 * spread or 0.02))
        norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        hooks = [norm.register_forward_pre_hook(off_the_feed) for norm in norms]
        module.eval()(**feed)
        for hook in hooks:
            hook.remove()
    return module


def outputs(module: nn.Module, feed: Feed) -> list[Tensor]:
    """The floating-point tensors that a model gives, in order."""
    with torch.no_grad():
        return recorded(module, feed)


def recorded(module: nn.Module, feed: Feed) -> list[Tensor]:
    """The same, with what gradients need."""
    torch.manual_seed(0)
    output = module(**feed)
    return floats(output.to_tuple() if hasattr(output, "to_tuple") else output)


def tensors(held: Any) -> list[Tensor]:
    """The tensors of what a forward takes or returns, in order."""
    return [t for t in tree_leaves(held) if isinstance(t, Tensor)]


def floats(made: Any) -> list[Tensor]:
    """The floating-point tensors of what a forward returns."""
    return [t for t in tensors(made) if t.is_floating_point()]


def precise(modules: Sequence[nn.Module], feed: Feed) -> tuple[Feed, list[list[Tensor]]]:
    """The feed in float64, and the modules with it, in place, so that rounding is not in the way; else as
    they are, where one of them only runs in float32. With it what each of them gives.
    """
    exact = {k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in feed.items()}
    try:
        return exact, [outputs(module.double(), exact) for module in modules]
    except (RuntimeError, TypeError):
        for module in modules:
            module.float()
        return feed, [outputs(module, feed) for module in modules]


@contextmanager
def put_back(module: nn.Module) -> Iterator[None]:
    """Tensors of a module are afterwards what they were. A copy would not do: what a module holds as a
    function (`lambda x: x @ self.embedding.weight.T`) reads the parameters of the module it was copied from.
    """
    parameters = [(p, p.data) for p in module.parameters()]
    places = [place for part in module.modules() for place in (part._buffers, vars(part))]
    others = [(place, {k: t for k, t in place.items() if isinstance(t, Tensor)}) for place in places]
    try:
        yield
    finally:
        for parameter, data in parameters:
            parameter.data = data
        for place, held in others:
            place.update(held)


def difference(wanted: Sequence[Tensor], made: Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest number of the output; infinite where shapes differ.

    An output may have more units along one axis: each has to be one of the source's, and none may be missing.
    """
    if len(wanted) != len(made):
        return float("inf")
    largest = 0.0
    for a, b in zip(wanted, made, strict=True):
        longer = [k for k, (m, n) in enumerate(zip(a.shape, b.shape, strict=False)) if m != n]
        if a.ndim != b.ndim or len(longer) > 1 or not bool(b.isfinite().all()):
            return float("inf")
        off = _units_off(a, b, longer[0]) if longer else (a - b).abs().max()
        largest = max(largest, float(off / a.abs().max().clamp_min(1e-30)))
    return largest


def _units_off(wanted: Tensor, made: Tensor, axis: int) -> Tensor:
    """How far the units of an axis are at most from those that they are copies of."""
    rows, others = (t.movedim(axis, 0).flatten(1) for t in (wanted, made))
    off = torch.stack([(rows - other).abs().amax(1) for other in others])
    return torch.maximum(off.amin(1).max(), off.amin(0).max())


def informative(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Whether a model's outputs for two inputs are finite and differ by much more than rounding."""
    finite = all(bool(t.isfinite().all()) for t in (*first, *second))
    return finite and difference(first, second) > 1e-3


def kept(weight: WeightPlan) -> dict[int, np.ndarray]:
    """The old rows that stay, for every axis of a weight on which some go."""
    staying: dict[int, np.ndarray] = {}
    for step in weight.steps:
        rows = staying.get(step.axis, np.arange(weight.before[step.axis]))
        index = step.layout.as_map().index
        staying[step.axis] = rows[index[index >= 0]]
    return {axis: rows for axis, rows in staying.items() if len(np.unique(rows)) < weight.before[axis]}


def without(source: nn.Module, plan: Plan) -> tuple[nn.Module, dict[int, Tensor]]:
    """A copy of the source with the units at zero that a plan drops; see `dropped`."""
    weights = [weight for weight in plan.weights if not weight.source.endswith("running_var")]
    return dropped(source, {weight.source: kept(weight) for weight in weights})


def dropped(
    source: nn.Module, stays: Mapping[str, Mapping[int, np.ndarray]]
) -> tuple[nn.Module, dict[int, Tensor]]:
    """A copy of the source with dropped units at zero; which units of its vectors stay, by address.

    stays: the rows that stay, by tensor and axis, where some go.
    """
    module = copy.deepcopy(source)
    tensors = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    vectors: dict[int, Tensor] = {}
    with torch.no_grad():
        for name, axes in stays.items():
            tensor = tensors.get(name)
            if tensor is None or not tensor.is_floating_point():
                continue
            for axis, rows in axes.items():
                gone = torch.ones(tensor.shape[axis], dtype=torch.bool)
                gone[torch.from_numpy(rows)] = False
                tensor.index_fill_(axis, gone.nonzero().flatten(), 0.0)
                if tensor.ndim == 1:
                    vectors[tensor.data_ptr()] = ~gone
    for part in module.modules():
        gain = part._parameters.get("weight")
        alone = not list(part.children()) and all(p is None or p.ndim == 1 for p in part._parameters.values())
        if alone and gain is not None and gain.data_ptr() in vectors and not isinstance(part, NORMS):
            part.forward = partial(_over_units, part, vectors[gain.data_ptr()].nonzero().flatten())
    return module, vectors


NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._BatchNorm)
"""Norms whose statistics `statistics_of` takes over the units that stay."""


def _over_units(module: nn.Module, rows: Tensor, x: Tensor, *rest: Any) -> Any:
    """The output of a module with a gain for each unit, a norm of its own kind, over the units that stay,
    those of a gate too.
    """
    gain = module._parameters["weight"]
    if gain is None or x.shape[-1] != len(gain):
        return type(module).forward(module, x, *rest)
    part: Any = copy.copy(module)
    if hasattr(part, "group_size"):  # statistics of its own for each group of units
        part.group_size = part.group_size * len(rows) // len(gain)
    part._parameters = {
        k: None if p is None else nn.Parameter(p[rows]) for k, p in module._parameters.items()
    }
    given = (t[..., rows] if isinstance(t, Tensor) and t.shape == x.shape else t for t in (x, *rest))
    output = type(module).forward(part, *given)
    return torch.zeros_like(x, dtype=output.dtype).index_copy(-1, rows, output)


@contextmanager
def statistics_of(vectors: Mapping[int, Tensor]) -> Iterator[None]:
    """Norms whose gain is among the vectors take their statistics over the units that stay; where the gain is
    multiplied afterwards, it is that of a module that runs, the innermost first; without one, they take them
    over the units that are not zero everywhere.
    """
    running: list[nn.Module] = []

    def ended(module: nn.Module, given: Any, made: Any) -> None:
        running.pop()

    def rows_of(weight: Tensor | None, x: Tensor, axis: int) -> Tensor | None:
        around = (gain for module in reversed(running) for gain in module.parameters(recurse=False))
        gains = [
            gain for gain in (around if weight is None else [weight]) if gain.shape == x.shape[axis:][:1]
        ]
        stays = next((vectors[g.data_ptr()] for g in gains if g.data_ptr() in vectors), None)
        if not gains and vectors:
            stays = x.movedim(axis, 0).flatten(1).any(1)
        return None if stays is None or bool(stays.all()) else stays.nonzero().flatten()

    def over(kind: Callable[..., Tensor], axis: int) -> Callable[..., Tensor]:
        def norm(x: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Tensor:
            rows, given = rows_of(weight, x, axis), (weight,) if kind is rms else (weight, bias)
            if rows is None:
                return kind(x, shape, *given, eps)
            extra = (None if one is None else one[rows] for one in given)
            shape = len(torch.unique(rows * shape // x.shape[axis])) if kind is group else (len(rows),)
            output = kind(x.index_select(axis, rows), shape, *extra, eps)
            return torch.zeros_like(x).index_copy(axis, rows, output)

        return norm

    layer, group, rms = functional.layer_norm, functional.group_norm, functional.rms_norm

    def rms_norm(x: Tensor, shape: Any, weight: Any = None, eps: Any = None) -> Tensor:
        return over(rms, -1)(x, shape, weight, None, eps)

    with (
        mock.patch.object(functional, "layer_norm", over(layer, -1)),
        mock.patch.object(functional, "group_norm", over(group, 1)),
        mock.patch.object(functional, "rms_norm", rms_norm),
        register_module_forward_pre_hook(lambda module, given: running.append(module)),
        register_module_forward_hook(ended),
    ):
        yield
