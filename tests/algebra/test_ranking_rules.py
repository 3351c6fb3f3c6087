"""Laws of all rankings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from growc.algebra.indexmap import Floats
from growc.recipe.ranking_rules import RANKINGS, RankingRule, ScoredUnits
from growc.recipe.words import FILE


@pytest.mark.parametrize("rule", RANKINGS.values(), ids=RANKINGS)
def test_a_ranking_chooses_in_one_way(rule: RankingRule) -> None:
    ways = (rule.scores is not None, rule.places is not None, rule.lists, rule.averages)
    assert sum(ways) == 1


@pytest.mark.parametrize("rule", [r for r in RANKINGS.values() if r.places], ids=lambda rule: rule.name)
@pytest.mark.parametrize(("count", "size"), [(1, 1), (2, 1), (5, 3), (12, 12), (12, 7), (40, 39)])
def test_units_that_stay_by_their_places_keep_their_order(rule: RankingRule, count: int, size: int) -> None:
    assert rule.places is not None
    stay = rule.places(count, size)
    assert len(stay) == size
    assert (np.diff(stay) > 0).all()
    assert set(stay.tolist()) <= set(range(count))


@pytest.mark.parametrize("rule", [r for r in RANKINGS.values() if r.scores], ids=lambda rule: rule.name)
def test_a_ranking_says_whether_it_asks_for_importance(rule: RankingRule) -> None:
    asked: list[str] = []

    def answer(question: str) -> Callable[[], Floats]:
        return lambda: asked.append(question) or np.zeros(3)

    assert rule.scores is not None
    rule.scores(ScoredUnits(answer("importance"), answer("magnitude"), answer("drawn"), answer("from_file")))
    assert ("importance" in asked) == rule.measured
    assert ("drawn" in asked) == rule.seeded
    assert ("from_file" in asked) == (rule.takes == FILE)
