"""Execution block by block, against the reference that computes tensors as wholes: bit for bit."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import reference_execution as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from growc.algebra.indexmap import Array
from growc.plans import execute as execution
from growc.plans import first_axis, lazy_rows
from growc.plans.execute import execute, planned
from growc.plans.plan import (
    DRAWN,
    MEAN,
    ONE,
    ZERO,
    AxisStep,
    Layout,
    LeafStep,
    NextLayer,
    Noise,
    WeightPlan,
)
from growc.plans.reads import rows_read

FILLERS = (ZERO, MEAN, ONE, DRAWN)
WEIGHTS = (1.0, 1.0, 1.0, 0.5, -2.0, 2**-0.5, 1 / 3)
KINDS = ("float16", "bfloat16", "float32", "float64", "complex64", "int64")


@st.composite
def leaves(draw: st.DrawFn, size: int) -> Layout:
    index = np.asarray(draw(st.lists(st.integers(-1, size - 1), min_size=1, max_size=7)))
    if draw(st.booleans()):
        index = np.concatenate([np.arange(size), index])
    weight = np.asarray([draw(st.sampled_from(WEIGHTS)) for _ in index])
    filler = np.asarray([draw(st.sampled_from(FILLERS)) if i < 0 else ZERO for i in index])
    block = draw(st.sampled_from([k for k in range(1, size + 1) if size % k == 0]))
    factors = draw(st.sampled_from(["", f"factors{size}"]))
    noise = None
    if draw(st.booleans()):
        some = np.asarray([True, *(draw(st.booleans()) for _ in index[1:])])
        balance = np.asarray([draw(st.sampled_from([1.0, 0.5, 3.0])) for _ in index])
        noise = Noise(5, 0.25, some, index, balance if draw(st.booleans()) else None)
    step = LeafStep(size, index, weight, filler, draw(st.integers(0, 2)), noise, block, factors)
    return Layout("leaf", (), step)


@st.composite
def layouts(draw: st.DrawFn, depth: int = 2) -> Layout:
    kind = draw(st.sampled_from(["leaf", "product", "sum"])) if depth else "leaf"
    if kind == "leaf":
        size = draw(st.integers(1, 5))
        return Layout("leaf", (), LeafStep.keep(size)) if draw(st.integers(0, 5)) == 0 else draw(leaves(size))
    return Layout(kind, tuple(draw(st.lists(layouts(depth - 1), min_size=2, max_size=3 - (kind != "sum")))))


@st.composite
def plans(draw: st.DrawFn) -> WeightPlan:
    rank = draw(st.integers(1, 4))
    before = [draw(st.integers(1, 4)) for _ in range(rank)]
    after, steps, seen = {}, [], set[int]()
    for _ in range(draw(st.integers(1, 3))):
        axis = draw(st.integers(0, rank - 1))
        layout = draw(leaves(after[axis])) if axis in seen else draw(layouts(1 if rank > 2 else 2))
        if axis not in seen:
            before[axis] = layout.before
        following = NextLayer("above", tuple(steps)) if draw(st.integers(0, 3)) == 0 else None
        steps.append(AxisStep(axis, layout, "makes", "", following))
        seen.add(axis)
        after[axis] = layout.after
    shape = tuple(after.get(k, n) for k, n in enumerate(before))
    scale, shift = draw(st.sampled_from([1.0, 1.0, 0.3])), draw(st.sampled_from([0.0, 0.0, 1.5]))
    return WeightPlan("w", "w", "", tuple(before), shape, tuple(steps), scale=scale, shift=shift)


def drawn(kind: str, shape: tuple[int, ...], seed: int) -> Array:
    random = np.random.default_rng(seed)
    if kind == "bfloat16":
        return random.standard_normal(shape).astype(ml_dtypes.bfloat16)
    if kind == "complex64":
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(kind)
    return (5 * random.standard_normal(shape)).astype(kind)


@settings(max_examples=300)
@given(plans(), st.sampled_from(KINDS), st.sampled_from([1, 40, 300, 1 << 20]))
def test_blocks_are_what_the_whole_is(plan: WeightPlan, kind: str, size: int) -> None:
    if kind == "int64":
        plan = replace(plan, shift=0.0)
    source, above = (drawn(kind, plan.before, seed) for seed in (1, 2))

    def read(name: str) -> Array:
        return above if name == "above" else drawn("float32", (int(name.removeprefix("factors")),), 3)

    wanted = reference.execute(plan, source, read)
    with pytest.MonkeyPatch.context() as patch:
        for module in (lazy_rows, first_axis):
            patch.setattr(module, "BLOCK", size)
        pieces = list(planned(plan, source, read).blocks())
        assert execute(plan, source, read).tobytes() == wanted.tobytes()
    assert b"".join(piece.tobytes() for piece in pieces) == wanted.tobytes()
    assert {piece.dtype for piece in pieces} == {wanted.dtype}


@settings(max_examples=300)
@given(plans(), st.integers(0, 40), st.integers(1, 40))
def test_the_reads_of_rows_are_known_without_values(plan: WeightPlan, first: int, count: int) -> None:
    arrays = {name: drawn("float32", plan.before, seed) for seed, name in enumerate(("w", "above"))}
    some = range(min(first, plan.after[0] - 1), min(first + count, plan.after[0]))
    seen: dict[str, set[int]] = {name: set() for name in arrays}

    def read(name: str) -> Array:
        if name in arrays:
            return arrays[name]
        seen[name] = set(range(int(name.removeprefix("factors"))))
        return drawn("float32", (len(seen[name]),), 3)

    def noting(array: Array) -> lazy_rows.Rows:
        name = next(name for name in arrays if arrays[name] is array)

        def noted(numbers: np.ndarray) -> Array:
            seen[name] |= set(numbers.tolist())
            return np.asarray(array[numbers])

        return lazy_rows.Rows(len(array), array.shape[1:], array.dtype, noted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "as_rows", noting)
        if plan.changed:
            planned(plan, arrays["w"], read).read(np.arange(some.start, some.stop))
        else:
            seen["w"] = set(some)
    found = rows_read(plan, lambda name: plan.before[0] if name in arrays else int(name[7:]), some)
    assert found == {name: len(numbers) for name, numbers in seen.items() if numbers}


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("filler", [ZERO, MEAN, DRAWN])
def test_nothing_as_large_as_a_tensor_stands_in_between(axis: int, filler: int) -> None:
    size, index = 3000, np.concatenate([np.arange(3000), np.arange(1000), np.full(50, -1)])
    step = LeafStep(size, index, np.ones(len(index)), np.where(index < 0, filler, ZERO))
    shape, after = [size, size], [size, size]
    after[axis] = len(index)
    plan = WeightPlan(
        "w", "w", "", tuple(shape), tuple(after), (AxisStep(axis, Layout("leaf", (), step), "makes"),)
    )
    source = drawn("float32", tuple(shape), 0)
    tracemalloc.start()
    count = sum(piece.nbytes for piece in planned(plan, source).blocks())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 4 * size * len(index)
    assert peak < 8 * lazy_rows.BLOCK < count
