"""The meaning of the notation in the table of ATen operators for a call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lowered import lowered, opaque
from torch import nn

from growc.dialects.torch.operators import pointwise
from growc.dialects.torch.operators.formula import row_of, stands_for
from growc.dialects.torch.operators.table import TABLE


class Of(nn.Module):
    """A function of one tensor."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def operators(function: Any, x: torch.Tensor) -> list[str]:
    return [node.op_type for node in lowered(Of(function), {"x": x}).graph][:-1]


REAL, TRUTH, WHOLE = torch.ones(2, 3), torch.ones(2, 3) > 0, torch.ones(2, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("text", "function", "x", "made"),
    [
        ("Neg(Exp(self))", torch.abs, REAL, ["Exp", "Neg"]),
        ("self", torch.abs, REAL, []),
        ("Add(self, 1)", torch.abs, REAL, ["Add"]),
        ("Not(self.bool)", torch.abs, REAL, ["Cast", "Not"]),
        ("Neg(self) if real else Abs(self)", torch.abs, REAL, ["Neg"]),
        ("Neg(self) if real else Abs(self)", torch.abs, WHOLE, ["Abs"]),
        ("Not(self) if truth else Abs(self)", torch.abs, WHOLE, ["Abs"]),
    ],
)
def test_a_formula_makes_its_operators(monkeypatch, text, function, x, made):
    monkeypatch.setitem(TABLE, "aten.abs.default", row_of(text, {}))
    assert operators(function, x) == made


def test_an_argument_that_is_read_twice_is_one_operand(monkeypatch):
    monkeypatch.setitem(TABLE, "aten.sqrt.default", row_of("Mul(self, Sqrt(self))", {}))
    assert operators(torch.sqrt, WHOLE) == ["Cast", "Sqrt", "Mul"]


def test_comparisons_take_the_type_in_which_torch_compares():
    assert operators(lambda x: x > 0.5, WHOLE) == ["Cast", "Greater"]


def test_an_axis_is_counted_from_the_front():
    [node, _] = lowered(Of(lambda x: x.softmax(-1)), {"x": REAL}).graph
    assert node.attributes["axis"].value == 1


def test_the_branch_that_is_taken_says_which_arguments_are_known(monkeypatch):
    text = "Neg(self) if alpha == 1 else Abs(self)"
    monkeypatch.setitem(TABLE, "aten.elu.default", row_of(text, {}))
    assert operators(nn.functional.elu, REAL) == ["Neg"]
    assert operators(lambda x: nn.functional.elu(x, alpha=2.0), REAL) == ["Abs"]
    monkeypatch.setitem(TABLE, "aten.elu.default", row_of("Neg(self)", {}))
    assert opaque(lowered(Of(lambda x: nn.functional.elu(x, alpha=2.0)), {"x": REAL})) == ["elu.default"]


def test_a_function_takes_arguments_by_other_names_and_values(monkeypatch):
    rules = {"clamp": pointwise.clamp}
    monkeypatch.setitem(TABLE, "aten.hardtanh.default", row_of("clamp(min_=min_val, max_=6)", rules))
    unknown = lowered(Of(lambda x: nn.functional.hardtanh(x, -2.0, 3.0)), {"x": REAL})
    assert opaque(unknown) == ["hardtanh.default"]  # its row does not name `max_val`
    assert operators(lambda x: nn.functional.hardtanh(x, -2.0, 1.0), REAL) == ["Clip"]


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("Relu(self)", "Relu"),
        ("LeakyRelu(self, alpha=negative_slope)", "LeakyRelu"),
        ("Clip(self, 0, 6)", None),
        ("Neg(Exp(self))", None),
        ("Abs(self.own)", None),
        ("Ceil(self) if real else self", None),
        ("conv()", None),
    ],
)
def test_an_operator_by_itself_stands_for_a_call(text, op):
    assert stands_for(text) == op
