"""The hostile judges tell a number that is too large for its type from a pole, and from a false claim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from graphs import save
from hostile import cases, judging, modules

from growc.plans.plan import Certificate

DEEP = """
deep (float[B, 3] x) => (float[B, 4] y)
<float[3, 4] stem, float[4, 12] up, float[12, 4] down, float two, float zero, float log>
{
    s = MatMul(x, stem)
    h = MatMul(s, up)
    %s
    b = MatMul(f, down)
    y = Add(s, b)
}
"""
NUMBERS = {"two": np.float32(2), "zero": np.float32(0), "log": np.float32(np.log(2))}
EXPONENTIALS = {
    "power": "f = Pow(two, h)",
    "exponential": "l = Mul(h, log)\n f = Exp(l)",
    "power of the stream": "a = Abs(h)\n f = Pow(a, h)",
}
DEEPER = "stack layers to 4 by last with zero outputs"

NODE = """
node (float[N] x) => (float[N] y)
<float two, float half, float zero, float residue, float minus, float six>
{ %s }
"""
CONSTANTS = {"two": 2.0, "half": 0.5, "zero": 0.0, "residue": 1e-8, "minus": -1.0, "six": -6.0}
TOO_LARGE = {
    "y = Pow(two, x)": 200.0,
    "y = Pow(half, x)": -200.0,
    "y = Pow(x, two)": 1e30,
    "y = Div(x, half)": 3e38,
    "y = Exp(x)": 200.0,
}
POLES = {
    "y = Pow(zero, x)": -1.0,
    "d = Sub(x, x)\n y = Pow(d, minus)": 3.0,
    "d = Sub(x, x)\n y = Div(x, d)": 3.0,
    "y = Reciprocal(x)": 0.0,
    "y = Log(x)": 0.0,
    "d = Mul(x, residue)\n y = Pow(d, six)": 1.0,
    "d = Sub(x, x)\n e = Reciprocal(d)\n y = Exp(e)": 1.0,
}


def judged(folder: Path, lines: str, scales: tuple[float, ...]) -> cases.Outcome:
    """The judge's word on three inputs of these scales."""
    path = save(folder / "m.onnx", DEEP % lines, **NUMBERS)
    random = np.random.default_rng(3)
    feeds = [{"x": (scale * random.standard_normal((5, 3))).astype(np.float32)} for scale in scales]
    model = onnx.load(path)
    results = judging.run(judging.session(model), feeds, ["y"])
    outcome = cases.Outcome(1)
    cases._compile(outcome, cases.Source(model, None, feeds, ["y"], results), folder, DEEPER)
    return outcome


@pytest.mark.parametrize("lines", EXPONENTIALS.values(), ids=EXPONENTIALS)
def test_new_layers_that_overflow_on_large_streams_are_exact_in_real_numbers(
    tmp_path: Path, lines: str
) -> None:
    assert judged(tmp_path, lines, (0.02, 0.02, 0.02)).kind == "exact"
    assert judged(tmp_path, lines, (0.02, 0.02, 6.0)).kind == "overflow"


def test_a_pole_in_a_new_layer_excuses_no_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(tmp_path, "f = Pow(zero, h)", (0.02, 0.02, 0.02)).kind == "gap"
    monkeypatch.setattr(Certificate, "exact", property(lambda self: True))
    assert judged(tmp_path, "f = Pow(zero, h)", (0.02, 0.02, 0.02)).kind == "false exact"


def test_an_overflow_excuses_no_other_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = judging.compared
    monkeypatch.setattr(judging, "compared", lambda *given: np.maximum(compared(*given), [[1], [0], [0]]))
    assert judged(tmp_path, EXPONENTIALS["power"], (0.02, 0.02, 6.0)).kind == "false exact"
    assert judged(tmp_path, EXPONENTIALS["exponential"], (0.02, 0.02, 6.0)).kind == "false exact"


@pytest.mark.parametrize("line", [*TOO_LARGE, *POLES])
def test_a_graph_overflows_only_away_from_poles(tmp_path: Path, line: str) -> None:
    constants = {name: np.float32(value) for name, value in CONSTANTS.items()}
    path = save(tmp_path / "m.onnx", NODE % line, **constants)
    case = {"x": np.array([1, (TOO_LARGE | POLES)[line]], dtype=np.float32)}
    assert cases._overflows(path, case) is (line in TOO_LARGE)


@pytest.mark.parametrize(
    ("function", "value", "large"),
    [
        (lambda x: 2.0**x, 200.0, True),
        (lambda x: x**-6, 1e-8, False),
        (lambda x: 0.0**x, -1.0, False),
        (lambda x: torch.pow(x, x), 100.0, True),
        (lambda x: torch.pow(x - x, -x), 100.0, False),
        (lambda x: x / 0.5, 3e38, True),
        (lambda x: x / (x - x), 1.0, False),
        (torch.exp, 200.0, True),
        (torch.log, 0.0, False),
    ],
)
def test_a_module_overflows_only_away_from_poles(
    function: Callable[[torch.Tensor], torch.Tensor], value: float, large: bool
) -> None:
    class Made(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    assert modules._overflows(Made(), (torch.tensor([1.0, value]),)) is large
