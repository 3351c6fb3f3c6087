"""Random streams: addressed by what they are for, the same in any chunks, and distributed as they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from growc.algebra.draws import Draws

STREAM = Draws.of(0, 1, "hidden")
SPANS = st.tuples(st.integers(0, 200), st.integers(0, 60))


@given(SPANS)
def test_any_part_of_a_uniform_stream_can_be_had_by_itself(span: tuple[int, int]) -> None:
    start, count = span
    np.testing.assert_array_equal(STREAM.uniform(start, count), STREAM.uniform(0, 300)[start : start + count])


@given(SPANS)
def test_any_part_of_a_normal_stream_can_be_had_by_itself(span: tuple[int, int]) -> None:
    start, count = span
    np.testing.assert_array_equal(STREAM.normal(start, count), STREAM.normal(0, 300)[start : start + count])


PLACES = [(0,), (1,), ("0",), (0, 1), (0, "1"), ((0, 1),), ("a", "b"), ("ab",), ("hidden", 0), ("hidden", 1)]


def test_different_places_have_different_streams() -> None:
    firsts = {tuple(Draws.of(*p).uniform(0, 4)) for p in PLACES} | {
        tuple(Draws.of(0).at(*p).uniform(0, 4)) for p in PLACES
    }
    assert len(firsts) == 2 * len(PLACES)


def test_the_same_place_has_the_same_stream() -> None:
    assert Draws.of(7, "ffn", 3) == Draws.of(7, "ffn", 3)
    assert Draws.of(7).at("ffn", 3) == Draws.of(7).at("ffn", 3)


def test_streams_of_two_places_are_not_correlated() -> None:
    a, b = Draws.of(0, "a").normal(0, 20_000), Draws.of(0, "b").normal(0, 20_000)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.03


def test_a_uniform_stream_is_uniform_and_never_zero() -> None:
    values = STREAM.uniform(0, 100_000)
    assert values.min() > 0
    assert values.max() <= 1
    assert np.abs(np.histogram(values, 10, (0, 1))[0] - 10_000).max() < 500


def test_a_normal_stream_is_normal() -> None:
    values = STREAM.normal(0, 100_000)
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02
    assert abs((values**3).mean()) < 0.05
    assert abs((values**4).mean() - 3) < 0.15
    assert np.isfinite(values).all()
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.02


@pytest.mark.parametrize("bound", [1, 2, 7, 1000])
def test_integers_are_below_their_bound_and_cover_it(bound: int) -> None:
    values = STREAM.integers(20 * bound, bound)
    assert values.min() >= 0
    assert values.max() < bound
    assert len(np.unique(values)) > 0.99 * bound


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_shares_are_positive_and_sum_to_one_in_every_group(groups: list[int]) -> None:
    numbers = np.asarray(groups)
    shares = STREAM.shares(numbers, 5)
    assert (shares > 0).all()
    np.testing.assert_allclose(np.bincount(numbers, weights=shares)[np.unique(numbers)], 1)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_shares_are_at_least_half_of_the_equal_share(groups: list[int]) -> None:
    numbers = np.asarray(groups)
    counts = np.bincount(numbers)[numbers]
    assert (STREAM.shares(numbers, 5) >= 0.5 / counts - 1e-12).all()


def test_shares_of_two_copies_are_uniform_between_a_quarter_and_three_quarters() -> None:
    """Uniform on the simplex of two is uniform on (0, 1); mixed half and half with 1/2 that is (1/4, 3/4)."""
    first = STREAM.shares(np.repeat(np.arange(20_000), 2), 20_000)[::2]
    assert first.min() > 0.25
    assert first.max() < 0.75
    assert np.abs(np.histogram(first, 5, (0.25, 0.75))[0] - 4000).max() < 300
