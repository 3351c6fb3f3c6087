"""A class whose kernels refuse the sizes of the result: said as an error of the comparison."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from growc.checkpoint.check.run import Loaded
from growc.errors.diagnostic import GrowError


class Fussy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("strides should be multiple of 16 bytes")


def test_a_kernel_that_refuses_the_sizes_is_named() -> None:
    with pytest.raises(GrowError, match="torch cannot run `Fussy`") as caught:
        Loaded(Fussy()).run({"x": torch.zeros(1)})
    assert caught.value.diagnostics[0].code == "G403"
    assert caught.value.diagnostics[0].notes == ("strides should be multiple of 16 bytes",)
