"""The zoo's modules, grown: exactly where that is claimed, as planned, in both modes."""

from __future__ import annotations

import pytest
from agreement import built
from growing import RECIPES, captured_once, judged
from zoo import ZOO

QUICK = ("gpt2_cache", "own_multi_query", "own_shuffled")
ABSENT = "G302"
"""An axis that the model lacks, or a layer."""

names = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.soak) for n in ZOO]
)


@pytest.mark.sampled(4)
@names
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # an LSTM keeps them beside its parameters
def test_a_module_of_the_zoo_becomes_what_each_recipe_says(name):
    model = built(name)
    with captured_once():
        for key in RECIPES:
            said = judged(name, model, key)
            assert said.startswith(("grown", ABSENT)), (key, said)
