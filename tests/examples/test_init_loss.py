"""The losses right after surgery stand in the order that the papers, and theory, give them."""

from __future__ import annotations

import json

import pytest
from published import ROOT

TABLE = json.loads((ROOT / "docs" / "init_loss.json").read_text(encoding="utf-8"))
LOSSES = {(row["model"], row["recipe"]): row["losses"] for row in TABLE}
MODELS = list(dict.fromkeys(row["model"] for row in TABLE))


@pytest.mark.parametrize("model", MODELS)
def test_exact_recipes_lose_nothing(model):
    (source,) = LOSSES[model, "source"]
    exact = [row for row in TABLE if row["model"] == model and row["exact"]]
    assert len(exact) >= 2
    for row in exact:
        slack = (
            2e-2 if row["recipe"].endswith("vocabulary") else 1e-4
        )  # new tokens take a share of the probability
        assert all(abs(loss - source) < slack for loss in row["losses"]), row


@pytest.mark.parametrize("model", MODELS)
def test_random_weights_are_far_above_everything_that_copies(model):
    worst = min(LOSSES[model, "random"])
    for row in TABLE:
        if row["model"] == model and not row["recipe"].endswith(("random", "directcopy", "source")):
            assert max(row["losses"]) < worst - 1, row


@pytest.mark.parametrize("model", MODELS)
def test_a_model_stacked_whole_is_above_one_that_keeps_its_function_nearly(model):
    stacked, kept = LOSSES[model, "07-stackbert"], LOSSES[model, "03-bert2bert-fpi"]
    (source,) = LOSSES[model, "source"]
    assert source - 1e-4 <= min(kept) <= max(kept) < min(stacked)


@pytest.mark.parametrize("model", MODELS)
def test_units_of_the_next_layer_cost_more_than_copies(model):
    assert min(LOSSES[model, "04-bert2bert-aki"]) > max(LOSSES[model, "03-bert2bert-fpi"])


@pytest.mark.parametrize("model", MODELS)
def test_corner_copies_are_above_copies_with_shares(model):
    assert min(LOSSES[model, "06-directcopy"]) > max(LOSSES[model, "03-bert2bert-fpi"])
