"""Products that operators sum, judged by onnxruntime: each product of two ones adds one to a result."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from cases import CASES
from fused_cases import FUSED_CASES
from one_node import Case, OneNode

from growc.dialects.onnx.operators.table import OPERATORS
from growc.reports.products import SUMMING, multiplications


def treatment(case: Case) -> str:
    row = OPERATORS.get(case.op)
    return "" if row is None else row.treatment


PLAIN = [
    case
    for case in CASES + FUSED_CASES
    if treatment(case) == "contract" and len(case.inputs) >= 2 and "pads" not in case.attributes
]


def counted(one: OneNode) -> list[int | None]:
    """How often each product of a model multiplies, at the sizes at which it is run."""
    inputs = {v: tuple((n, n) for n in one.arrays[v.name].shape) for v in one.graph.inputs}
    sizes = one.model.sizes_at(one.graph, inputs, {})
    return [multiplications(i.node, p, sizes) for i in one.axes.instances for p in i.line.products]


def terms(one: OneNode) -> float:
    """The sum of what onnxruntime makes of two operands of ones, and others of zeros."""
    for i, operand in enumerate(one.case.inputs):
        name, value = f"x{i}", float(i < 2)
        if operand is not None and name in one.arrays:
            one.arrays[name] = np.full_like(one.arrays[name], value)
        for stored in (t for t in one.proto.graph.initializer if t.name == name):
            shape = onnx.numpy_helper.to_array(stored).shape
            stored.CopyFrom(onnx.numpy_helper.from_array(np.full(shape, value, np.float32), name))
    return float(one.run(one.arrays)[0].sum() / one.case.attributes.get("alpha", 1.0))


@pytest.mark.parametrize(
    "case", [c for c in PLAIN if len(c.inputs) == 2 or c.op != "Einsum"], ids=lambda c: c.name
)
def test_a_contraction_multiplies_as_often_as_ones_add_up(case: Case) -> None:
    one = OneNode(case, case.opsets[0])
    [number] = counted(one)
    assert number == pytest.approx(terms(one))


@pytest.mark.parametrize(
    "case", [c for c in CASES + FUSED_CASES if treatment(c) in SUMMING], ids=lambda c: c.name
)
def test_operators_that_sum_products_say_which(case: Case) -> None:
    one = OneNode(case, case.opsets[0])
    for instance in one.axes.instances:
        summing = instance.line.treatment in SUMMING
        assert bool(instance.line.products) == summing, instance
    assert None not in counted(one)


def test_a_recurrent_layer_multiplies_inputs_and_states_with_every_gate() -> None:
    [case, *_] = [c for c in CASES if c.op == "LSTM"]
    steps, batch, into, units = 3, 2, 5, 4
    found = counted(OneNode(case, case.opsets[0]))
    assert found == [steps * batch * 4 * units * into, steps * batch * 4 * units * units]
