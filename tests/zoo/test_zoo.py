"""A slice of the zoo, exported by tracing: roles, exact growth, and planted faults that show.

The whole of it, in every flavour and under every recipe, is `make coverage`.
"""

from __future__ import annotations

import pytest
import zoo
from coverage_measure import measure
from coverage_recipes import RECIPES, lacking
from export import insensitive
from feeds import BATCH
from registry import build
from zoo import ZOO

SLICE = (
    "falcon",
    "gemma",
    "qwen3",
    "mpt",
    "olmo2",
    "own_alibi",
    "own_separable",
)
TRAITS = {
    "packed by part",
    "packed by head",
    "packed by group",
    "low-rank keys and values",
    "sandwich norms",
    "QK-norm by head",
    "QK-norm over the projection",
    "partial rotary",
    "interleaved rotary",
    "half rotary",
    "relative bias gathered",
    "relative bias baked",
    "experts stacked",
    "experts separate",
    "shared expert",
    "state space",
    "linear attention",
    "two towers",
    "factorised embeddings",
    "layer scale",
    "convolutional stem",
    "U-Net",
    "cache",
}
"""Traits that the zoo must have at least once; files that onnxruntime optimised are a flavour."""


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", SLICE)
def test_a_model_without_names_is_known_grown_and_spoilt(files, name):
    facts = ZOO[name].facts.as_json()
    recipes = [recipe for recipe in RECIPES if recipe.asked(facts) and not lacking(recipe, facts)]
    done = measure(files(name), recipes)
    assert done["roles"] == {role: sorted(facts[role]) for role in done["roles"]}
    assert {recipe: case["status"] for recipe, case in done["cases"].items()} == {
        recipe.name: "exact" for recipe in recipes
    }, [case["detail"] for case in done["cases"].values()]


def test_everything_that_models_are_made_of_stands_in_the_zoo():
    held = {trait for blueprint in ZOO.values() for trait in blueprint.facts.traits}
    assert held >= TRAITS
    assert len(zoo.names()) >= 27 + 22


def test_the_zoo_is_fed_three_sizes_and_sees_its_weights():
    built = build("own_alibi")
    rows = [len(feed["input_ids"]) for feed in built.feeds]
    assert rows == [*BATCH, BATCH[0] + 1]
    assert not insensitive(built)
