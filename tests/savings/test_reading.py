"""Where a loss is reached, by hand, and how far seeds spread."""

from __future__ import annotations

import math
import sys

import pytest
from graphs import ROOT

sys.path.append(str(ROOT))

from benchmarks.savings.model import Shape
from benchmarks.savings.reading import Line, Reached, reached, source_cost, spread_in_points
from benchmarks.savings.tables import Row

POINTS = [(10.0, 3.0), (40.0, 2.0), (80.0, 1.5)]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (3.0, Reached("≤", 10.0)),
        (3.5, Reached("≤", 10.0)),
        (2.5, Reached("", 20.0)),
        (2.0, Reached("", 40.0)),
        (1.5, Reached("", 80.0)),
        (1.49, Reached(">", 80.0)),
    ],
)
def test_a_loss_is_reached_between_branches_in_the_logarithm_of_the_cost(target, expected):
    found = reached(POINTS, target)
    assert found.sign == expected.sign
    assert found.cost == pytest.approx(expected.cost)


def test_a_loss_that_rises_again_is_reached_where_it_was():
    assert reached([(1.0, 3.0), (2.0, 1.0), (4.0, 2.0)], 1.5).cost == pytest.approx(2**0.75)


@pytest.mark.parametrize(
    ("sign", "cost", "text"),
    [
        ("", 45.4, "45 %"),
        ("≤", 40, "≤ 40 %"),
        (">", 60, "> 100 %"),
        (">", 130, "> 130 %"),
        ("", 104, "104 %"),
    ],
)
def test_a_loss_that_is_not_reached_is_never_below_all_operations(sign, cost, text):
    assert Reached(sign, cost).percent(100) == text


def line(finals, needs=()):
    records = [
        {
            "decayed": [[40, 400, 3.0], [70, 1000, loss + 0.1], [100, 1000 * math.e, loss]],
            "needs": list(needs),
        }
        for loss in finals
    ]
    return Line(Row("scratch", Shape()), tuple(records))


def test_the_spread_of_seeds_is_given_in_points_of_operations():
    scratch = line([2.0, 2.01, 2.02])
    assert scratch.final == pytest.approx(2.01)
    assert scratch.spread == pytest.approx(0.01)
    assert spread_in_points(scratch) == pytest.approx(100 * 0.01 / 0.1)


def test_the_cost_of_a_source_is_a_mean_over_seeds():
    needs = [{"flops": 100.0, "tokens_per_parameter": 20.0}]
    assert source_cost(line([2.0], needs)) == (100.0, 20.0)
    assert source_cost(line([2.0])) is None
