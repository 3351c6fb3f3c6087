"""Every fill is the formula of docs/language.md, written out again here, for many sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from growc.algebra.draws import Draws
from growc.recipe.fills import FILLS, FillRule, appended, new_units

SIZES = [(1, 2), (1, 5), (2, 3), (3, 3), (3, 4), (4, 6), (4, 8), (5, 7), (6, 17), (12, 16), (7, 30)]
DRAWS = Draws.of("fills")

COPIES: dict[str, Callable[[int, int, int], int]] = {
    "neighbor copy": lambda j, d, n: j * d // n,
    "tail copy": lambda j, d, n: j if j < d else d - 1 - ((n - 1 - j) % d),
    "last copy": lambda j, d, n: min(j, d - 1),
    "cyclic copy": lambda j, d, n: j % d,
    "rescaled copy": lambda j, d, n: j % d,
}


@pytest.mark.parametrize(("d", "n"), SIZES)
@pytest.mark.parametrize("fill", COPIES)
def test_a_copy_follows_its_formula(fill: str, d: int, n: int) -> None:
    made = FILLS[fill].map(d, n, DRAWS)
    assert made.index.tolist() == [COPIES[fill](j, d, n) for j in range(n)]
    assert (made.weight == 1).all()
    assert made.copies.all()


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_tail_copy_repeats_the_last_units_in_order(d: int, n: int) -> None:
    made = FILLS["tail copy"].map(d, n, DRAWS)
    if 2 * d >= n:
        assert made.index[d:].tolist() == list(range(d - (n - d), d))


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_uniform_copy_keeps_the_originals_and_draws_the_rest(d: int, n: int) -> None:
    made = FILLS["uniform copy"].map(d, n, DRAWS)
    assert made.index[:d].tolist() == list(range(d))
    assert ((made.index[d:] >= 0) & (made.index[d:] < d)).all()
    assert FILLS["uniform copy"].map(d, n, DRAWS).same(made)


def test_uniform_copy_is_uniform() -> None:
    made = FILLS["uniform copy"].map(8, 8 + 8000, DRAWS)
    counts = np.bincount(made.index[8:], minlength=8)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_average_fill_is_whole_cycles_and_then_means(d: int, n: int) -> None:
    made = FILLS["average fill"].map(d, n, DRAWS)
    whole = n // d * d
    assert made.index.tolist() == [j % d if j < whole else -1 for j in range(n)]
    assert made.mean.tolist() == [0.0 if j < whole else 1.0 for j in range(n)]
    np.testing.assert_allclose(made.matrix().sum(axis=1), 1)


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_zero_fill_and_random_fill_keep_the_originals_only(d: int, n: int) -> None:
    zero, random = FILLS["zero fill"].map(d, n, DRAWS), FILLS["random fill"].map(d, n, DRAWS)
    for made in (zero, random):
        assert made.index.tolist() == [j if j < d else -1 for j in range(n)]
    assert zero.zeros[d:].all()
    assert random.junk.tolist() == [j >= d for j in range(n)]


@pytest.mark.parametrize(("d", "n"), SIZES)
@pytest.mark.parametrize("fill", FILLS)
def test_the_originals_are_the_first_copies_and_there_is_one_of_each(fill: str, d: int, n: int) -> None:
    made = FILLS[fill].map(d, n, DRAWS)
    fresh = new_units(made)
    assert fresh.sum() == n - d
    assert made.index[~fresh].tolist() == list(range(d))
    for unit in range(d):
        assert np.flatnonzero(made.index == unit)[0] in np.flatnonzero(~fresh)


@pytest.mark.parametrize(("d", "n"), SIZES)
@pytest.mark.parametrize("fill", FILLS)
def test_on_an_addressed_axis_old_units_keep_their_numbers(fill: str, d: int, n: int) -> None:
    made = FILLS[fill].map(d, n, DRAWS)
    moved = appended(made)
    assert moved.index[:d].tolist() == list(range(d))
    assert not new_units(moved)[:d].any()
    assert sorted(moved.index.tolist()) == sorted(made.index.tolist())
    assert moved.junk.sum() == made.junk.sum()


@pytest.mark.parametrize("fill", FILLS)
def test_a_size_that_stays_is_the_identity(fill: str) -> None:
    assert FILLS[fill].map(5, 5, DRAWS).is_identity


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
def test_the_facts_of_a_fill_are_those_of_its_map(fill: FillRule) -> None:
    maps = [fill.map(d, n, DRAWS) for d, n in SIZES]
    assert all(made.copies.all() for made in maps) == (fill.copies == "all")
    assert any((made.counts > 1).any() for made in maps) == (fill.copies != "none")
    runs = (np.where(made.index < 0, -1, np.arange(made.size) % made.source) for made in maps)
    repeats = all((made.index == run).all() for made, run in zip(maps, runs, strict=True))
    assert repeats == (fill.whole_runs or fill.copies == "none")
