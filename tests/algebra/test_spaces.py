"""Index spaces: the structure that packed projections get, and laws of unification."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structures import atom, number, plus, show, stop, tie, times

from growc.algebra.space import Space, find, leaves, segments

# ---------------------------------------------------------------------------------------- packed projections


def test_parts_that_are_split_and_then_reshaped() -> None:
    """GPT-2: q|k|v end to end; q meets k in the scores, the heads of all three meet."""
    packed, q, k, v = atom(192), atom(64), atom(64), atom(64)
    tie(packed, plus(q, k, v))
    heads, channels = zip(*((atom(4), atom(16)) for _ in range(3)), strict=True)
    for part, h, d in zip((q, k, v), heads, channels, strict=True):
        tie(part, times(h, d))
    tie(*heads)
    tie(channels[0], channels[1])
    assert show(packed) == "[(4a 16b) + (4a 16b) + (4a 16c)]"


def test_parts_that_are_a_leading_factor_are_tied() -> None:
    """[3, heads, channels], then an element of the first axis for each of q, k and v."""
    packed, three = atom(192), atom(3)
    tie(packed, times(three, atom(4), atom(16)))
    tie(three, plus(atom(1), atom(2)))
    tie(three, plus(atom(1), atom(1), atom(1)))
    tie(three, plus(atom(2), atom(1)))
    assert show(packed) == "([1 + 1 + 1] 4a 16b)"


def test_parts_inside_each_head() -> None:
    """GPT-NeoX: [heads, 3·channels], then a split."""
    packed, inner, q, k, v = atom(192), atom(48), atom(16), atom(16), atom(16)
    tie(packed, times(atom(4), inner))
    tie(inner, plus(q, k, v))
    tie(q, k)
    assert show(packed) == "(4a [16b + 16b + 16c])"


def test_parts_between_heads_and_channels() -> None:
    """BLOOM: [heads, 3, channels]."""
    packed, three = atom(192), atom(3)
    tie(packed, times(atom(4), three, atom(16)))
    tie(three, plus(atom(1), atom(1), atom(1)))
    assert show(packed) == "(4a [1 + 1 + 1] 16b)"


def test_one_key_and_one_value_head_beside_the_query_heads() -> None:
    packed, heads = atom(96), atom(6)
    tie(packed, times(heads, atom(16)))
    tie(heads, plus(atom(4), atom(1), atom(1)))
    assert show(packed) == "([4a + 1 + 1] 16b)"


def test_a_key_and_a_value_head_in_each_group() -> None:
    packed, inside = atom(256), atom(4)
    tie(packed, times(atom(4), inside, atom(16)))
    tie(inside, plus(atom(2), atom(1), atom(1)))
    assert show(packed) == "(4a [2b + 1 + 1] 16c)"


def test_query_heads_over_key_and_value_heads_with_rotated_halves() -> None:
    query, heads, channels, half = atom(64), atom(4), atom(16), atom(8)
    tie(query, times(heads, channels))
    tie(channels, plus(half, atom(8)), plus(atom(8), half))
    tie(heads, times(atom(2), atom(2)))
    assert show(query) == "((2a 2b) [8c + 8c])"


def test_a_sum_that_meets_a_product_gives_its_last_factor_to_every_segment() -> None:
    packed, heads = atom(96), atom(6)
    tie(packed, plus(atom(64), atom(16), atom(16)), times(heads, atom(16)))
    assert show(packed) == "([4a + 1 + 1] 16b)"
    assert show(heads) == "[4a + 1 + 1]"


def test_a_factor_that_only_counts_equal_segments_ties_them() -> None:
    packed, parts = atom(192), [atom(64) for _ in range(3)]
    tie(packed, plus(*parts), times(atom(3), atom(64)))
    assert show(packed) == "([1 + 1 + 1] 64a)"
    assert len(set(map(find, parts))) == 1


def test_two_equal_halves_are_a_factor_of_two() -> None:
    """Interleaved or rotated: both halves of a head are tied by a reshape to (2, half)."""
    channels = atom(16)
    tie(channels, plus(atom(8), atom(8)), times(atom(2), atom(8)))
    assert show(channels) == "([1 + 1] 8a)"


def test_a_product_is_cut_between_its_inner_factors_or_each_of_them_alike() -> None:
    packed = atom(192)
    tie(packed, times(atom(12), atom(16)), plus(atom(128), atom(64)))
    assert show(packed) == "([8a + 4b] 16c)"
    crooked = atom(192)
    tie(crooked, times(atom(12), atom(16)), plus(atom(100), atom(92)))
    units = " + ".join("1" * 12)
    assert show(crooked) == f"([{units}] [4a + 12b])"  # twelve equal factors, of which each is cut


CONFLICTS: list[tuple[str, Callable[[], tuple[Space, Space]]]] = [
    ("two sizes", lambda: (atom(4), atom(6))),
    ("factors that do not divide", lambda: (times(atom(4), atom(9)), times(atom(6), atom(6)))),
    ("a segment that is no multiple", lambda: (plus(atom(5), atom(3)), times(atom(4), atom(2)))),
]


@pytest.mark.parametrize(("name", "make"), CONFLICTS, ids=[c[0] for c in CONFLICTS])
def test_spaces_that_do_not_match_are_frozen_on_both_sides(
    name: str, make: Callable[[], tuple[Space, Space]]
) -> None:
    a, b = make()
    tie(a, b)
    assert all(x.frozen for x in [*leaves(a), *leaves(b)])


def test_sizes_that_agree_at_one_sample_point_only_are_not_equal() -> None:
    static, dynamic = atom(11), Space((11, 13))
    tie(static, dynamic)
    assert static.frozen
    assert dynamic.frozen


# ---------------------------------------------------------------------------------------- laws

PRIMES = (2, 3, 2, 5)


def cuts(n: int) -> st.SearchStrategy[list[int]]:
    """Where a row of n places is cut."""
    return st.lists(st.booleans(), min_size=n - 1, max_size=n - 1).map(
        lambda bs: [i + 1 for i, b in enumerate(bs) if b]
    )


def pieces(sizes: tuple[int, ...], at: list[int], multiply: bool) -> list[int]:
    bounds = [0, *at, len(sizes)]
    fold = np.prod if multiply else np.sum
    return [int(fold(sizes[a:b])) for a, b in itertools.pairwise(bounds)]


@given(st.lists(cuts(len(PRIMES)), min_size=1, max_size=4), st.randoms())
def test_factorings_of_one_axis_meet_in_their_common_refinement(
    views: list[list[int]], random: object
) -> None:
    whole = atom(int(np.prod(PRIMES)))
    for view in views:
        tie(whole, times(*map(atom, pieces(PRIMES, view, True))))
    wanted = pieces(PRIMES, sorted({c for v in views for c in v}), True)
    assert [x.size[0] for x in leaves(whole)] == wanted
    assert not any(x.frozen for x in leaves(whole))


SEGMENTS = (2, 3, 1, 4, 2)


@given(st.lists(cuts(len(SEGMENTS)), min_size=1, max_size=4))
def test_segmentings_of_one_axis_meet_in_their_common_refinement(views: list[list[int]]) -> None:
    whole = atom(sum(SEGMENTS))
    for view in views:
        tie(whole, plus(*map(atom, pieces(SEGMENTS, view, False))))
    wanted = pieces(SEGMENTS, sorted({c for v in views for c in v}), False)
    assert [x.size[0] for x in segments(whole)] == wanted
    assert not any(x.frozen for x in leaves(whole))


HEADS, CHANNELS = (4, 4, 2), 6


def packed_views() -> list[tuple[str, Callable[[], Space]]]:
    """Views of one axis, [(4 6) + (4 6) + (2 6)], that an exporter may show in any order."""
    return [
        ("whole heads", lambda: times(atom(10), atom(6))),
        ("parts", lambda: plus(atom(24), atom(24), atom(12))),
        ("two parts", lambda: plus(atom(48), atom(12))),
        ("parts in heads", lambda: plus(*(times(atom(h), atom(6)) for h in HEADS))),
        ("heads in parts", lambda: times(plus(*map(atom, HEADS)), atom(6))),
        ("lopsided halves of a head", lambda: times(atom(10), plus(atom(2), atom(4)))),
        ("pairs in a head", lambda: times(atom(10), atom(2), atom(3))),
    ]


VIEWS = packed_views()


@given(st.permutations(VIEWS[:5]), st.integers(1, 5))
def test_views_of_a_packed_axis_meet_whatever_their_order(
    order: list[tuple[str, Callable[[], Space]]], count: int
) -> None:
    whole = atom(60)
    for _, make in order[:count]:
        tie(whole, make())
    assert not any(x.frozen for x in leaves(whole))
    if count == 5:
        assert show(whole) == "([4a + 4b + 2c] 6d)"


@given(st.permutations(VIEWS))
def test_views_that_cut_across_each_other_meet_whatever_their_order(
    order: list[tuple[str, Callable[[], Space]]],
) -> None:
    whole = atom(60)
    for _, make in order:
        tie(whole, make())
    assert show(whole).translate(str.maketrans("", "", "()")) == "[4a + 4b + 2c] [1 + 1] [2d + 1]"


@given(st.sampled_from(VIEWS), st.sampled_from(VIEWS))
def test_unification_is_idempotent_and_commutative(
    one: tuple[str, Callable[[], Space]], other: tuple[str, Callable[[], Space]]
) -> None:
    a, b = one[1](), other[1]()
    tie(a, b)
    before = show(a)
    tie(a, b)
    tie(b, a)
    assert show(a) == before
    c, d = one[1](), other[1]()
    tie(d, c)
    assert sorted(x.size for x in leaves(c)) == sorted(x.size for x in leaves(a))
    assert sum(x.frozen is None for x in leaves(c)) == sum(x.frozen is None for x in leaves(a))


# -------------------------------------------------------------------------------------- frozen and addressed


ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("order", ORDERS)
def test_freezing_reaches_every_part_whenever_it_is_found(order: tuple[int, ...]) -> None:
    whole = atom(24)
    steps = [
        lambda: stop(whole),
        lambda: tie(whole, times(atom(4), atom(6))),
        lambda: tie(whole, plus(atom(12), atom(12))),
    ]
    for k in order:
        steps[k]()
    assert all(x.frozen for x in leaves(whole))


def test_a_frozen_factor_leaves_the_other_free() -> None:
    whole, channels = atom(24), atom(6)
    stop(channels)
    tie(whole, times(atom(4), channels))
    assert show(whole) == "(4a 6b!)"


@pytest.mark.parametrize("order", ORDERS)
def test_of_an_addressed_product_only_the_outermost_factor_may_grow(order: tuple[int, ...]) -> None:
    whole = atom(24)
    steps = [
        lambda: number(whole),
        lambda: tie(whole, times(atom(4), atom(6))),
        lambda: tie(whole, times(atom(12), atom(2))),
    ]
    for k in order:
        steps[k]()
    assert [(x.size[0], bool(x.frozen)) for x in leaves(whole)] == [(4, False), (3, True), (2, True)]
    assert next(leaves(whole)).addressed


@pytest.mark.parametrize("order", ORDERS)
def test_of_an_addressed_sum_only_the_last_segment_may_grow(order: tuple[int, ...]) -> None:
    whole = atom(10)
    steps = [
        lambda: number(whole),
        lambda: tie(whole, plus(atom(4), atom(6))),
        lambda: tie(whole, plus(atom(7), atom(3))),
    ]
    for k in order:
        steps[k]()
    assert [(x.size[0], bool(x.frozen)) for x in leaves(whole)] == [(4, True), (3, True), (3, False)]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 1), (1, 4)])
@pytest.mark.parametrize("numbered_first", [True, False])
def test_a_segment_of_one_unit_counts_as_the_end_of_an_addressed_sum(
    sizes: tuple[int, ...], numbered_first: bool
) -> None:
    """As a model that computes one position after the other has them in its output."""
    whole = atom(sum(sizes))
    if numbered_first:
        number(whole)
    tie(whole, plus(*map(atom, sizes)))
    if not numbered_first:
        number(whole)
    assert [bool(find(part).frozen) for part in find(whole).parts] == [True] * (len(sizes) - 1) + [False]


@pytest.mark.parametrize("order", ORDERS)
def test_the_last_segment_of_an_addressed_sum_is_frozen_if_it_stands_elsewhere_in_it(
    order: tuple[int, ...],
) -> None:
    whole, first, last = atom(8), atom(4), atom(4)
    steps = [lambda: number(whole), lambda: tie(whole, plus(first, last)), lambda: tie(first, last)]
    for k in order:
        steps[k]()
    assert all(x.frozen for x in leaves(whole))


@pytest.mark.parametrize("order", ORDERS)
def test_an_addressed_packed_axis_may_grow_in_its_last_part_by_whole_heads(order: tuple[int, ...]) -> None:
    whole = atom(60)
    steps = [
        lambda: number(whole),
        lambda: tie(whole, plus(atom(24), atom(36))),
        lambda: tie(whole, times(atom(10), atom(6))),
    ]
    for k in order:
        steps[k]()
    assert show(whole) == "([4a! + 6b#] 6c!)"
