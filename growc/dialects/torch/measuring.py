"""How far two modules lie apart, measured in torch: the r of the contract, and the source's own rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from growc.difference import OutputReport, compare, incomparable, worst
from growc.graph import Array
from growc.unitmaps import StateMap, UnitMap
from growc.verification import Verification

CASES = 2

Inputs = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and named arguments of forward."""

Maps = Mapping[str, Sequence[UnitMap | StateMap]]
"""What became of the axes of outputs, by their names."""


def verify_modules(
    source: nn.Module,
    result: nn.Module,
    inputs: Inputs,
    names: Sequence[str] = (),
    maps: Maps | None = None,
) -> Verification:
    """Run both modules on the same inputs: those given, and others of their sizes, drawn.

    `names` of outputs are those that `maps` has. Both modules are left in their modes.
    """
    reports: dict[str, list[OutputReport]] = {}
    rounding = 0.0
    for case in [inputs, *(_drawn(inputs, seed) for seed in range(CASES - 1))]:
        expected, found = outputs(source, case), outputs(result, case)
        rounding = max([rounding, *_rounding(expected, _otherwise(source, case))])
        for k, one in enumerate(expected):
            name = names[k] if k < len(names) else f"output {k}"
            other = found[k] if k < len(found) else None
            reports.setdefault(name, []).append(_compared(one, other, (maps or {}).get(name, ())))
    joined = {name: worst(found) for name, found in reports.items()}
    worst_of_all = worst(joined.values())
    return Verification(worst_of_all.max_abs, worst_of_all.relative, rounding, CASES, joined)


def outputs(module: nn.Module, inputs: Inputs) -> list[Array]:
    """What a module gives in evaluation, as arrays: 16-bit numbers as float32."""
    args, kwargs = inputs
    with _evaluating(module), torch.no_grad():
        found = tree_flatten(module(*args, **kwargs))[0]
    return [_array(value) for value in found if isinstance(value, Tensor)]


def _otherwise(module: nn.Module, inputs: Inputs) -> list[Array]:
    """The outputs in double precision; of a module that insists on its own, by other kernels."""
    try:
        return outputs(deepcopy(module).double(), _doubled(inputs))
    except RuntimeError:
        with torch.backends.mkldnn.flags(enabled=False):
            return outputs(module, inputs)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
        if modes[0][1]:
            module.train()


def _array(tensor: Tensor) -> Array:
    plain = tensor.detach().cpu()
    return np.asarray(
        (plain.float() if plain.element_size() == 2 and plain.is_floating_point() else plain).numpy()
    )


def _rounding(source: Sequence[Array], wide: Sequence[Array]) -> Iterator[float]:
    for a, b in zip(source, wide, strict=True):
        if a.dtype.kind == "f":
            yield compare(b.astype(np.float64), a.astype(np.float64)).regular


def _compared(source: Array, result: Array | None, maps: Sequence[UnitMap | StateMap]) -> OutputReport:
    if result is None:
        return incomparable("the result does not give it")
    for one in maps:
        if isinstance(one, UnitMap):
            source, result = one.restrict(source, result)
        else:
            source = one.extend(source)
    return compare(source, result)


def _drawn(inputs: Inputs, seed: int) -> Any:
    """Other inputs of the same sizes: normal numbers, and whole ones that stand in the given inputs."""
    random = torch.Generator().manual_seed(seed)

    def draw(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            return torch.randn(tensor.shape, generator=random).to(tensor)
        order = torch.randperm(tensor.numel(), generator=random).to(tensor.device)
        return tensor.reshape(-1)[order].reshape(tensor.shape)

    return tree_map_only(Tensor, draw, inputs)


def _doubled(inputs: Inputs) -> Any:
    return tree_map_only(Tensor, lambda t: t.double() if t.is_floating_point() else t, inputs)
