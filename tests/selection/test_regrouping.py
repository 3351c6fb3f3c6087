"""Splits, shuffles and means of groups are maps of the product (keys group): rows by hand, and invariants."""

from __future__ import annotations

import numpy as np
import pytest

from growc.algebra.space import Space, product, sum_of
from growc.ir.graph import Graph
from growc.ir.lowered_statement import Regroup, Sizes, Stage, pool, shuffle, split
from growc.passes.axes.infer import Axes
from growc.passes.heads.move_heads import _Moving
from growc.plans.execute import execute
from growc.plans.plan import AxisStep, WeightPlan
from growc.recipe.option_rules import StatementOptions

KEYS, GROUP, DEPTH = 4, 6, 3
ORDERS = np.array([[5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4], [2, 3, 4, 5, 0, 1]])
MAPS = {"split": split(KEYS, GROUP, 3), "shuffle": shuffle(ORDERS), "pool": pool(KEYS, GROUP, 2)}


class Heads:
    """One attention's atoms, and what moves them."""

    def __init__(self, name: str) -> None:
        self.keys, self.group, self.depth = Space((KEYS,)), Space((GROUP,)), Space((DEPTH,))
        self.move = Regroup(self.keys, self.group, *MAPS[name], "they cannot move", name == "pool")


def moving(*heads: Heads) -> _Moving:
    stage = Stage(0, "", "heads", StatementOptions(), regroups=[one.move for one in heads])
    return _Moving(Axes(Graph.__new__(Graph)), stage, Sizes())


def moved(name: str, *spaces: str) -> np.ndarray | None:
    """The rows 0, 1, … of an axis of these factors, moved."""
    heads = Heads(name)
    layout = moving(heads).layout([getattr(heads, space) for space in spaces])
    if layout is None:
        return None
    step = AxisStep(0, layout, "makes", "heads")
    plan = WeightPlan("rows", "rows", "float64", (layout.before,), (layout.after,), (step,))
    return execute(plan, np.arange(layout.before, dtype=np.float64))


@pytest.mark.parametrize("name", MAPS)
def test_a_query_head_stays_with_a_key_that_its_own_was(name):
    of_keys, of_group = MAPS[name]
    keys, group = len(of_keys.part), len(of_group.part)
    heads = moved(name, "keys", "group").astype(int).reshape(keys, group)
    assert sorted(heads.reshape(-1)) == list(range(KEYS * GROUP))
    for key in range(keys):
        assert set(heads[key] // GROUP) <= set(of_keys.index[:, key])


def test_units_where_keys_stand_alone():
    assert moved("split", "keys").tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert moved("shuffle", "keys").tolist() == [0, 1, 2, 3]
    assert moved("pool", "keys").tolist() == [0.5, 2.5]
    assert moved("pool", "keys", "depth").tolist() == [1.5, 2.5, 3.5, 7.5, 8.5, 9.5]


def test_query_heads_keep_their_numbers_where_groups_split_and_join():
    for name in ("split", "pool"):
        assert moved(name, "keys", "group", "depth").tolist() == list(range(KEYS * GROUP * DEPTH))


@pytest.mark.parametrize("name", MAPS)
def test_a_group_without_its_keys_is_refused(name):
    assert moved(name, "group") is None
    assert moved(name, "group", "depth") is None


@pytest.mark.parametrize("name", MAPS)
def test_keys_of_one_attention_say_nothing_of_the_groups_of_another(name):
    one, other = Heads(name), Heads(name)
    both = moving(one, other)
    assert both.layout([one.keys, other.group]) is None
    side_by_side = sum_of([product([h.keys, h.group]) for h in (one, other)])
    assert both.layout([side_by_side]) is not None
    assert both.layout([sum_of([one.keys, other.keys]), sum_of([one.group, other.group])]) is None
