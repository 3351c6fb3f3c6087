"""Rows for complex numbers. ONNX has no operators for them; only the analysis knows the lowered operators.

An index map has real factors, so linear operators treat it in the same way on complex numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.torch.operators.call import (
    AxisNumbers,
    Call,
    CallOperand,
    CallSize,
    UnknownError,
    element,
)

KNOWN = """
    _conj _fft_c2c _fft_c2r _fft_r2c _to_copy _unsafe_view abs add alias bmm broadcast_to cat chunk
    clone complex contiguous detach div einsum expand fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2
    fft_ifftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn flatten imag index_select
    linear matmul mm movedim mul narrow neg permute polar real repeat reshape select slice split
    split_with_sizes squeeze stack sub sum t to transpose unflatten unsqueeze view view_as_complex
    view_as_real
"""
"""The operators whose rows hold for complex numbers."""


def understood(node: fx.Node) -> bool:
    """Whether a call is on real numbers, or its operator has a row for complex ones."""
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    flat = [v for value in values for v in (value if isinstance(value, (list, tuple)) else [value])]
    real = not any(isinstance(v, torch.Tensor) and v.is_complex() for v in flat)
    return real or _kind(node) in KNOWN.split()


def analysed(at: Call, x: CallOperand, y: CallOperand | None = None) -> ir.Value:
    """Lower a call to an operator of its own name, which only the analysis knows."""
    return at.add(f"aten::{_kind(at.node).strip('_')}", at.tensor(x), at.maybe(y), to=element(at.dtype))


def transform(
    at: Call,
    x: CallOperand,
    half: int = 0,
    n: CallSize | None = None,
    s: Sequence[CallSize] | None = None,
    dim: AxisNumbers = None,
    norm: str | None = None,
) -> ir.Value:
    """Lower a Fourier transform along one or several axes."""
    sizes = ([] if n is None else [n]) if s is None else list(s)
    if dim is None:
        dim = range(-len(sizes), 0) if sizes else range(at.rank(x))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return _fourier(at, x, dims, sizes or [0 for _ in dims], half, str(norm))


def transform_plain(
    at: Call,
    x: CallOperand,
    dim: Sequence[int],
    normalization: int,
    forward: bool | None = None,
    onesided: bool = False,
    last_dim_size: CallSize | None = None,
) -> ir.Value:
    """Lower torch's internal Fourier transforms: complex, from real numbers, or back to real numbers.

    `last_dim_size` is set for the way back to real numbers.
    """
    sizes = [0] * len(dim) if last_dim_size is None else [*[0] * (len(dim) - 1), last_dim_size]
    half = int(onesided) if last_dim_size is None else -1
    way = f"{normalization}" if forward is None else f"{normalization} {forward}"
    return _fourier(at, x, dim, sizes, half, way)


def _fourier(
    at: Call, x: CallOperand, dims: Sequence[int], sizes: Sequence[CallSize], half: int, way: str
) -> ir.Value:
    """Lower a Fourier transform.

    half: 1 keeps half of the last axis's frequencies, -1 is the inverse of that, 0 is a full transform.
    """
    axes, numbers = [at.axis(d, x) for d in dims], [max(size, 0) for size in sizes if isinstance(size, int)]
    if len(numbers) < len(sizes):
        raise UnknownError
    if not axes:
        return at.tensor(x, at.dtype)
    attributes = {"axes": axes, "sizes": numbers, "half": half, "to": element(at.dtype)}
    return at.add("aten::fft", at.tensor(x), **attributes, kind=f"{_kind(at.node)} {way}")


def _kind(node: fx.Node) -> str:
    words = str(node.target).split(".")
    return words[1] if len(words) > 1 else ""
