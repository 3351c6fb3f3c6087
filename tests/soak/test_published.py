"""The papers' recipes on GPT-2 small and BERT-base, whose sizes they are written for."""

from __future__ import annotations

import pytest
from published import ALL, example

ELSEWHERE = {"net2net-conv", "hypercloning", "gesmundo-maile", "t5", "gqa-to-mha"}
ELSEWHERE |= {"subcloning", "subcloning-vit", "reorder", "minitron", "shortgpt", "reap"}
"""Recipes for channels, groups, or an encoder and a decoder; those that measure on inputs of a tiny model."""

RECIPES = [e.folder.name[3:] for e in ALL if e.folder.name[3:] not in ELSEWHERE]
PRESERVING = {"net2net", "nai-exact", "lemon", "llama-pro", "staged-training", "vocabulary"}


@pytest.mark.parametrize("name", RECIPES)
def test_a_published_recipe_grows_the_model_of_its_paper(real_model, grow, name):
    of = example(name)
    model = "bert" if of.model.stem == "tiny-bert" else "gpt2"
    done = grow(real_model(model, "dynamo"), name, of.recipe.read_text(encoding="utf-8"))
    assert done.status == 0, done.said or done.report
    assert done.report["certificate"]["exact"] == (name in PRESERVING)
