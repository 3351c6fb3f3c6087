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

HALVES = {"fft_rfft": 1, "fft_rfft2": 1, "fft_rfftn": 1, "fft_irfft": -1, "fft_irfft2": -1, "fft_irfftn": -1}
"""Transforms of real numbers, whose last axis has half of the frequencies, and those back to real numbers."""


def understood(node: fx.Node) -> bool:
    """Whether a call is on real numbers, or of an operator whose row knows complex ones."""
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    several = [v for value in values for v in (value if isinstance(value, (list, tuple)) else [value])]
    plain = not any(isinstance(v, torch.Tensor) and v.is_complex() for v in several)
    return plain or _kind(node) in KNOWN.split()


def modulus(at: Call, x: Operand) -> ir.Value:
    """The distance from zero."""
    return at.add("Abs", at.tensor(x))


def part(at: Call, x: Operand) -> ir.Value:
    """Imaginary parts, and conjugates: what is made of each number by itself, and linear."""
    return at.add(f"aten::{_kind(at.node).strip('_')}", at.tensor(x), to=element(at.dtype))


def of_two(
    at: Call,
    abs_: Operand | None = None,
    angle: Operand | None = None,
    real: Operand | None = None,
    imag: Operand | None = None,
) -> ir.Value:
    """Numbers by their sizes and angles, or by both of their parts."""
    given = (real, imag) if abs_ is None else (abs_, angle)
    return at.add(
        f"aten::{_kind(at.node)}",
        *(at.tensor(part) for part in given if part is not None),
        to=element(at.dtype),
    )


def pairs(at: Call, x: Operand) -> ir.Value:
    """Real and imaginary parts along a last axis, or numbers of these."""
    return at.add(f"aten::{_kind(at.node)}", at.tensor(x), to=element(at.dtype))


def transform(
    at: Call,
    x: Operand,
    n: Size | None = None,
    s: Sequence[Size] | None = None,
    dim: Dims = None,
    norm: str | None = None,
) -> ir.Value:
    """A Fourier transform along one axis, or several."""
    kind = _kind(at.node)
    sizes = ([] if n is None else [n]) if s is None else list(s)
    if dim is None:
        dim = range(-len(sizes), 0) if sizes else range(at.rank(x))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return _fourier(at, x, dims, sizes or [0 for _ in dims], HALVES.get(kind, 0), str(norm))


def transform_whole(at: Call, x: Operand, dim: Sequence[int], normalization: int, forward: bool) -> ir.Value:
    """The same, of complex numbers to complex ones."""
    return _fourier(at, x, dim, [0] * len(dim), 0, f"{normalization} {forward}")


def transform_real(at: Call, x: Operand, dim: Sequence[int], normalization: int, onesided: bool) -> ir.Value:
    """The same, of real numbers."""
    return _fourier(at, x, dim, [0] * len(dim), int(onesided), str(normalization))


def transform_back(
    at: Call, x: Operand, dim: Sequence[int], normalization: int, last_dim_size: Size
) -> ir.Value:
    """The same, to real numbers."""
    return _fourier(at, x, dim, [*[0] * (len(dim) - 1), last_dim_size], -1, str(normalization))


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
