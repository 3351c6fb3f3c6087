"""One call, or more, for every row on complex numbers, which onnxruntime has not.

Functions take x with shape (2, 6, units), and z of the same shape, which is complex; they give real numbers
whose last axis are the units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

A = torch.ops.aten
F = torch.fft
Case = Callable[[Tensor, Tensor], Tensor]


def spectrum(transform: Callable[..., Tensor], dim: Any, real: bool = False, **more: Any) -> Case:
    """How much there is of each frequency, along axes that are not the units."""
    return lambda x, z: transform(x if real else z, dim=dim, **more).abs()


CASES: dict[str, Case] = {
    "aten._conj.default": lambda x, z: z.conj().imag,
    "aten.complex.default": lambda x, z: torch.complex(x, 2 * x).abs(),
    "aten.polar.default": lambda x, z: torch.polar(x.abs(), x).imag,
    "aten.imag.default": lambda x, z: z.imag,
    "aten.view_as_real.default": lambda x, z: torch.view_as_real(z).sum(-1),
    "aten.view_as_complex.default": lambda x, z: torch.view_as_complex(torch.stack([x, 2 * x], -1)).abs(),
    "aten.fft_fft.default": spectrum(F.fft, 1, norm="ortho"),
    "aten.fft_fft2.default": spectrum(F.fft2, (0, 1)),
    "aten.fft_fftn.default": spectrum(F.fftn, (1,), s=(4,)),
    "aten.fft_ifft.default": spectrum(F.ifft, -2),
    "aten.fft_ifft2.default": spectrum(F.ifft2, (0, 1)),
    "aten.fft_ifftn.default": spectrum(F.ifftn, (0, 1)),
    "aten.fft_irfft.default": spectrum(F.irfft, 1),
    "aten.fft_irfft2.default": spectrum(F.irfft2, (0, 1)),
    "aten.fft_irfftn.default": spectrum(F.irfftn, (0, 1), s=(3, 7)),
    "aten.fft_rfft.default": spectrum(F.rfft, 1, real=True, n=9),
    "aten.fft_rfft2.default": spectrum(F.rfft2, (0, 1), real=True),
    "aten.fft_rfftn.default": spectrum(F.rfftn, (0, 1), real=True),
    "aten._fft_c2c.default": lambda x, z: A._fft_c2c(z, [0, 1], 1, False).abs(),
    "aten._fft_c2r.default": lambda x, z: A._fft_c2r(z, [1], 2, 11),
    "aten._fft_r2c.default": lambda x, z: A._fft_r2c(x, [1], 0, True).abs(),
}
