"""Which units training tells apart: the plan's answer, and what some steps of AdamW make of the result."""

from __future__ import annotations

import json

import pytest
from training import different, made, places, train, units

import growc

COPIES = [f"{name} copy" for name in ("neighbor", "tail", "last", "uniform", "cyclic")]
SHARED = ["", "split random", "noise 0.05 balanced", "noise 0.05 on copies", "noise 0.05", "from next layer"]
OTHERS = ["average fill", "average fill noise 0.05", "zero fill", "random fill", "random fill noise 0.1"]
UNREAD = [*COPIES, "uniform copy noise 0.05", "tail copy from next layer", "average fill", "zero fill"]
UNREAD = [f"{fill} with zero outputs" for fill in [*UNREAD, "random fill"]]

LAYERS = [*([f"{fill} {option}" for fill in COPIES] for option in SHARED), OTHERS, UNREAD]
"""Fills that one model takes together, each in a layer of its own."""


def judge(result, inputs, spaces):
    """Of every space of each axis the plan says how many units training tells apart, and which never move."""
    wanted = {}
    train(result, inputs, 1)
    dead = {
        place: int((units(result, space, gradients=True).abs().amax(1) == 0).sum())
        for place, space in spaces.items()
    }
    train(result, inputs, 3)
    for place, space in spaces.items():
        rows = units(result, space)
        count = different(rows) + max(dead[place] - 1, 0)
        if count < len(rows) or dead[place]:
            wanted[place] = (len(rows), count, dead[place])
    said = {(a.axis, a.layer): (a.units, a.different, a.dead) for a in result.plan.alike}
    assert said == wanted
    assert bool(result.plan.warnings) == bool(wanted)
    return said


def of_layers(model, *axes, depth=2):
    """The spaces of axes that lie in layers, by axis and layer."""
    found = {axis: places(model, axis, depth) for axis in axes}
    return {(axis, k): space for axis, own in found.items() for k, space in enumerate(own)}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("fills", LAYERS, ids=lambda fills: fills[0].replace(" ", "-"))
def test_units_of_layers(fills):
    module, inputs = made("layer", len(fills))
    lines = [
        f"in layers {k} {{ widen {axis} to {size} with {fill} seed {k} }}"
        for k, fill in enumerate(fills)
        for axis, size in (("ffn", 15), ("heads", 11))
    ]
    result = growc.apply(module, "\n".join(lines), inputs, check=False)
    judge(result, inputs, of_layers("layer", "ffn", "heads", depth=len(fills)))


HIDDEN = ["cyclic copy", "uniform copy", "uniform copy split random", "cyclic copy noise 0.05 balanced"]
HIDDEN += ["tail copy noise 0.05", "uniform copy from next layer", "average fill", "zero fill", "random fill"]
STREAMS = [(m, f) for m in ("layer", "tied", "rms", "grouped") for f in HIDDEN]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("model", "fill"),
    [pytest.param(*s, marks=[] if i % 5 == 1 else pytest.mark.soak) for i, s in enumerate(STREAMS)],
)
def test_units_of_the_stream(model, fill):
    module, inputs = made(model)
    result = growc.apply(module, f"widen hidden to 20 with {fill}", inputs, check=False)
    judge(result, inputs, {("hidden", None): places(model, "hidden")[0]})


GROUPED = {
    "kv-heads": (1, "widen kv_heads to 4 with last copy\nwiden heads to 4 with tail copy"),
    "kv-heads-alike": (2, "widen kv_heads to 5 with last copy\nwiden heads to 10 with tail copy"),
    "kv-heads-shared-out": (
        2,
        "widen kv_heads to 5 with last copy split random\nwiden heads to 10 with tail copy",
    ),
    "heads": (5, "widen heads to 10 with tail copy"),
    "heads-by-means": (5, "widen heads to 10 with average fill"),
    "unread": (5, "widen heads to 10 with last copy with zero outputs"),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", GROUPED)
def test_units_of_groups(name):
    group, recipe = GROUPED[name]
    module, inputs = made("grouped")
    result = growc.apply(module, recipe, inputs, check=False)
    axis = "kv_heads" if "kv_heads" in recipe else "heads"
    spaces = {
        (axis, k): [
            *(own if axis == "kv_heads" else []),
            *((n, a, 4 * group if axis == "kv_heads" else s) for n, a, s in places("grouped", "heads")[k]),
        ]
        for k, own in enumerate(places("grouped", "kv_heads"))
    }
    judge(result, inputs, spaces)


TOGETHER = {
    "twice": "widen ffn to 9 with tail copy split random\nwiden ffn to 12 with tail copy",
    "twice-apart": "widen ffn to 9 with tail copy\nwiden ffn to 12 with tail copy split random",
    "means-of-means": "widen ffn to 8 with average fill\nwiden ffn to 10 with average fill",
    "noise-behind": "widen ffn to 9 with tail copy\nwiden hidden to 16 with cyclic copy noise 0.1 balanced",
    "noise-in-front": "widen hidden to 16 with cyclic copy noise 0.1 balanced\nwiden ffn to 9 with tail copy",
    "drawn-behind": "widen ffn to 9 with tail copy\nwiden hidden to 12 with zero fill",
    "deeper": "stack layers to 3 by last with zero outputs\nwiden ffn to 9 with tail copy split random",
    "behind": "widen ffn to 9 with tail copy split random\nstack layers to 3 by each with zero outputs",
    "deeper-dead": "stack layers to 3 by last with zero outputs\nwiden ffn to 9 with zero fill",
    "chosen": "widen ffn to 12 with cyclic copy\nsubclone ffn to 7 by first",
    "sorted": "widen ffn to 12 with cyclic copy\nreorder ffn by magnitude",
    "dead-and-copied": "widen ffn to 8 with zero fill with zero outputs\nwiden ffn to 16 with cyclic copy",
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", TOGETHER)
def test_units_of_several_statements(name):
    module, inputs = made("layer")
    result = growc.apply(module, TOGETHER[name], inputs, check=False)
    depth = 3 if "stack" in TOGETHER[name] else 2
    spaces = of_layers("layer", "ffn", depth=depth) | {("hidden", None): places("layer", "hidden", depth)[0]}
    judge(result, inputs, spaces)


@pytest.mark.parametrize("fill", ["uniform copy", "cyclic copy split random", "average fill", "zero fill"])
def test_units_of_channels(fill):
    module, inputs = made("images")
    result = growc.apply(module, f"widen channels to 20 with {fill}", inputs, check=False)
    found = places("images", "channels")
    train(result, inputs, 3)
    wanted = sorted(count for space in found if (count := different(units(result, space))) < 20)
    assert sorted(a.different for a in result.plan.alike) == wanted


@pytest.mark.parametrize(("model", "dead"), [("gelu", 4), ("sigmoid", 0)])
def test_zero_behind_zero_learns_where_the_nonlinearity_does_not_keep_zero(model, dead):
    module, inputs = made(model)
    recipe = 'widen axis 0 of "up.weight" to 10 with zero fill with zero outputs'
    result = growc.apply(module, recipe, inputs, check=False)
    name = 'axis 0 of "up.weight"'
    said = judge(result, inputs, {(name, None): places(model, "ffn")[0]})
    assert said == {(name, None): (10, 10 if dead else 7, dead)}


def with_option(option):
    return lambda recipe, said: f"{recipe} {option}"


REMEDIES = {
    "of the first": (
        "widen ffn to 9 with tail copy\nwiden ffn to 12 with random fill with zero outputs",
        "split random",
        lambda recipe, said: recipe.replace("tail copy", f"tail copy {said}"),
    ),
    "shares": ("widen ffn to 15 with uniform copy", "split random", with_option("split random")),
    "noise": ("widen heads to 9 with tail copy", "noise 0.01 balanced", with_option("noise 0.01 balanced")),
    "stream": ("widen hidden to 16 with cyclic copy", "split random", with_option("split random")),
    "next layer": (
        "widen ffn to 15 with last copy from next layer",
        "split random",
        with_option("split random"),
    ),
    "means": ("widen ffn to 11 with average fill", "in front", lambda recipe, said: f"{said}\n{recipe}"),
    "heads by means": (
        "widen heads to 7 with average fill",
        "in front",
        lambda recipe, said: f"{said}\n{recipe}",
    ),
    "unread": (
        "widen ffn to 15 with last copy with zero outputs",
        "random fill",
        lambda recipe, said: recipe.replace("last copy", said),
    ),
    "new layers": (
        "stack layers to 3 by last with zero outputs\nwiden heads to 6 with tail copy split random",
        "random fill with zero outputs",
        lambda recipe, said: recipe.replace("tail copy split random", said),
    ),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", REMEDIES)
def test_the_remedy_tells_them_apart(name):
    recipe, words, mended = REMEDIES[name]
    module, inputs = made("layer")
    [warning] = growc.plan(recipe, module, example_inputs=inputs).warnings
    assert words in warning
    said = warning.split("; `")[1].split("`")[0]
    again = mended(recipe, said)
    result = growc.apply(module, again, inputs, check=False)
    assert result.plan.certificate.exact is ("next layer" not in recipe)
    assert not result.plan.warnings
    axis = again.split("widen ")[-1].split()[0]
    depth = 3 if "stack" in recipe else 2
    spaces = (
        {("hidden", None): places("layer", "hidden")[0]}
        if axis == "hidden"
        else of_layers("layer", axis, depth=depth)
    )
    judge(result, inputs, spaces)


def test_the_remedy_of_a_match_stands_in_front_of_it(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 10, "intermediate_size": 11}))
    recipe = f'match "{tmp_path}/config.json" with average fill'
    module, inputs = made("layer")
    [warning] = growc.plan(recipe, module, example_inputs=inputs).warnings
    assert "only 7 of 11 units of `ffn` (layers 0 to 1) differ" in warning
    said = warning.split("; `")[1].split("`")[0]
    plan = growc.plan(f"{said}\n{recipe}", module, example_inputs=inputs)
    assert plan.certificate.exact
    assert not plan.warnings
