"""Norms by the variance of a sample, which divides by n − 1: what is claimed of them is measured."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from deviations import Deviation, deviations

import growc
from growc.api import apply


def grown_by_torch(case: Deviation) -> float:
    """How far the grown module is from its source; it must be claimed to be equal."""
    result = growc.apply(case.module, case.recipe, (case.tokens,))
    assert result.plan.certificate.exact, (case.name, result.plan.certificate.gaps)
    expected = case.module(case.tokens)
    return float((result(case.tokens) - expected).abs().max() / expected.abs().max())


def grown_from_file(case: Deviation, path: Path, dynamo: bool) -> float | None:
    """The same for a file that torch exports, as onnxruntime runs both; None where it is not claimed."""
    options = {"dynamo": True, "verbose": False} if dynamo else {"dynamo": False, "opset_version": 17}
    torch.onnx.export(case.module, (case.tokens,), path, input_names=["tokens"], **options)
    onnx.checker.check_model(path)
    done = apply(case.recipe, path, path.with_suffix(".grown.onnx"))
    assert done.verification is not None
    return done.verification.relative if done.plan.certificate.exact else None


@pytest.mark.filterwarnings("ignore")
def test_variances_of_samples() -> None:
    for case in list(deviations())[::23]:
        assert grown_by_torch(case) < 1e-5, case.name


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_every_variance_in_every_spelling(tmp_path: Path) -> None:
    for number, case in enumerate(deviations()):
        assert grown_by_torch(case) < 1e-5, case.name
        relative = grown_from_file(case, tmp_path / f"{number}.onnx", bool(number % 2))
        assert relative is not None, case.name
        assert relative < 1e-5, case.name
