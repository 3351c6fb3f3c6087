"""Executing the plan of one weight, against loops that do what the plan says entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from growc.plans.execute import execute
from growc.plans.plan import DRAWN, MEAN, ONE, ZERO, AxisStep, Layout, LeafStep, Noise, WeightPlan

Values = NDArray[np.float64]
FILLERS = (ZERO, MEAN, ONE)


def leaf(step: LeafStep) -> Layout:
    return Layout("leaf", (), step)


def plan(shape: tuple[int, ...], *steps: AxisStep, dtype: str = "float64") -> WeightPlan:
    after = list(shape)
    for s in steps:
        after[s.axis] = s.layout.after
    return WeightPlan("w", "w", dtype, shape, tuple(after), steps)


def axis(number: int, layout: Layout) -> AxisStep:
    return AxisStep(number, layout, "makes")


@st.composite
def leaf_steps(draw: st.DrawFn, before: int | None = None) -> LeafStep:
    d = draw(st.integers(1, 4)) if before is None else before
    rows = draw(st.lists(st.integers(-1, d - 1), min_size=1, max_size=6))
    weight = [draw(st.sampled_from([1.0, 1.0, 0.5, -2.0])) for _ in rows]
    filler = [draw(st.sampled_from(FILLERS)) if i < 0 else ZERO for i in rows]
    return LeafStep(d, np.asarray(rows), np.asarray(weight), np.asarray(filler))


@st.composite
def layouts(draw: st.DrawFn, depth: int = 2) -> Layout:
    kind = draw(st.sampled_from(["leaf", "product", "sum"])) if depth else "leaf"
    if kind == "leaf":
        return leaf(draw(leaf_steps()))
    return Layout(kind, tuple(draw(st.lists(layouts(depth=depth - 1), min_size=2, max_size=2))))


def slowly(layout: Layout, units: list[Values]) -> list[Values]:
    """The units of one axis after a layout, one by one."""
    if layout.step is not None:
        s = layout.step
        mean = sum(units[1:], units[0]) / len(units)
        fillers = {ZERO: 0 * mean, ONE: 0 * mean + 1}
        return [
            s.weight[j] * units[i]
            if i >= 0
            else s.weight[j] * mean
            if s.filler[j] == MEAN
            else fillers[int(s.filler[j])]
            for j, i in enumerate(s.index)
        ]
    if layout.kind == "sum":
        made, at = [], 0
        for part in layout.parts:
            made += slowly(part, units[at : at + part.before])
            at += part.before
        return made
    outer, inner = layout.parts
    blocks = [np.stack(units[b * inner.before : (b + 1) * inner.before]) for b in range(outer.before)]
    return [unit for block in slowly(outer, blocks) for unit in slowly(inner, list(block))]


@given(layouts(), st.integers(0, 2))
def test_a_layout_does_to_an_axis_what_its_leaves_say(layout: Layout, number: int) -> None:
    shape = [2, 3, 2]
    shape[number] = layout.before
    array = np.random.default_rng(0).standard_normal(shape)
    made = execute(plan(tuple(shape), axis(number, layout)), array)
    wanted = slowly(layout, list(np.moveaxis(array, number, 0)))
    np.testing.assert_allclose(np.moveaxis(made, number, 0), np.stack(wanted), atol=1e-12)


@given(layouts(depth=1), layouts(depth=1))
def test_steps_on_two_axes_do_not_depend_on_their_order(a: Layout, b: Layout) -> None:
    """Ones are set, not computed: they are left out here."""
    a, b = _without_ones(a), _without_ones(b)
    array = np.random.default_rng(0).standard_normal((a.before, b.before))
    one = execute(plan(array.shape, axis(0, a), axis(1, b)), array)
    other = execute(plan(array.shape, axis(1, b), axis(0, a)), array)
    np.testing.assert_allclose(one, other, atol=1e-12)


def _without_ones(layout: Layout) -> Layout:
    if layout.step is None:
        return Layout(layout.kind, tuple(map(_without_ones, layout.parts)))
    s = layout.step
    return leaf(LeafStep(s.before, s.index, s.weight, np.where(s.filler == ONE, ZERO, s.filler)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_element_type_is_kept_and_plain_copies_are_bit_equal(dtype: str) -> None:
    array = np.random.default_rng(0).standard_normal((4, 3)).astype(dtype)
    step = LeafStep(4, np.asarray([0, 1, 2, 3, 3, 0]), np.ones(6), np.zeros(6, dtype=int))
    made = execute(plan((4, 3), axis(0, leaf(step)), dtype=dtype), array)
    assert made.dtype == array.dtype
    np.testing.assert_array_equal(made, array[[0, 1, 2, 3, 3, 0]])


def test_integers_are_copied_as_integers() -> None:
    array = np.arange(4) + 2**40
    step = LeafStep(4, np.asarray([0, 1, 2, 3, 3]), np.ones(5), np.zeros(5, dtype=int))
    np.testing.assert_array_equal(execute(plan((4,), axis(0, leaf(step))), array), array[[0, 1, 2, 3, 3]])


def test_a_scale_and_a_literal_are_written_in_the_element_type() -> None:
    eps = WeightPlan("e", "e", "float32", (), (), (), scale=0.75)
    assert execute(eps, np.asarray(1e-2, np.float32)) == np.float32(0.75e-2)
    table = WeightPlan("t", "t", "int64", (2,), (4,), (), literal=(0, 1, 2, 3))
    np.testing.assert_array_equal(execute(table, np.arange(2)), np.arange(4))
    same = WeightPlan("w", "w", "float32", (2,), (2,), ())
    assert execute(same, np.ones(2)) is not None


# -------------------------------------------------------------------------------------- drawn rows and noise


def drawn_step(d: int, size: int, key: int = 1) -> LeafStep:
    index = np.where(np.arange(size) < d, np.arange(size), -1)
    return LeafStep(d, index, np.ones(size), np.where(index < 0, DRAWN, ZERO), key)


def noise_step(index: list[int], scale: float, balance: Values | None, key: int = 3) -> LeafStep:
    rows = np.asarray(index)
    noisy = np.bincount(rows)[rows] > 1
    noise = Noise(key, scale, noisy, np.where(noisy, rows, -1), balance)
    return LeafStep(int(rows.max()) + 1, rows, np.ones(len(rows)), np.zeros(len(rows), dtype=int), 0, noise)


def test_drawn_rows_have_the_spread_of_the_source_and_leave_the_others_alone() -> None:
    array = 3 * np.random.default_rng(0).standard_normal((20, 500))
    made = execute(plan(array.shape, axis(0, leaf(drawn_step(20, 60)))), array)
    np.testing.assert_array_equal(made[:20], array)
    assert made[20:].std() == pytest.approx(array.std(), rel=0.03)
    assert abs(made[20:].mean()) < 0.1


@pytest.mark.parametrize(
    "make", [lambda: drawn_step(6, 9), lambda: noise_step([0, 1, 2, 3, 4, 5, 1, 1, 5], 0.1, None)]
)
def test_a_transposed_weight_gets_the_same_draws_transposed(make: object) -> None:
    step = make()
    array = np.random.default_rng(0).standard_normal((6, 4))
    straight = execute(plan((6, 4), axis(0, leaf(step))), array)
    turned = execute(plan((4, 6), axis(1, leaf(step))), np.ascontiguousarray(array.T))
    np.testing.assert_allclose(turned.T, straight, atol=1e-12)


def test_another_key_gives_other_draws() -> None:
    array = np.random.default_rng(0).standard_normal((3, 4))
    one, other = (execute(plan((3, 4), axis(0, leaf(drawn_step(3, 5, key)))), array) for key in (1, 2))
    assert not np.isclose(one[3:], other[3:]).any()


def test_equal_parts_of_one_axis_get_draws_of_their_own() -> None:
    array = np.random.default_rng(0).standard_normal((6, 4))
    both = Layout("sum", (leaf(drawn_step(3, 5)), leaf(drawn_step(3, 5))))
    made = execute(plan((6, 4), axis(0, both)), array)
    assert not np.isclose(made[3:5], made[8:10]).any()


def test_plain_noise_has_its_scale_and_touches_its_rows_only() -> None:
    array = np.random.default_rng(0).standard_normal((4, 20_000))
    index = [0, 1, 2, 3, 1, 1]
    made = execute(plan(array.shape, axis(0, leaf(noise_step(index, 0.25, None)))), array)
    change = made - array[index]
    assert not change[[0, 2, 3]].any()
    for row in (1, 4, 5):
        assert change[row].std() == pytest.approx(0.25 * array.std(), rel=0.03)


@given(
    st.permutations([0, 1, 2, 0, 1, 0]), st.lists(st.sampled_from([1.0, 0.5, 2.0]), min_size=6, max_size=6)
)
def test_balanced_noise_vanishes_against_its_balance(index: list[int], balance: list[float]) -> None:
    array = np.random.default_rng(0).standard_normal((3, 5))
    step = noise_step(list(index), 0.5, np.asarray(balance))
    change = execute(plan((3, 5), axis(0, leaf(step))), array) - array[index]
    for unit in range(3):
        rows = np.flatnonzero(np.asarray(index) == unit)
        np.testing.assert_allclose(np.asarray(balance)[rows] @ change[rows], 0, atol=1e-12)
        assert (np.abs(change[rows]).sum() > 0) == (len(rows) > 1)


def test_balanced_noise_over_plain_copies_keeps_its_variance() -> None:
    """language.md: the mean over the copies is taken off and the rest scaled by sqrt(C/(C−1))."""
    array = np.random.default_rng(0).standard_normal((3, 20_000))
    index = [0, 1, 2, 0, 1, 0]
    change = (
        execute(plan(array.shape, axis(0, leaf(noise_step(index, 0.5, np.ones(6))))), array) - array[index]
    )
    for row in (0, 1, 3, 4, 5):
        assert change[row].std() == pytest.approx(0.5 * array.std(), rel=0.03)
    assert not change[2].any()
