"""Graphs and modules of the attacker's generator: no false claim, no crash, no file that does not load."""

from __future__ import annotations

import warnings

import pytest
from hostile.cases import BAD, Outcome, judge
from hostile.modules import judge as judge_module

GRAPHS, MODULES = range(1030, 1050), (0, 2)
LATER_GRAPHS, LATER_MODULES = range(20_000, 20_600), range(20_000, 20_060)


def bad(outcomes: list[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.kind in BAD]


@pytest.fixture(autouse=True)
def _as_users_run_it() -> object:
    """Warnings of exporters are no failures of the compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_hostile_graphs_are_what_their_certificates_say() -> None:
    outcomes = [judge(seed) for seed in GRAPHS]
    assert not bad(outcomes)
    assert sum(outcome.kind == "exact" and outcome.nontrivial for outcome in outcomes) >= len(outcomes) // 4


def test_hostile_modules_are_what_their_certificates_say() -> None:
    outcomes = [judge_module(seed) for seed in MODULES]
    assert not bad(outcomes)
    assert any(outcome.kind == "exact" and outcome.nontrivial for outcome in outcomes)


def test_a_tensor_of_which_one_use_counts_a_single_head_takes_other_statements() -> None:
    assert not bad([judge(990_689)])


def test_statements_on_grouped_heads_of_other_layers_keep_their_sizes() -> None:
    assert not bad([judge(1_003_181), judge(1_004_930)])


def test_constants_that_repeat_key_heads_follow_their_groups() -> None:
    assert not bad([judge(1_107_710)])


@pytest.mark.soak
def test_many_hostile_graphs_and_modules() -> None:
    outcomes = [judge(seed) for seed in LATER_GRAPHS] + [judge_module(seed) for seed in LATER_MODULES]
    assert not bad(outcomes)
    equal = [outcome for outcome in outcomes if outcome.kind in ("exact", "unclaimed")]
    assert sum(outcome.kind == "exact" for outcome in equal) >= 0.98 * len(equal)
