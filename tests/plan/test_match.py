"""`match` is the plain statements that lead to another model's sizes, or says what clause it lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from growc import api
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.resolve.config_fields import sizes_of_config

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "examples" / "models"
GPT, LLAMA, T5, CONV = (MODELS / f"tiny-{name}.onnx" for name in ("gpt", "llama", "t5", "conv"))


def sizes(plan) -> dict[str, tuple[int, ...]]:
    """The sizes of the result."""
    return {name: change.after for name, change in plan.axes.items()}


def written(tmp_path: Path, config: dict[str, object]) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path


def refused(recipe: str, model: Path) -> tuple[Diagnostic, ...]:
    with pytest.raises(GrowError) as caught:
        api.plan(recipe, model)
    return caught.value.diagnostics


GPT_CONFIG = {"n_embd": 128, "n_head": 8, "n_layer": 6, "n_inner": None, "vocab_size": 256}


def test_the_sizes_of_a_config_are_reached_exactly(tmp_path):
    config = written(tmp_path, GPT_CONFIG)
    recipe = f'match "{config}" with average fill layers by last with zero outputs\nexpect layers == 6'
    applied = api.apply(recipe, GPT, tmp_path / "out.onnx")
    assert applied.plan.certificate.exact
    found = sizes(api.plan("widen ffn to ffn with tail copy", tmp_path / "out.onnx"))
    assert [found[name] for name in ("hidden", "heads", "ffn", "vocab")] == [(128,), (8,), (512,), (256,)]


def test_a_match_plans_what_the_plain_statements_plan(tmp_path):
    config = written(tmp_path, GPT_CONFIG)
    clauses = "with tail copy in blocks of head_dim noise 0.01 seed 3 layers by each"
    plain = """
widen hidden to 128 with tail copy in blocks of head_dim noise 0.01 seed 3
widen heads to 8 with tail copy noise 0.01 seed 3
widen ffn to 512 with tail copy noise 0.01 seed 3
stack layers to 6 by each
"""
    one, other = api.plan(f'match "{config}" {clauses}', GPT), api.plan(plain, GPT)
    assert sizes(one) == sizes(other)
    assert [w.name for w in one.weights] == [w.name for w in other.weights]
    assert [w.after for w in one.weights] == [w.after for w in other.weights]


def test_a_model_is_matched_with_itself_by_doing_nothing():
    plan = api.plan(f'match "{T5}" with tail copy', T5)
    assert plan.certificate.exact
    assert all(w.before == w.after and not w.steps for w in plan.weights)


def test_sizes_are_those_that_earlier_statements_left(tmp_path):
    config = written(tmp_path, GPT_CONFIG)
    recipe = f'stack layers to 6 by last\nwiden ffn to 512 with tail copy\nmatch "{config}" with tail copy'
    assert sizes(api.plan(recipe, GPT))["ffn"] == (512,)


def test_parts_that_differ_are_matched_each_by_itself(tmp_path):
    grown = tmp_path / "grown.onnx"
    recipe = "in decoder { stack layers to 3 by last }\nin encoder { widen ffn to 96 with tail copy }"
    api.apply(recipe, T5, grown, check=False)
    plan = api.plan(f'match "{grown}" with tail copy layers by last', T5)
    assert sizes(plan)["ffn"] == (96, 64)
    assert [s.after for s in plan.summaries] == [(96,), (3,)]


def test_a_part_alone_is_matched_inside_its_scope(tmp_path):
    config = written(tmp_path, {"d_model": 32, "decoder_ffn_dim": 128, "encoder_ffn_dim": 64})
    plan = api.plan(f'in decoder {{ match "{config}" with tail copy }}', T5)
    assert sizes(plan)["ffn"] == (64, 128)


def test_an_axis_that_a_scope_holds_in_part_cannot_be_matched_in_it(tmp_path):
    config = written(tmp_path, {"d_model": 64})
    (diagnostic,) = refused(f'in decoder {{ match "{config}" with tail copy }}', T5)
    assert diagnostic.code == "G307"


def test_sizes_in_one_proportion_are_matched_together(tmp_path):
    wide = tmp_path / "wide.onnx"
    api.apply("widen channels to 3 * channels / 2 with tail copy", CONV, wide, check=False)
    assert sizes(api.plan(f'match "{wide}" with neighbor copy', CONV))["channels"] == (12, 18, 24)


def test_smaller_sizes_are_matched_by_their_clause(tmp_path):
    config = written(tmp_path, {"n_embd": 64, "n_head": 4, "n_layer": 3, "n_inner": None})
    recipe = f'match "{config}" with tail copy layers by middle smaller by magnitude'
    found = sizes(api.plan(recipe, GPT))
    assert [found[name] for name in ("hidden", "heads", "ffn")] == [(64,), (4,), (256,)]


@pytest.mark.parametrize(
    ("config", "code", "said"),
    [
        ({"n_embd": 64}, "G303", "`hidden` would become smaller: it is 96 here and 64 in"),
        ({"n_layer": 6}, "G303", "the numbers of layers differ: there are 4 here and 6 in"),
        ({"num_local_experts": 8}, "G302", "has a `experts` of 8, and the model has none"),
        ({"num_key_value_heads": 2}, "G302", "has a `kv_heads` of 2, and the model has none"),
        ({"model_type": "gpt2"}, "G310", "says nothing of sizes"),
        ({"intermediate_size": 512, "moe_intermediate_size": 128}, "G309", "has several sizes of `ffn`"),
    ],
)
def test_a_size_without_a_clause_or_meaning_is_an_error_at_the_file(tmp_path, config, code, said):
    path = written(tmp_path, config)
    (diagnostic,) = refused(f'match "{path}" with tail copy', GPT)
    assert diagnostic.code == code
    assert said in diagnostic.message
    assert diagnostic.span is not None
    assert diagnostic.span.text == f'"{path}"'


def test_an_order_of_the_other_direction_is_an_error_at_the_order(tmp_path):
    path = written(tmp_path, {"n_layer": 2})
    (diagnostic,) = refused(f'match "{path}" with tail copy layers by each', GPT)
    assert (diagnostic.code, diagnostic.span and diagnostic.span.text) == ("G303", "each")


def test_everything_that_is_wrong_is_said_in_one_go(tmp_path):
    path = written(tmp_path, {"n_embd": 64, "n_head": 2, "n_layer": 2})
    assert len(refused(f'match "{path}" with tail copy', GPT)) == 3


def test_groups_become_as_many_as_the_other_model_has():
    plan = api.plan(f'match "{GPT}" with neighbor copy layers by last', LLAMA)
    assert sizes(plan)["kv_heads"] == sizes(plan)["heads"] == (6,)


CONFIGS = {
    "plain": (
        {
            "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160,
            "num_hidden_layers": 3, "vocab_size": 256, "max_position_embeddings": 128,
        },
        {"hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 160, "layers": 3, "vocab": 256},
    ),
    "a head_dim of its own": (
        {"d_model": 64, "num_heads": 4, "d_kv": 8, "d_ff": 128, "num_layers": 2},
        {"hidden": 64, "heads": 4, "head_dim": 8, "ffn": 128, "layers": 2},
    ),
    "dim and hidden_dim": (
        {"dim": 64, "n_heads": 4, "n_layers": 2, "hidden_dim": 256},
        {"hidden": 64, "heads": 4, "head_dim": 16, "ffn": 256, "layers": 2},
    ),
    "one key for all": (
        {"hidden_size": 64, "num_attention_heads": 4, "multi_query": True, "num_kv_heads": 4},
        {"hidden": 64, "heads": 4, "head_dim": 16, "kv_heads": 1},
    ),
    "inside another": (
        {"model_type": "seen", "text_config": {"hidden_size": 64, "num_hidden_layers": 2}},
        {"hidden": 64, "layers": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_fields_of_a_config_mean_axes(name):
    config, expected = CONFIGS[name]
    assert sizes_of_config(config).of == {"": {role: (n,) for role, n in expected.items()}}


def test_fields_of_a_part_speak_of_that_part():
    config = {
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_ffn_dim": 128,
        "vocab_size": 90,
    }
    known = sizes_of_config(config)
    assert known.sizes("encoder", "layers") == (2,)
    assert known.sizes("decoder", "layers") == (3,)
    assert known.sizes("", "layers") == (2, 3)
    assert known.sizes("decoder", "hidden") == (64,)
    assert known.sizes("", "ffn") == (128,)


def test_configs_that_transformers_writes_speak_of_the_models_that_it_builds(tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.T5Config(d_model=48, d_kv=8, d_ff=96, num_layers=3, num_heads=6).save_pretrained(tmp_path)
    plan = api.plan(f'match "{tmp_path}" with neighbor copy layers by last smaller by first', T5)
    assert sizes(plan)["hidden"] == (48,)
    assert [s.after for s in plan.summaries if s.axis == "layers"] == [(3, 3)]
