"""Operators of torch that are homogeneous in their first operand: f(c·x) = c·f(x), and zero for zeros."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from growc.dialects.transformers.log.entry import LogEntry
from growc.dialects.transformers.log.scale_rules import FACTORS, SAME, SUMS, parted, scales

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(1))
ONES = torch.ones(4, 6, dtype=torch.int64)

CALLS: dict[str, tuple[Any, ...]] = {
    "_adaptive_avg_pool2d": (IMAGE, [3, 3]),
    "_to_copy": (X,),
    "abs": (X,),
    "adaptive_avg_pool2d": (IMAGE, [3, 3]),
    "amax": (X, [1]),
    "amin": (X, [1]),
    "as_strided": (X, [3, 2], [6, 1]),
    "avg_pool2d": (IMAGE, [2, 2]),
    "chunk": (X, 2),
    "constant_pad_nd": (X, [1, 1]),
    "cumsum": (X, 1),
    "diagonal": (X,),
    "dropout": (X, 0.5, False),
    "expand": (X, [2, 4, 6]),
    "flip": (X, [0]),
    "gather": (X, 1, ONES),
    "im2col": (IMAGE, [2, 2], [1, 1], [0, 0], [1, 1]),
    "index": (X, [torch.tensor([2, 0])]),
    "index_select": (X, 0, torch.tensor([2, 0])),
    "leaky_relu": (X, 0.2),
    "max_pool2d_with_indices": (IMAGE, [2, 2]),
    "mean": (X, [1]),
    "native_dropout": (X, 0.5, False),
    "neg": (X,),
    "permute": (X, [1, 0]),
    "relu": (X,),
    "repeat": (X, [2, 1]),
    "repeat_interleave": (X, 2),
    "roll": (X, [1], [1]),
    "select": (X, 0, 1),
    "slice": (X, 1, 1, 4),
    "split": (X, 2),
    "split_with_sizes": (X, [1, 3]),
    "sum": (X, [1]),
    "t": (X,),
    "transpose": (X, 0, 1),
    "unbind": (X,),
    "unfold": (X, 1, 2, 2),
    "upsample_bilinear2d": (IMAGE, [8, 8], False),
    "upsample_nearest2d": (IMAGE, [8, 8]),
    "view": (X, [6, 4]),
    "view_as_complex": (torch.randn(4, 2),),
    "view_as_real": (torch.randn(4, dtype=torch.complex64),),
}


def results(name: str, *given: Any) -> list[Tensor]:
    """The real and complex tensors that an operator makes."""
    made = tree_leaves(getattr(torch.ops.aten, name)(*given))
    return [x for x in made if x.is_floating_point() or x.is_complex()]


def test_every_homogeneous_operator_is_called():
    assert set(CALLS) == SAME


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_factor_on_the_first_operand_is_one_on_the_result(name):
    first, *others = CALLS[name]
    pairs = zip(results(name, 3 * first, *others), results(name, first, *others), strict=True)
    assert all(torch.allclose(a, 3 * b, atol=1e-5) for a, b in pairs)
    assert not any(x.any() for x in results(name, 0 * first, *others))


PRODUCTS: dict[str, tuple[Tensor, ...]] = {
    "addmm": (X[0], X[:, :4], X),
    "baddbmm": (X[None], X[None, :, :4], X[None]),
    "bmm": (X[None], X.T[None]),
    "convolution": (IMAGE, IMAGE[:, :, :2, :2], X[0, :2]),
    "dot": (X[0], X[1]),
    "matmul": (X, X.T),
    "mm": (X, X.T),
    "mul": (X, X),
    "mv": (X, X[0]),
}
MORE = {"convolution": ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)}


@pytest.mark.parametrize("name", sorted(FACTORS))
def test_a_product_has_the_factors_of_its_operands(name):
    given, more = PRODUCTS[name], MORE.get(name, ())
    biases, factors = parted(name, [(0, k) for k in range(len(given))])
    [before] = results(name, *given, *more)
    assert len(factors) == 2
    for one in factors:
        scaled = [5 * x if (0, k) in (one, *biases) else x for k, x in enumerate(given)]
        [after] = results(name, *scaled, *more)
        assert torch.allclose(after, 5 * before, atol=1e-3)


@pytest.mark.parametrize("name", SUMS.split())
def test_a_sum_has_the_factor_of_its_operands(name):
    wrap = (lambda a, b: ([a, b],)) if name in ("cat", "stack") else (lambda a, b: (a, b))
    mask = (X > 0,) if name == "where" else ()
    [before], [after] = (results(name, *mask, *wrap(c * X, c * X.flip(0))) for c in (1, 3))
    assert torch.allclose(after, 3 * before)


def test_padding_with_a_number_is_not_homogeneous():
    shapes, kinds = ((4, 8),), ("float32",)
    assert scales(LogEntry("constant_pad_nd", shapes, kinds, (1, 1, 0)))
    assert not scales(LogEntry("constant_pad_nd", shapes, kinds, (1, 1, 2)))
    assert not scales(LogEntry("constant_pad_nd", shapes, kinds, (1, 1), (0.5,), (0.5,)))
