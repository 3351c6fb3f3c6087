"""Laws of values (growc.ir.graph.Laws), which onnxruntime checks on every operator that states one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES
from numpy.typing import NDArray
from one_node import Case
from test_traits import Node

from growc.dialects.onnx.operators.value_laws import LAWS, STATED
from growc.ir import graph
from growc.ir.graph import Laws, Value

ALONE = ("growc::", "aten::")
"""Operators that onnxruntime has not: parts of others, known to the analysis alone."""


def stating(states: Callable[[Laws], object]) -> list[Case]:
    """The cases of all operators of which a law is stated."""
    stated = {op for op, laws in LAWS.items() if states(laws)}
    found = [c for c in CASES if c.op in stated and c.opsets]
    assert {c.op for c in found} == {op for op in stated if not op.startswith(ALONE)}
    return found


def cases(states: Callable[[Laws], object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", stating(states), ids=lambda c: c.name)


def analysed(node: Node) -> graph.Node:
    [instance] = node.one.axes.instances
    return instance.node


@cases(lambda laws: laws.clamp)
def test_a_clamp_is_the_largest_of_some_and_then_the_least(case: Case) -> None:
    node = Node(case)
    one = analysed(node)
    assert one.laws.clamp is not None
    largest, least = one.laws.clamp(one)

    def array(x: Value | float) -> NDArray[Any] | float:
        found = x if isinstance(x, float) else node.inputs[one.inputs.index(x)]
        assert found is not None
        return found

    expected: Any = array(largest[0])
    for x in largest[1:]:
        expected = np.maximum(expected, array(x))
    for x in least:
        expected = np.minimum(expected, array(x))
    np.testing.assert_array_equal(node.run()[0], expected)


@cases(lambda laws: laws.keeps)
def test_numbers_between_the_bounds_stay_and_all_results_lie_there(case: Case) -> None:
    node = Node(case)
    low, high = STATED[case.op].keeps or (0, 0)
    [made] = node.run()
    assert ((low <= made) & (made <= high)).all()
    np.testing.assert_array_equal(node.run(made)[0], made)


@cases(lambda laws: laws.increasing)
def test_no_result_falls_where_the_operand_grows(case: Case) -> None:
    """But for roundings: onnxruntime's sigmoid falls by 3e-8 below -16."""
    node = Node(case)
    rising = np.sinh(np.linspace(-3.7, 3.7, node.first.size)).astype(node.first.dtype)
    [made] = node.run(rising.reshape(node.first.shape))
    found = made[np.isfinite(made)]
    assert found.size > 1
    assert (np.diff(found) >= -1e-7).all()


@cases(lambda laws: laws.again)
def test_the_second_time_changes_nothing(case: Case) -> None:
    node, laws = Node(case), STATED[case.op]
    [made] = node.run()
    np.testing.assert_allclose(node.run(made)[0], made, rtol=1e-6)
    if laws.puts is not None:
        assert ((made == node.first) | np.isin(made, laws.puts)).all()


@cases(lambda laws: laws.signs)
def test_a_comparison_is_true_for_its_signs(case: Case) -> None:
    node = Node(case)
    second = node.inputs[1]
    assert second is not None
    for first in (node.first, np.broadcast_to(second, node.first.shape).copy()):
        expected = np.isin(np.sign(first - second), list(STATED[case.op].signs))
        np.testing.assert_array_equal(node.run(first)[0], expected)


@cases(lambda laws: laws.implies)
def test_a_condition_implies_its_operands(case: Case) -> None:
    node = Node(case)
    [made] = node.run()
    for result, operand in STATED[case.op].implies.items():
        assert (made == result).any()
        for given in node.inputs:
            assert given is not None
            assert (np.broadcast_to(given, made.shape)[made == result] == operand).all()


@cases(lambda laws: laws.least)
def test_a_least_element_is_no_larger_than_any(case: Case) -> None:
    node = Node(case)
    [made] = node.run()
    assert made.min() == node.first.min()
    assert np.isin(made, node.first).all()


NUMBERED = stating(lambda laws: laws.addresses is not Laws().addresses)


@pytest.mark.parametrize("case", [c for c in NUMBERED if c.op != "Slice"], ids=lambda c: c.name)
def test_numbers_go_with_the_units_that_they_mean(case: Case) -> None:
    node = Node(case)
    addresses, [made] = analysed(node).addresses, node.run()
    assert addresses
    for axis in {one.axis for one in addresses}:
        of_result = any(one.result and one.axis == axis for one in addresses)
        size = (made if of_result else node.first).shape[axis]
        order = np.random.default_rng(0).permutation(size)
        now = {} if all(one.result for one in addresses) else {0: np.take(node.first, order, axis)}
        for one in addresses:
            given = node.inputs[one.operand]
            assert given is not None
            numbers = given.copy()
            meant = numbers[... if one.column is None else (..., one.column)]
            if one.axis == axis:
                meant[...] = np.argsort(order)[meant % size]
            now[one.operand] = numbers if one.axis == axis else now.get(one.operand, numbers)
        expected = np.take(made, order, axis) if of_result else made
        np.testing.assert_array_equal(node.given(now)[0], expected)


@pytest.mark.parametrize("case", [c for c in NUMBERED if c.op == "Slice"], ids=lambda c: c.name)
def test_bounds_of_runs_go_with_the_units_between_them(case: Case) -> None:
    node = Node(case)
    addresses, now, data = analysed(node).addresses, dict[int, NDArray[Any]](), node.first
    assert addresses
    assert all(one.end for one in addresses)
    for axis in {one.axis for one in addresses}:
        data = np.roll(data, 1, axis)
    for one in addresses:
        bounds = now.setdefault(one.operand, np.array(node.inputs[one.operand]))
        size, bound = node.first.shape[one.axis], bounds[one.column]
        if abs(bound) >= size:
            return  # a run that ends where the axis does
        bounds[one.column] = bound % size + 1
    np.testing.assert_array_equal(node.given({0: data, **now})[0], node.run()[0])


@cases(lambda laws: laws.mixes)
def test_a_transform_is_linear_and_mixes_an_axis(case: Case) -> None:
    node = Node(case)
    [made], other = node.run(), node.first[::-1].copy()
    np.testing.assert_allclose(node.run(node.first + other)[0], made + node.run(other)[0], atol=1e-4)
    impulse = np.zeros_like(node.first)
    impulse.reshape(-1)[0] = 1
    lengths = np.count_nonzero(abs(node.run(impulse)[0]) > 1e-6)
    assert lengths >= min(n for n in made.shape if n > 1)


@cases(lambda laws: laws.constant)
def test_every_element_is_the_constant(case: Case) -> None:
    node = Node(case)
    one, [made] = analysed(node), node.run()
    assert one.laws.constant is not None
    assert made.dtype == one.laws.constant(one).dtype
    assert (made == one.laws.constant(one)).all()


@cases(lambda laws: laws.shape is not None)
def test_an_operand_lists_the_sizes(case: Case) -> None:
    node = Node(case)
    place, [made] = STATED[case.op].shape, node.run()
    listed = node.inputs[place] if place is not None and place < len(node.inputs) else None
    if listed is not None:
        for n, size in zip(listed[::-1], made.shape[::-1], strict=False):
            assert n in (size, 1, 0, -1)


@cases(lambda laws: laws.scales is not None)
def test_an_operand_lists_by_how_much_each_axis_grows(case: Case) -> None:
    node = Node(case)
    place, [made] = STATED[case.op].scales, node.run()
    listed = node.inputs[place] if place is not None and place < len(node.inputs) else None
    if listed is not None and listed.size:
        named = zip(case.attributes.get("axes", range(made.ndim)), listed, strict=True)
        factors = dict(named)
        assert made.shape == tuple(int(n * factors.get(k, 1)) for k, n in enumerate(node.first.shape))


def test_every_law_stands_in_the_theory_and_has_an_operator() -> None:
    theory = (Path(__file__).parents[2] / "docs/theory.md").read_text()
    for law in fields(Laws):
        assert f"| `{law.name}` |" in theory
        assert any(getattr(stated, law.name) != getattr(Laws(), law.name) for stated in LAWS.values())
