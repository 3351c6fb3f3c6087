"""Rows on complex numbers. ONNX has no operators on these: the analysis alone knows what they are lowered to.

A map of units has real factors, so what a linear operator does to it is the same on complex numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.torch.operators.call import Call, Dims, Operand, Size, UnknownError, element

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
    """Whether a call is on real numbers, or of an operator whose row knows complex ones."""
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    several = [v for value in values for v in (value if isinstance(value, (list, tuple)) else [value])]
    plain = not any(isinstance(v, torch.Tensor) and v.is_complex() for v in several)
    return plain or _kind(node) in KNOWN.split()


def analysed(at: Call, x: Operand, y: Operand | None = None) -> ir.Value:
    """What the analysis knows by the call's own name."""
    return at.add(f"aten::{_kind(at.node).strip('_')}", at.tensor(x), at.maybe(y), to=element(at.dtype))


def transform(
    at: Call,
    x: Operand,
    half: int = 0,
    n: Size | None = None,
    s: Sequence[Size] | None = None,
    dim: Dims = None,
    norm: str | None = None,
) -> ir.Value:
    """A Fourier transform along one axis, or several."""
    sizes = ([] if n is None else [n]) if s is None else list(s)
    if dim is None:
        dim = range(-len(sizes), 0) if sizes else range(at.rank(x))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return _fourier(at, x, dims, sizes or [0 for _ in dims], half, str(norm))


def transform_plain(
    at: Call,
    x: Operand,
    dim: Sequence[int],
    normalization: int,
    forward: bool | None = None,
    onesided: bool = False,
    last_dim_size: Size | None = None,
) -> ir.Value:
    """The same, of complex numbers, of real ones, or back to these, whose last axis has a size."""
    sizes = [0] * len(dim) if last_dim_size is None else [*[0] * (len(dim) - 1), last_dim_size]
    half = int(onesided) if last_dim_size is None else -1
    way = f"{normalization}" if forward is None else f"{normalization} {forward}"
    return _fourier(at, x, dim, sizes, half, way)


def _fourier(
    at: Call, x: Operand, dims: Sequence[int], sizes: Sequence[Size], half: int, way: str
) -> ir.Value:
    """`half`: 1 where half of the frequencies of the last axis are left, -1 where it comes out of these."""
    axes, given = [at.axis(d, x) for d in dims], [max(size, 0) for size in sizes if isinstance(size, int)]
    if len(given) < len(sizes):
        raise UnknownError
    if not axes:
        return at.tensor(x, at.dtype)
    told = {"axes": axes, "sizes": given, "half": half, "to": element(at.dtype)}
    return at.add("aten::fft", at.tensor(x), **told, kind=f"{_kind(at.node)} {way}")


def _kind(node: fx.Node) -> str:
    words = str(node.target).split(".")
    return words[1] if len(words) > 1 else ""
