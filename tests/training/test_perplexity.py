"""ELLE's metrics on numbers small enough for a hand."""

from __future__ import annotations

import pytest

from growc.training.perplexity import average_increase, average_perplexity


def test_the_average_perplexity_is_a_geometric_mean() -> None:
    assert average_perplexity([2.0, 8.0]) == pytest.approx(4.0)  # √(2·8)
    assert average_perplexity([3.0, 9.0, 27.0]) == pytest.approx(9.0)
    assert average_perplexity([7.96]) == pytest.approx(7.96)


def test_the_increase_leaves_the_present_domain_out() -> None:
    assert average_increase([5.0, 9.0, 7.0], learned=[4.0, 7.0]) == pytest.approx(1.5)  # (1 + 2) / 2
    assert average_increase([3.5, 100.0], learned=[4.0]) == pytest.approx(-0.5)


@pytest.mark.parametrize("now", [[], [4.0, 0.5]])
def test_numbers_that_are_no_perplexities_are_refused(now: list[float]) -> None:
    with pytest.raises(ValueError, match="no mean"):
        average_perplexity(now)


@pytest.mark.parametrize(("now", "learned"), [([3.0], []), ([3.0, 4.0], [3.0, 4.0]), ([3.0], [3.0, 4.0])])
def test_domains_that_do_not_match_are_refused(now: list[float], learned: list[float]) -> None:
    with pytest.raises(ValueError, match="the last is not to be"):
        average_increase(now, learned)
