"""How often a model is analysed: twice for any recipe on a file, three times for one on a checkpoint.

The whole analysis ends with the layers. Where layers move, the result's axes are found once more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from graphs import ROOT, one_key_head

from growc import api
from growc.dialects.onnx.shapes import sample_points
from growc.errors.diagnostic import GrowError
from growc.passes import AFTER_EDIT, analysis, run
from growc.passes.lowering.edit_model import asked_again
from growc.plans.plan_to_json import to_json

BUDGETS = ("32-budget", "33-sizes-by-layer")
EXAMPLES = sorted(ROOT.glob("examples/[0-9]*/recipe.grow"))
RECIPES = [path for path in EXAMPLES if path.parent.name not in BUDGETS]
MODELS = ROOT / "examples/models"
DEEPER = "stack layers to 2 * layers by last with zero outputs"


@pytest.fixture
def counted(monkeypatch) -> Counter[str]:
    """How often layers and axes were found."""
    counts: Counter[str] = Counter()

    def counting(name: str) -> Callable[..., object]:
        found = getattr(analysis, name)

        def call(*given: object) -> object:
            counts[name] += 1
            return found(*given)

        return call

    for name in ("find_layers", "infer_spaces"):
        monkeypatch.setattr(analysis, name, counting(name))
    return counts


@pytest.mark.parametrize("path", RECIPES, ids=[path.parent.name for path in RECIPES])
def test_a_recipe_of_a_paper_analyses_a_file_at_most_twice(path, counted, monkeypatch):
    monkeypatch.chdir(ROOT)
    [model] = re.findall(r"^#   growc apply \S+ (\S+)", path.read_text(), re.M)
    api.plan(path, model)
    text = path.read_text()
    more = 2 * text.count("stack layers to 4 from")  # the template, and the model around its layers
    assert counted["find_layers"] == 1 + more
    assert counted["infer_spaces"] <= 2 + more + text.count("upcycle ffn")


@pytest.mark.parametrize(("recipe", "most"), [(BUDGETS[0], 5), (BUDGETS[1], 2)])
def test_a_budget_analyses_a_file_for_its_search_and_for_each_choice(recipe, most, counted, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = ROOT / f"examples/{recipe}/recipe.grow"
    [model] = re.findall(r"^#   growc apply \S+ (\S+)", path.read_text(), re.M)
    api.plan(path, model)
    assert counted["find_layers"] <= most


@pytest.mark.parametrize(
    "recipe",
    [
        f"untie head\n{DEEPER}",
        "subclone kv_heads to 2 by mean",
        f"subclone kv_heads to 2 by mean\n{DEEPER}",
        f"untie head\nsubclone kv_heads to 2 by mean\n{DEEPER}\nwiden hidden to 2 * hidden with cyclic copy",
        f'untie head\nmatch "{MODELS / "tiny-gpt.onnx"}" with cyclic copy\n{DEEPER}',
    ],
)
def test_edits_of_heads_are_analysed_together(recipe, counted):
    api.plan(recipe, MODELS / "tiny-gpt-64.onnx")
    others = recipe.count("match")  # the model to match is analysed too
    assert counted["find_layers"] <= 2 + others
    assert counted["infer_spaces"] <= 3 + others


def test_a_shared_head_that_nothing_counts_is_found_within_one_analysis(tmp_path, counted):
    model = one_key_head(tmp_path / "m.onnx", "unsqueezed in front of positions")
    api.plan("widen kv_heads to 3 with neighbor copy", model)
    assert counted["find_layers"] == 1
    assert counted["infer_spaces"] <= 2


def bert(path: Path) -> Path:
    import transformers

    sizes = {"vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(**sizes, intermediate_size=40, max_position_embeddings=32)
    transformers.BertForSequenceClassification(config).save_pretrained(path)
    return path


@pytest.mark.parametrize(
    "recipe",
    [
        "widen ffn to 2 * ffn with zero fill",
        "widen hidden to 2 * hidden with cyclic copy",
        "subclone hidden to hidden / 2 by magnitude",
        f"widen hidden to 2 * hidden with cyclic copy\n{DEEPER}",
    ],
)
def test_a_checkpoint_is_analysed_at_most_three_times(recipe, counted, tmp_path):
    api.plan(recipe, bert(tmp_path / "bert"))
    assert counted["find_layers"] <= 3


def test_a_plan_that_no_config_holds_is_refused_after_as_many(counted, tmp_path):
    with pytest.raises(GrowError, match="G318"):
        api.plan("widen hidden to hidden + 1 with random fill", bert(tmp_path / "bert"))
    assert counted["find_layers"] <= 3


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ("widen ffn to 2 * ffn with zero fill", "widen hidden to 128 with cyclic copy"),
        (DEEPER, "subclone ffn to ffn / 2 by magnitude"),
        ("subclone kv_heads to 2 by mean", DEEPER),
        ("untie head", "widen vocab to vocab + 3 with average fill"),
    ],
)
def test_an_analysis_that_was_asked_before_gives_the_plan_of_a_new_one(first, more):
    model = MODELS / "tiny-gpt-64.onnx"
    asked = api.compile(api.recipe(first), model)
    both = api.compile(api.recipe(f"{first}\n{more}"), model)
    extra = api.recipe(f"{first}\n{more}").statements[len(asked.statements) :]
    again = run(AFTER_EDIT, asked_again(asked, (*asked.statements, *extra), asked.inside, asked.kept))
    assert to_json(again.plan) == to_json(both.plan)


def test_an_edited_model_is_simulated_at_the_sizes_of_the_one_before(monkeypatch):
    points: list[object] = []
    simulate = sample_points.simulate

    def noted(
        graph: object, simulator: object, inputs: dict[object, object], *others: object, **more: object
    ):
        points.append([*inputs.values()])
        return simulate(graph, simulator, inputs, *others, **more)

    monkeypatch.setattr(sample_points, "simulate", noted)
    api.plan("widen ffn to 2 * ffn with cyclic copy", MODELS / "tiny-gpt.onnx")
    tried = len(points)
    api.plan(DEEPER, MODELS / "tiny-gpt.onnx")
    assert len(points) == 2 * tried + 1
    assert points[-1] == points[tried]
