"""The config of a plan is found from shapes and the operator log; the true one is hidden from the solver."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import tiny_configs
import torch
from torch import nn
from truths import target_of, true_config

from growc.dialects.torch.capture.example_inputs import example_inputs
from growc.dialects.transformers.classes import build
from growc.dialects.transformers.config.near_misses import Unsolved
from growc.dialects.transformers.config.search import FittedConfig, solve
from growc.dialects.transformers.config.shapes import read_by, shapes_of
from growc.dialects.transformers.config.trials import ConfigTrials, Target
from growc.dialects.transformers.log.record import operator_log


@cache
def inputs_of(name: str) -> Any:
    return example_inputs(build(getattr(tiny_configs, name)))


def solved(name: str, request: str) -> tuple[FittedConfig | Unsolved, Target]:
    """The solver's result for a request, of which it sees the shapes and the log of the result alone."""
    config = getattr(tiny_configs, name)
    true = true_config(config, request)
    assert true is not None
    target = target_of(true, inputs_of(name))
    return solve(config, target, build), target


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("name", "request_name"),
    [
        ("GPT2", "ffn"),
        ("GPT2", "half"),
        ("LLAMA", "double"),
        ("LLAMA", "kv_heads"),
        ("PHI3", "double"),
        ("GEMMA2", "layers"),
        ("T5", "layers"),
        ("VIT", "double"),
        ("CLIP", "ffn"),
    ],
)
def test_a_config_with_the_shapes_and_the_log_is_found(name, request_name):
    found, target = solved(name, request_name)
    assert isinstance(found, FittedConfig), found
    module = build(found.config, constants=True)
    assert target.shapes.items() <= shapes_of(module).items()
    assert operator_log(module, inputs_of(name)) == target.log


def test_only_fields_that_bear_the_request_change():
    found, _ = solved("LLAMA", "double")
    assert isinstance(found, FittedConfig)
    assert found.fields == {
        "hidden_size": (32, 64),
        "intermediate_size": (48, 96),
        "num_attention_heads": (4, 8),
        "num_key_value_heads": (2, 4),
    }
    assert found.config == tiny_configs.LLAMA | {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    }


def test_a_list_of_numbers_of_layers_is_as_the_class_fills_it():
    config = {
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "num_hidden_layers": 2,
        "intermediate_size": 8,
        "intermediate_size_mlp": 12,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "moe_layers": [0, 1],
        "layer_types": ["chunked_attention", "chunked_attention"],
        "no_rope_layers": [1, 1],
        "vocab_size": 32,
        "pad_token_id": 0,
    }
    more = {"num_hidden_layers": 3, "layer_types": ["chunked_attention"] * 3, "no_rope_layers": [1] * 3}
    target = target_of(config | more | {"moe_layers": [0, 1, 2]}, example_inputs(build(config)))
    layered = replace(target, layers={"model.layers": (0, 1, 1)})
    found = solve(config, layered, build)
    assert isinstance(found, FittedConfig), found
    assert found.config["moe_layers"] == [0, 1, 2]


def test_a_size_that_two_choices_give_is_found_without_a_field_in_between():
    config = tiny_configs.LLAMA | {"head_dim": 8}
    target = target_of(config | {"num_attention_heads": 8, "num_key_value_heads": 4}, inputs_of("LLAMA"))
    logged: list[bool] = []

    def built(values, *, constants=False):
        logged.append(constants)
        return build(values, constants=constants)

    found = solve(config, target, built)
    assert isinstance(found, FittedConfig), found
    assert found.fields == {"num_attention_heads": (4, 8), "num_key_value_heads": (2, 4)}
    assert sum(logged) < 6  # twice as deep heads are the other choice: its log and that of the answer suffice


XLNET = {
    "architectures": ["XLNetLMHeadModel"],
    "model_type": "xlnet",
    "d_model": 32,
    "n_head": 4,
    "d_head": 8,  # the class refuses another number than d_model / n_head
    "n_layer": 1,
    "d_inner": 48,
    "vocab_size": 32,
}
MAMBA2 = {
    "architectures": ["Mamba2ForCausalLM"],
    "model_type": "mamba2",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "state_size": 4,
    "expand": 2,
    "head_dim": 8,  # the class refuses what does not make heads × width = expand × hidden
    "num_heads": 4,
    "n_groups": 1,
    "chunk_size": 4,
    "vocab_size": 24,
}
SQUEEZEBERT = {
    "architectures": ["SqueezeBertForMaskedLM"],
    "model_type": "squeezebert",
    "hidden_size": 32,
    "embedding_size": 32,  # the class refuses another number than hidden_size
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "intermediate_size": 48,
    "vocab_size": 40,
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (XLNET, {"d_model": 64, "d_head": 16}),
        (XLNET, {"d_model": 64, "n_head": 8}),
        (SQUEEZEBERT, {"hidden_size": 64, "embedding_size": 64}),
        (MAMBA2, {"expand": 3, "head_dim": 12}),
        (MAMBA2, {"expand": 3, "num_heads": 6}),
        (MAMBA2, {"hidden_size": 32, "num_heads": 8}),
    ],
)
def test_numbers_that_a_class_only_takes_together_change_together(config, wanted):
    whole = target_of(config | wanted, example_inputs(build(config)))
    shapes = read_by(whole.log.reads, whole.shapes, whole.ties)
    found = solve(config, replace(whole, shapes=shapes), build)
    assert isinstance(found, FittedConfig), found
    assert found.config == config | wanted


def test_an_entry_behind_the_end_of_a_list_is_no_config():
    config = tiny_configs.GEMMA2
    trials = ConfigTrials(config, target_of(config, inputs_of("GEMMA2")), build)
    tried = trials.of({("layer_types",): ["full_attention"], ("layer_types", 1): "sliding_attention"})
    assert tried.failed
    assert trials.filled(tried.values, [("architectures",)]) == {}
    below = {("layer_types",): 3, ("layer_types", 1): "sliding_attention"}
    assert trials.of(below).failed
    assert trials.filled(below, [("architectures",)]) == {}


def test_no_layers_do_not_become_lists():
    """A number that is zero beside an empty list counts none of its entries."""
    config = tiny_configs.GEMMA2 | {"pruned": 0, "pruned_heads": []}
    trials = ConfigTrials(config, target_of(config, inputs_of("GEMMA2")), build)
    assert ("pruned_heads",) not in trials.lists({("pruned",): 1})


def test_a_number_that_no_layers_have_makes_no_list():
    """A proposal may be any number: a list of so many entries would fill the memory."""
    config = tiny_configs.GEMMA2
    trials = ConfigTrials(config, target_of(config, inputs_of("GEMMA2")), build)
    layers = len(config["layer_types"])
    assert trials.lists({("num_hidden_layers",): layers})
    assert trials.lists({("num_hidden_layers",): 3 * layers})  # proposals try it to see its effect
    assert trials.lists({("num_hidden_layers",): 10**12}) == {}


def test_entries_by_the_numbers_of_layers_follow_the_lineage():
    """Of some layers, as Gemma 4 says which of them have a size of their own."""
    config = tiny_configs.GEMMA2 | {"of_layers": {"1": {"head_dim": 32}}, "of_others": {"1": 2, "x": 3}}
    target = target_of(tiny_configs.GEMMA2, inputs_of("GEMMA2"))
    assert len(config["layer_types"]) == 2
    found = ConfigTrials(config, target, build).lists({("num_hidden_layers",): 3})
    assert found["of_layers",] == {"1": {"head_dim": 32}, "2": {"head_dim": 32}}
    assert ("of_others",) not in found


def test_lists_with_an_entry_for_each_layer_follow_the_lineage():
    config = tiny_configs.GEMMA2
    true = config | {
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    }
    target = target_of(true, inputs_of("GEMMA2"))
    lineage = {"model.layers": (0, 1, 1)}
    found = solve(config, Target(target.shapes, target.ties, target.log, target.inputs, lineage), build)
    assert isinstance(found, FittedConfig)
    assert found.config["layer_types"] == true["layer_types"]


def test_sizes_that_no_config_gives_are_named():
    target = target_of(tiny_configs.GPT2, inputs_of("GPT2"))
    shapes = dict(target.shapes) | {"transformer.h.0.mlp.c_fc.weight": (32, 100)}
    found = solve(tiny_configs.GPT2, Target(shapes, target.ties, target.log, target.inputs), build)
    assert isinstance(found, Unsolved)
    assert ("transformer.h.0.mlp.c_fc.weight", 1, 100, 128) in found.sizes


@pytest.mark.soak
def test_a_pooler_is_what_is_left_of_a_wider_stream():
    found, target = solved("BERT", "double")
    assert isinstance(found, FittedConfig)
    shapes = dict(target.shapes) | {"bert.pooler.dense.weight": (32, 64), "bert.pooler.dense.bias": (32,)}
    left = solve(tiny_configs.BERT, Target(shapes, target.ties, target.log, target.inputs), build)
    assert isinstance(left, Unsolved)
    assert left.follows
    pooler = ("bert.pooler.dense.bias", 0), ("bert.pooler.dense.weight", 0)
    assert left.sizes == tuple((*place, 32, 64) for place in pooler)
    assert left.leads.keys() == set(pooler)
    assert ("bert.embeddings.word_embeddings.weight", 1) in left.leads[pooler[0]]
    assert ("bert.encoder.layer.0.intermediate.dense.weight", 0) not in left.leads[pooler[0]]


class Stream(nn.Module):
    """A stream with heads, and a branch whose inner width only its config ties to the stream.

    `inner` says it otherwise. A stream that is not as wide as the branch is projected.
    """

    def __init__(self, hidden: int, heads: int, end: int, depth: int, inner: int = 0):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(hidden // heads)
        self.query, self.other = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, end) if hidden != end else nn.Identity()
        sizes = [end, *[inner or end] * depth, end]
        self.branch = nn.Sequential(*map(nn.Linear, sizes[:-1], sizes[1:]))

    def forward(self, x):
        x = x + self.norm(self.query(x).unflatten(-1, (self.heads, -1))).flatten(-2)
        x = self.last(x + self.other(x))
        return x + self.branch(x)


@pytest.mark.parametrize("depth", [1, 2])
def test_of_configs_that_leave_axes_to_follow_the_one_that_leaves_the_fewest_is_taken(depth):
    with torch.device("meta"):
        planned = Stream(16, 4, 16, depth, inner=8)
    given = {"x": torch.zeros(2, 16)}
    target = Target(shapes_of(planned), frozenset(), operator_log(planned, given), given)

    def built(config, *, constants=False):
        with torch.device("meta"):
            return Stream(**config)

    found = solve({"hidden": 8, "heads": 2, "end": 8, "depth": depth}, target, built)
    assert isinstance(found, Unsolved)
    assert found.follows
    assert found.config == {"hidden": 16, "heads": 4, "end": 16, "depth": depth}
    assert {size[2:] for size in found.sizes} == {(8, 16)}
    assert {name.split(".")[0] for name, *_ in found.sizes} == {"branch"}


class Apart(nn.Module):
    """Layers beside each other, each as wide as an entry of its own says, and one that an entry shares."""

    def __init__(self, widths: list[int], other: int = 0):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, width) for width in widths)
        self.last = nn.Linear(4, other or widths[0])

    def forward(self, x):
        return [layer(x) for layer in (*self.layers, self.last)]


def test_fields_are_not_changed_again_where_all_that_follows_them_is_right():
    with torch.device("meta"):
        planned = Apart([2 * width for width in range(8, 28)], other=8)
    given = {"x": torch.zeros(2, 4)}
    target = Target(shapes_of(planned), frozenset(), operator_log(planned, given), given)
    configs: list[dict[str, object]] = []

    def built(config, *, constants=False):
        configs.append(config)
        with torch.device("meta"):
            return Apart(**config)

    found = solve({"widths": list(range(8, 28))}, target, built)
    assert isinstance(found, Unsolved)
    assert [size[2:] for size in found.sizes] == [(8, 16), (8, 16)]
    assert len(configs) < 300  # 534 where each field is changed at every stage


class Gated(nn.Module):
    """Heads that share one key, and a gate of which only the config says that it has one for each of them."""

    def __init__(self, hidden: int, heads: int, depth: int, gates: int = 0):
        super().__init__()
        self.depth, self.query, self.key = depth, nn.Linear(hidden, heads * depth), nn.Linear(hidden, depth)
        self.gate = nn.Parameter(torch.ones(gates or heads, 1))

    def forward(self, x):
        queries, key = self.query(x).unflatten(-1, (-1, self.depth)), self.key(x)
        return (queries * key[:, None]).sum(-1), self.gate * x[0]


def test_the_configs_that_come_next_are_named():
    with torch.device("meta"):
        planned = Gated(8, 4, 4, gates=2)
    given = {"x": torch.zeros(2, 8)}
    target = Target(shapes_of(planned), frozenset(), operator_log(planned, given), given)

    def built(config, *, constants=False):
        with torch.device("meta"):
            return Gated(**config)

    found = solve({"hidden": 8, "heads": 2, "depth": 4}, target, built)
    assert isinstance(found, Unsolved)
    left = {tuple(way.fields): {name for name, *_ in way.sizes} for way in (found, *found.others)}
    assert left == {("heads",): {"gate"}, ("depth",): {"key.bias", "key.weight"}}


class Pooled(nn.Module):
    """A convolution whose config also is the window in which its results are averaged (EfficientNet)."""

    def __init__(self, width: int, window: int = 0):
        super().__init__()
        self.convolution, self.window = nn.Conv2d(3, width, 3), window or width

    def forward(self, x):
        made = self.convolution(x)
        return torch.nn.functional.avg_pool2d(made, self.window, ceil_mode=True)


@pytest.mark.parametrize(("size", "fixed"), [(6, True), (6, False), (16, True)])
def test_windows_that_cover_a_picture_are_the_same(size, fixed):
    given = {"x": torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))}
    planned, wide = Pooled(16, window=8), Pooled(16)
    wide.load_state_dict(planned.state_dict())
    alike = wide(**given).shape == planned(**given).shape and wide(**given).allclose(planned(**given))
    assert alike == (size == 6)
    planned.to("meta")
    log = operator_log(planned, given, fixed)
    target = Target(shapes_of(planned), frozenset(), log, given, fixed=fixed)

    def built(config, *, constants=False):
        with torch.device("meta"):
            return Pooled(**config)

    assert isinstance(solve({"width": 8}, target, built), FittedConfig) == (alike and fixed)


def test_a_field_that_the_class_does_not_know_is_filled_by_nobody():
    config = tiny_configs.GEMMA2 | {"marks": ["a", "b"]}
    trials = ConfigTrials(config, target_of(config, inputs_of("GEMMA2")), build)
    assert trials.filled({("rms_norm_eps",): 1e-3}, [("marks",)]) == {}
