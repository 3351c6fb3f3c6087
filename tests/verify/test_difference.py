import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from growc.verification.difference import compare, worst

REALS = arrays(np.float32, st.integers(1, 20), elements=st.floats(-(2.0**60), 2.0**60, width=32))


@given(REALS)
def test_an_output_does_not_differ_from_itself(a):
    report = compare(a, a.copy())
    assert (report.relative, report.max_abs, report.misplaced) == (0.0, 0.0, 0)
    assert report.compared == a.size


@given(REALS, st.integers(-10, 10))
def test_the_relative_difference_does_not_depend_on_the_unit(a, exponent):
    scaled = a.astype(np.float64) * 2.0**exponent
    assert compare(scaled, scaled * 1.5).relative == pytest.approx(0.5 if a.any() else 0.0)


def test_the_difference_is_measured_against_the_largest_element():
    report = compare(np.array([1.0, -4.0]), np.array([1.5, -4.0]))
    assert report.relative == 0.125
    assert report.max_abs == 0.5


def test_a_difference_is_seen_far_behind_the_first_block():
    a = np.ones((3, 1 << 20), dtype=np.float32)
    b = a.copy()
    b[2, 17] = 2
    assert compare(a, b).relative == 1.0


@pytest.mark.parametrize(
    ("a", "b"),
    [(-np.inf, -3.4e38), (np.inf, 1e31), (np.nan, np.nan), (-1e30, -np.inf)],
)
def test_huge_and_infinite_elements_agree_by_place_and_sign(a, b):
    report = compare(np.array([2.0, a]), np.array([2.0, b]))
    assert report.relative == 0.0
    assert report.compared == 1


@pytest.mark.parametrize(
    ("a", "b"),
    [(-np.inf, np.inf), (np.nan, 1.0), (1.0, np.nan), (np.inf, np.nan), (1.0, -1e31), (1e30, 1.0)],
)
def test_elements_of_another_kind_or_sign_make_the_difference_infinite(a, b):
    report = compare(np.array([2.0, a]), np.array([2.0, b]))
    assert report.relative == math.inf
    assert report.misplaced == 1
    assert report.regular == 0.0


def test_huge_elements_do_not_hide_a_difference_beside_them():
    assert compare(np.array([1.0, -1e38]), np.array([1.1, -1e38])).relative == pytest.approx(0.1)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_integers_and_booleans_must_be_equal(dtype):
    a = np.array([1, 0, 1], dtype=dtype)
    b = np.array([1, 1, 1], dtype=dtype)
    assert compare(a, a).relative == 0.0
    assert compare(a, b).relative == math.inf
    assert compare(a, b).max_abs == 1.0
    assert compare(a, b).misplaced == 1


@pytest.mark.parametrize(("moved", "relative"), [(0.0, 0.0), (9e-7, 0.0), (2e-6, math.inf)])
def test_an_output_that_is_zero_throughout_stays_within_a_millionth(moved, relative):
    report = compare(np.zeros(3), np.array([0.0, moved, 0.0]))
    assert report.relative == relative
    assert report.max_abs == moved


def test_another_shape_or_type_cannot_be_compared():
    a = np.zeros((2, 3), dtype=np.float32)
    assert compare(a, np.zeros((3, 2), dtype=np.float32)).note == "shape [3, 2] instead of [2, 3]"
    assert compare(a, np.zeros((2, 3), dtype=np.int64)).note == "elements of type int64 instead of float32"
    assert compare(a, np.zeros((3, 2), dtype=np.float32)).relative == math.inf


def test_floats_of_different_width_are_compared():
    a = np.array([1.0, 3.0], dtype=np.float16)
    assert compare(a, np.array([1.0, 3.0])).relative == 0.0


def test_an_empty_output_agrees():
    assert compare(np.zeros((0, 4)), np.zeros((0, 4))).relative == 0.0


def test_the_report_over_cases_is_the_worst():
    first = compare(np.array([1.0]), np.array([1.5]))
    second = compare(np.array([1.0, np.nan]), np.array([1.0, 2.0]))
    joined = worst([first, second])
    assert (joined.relative, joined.regular, joined.max_abs) == (math.inf, 0.5, 0.5)
    assert (joined.misplaced, joined.compared) == (1, 2)
