"""Depth orders: the papers' own examples, laws that hold for all sizes, and what is refused."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import SourceText
from growc.grammar import parse
from growc.recipe import syntax_tree as rc
from growc.recipe.expression import Expr, evaluate
from growc.recipe.layer_orders import DEEPER, SHALLOWER, OrderRule, arrangement, new_layers
from growc.recipe.words import FILE


def arranged(text: str, count: int, scores: list[float] | None = None) -> list[int]:
    """The arrangement that a statement makes of `count` layers."""
    (statement,) = parse(SourceText("r.grow", text)).body
    assert isinstance(statement, rc.Stack | rc.SubcloneLayers | rc.Arrange | rc.Drop)

    def value(expr: Expr) -> int:
        return evaluate(expr, lambda axis: {"layers": count}[axis.name])

    return arrangement(statement, count, value, scores)


def refused(text: str, count: int, scores: list[float] | None = None) -> Diagnostic:
    with pytest.raises(GrowError) as caught:
        arranged(text, count, scores)
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


PAPERS = {
    "StackBERT": ("stack layers to 6 by whole", 3, [0, 1, 2, 0, 1, 2]),
    "bert2BERT, algorithm 1": ("stack layers to 8 by whole", 3, [0, 1, 2, 0, 1, 2, 1, 2]),
    "G_stack, four times": ("stack layers to 4 * layers by whole", 2, [0, 1] * 4),
    "staged training": ("stack layers to 2 * layers by each", 3, [0, 0, 1, 1, 2, 2]),
    "NAI": ("stack layers to 6 by last", 3, [0, 1, 2, 2, 2, 2]),
    "MSLT, the top three of six": ("stack layers to 9 by top 3", 6, [0, 1, 2, 3, 4, 5, 3, 4, 5]),
    "MSLT, one after another": ("stack layers to 5 by top 2", 3, [0, 1, 2, 1, 2]),
    "ELLE": ("stack layers to 4 by each", 3, [0, 1, 2, 2]),
    "LLaMA-Pro, one for every four": (
        "arrange layers as 0..4, 3, 4..8, 7",
        8,
        [0, 1, 2, 3, 3, 4, 5, 6, 7, 7],
    ),
    "LLaMA-Pro, evenly": ("stack layers to 10 by each", 8, [0, 1, 2, 3, 3, 4, 5, 6, 7, 7]),
    "SOLAR": ("arrange layers as 0..24, 8..32", 32, [*range(24), *range(8, 32)]),
    "weight subcloning, one more": ("stack layers to 13 by middle", 12, [*range(7), *range(6, 12)]),
    "weight subcloning, fewer": ("subclone layers to 8 by middle", 12, [0, 1, 2, 3, 8, 9, 10, 11]),
    "the middle, outwards": ("stack layers to 8 by middle", 5, [0, 1, 1, 2, 2, 3, 3, 4]),
    "the middle, more than twice": ("stack layers to 7 by middle", 3, [0, 0, 1, 1, 1, 2, 2]),
    "the middle, of an odd number": ("subclone layers to 3 by middle", 6, [0, 1, 5]),
    "evenly": ("subclone layers to 4 by even", 12, [0, 4, 7, 11]),
    "evenly, one": ("subclone layers to 1 by even", 12, [0]),
    "the first": ("subclone layers to 2 by first", 5, [0, 1]),
    "the last": ("subclone layers to 2 by last", 5, [3, 4]),
    "all but some": ("drop layers 2..4", 6, [0, 1, 4, 5]),
    "all but the last": ("drop layers -1", 6, [0, 1, 2, 3, 4]),
    "from the end": ("arrange layers as -2.., 0..-4", 6, [4, 5, 0, 1]),
    "by expressions": ("arrange layers as 0..layers / 2, layers / 2..layers", 4, [0, 1, 2, 3]),
}


@pytest.mark.parametrize("name", PAPERS)
def test_layers_stand_as_the_paper_says(name):
    text, count, expected = PAPERS[name]
    assert arranged(text, count) == expected


def test_the_least_important_layers_go():
    scores = [3.0, 1.0, 2.0, 1.0, 5.0]
    assert arranged("subclone layers to 3 by importance", 5, scores) == [0, 2, 4]


def test_of_equally_important_layers_the_later_go():
    assert arranged("subclone layers to 2 by importance", 4, [1.0, 1.0, 1.0, 1.0]) == [0, 1]


def test_every_occurrence_but_the_first_is_new():
    layers = arranged("stack layers to 8 by whole", 3)
    assert new_layers(layers) == [False] * 3 + [True] * 5
    assert new_layers(arranged("stack layers to 6 by each", 3)) == [False, True] * 3
    assert new_layers(arranged("arrange layers as 2..4, 1..3", 4)) == [False, False, False, True]


counts = st.integers(1, 40)
ups = st.sampled_from(list(DEEPER.values()))
downs = st.sampled_from(list(SHALLOWER.values()))


def written(order: OrderRule, number: int = 1) -> str:
    taken = '"x.npz"' if order.takes == FILE else number
    return f"{order.name} {taken}" if order.takes else order.name


@given(counts, st.integers(0, 100), ups, st.integers(1, 40))
def test_every_layer_is_kept_and_nothing_else_comes(count, more, order, number):
    layers = arranged(f"stack layers to {count + more} by {written(order, 1 + number % count)}", count)
    assert len(layers) == count + more
    assert set(layers) == set(range(count))
    first = [layer for layer, new in zip(layers, new_layers(layers), strict=True) if not new]
    assert first == [*range(count)], "the originals stand in their old order"


@given(counts, st.integers(1, 40), downs)
def test_the_layers_that_stay_keep_their_order(count, size, order):
    size = 1 + size % count
    scores = [float(i % 3) for i in range(count)]
    layers = arranged(f"subclone layers to {size} by {written(order)}", count, scores)
    assert len(layers) == size
    assert all(a < b for a, b in pairwise(layers))
    assert set(layers) <= set(range(count))


@given(counts, st.tuples(st.just("stack"), ups) | st.tuples(st.just("subclone"), downs))
def test_todays_number_of_layers_changes_nothing(count, way):
    verb, order = way
    statement = f"{verb} layers to layers by {written(order)}"
    assert arranged(statement, count, [0.0] * count) == [*range(count)]


@given(counts, st.integers(1, 6), st.sampled_from(["each", "middle"]))
def test_a_multiple_repeats_every_layer_as_often(count, times, order):
    layers = arranged(f"stack layers to {times} * layers by {order}", count)
    assert layers == [i for i in range(count) for _ in range(times)]


@given(st.integers(2, 40), st.data())
def test_dropping_is_arranging_the_rest(count, data):
    start = data.draw(st.integers(0, count - 1))
    stop = data.draw(st.integers(start + 1, count))
    if stop - start < count:
        parts = [f"0..{start}"] * (start > 0) + [f"{stop}.."] * (stop < count)
        assert arranged(f"drop layers {start}..{stop}", count) == arranged(
            "arrange layers as " + ", ".join(parts), count
        )


WRONG = {
    "stack layers to 3 by last": ("G303", "3"),
    "subclone layers to 5 by middle": ("G303", "5"),
    "subclone layers to layers - 4 by middle": ("G302", "layers - 4"),
    "stack layers to 8 by top 5": ("G302", "5"),
    "stack layers to 8 by top layers - 4": ("G302", "layers - 4"),
    "arrange layers as 0..5": ("G302", "5"),
    "arrange layers as 0..4, 4": ("G302", "4"),
    "arrange layers as 0..2, -5": ("G302", "-5"),
    "arrange layers as 2..-2": ("G302", "2..-2"),
    "drop layers 4..": ("G302", "4"),
    "drop layers 0..": ("G302", "0.."),
    "drop layers 0..layers": ("G302", "0..layers"),
    "subclone layers to 2 by importance": ("G214", "importance"),
}


@pytest.mark.parametrize("text", WRONG)
def test_an_impossible_order_of_four_layers_is_refused_at_its_place(text):
    diagnostic = refused(text, 4)
    code, words = WRONG[text]
    assert diagnostic.code == code
    assert diagnostic.span is not None
    assert diagnostic.span.text == words
