"""From a recipe to its flat list: includes, lets, parameters, numbers and places."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from growc.errors.diagnostic import GrowError
from growc.errors.source import SourceText
from growc.recipe.expression import Binary, Int, Name, evaluate, names
from growc.recipe.fills import FILLS
from growc.recipe.syntax_tree import (
    Expect,
    LayerScope,
    LayerSlice,
    RoleScope,
    SizeCondition,
    Subclone,
    Untie,
    Widen,
)
from growc.resolve.bound import Bound, Resolved
from growc.resolve.resolve import load

ROOT = Path(__file__).parents[2]


def resolved(recipe: str, files: dict[str, str] | None = None, **params: str) -> Resolved:
    """A recipe and what it includes."""

    def read(path: Path) -> str:
        return (files or {})[path.as_posix()]

    return load([SourceText("work/recipe.grow", recipe)], params, read)


def sizes(found: Resolved) -> list[object]:
    return [bound.statement.size for bound in found.statements if isinstance(bound.statement, Widen)]


def codes(recipe: str, **params: str) -> list[str]:
    with pytest.raises(GrowError) as caught:
        resolved(recipe, **params)
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


def test_a_let_of_numbers_is_a_number_wherever_it_is_used():
    found = resolved(
        "let w = 768\nlet h = w / 64\nwiden heads to h with tail copy\nwiden ffn to 4*w with tail copy"
    )
    assert sizes(found) == [Int(12), Int(3072)]
    assert found.parameters == {"w": Int(768), "h": Int(12)}


def test_a_parameter_replaces_the_default_and_what_depends_on_it():
    recipe = "let w = 768\nlet h = w / 64\nwiden heads to h with tail copy"
    assert sizes(resolved(recipe, w="1K * 64 / 1000")) == [Int(1)]
    assert sizes(resolved(recipe, h="hidden / 32")) == [Binary("/", Name("hidden"), Int(32))]


def test_a_parameter_may_use_the_lets_above_its_own():
    recipe = "let a = 2\nlet b = 3\nwiden ffn to b with tail copy"
    assert sizes(resolved(recipe, b="a * 5")) == [Int(10)]
    assert codes(recipe, a="b") == ["G201"]


def test_axes_in_a_let_mean_the_model_at_its_place():
    found = resolved(
        "let w = 2 * hidden\n"
        "widen hidden to w with tail copy\n"
        "widen ffn to 4 * w + hidden with tail copy\n"
        "expect hidden == w + hidden"
    )
    first, second, expect = found.statements
    history = {1: 768, 2: 1536, 3: 1536}

    def value(bound: Bound, expr: object) -> int:
        return evaluate(expr, lambda axis: history[axis.moment or bound.number])

    assert value(first, first.statement.size) == 1536
    assert value(second, second.statement.size) == 4 * 1536 + 1536
    assert isinstance(expect.statement, Expect)
    assert isinstance(expect.statement.condition, SizeCondition)
    assert value(expect, expect.statement.condition.value) == 1536 + 1536


def test_a_let_right_before_its_use_needs_no_history():
    found = resolved("untie head\nlet w = 2 * hidden\nwiden hidden to w with tail copy\nexpect hidden == 4")
    assert [axis.moment for axis in names(sizes(found)[0])] == [None]
    later = resolved("let w = 2 * hidden\nuntie head\nwiden hidden to w with tail copy")
    assert [axis.moment for axis in names(sizes(later)[0])] == [1]


def test_lets_and_expectations_and_includes_have_no_number():
    recipe = (
        "let a = 3\nuntie head\nexpect exact\n"
        'include "b.grow"\nwiden ffn to a with tail copy\nexpect ffn == a'
    )
    found = resolved(recipe, {"work/b.grow": "let c = 1\nwiden heads to c with tail copy"})
    assert [(bound.number, type(bound.statement)) for bound in found.statements] == [
        (1, Untie),
        (4, Expect),
        (2, Widen),
        (3, Widen),
        (4, Expect),
    ]


def test_an_included_recipe_stands_in_the_place_of_its_include():
    files = {
        "work/parts/width.grow": 'let w = 8\ninclude "../ffn.grow"\nwiden hidden to w with tail copy',
        "work/ffn.grow": "widen ffn to 4 * w with tail copy",
    }
    found = resolved('in encoder { include "parts/width.grow" }', files)
    assert sizes(found) == [Int(32), Int(8)]
    assert {bound.scopes for bound in found.statements} == {(RoleScope("encoder"),)}
    assert [source.name for source in found.included] == ["work/parts/width.grow", "work/ffn.grow"]


def test_a_recipe_may_be_included_twice():
    found = resolved(
        'include "b.grow"\ninclude "b.grow"', {"work/b.grow": "widen ffn to 2 * ffn with tail copy"}
    )
    assert [bound.number for bound in found.statements] == [1, 2]


def test_scopes_nest_and_lets_end_with_their_block():
    found = resolved("let n = 6\nin encoder { in layers 0..n { untie head } }\nuntie head")
    assert [bound.scopes for bound in found.statements] == [
        (RoleScope("encoder"), LayerScope(LayerSlice(Int(0), Int(6)))),
        (),
    ]
    assert codes("in encoder { let n = 6 }\nwiden ffn to n with tail copy") == ["G201"]


def test_a_broken_let_does_not_blame_its_uses():
    assert codes("let a = 10 / 3\nlet b = a + 1\nwiden ffn to a * b with tail copy seed a") == ["G212"]
    assert codes("let a = \nwiden ffn to a with tail copy") == ["G104"]
    assert codes("let a = 1\nwiden ffn to a with tail copy", a="3 +") == ["G104"]


def test_expressions_cannot_grow_without_end():
    doubled = "".join(f"let a{i + 1} = a{i} + a{i}\n" for i in range(80))
    assert codes(f"let a0 = hidden\n{doubled}") == ["G107"]
    assert codes(f"let a0 = 2\n{doubled.replace('+', '*')}") == ["G206"]


def test_a_range_is_judged_where_it_is_empty_for_every_model():
    resolved("drop layers -2..\ndrop layers 4..-1\ndrop layers 0..layers\narrange layers as 3, 0..2")
    assert codes("drop layers -1..-2") == ["G206"]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(
    ("option", "needs"),
    [
        ("split equal", "shares"),
        ("split random", "shares"),
        ("noise 0.1", "nothing"),
        ("noise 0.1 on copies", "shares"),
        ("noise 0.1 balanced", "shares"),
        ("with zero outputs", "nothing"),
        ("in blocks of 2", "nothing"),
        ("plain", "copies"),
        ("from next layer", "copies"),
        ("seed 3", "nothing"),
    ],
)
def test_options_are_refused_exactly_where_they_find_nothing_to_act_on(fill, option, needs):
    shares = fill not in ("zero fill", "random fill", "rescaled copy")
    sensible = {"nothing": True, "shares": shares, "copies": fill.endswith("copy")}[needs]
    recipe = f"widen ffn to 8 with {fill} {option}"
    if sensible:
        assert sizes(resolved(recipe)) == [Int(8)]
    else:
        assert codes(recipe) == ["G204"]


def test_zero_outputs_leave_no_share_to_the_copies():
    assert codes("widen ffn to 8 with tail copy split random with zero outputs") == ["G204"]
    resolved("widen ffn to 8 with tail copy split equal with zero outputs noise 0.1")


def test_importance_must_be_measured_first():
    measured = 'measure importance on "x.npz"\nsubclone ffn to 8 by importance'
    assert isinstance(resolved(measured).statements[1].statement, Subclone)
    assert codes('match "x.onnx" with tail copy smaller by importance') == ["G214"]
    assert codes("subclone layers to 2 by importance") == ["G214"]


def test_a_match_in_a_scope_of_layers_is_refused_each_time():
    matched = 'match "x.onnx" with tail copy'
    recipe = f"in layers 0 {{ untie head\n{matched}\n{matched} }}"
    with pytest.raises(GrowError) as caught:
        load([SourceText("a.grow", recipe)], {})
    assert [diagnostic.span.column for diagnostic in caught.value.diagnostics] == [1, 1]
    assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {"G209"}


def test_this_version_does_what_it_says():
    recipe = "let w = 8\nuntie head\nexpect exact\n" + "".join(
        f"widen ffn to w with {fill} noise 0.1 seed 2 in blocks of 2 with zero outputs\n" for fill in FILLS
    )
    assert len(load([SourceText("a.grow", recipe)], {}).statements) == 2 + len(FILLS)


def test_every_heading_of_the_error_pages_is_one_code_in_order():
    from growc.errors.codes import CODES

    headings = re.findall(r"^## (\w+)", (ROOT / "growc/errors/pages.md").read_text(encoding="utf-8"), re.M)
    assert headings == sorted(set(headings)) == list(CODES)
    assert all(code.explanation for code in CODES.values())
