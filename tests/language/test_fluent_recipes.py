"""Recipes built in Python say what the same recipes say as text."""

from __future__ import annotations

import pytest
from graphs import STREAM, save

import growc
from growc import api
from growc.errors.diagnostic import GrowError
from growc.errors.source import SourceText
from growc.grammar import parse
from growc.recipe.option_rules import GROWING
from growc.recipe.syntax_tree import Statement
from growc.resolve import builder as fluent

R = growc.Recipe

EVERY_STATEMENT = [
    (R().language("1.1"), "language 1.1"),
    (
        R().nest(["hidden", "ffn"], by="importance", at=["1/2", "3 / 4"]),
        "nest hidden, ffn by importance at 1/2, 3/4",
    ),
    (
        R().widen("ffn", to=8, fill="tail copy", reset=0.5, std=0.02),
        "widen ffn to 8 with tail copy reset 0.5 std 0.02",
    ),
    (
        R().stack(to=8, by="last", fill="random fill std 0.02 seed 3"),
        "stack layers to 8 by last with random fill std 0.02 seed 3",
    ),
    (
        R().stack_from("one.onnx", to=12, fill="random fill std 0.02", zero_outputs=True),
        'stack layers to 12 from "one.onnx" with random fill std 0.02 with zero outputs',
    ),
    (R().nest("ffn", by="random", seed=3), "nest ffn by random seed 3"),
    (R().let("width", "2 * hidden"), "let width = 2 * hidden"),
    (R().widen("hidden", to=1024, fill="neighbor copy"), "widen hidden to 1024 with neighbor copy"),
    (
        R().widen("ffn", to="2*ffn", fill="tail copy", split="random", noise_balanced=0.02, seed=3),
        "widen ffn to 2 * ffn with tail copy split random noise 0.02 balanced seed 3",
    ),
    (
        R().widen("heads", to=8, fill="tail copy", noise=1e-5, from_next_layer=True, plain=True),
        "widen heads to 8 with tail copy noise 1e-5 from next layer plain",
    ),
    (
        R().widen("hidden", to=8, fill="zero fill", zero_outputs=True, in_blocks_of="head_dim"),
        "widen hidden to 8 with zero fill with zero outputs in blocks of head_dim",
    ),
    (
        R().widen("ffn", to=8, fill="tail copy", noise_on_copies=1, plain=False),
        "widen ffn to 8 with tail copy noise 1 on copies",
    ),
    (
        R().widen("experts", to="2 * experts", fill="cyclic copy", top=4, noise="0.01"),
        "widen experts to 2 * experts with cyclic copy top 4 noise 0.01",
    ),
    (R().merge_experts(to="experts / 2"), "merge experts to experts / 2 by mean"),
    (R().merge_layers(range(2, 4)), "merge layers 2..4 by mean"),
    (R().merge_layers(-1), "merge layers -1 by mean"),
    (
        R().widen('axis 0 of "a  b.*"', to=4, fill="zero fill"),
        'widen axis 0 of "a  b.*" to 4 with zero fill',
    ),
    (
        R().subclone("hidden", to="hidden/2", by="importance", rescaling="rescaled in norms"),
        "subclone hidden to hidden / 2 by importance rescaled in norms",
    ),
    (R().subclone("ffn", to=4, by="random", seed=7), "subclone ffn to 4 by random seed 7"),
    (R().subclone("vocab", to=4, by="keep", file="t.txt"), 'subclone vocab to 4 by keep "t.txt"'),
    (R().subclone("layers", to=6, by="middle"), "subclone layers to 6 by middle"),
    (R().subclone("layers", to=6, by="scores", file="s.npz"), 'subclone layers to 6 by scores "s.npz"'),
    (
        R().subclone("ffn", to=6, by="importance using l2 before activation"),
        "subclone ffn to 6 by importance using l2 before activation",
    ),
    (R().reorder("ffn", by="scores", file="s.npz"), 'reorder ffn by scores "s.npz"'),
    (
        R().subclone_to(
            "parameters <= parameters / 2",
            over=["hidden", "layers"],
            by="importance",
            rescaling="unscaled",
            multiples=8,
            candidates=4,
        ),
        "subclone to parameters <= parameters / 2 over hidden, layers by importance unscaled "
        "multiples of 8 candidates 4",
    ),
    (
        R().subclone_to("memory <= 4B", at=(1, 4096), over=["ffn", "layers"], by="first", layers="even"),
        "subclone to memory <= 4B at batch 1 length 4096 over ffn, layers by first layers by even",
    ),
    (
        R().widen_to("flops >= 2 * flops", over=["ffn"], fill="zero fill", multiples=8, seed=3),
        "widen to flops >= 2 * flops over ffn in proportion with zero fill seed 3 multiples of 8",
    ),
    (
        R().widen_to(
            "parameters >= 1M",
            over=["ffn", "layers"],
            fill="zero fill",
            layers="last",
            layers_zero_outputs=True,
        ),
        "widen to parameters >= 1M over ffn, layers in proportion with zero fill "
        "layers by last with zero outputs",
    ),
    (R().subclone_total("ffn", total="2 * ffn", by="first"), "subclone ffn to total 2 * ffn by first"),
    (R().reorder("ffn", by="random", seed=2), "reorder ffn by random seed 2"),
    (R().stack(to=24, by="top 3", zero_outputs=True), "stack layers to 24 by top 3 with zero outputs"),
    (
        R().arrange([range(8), "4..", -1], zero_outputs=True),
        "arrange layers as 0..8, 4.., -1 with zero outputs",
    ),
    (
        R().stack(to=24, by="last", fill="random fill seed 3", zero_outputs=True),
        "stack layers to 24 by last with random fill seed 3 with zero outputs",
    ),
    (R().arrange([0, 0], fill="random fill"), "arrange layers as 0, 0 with random fill"),
    (
        R().match("a.json", fill="zero fill", layers="last", layers_fill="random fill"),
        'match "a.json" with zero fill layers by last with random fill',
    ),
    (R().arrange("0..8, 4..12"), "arrange layers as 0..8, 4..12"),
    (R().drop(range(2, 4)), "drop layers 2..4"),
    (R().measure_importance("data.npz", samples="1K"), 'measure importance on "data.npz" samples 1K'),
    (
        R().match(
            "large.json",
            fill="zero fill",
            seed=3,
            layers="top 3",
            layers_zero_outputs=True,
            smaller="magnitude",
        ),
        'match "large.json" with zero fill seed 3 layers by top 3 with zero outputs smaller by magnitude',
    ),
    (R().untie_head(), "untie head"),
    (
        R().upcycle(experts=8, top=2, fill="cyclic copy", noise=0.1, seed=3),
        "upcycle ffn to experts 8 top 2 with cyclic copy noise 0.1 seed 3",
    ),
    (
        R().upcycle(experts=8, top=4, fill="tail copy", reset=0.5, parts=2, seed=3),
        "upcycle ffn to experts 8 top 4 with tail copy reset 0.5 in 2 parts seed 3",
    ),
    (R().upcycle(experts="e", top=1, fill="tail copy"), "upcycle ffn to experts e top 1 with tail copy"),
    (R().include("width.grow"), 'include "width.grow"'),
    (R().expect("preserved within 1e-5"), "expect preserved within 1e-5"),
    (R().within("encoder", R().untie_head()), "in encoder {\n    untie head\n}"),
    (R().within('"a.*"', R().within("layers 2..", R())), 'in "a.*" {\n    in layers 2.. {\n    }\n}'),
]


@pytest.mark.parametrize(("built", "text"), EVERY_STATEMENT, ids=lambda part: None)
def test_a_built_statement_has_the_text_that_it_stands_for(built, text):
    assert str(built) == f"{text}\n"
    assert built.body == parse(SourceText("-e", text)).body


def test_every_statement_of_the_language_can_be_built():
    kinds = {type(item) for built, _ in EVERY_STATEMENT for item in built.body}
    assert set(Statement.__args__) <= kinds


def test_recipes_are_values_and_can_be_put_together():
    first, second = R().let("n", 8), R().widen("ffn", to="n", fill="zero fill")
    whole = first + second
    assert whole == R().let("n", 8).widen("ffn", to="n", fill="zero fill")
    assert str(first) == "let n = 8\n"


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("G103", lambda: R().widen("fnn", to=8, fill="zero fill")),
        ("G103", lambda: R().widen("ffn", to=8, fill="zero fil")),
        ("G106", lambda: R().widen("ffn", to="8x", fill="zero fill")),
        ("G104", lambda: R().widen("ffn", to="8 with zero fill", fill="zero fill")),
        ("G104", lambda: R().widen("ffn", to=8, fill="zero fill # done")),
        ("G104", lambda: R().stack(to="8 by last\nuntie head", by="last")),
        ("G105", lambda: R().within("encoder { untie head", R())),
        ("G102", lambda: R().include('a"b')),
    ],
)
def test_statements_outside_the_grammar_are_refused_at_once(code, make):
    with pytest.raises(GrowError) as caught:
        make()
    assert caught.value.diagnostics[0].code == code


def test_a_contradiction_is_refused_with_the_line_as_it_was_built():
    built = R().untie_head().widen("ffn", to=8, fill="zero fill", split="equal")
    with pytest.raises(GrowError) as caught:
        api.recipe(built)
    [problem] = caught.value.diagnostics
    assert problem.span.line == 2
    assert problem.span.source.line(2) == "widen ffn to 8 with zero fill split equal"


def test_a_built_recipe_is_taken_where_a_text_is(tmp_path):
    model = save(tmp_path / "m.onnx", STREAM)
    built = R().widen("ffn", to="2 * ffn", fill="cyclic copy").expect("exact")
    assert growc.plan(built, model).axes == growc.plan(str(built), model).axes
    made = growc.apply(built, model, tmp_path / "grown.onnx")
    assert made.verification.relative < 1e-6


def test_every_option_of_a_fill_can_be_said():
    said = set(fluent._WORDS.values())
    for rule in GROWING.values():
        parts = ("{}" if part in (rule.takes, "equal", "random") else part for part in rule.spelling.split())
        assert " ".join(parts) in said


def test_an_option_that_there_is_not_names_the_nearest():
    with pytest.raises(GrowError, match="there is no option `splt`") as refused:
        growc.Recipe().widen("ffn", to=4, fill="cyclic copy", splt=2)
    assert refused.value.diagnostics[0].help == "did you mean `split`?"
