"""The algebra of index maps, against dense matrices and against what operators compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from maps import Dense, agrees, copies, drawn, known, maps, state_holds, twins

from growc.algebra.indexmap import IndexMap

RANDOM = np.random.default_rng(0)


def sample(m: IndexMap, seed: int = 1) -> Dense:
    return np.random.default_rng(seed).standard_normal((m.source, 9))


@st.composite
def chains(draw: st.DrawFn) -> tuple[IndexMap, IndexMap]:
    first = draw(maps())
    return draw(maps(source=first.size)), first


# ---------------------------------------------------------------------------------------- composing


@given(chains())
def test_a_composition_is_the_product_of_matrices(pair: tuple[IndexMap, IndexMap]) -> None:
    second, first = pair
    assert agrees(second.after(first), known(second) @ known(first))


@given(chains())
def test_a_composition_gives_up_every_row_that_reads_junk(pair: tuple[IndexMap, IndexMap]) -> None:
    second, first = pair
    reads = ((known(second) != 0) & first.junk[None, :]).any(axis=1) | second.junk
    assert (second.after(first).junk >= reads).all()


@given(chains(), st.data())
def test_composition_is_associative_where_nothing_is_given_up(
    pair: tuple[IndexMap, IndexMap], data: st.DataObject
) -> None:
    second, first = pair
    third = data.draw(maps(source=second.size))
    left, right = third.after(second).after(first), third.after(second.after(first))
    both = ~left.junk & ~right.junk
    np.testing.assert_allclose(known(left)[both], known(right)[both], atol=1e-9)


@given(maps())
def test_the_identity_is_neutral(m: IndexMap) -> None:
    assert m.after(IndexMap.identity(m.source)).same(m)
    assert IndexMap.identity(m.size).after(m).same(m)


@given(chains())
def test_plain_copies_compose_without_loss(pair: tuple[IndexMap, IndexMap]) -> None:
    second, first = (IndexMap.of(m.source, m.index) for m in pair)
    composed = second.after(first)
    assert not composed.junk.any()
    np.testing.assert_array_equal(composed.matrix(), second.matrix() @ first.matrix())


@given(maps(most=4), maps(most=4))
def test_the_map_of_a_product_axis_is_the_kronecker_product(outer: IndexMap, inner: IndexMap) -> None:
    made = outer.kron(inner)
    assert agrees(made, np.kron(known(outer), known(inner)))
    zero = np.repeat(outer.zeros, inner.size) | np.tile(inner.zeros, outer.size)
    lost = np.repeat(outer.junk, inner.size) | np.tile(inner.junk, outer.size)
    assert (made.junk >= (lost & ~zero)).all()
    assert not made.junk[zero].any()


@given(st.lists(maps(most=4), min_size=1, max_size=3))
def test_the_map_of_a_sum_axis_is_block_diagonal(parts: list[IndexMap]) -> None:
    made = IndexMap.concat(parts)
    truth = np.zeros((sum(p.size for p in parts), sum(p.source for p in parts)))
    row = column = 0
    for p in parts:
        truth[row : row + p.size, column : column + p.source] = known(p)
        row, column = row + p.size, column + p.source
    assert agrees(made, truth)
    assert (made.junk >= np.concatenate([p.junk for p in parts])).all()


# ---------------------------------------------------------------------------------------- operators


def gelu(x: Dense) -> Dense:
    return np.asarray(x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))) / 2)


FUNCTIONS: list[tuple[str, Callable[[Dense], Dense], bool, bool]] = [
    ("relu", lambda x: np.maximum(x, 0), True, True),
    ("gelu", gelu, True, False),
    ("tanh", np.tanh, True, False),
    ("exp", np.exp, False, False),
]


@pytest.mark.parametrize(("name", "f", "zero", "homogeneous"), FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
@given(maps())
def test_the_state_behind_a_nonlinearity_holds(
    name: str, f: Callable[[Dense], Dense], zero: bool, homogeneous: bool, m: IndexMap
) -> None:
    x = sample(m)
    assert state_holds(m.pointwise(zero=zero, homogeneous=homogeneous), f(x), f(drawn(m) @ x))


@given(maps())
def test_the_state_behind_a_constant_that_is_added_to_all_units_holds(m: IndexMap) -> None:
    x, c = sample(m), RANDOM.standard_normal((1, 9))
    assert state_holds(m.shifted(), x + c, drawn(m) @ x + c)


@given(twins())
def test_the_state_behind_a_product_of_two_activations_holds(pair: tuple[IndexMap, IndexMap]) -> None:
    a, b = pair
    x, y = sample(a, 1), sample(a, 2)
    assert state_holds(a.times(b), x * y, (drawn(a, 3) @ x) * (drawn(b, 4) @ y))


@given(maps())
def test_the_state_behind_a_reciprocal_holds(m: IndexMap) -> None:
    x, made = np.abs(sample(m)) + 0.5, m.reciprocal()
    held = ~made.junk
    np.testing.assert_allclose((known(made) @ (1 / x))[held], 1 / (drawn(m) @ x)[held])


@given(twins())
def test_rows_that_are_said_to_be_the_same_are(pair: tuple[IndexMap, IndexMap]) -> None:
    a, b = pair
    rows = ~np.isclose(a.matrix(), b.matrix(), equal_nan=True).all(axis=1)
    assert (a.differs(b) >= rows).all()
    assert a.same(b) == b.same(a) == (not a.differs(b).any())
    assert a.same(a)


@given(maps())
def test_giving_rows_up_only_gives_rows_up(m: IndexMap) -> None:
    rows = np.arange(m.size) % 2 == 0
    left = m.without(rows)
    assert (left.junk == (m.junk | rows)).all()
    np.testing.assert_array_equal(left.matrix()[~left.junk], m.matrix()[~left.junk])


# ---------------------------------------------------------------------------------------- readers


@given(copies(weighted=True), st.data())
def test_a_reader_with_any_shares_that_sum_to_one_is_a_left_inverse(m: IndexMap, data: st.DataObject) -> None:
    raw = np.asarray(data.draw(st.lists(st.floats(0.1, 1), min_size=m.size, max_size=m.size)))
    shares = raw / m.per_unit(raw)[np.maximum(m.index, 0)]
    found = m.left_inverse(shares)
    assert found is not None
    np.testing.assert_allclose(known(found).T @ m.matrix(), np.eye(m.source), atol=1e-9)
    assert found.pairs_with(m)


@given(maps())
def test_only_a_map_that_lacks_a_unit_has_no_left_inverse(m: IndexMap) -> None:
    assert (m.left_inverse(np.ones(m.size)) is None) == bool((m.counts == 0).any())


@given(copies(weighted=True), st.data())
def test_a_left_inverse_does_not_read_rows_that_are_no_copies(m: IndexMap, data: st.DataObject) -> None:
    lost = np.asarray(data.draw(st.lists(st.booleans(), min_size=m.size, max_size=m.size)))
    m = m.without(lost)
    found = m.left_inverse(np.ones(m.size))
    if found is not None:
        assert found.zeros[~m.copies].all()


@given(st.data())
def test_two_maps_pair_exactly_if_their_product_is_the_identity(data: st.DataObject) -> None:
    a = data.draw(copies(weighted=True))
    index = np.where(data.draw(st.booleans()), a.index, np.roll(a.index, 1))
    b = IndexMap.of(a.source, index, [data.draw(st.sampled_from([1.0, 0.5, 2.0])) for _ in index])
    assume((a.index[a.copies & b.copies] == b.index[a.copies & b.copies]).all())
    truth = np.allclose(a.matrix().T @ b.matrix(), np.eye(a.source), atol=1e-9)
    assert a.pairs_with(b) == b.pairs_with(a) == truth


@given(twins())
def test_maps_that_pair_do_so_whatever_junk_holds(pair: tuple[IndexMap, IndexMap]) -> None:
    a, b = pair
    found = a.left_inverse(np.where(a.copies, 1 / np.maximum(a.counts, 1)[a.index], 0.0))
    for other in (b, found):
        if other is not None and a.pairs_with(other):
            np.testing.assert_allclose(drawn(a, 1).T @ drawn(other, 2), np.eye(a.source), atol=1e-9)


@given(copies(weighted=True), st.data())
def test_a_state_that_is_chosen_for_a_table_pairs_with_it(table: IndexMap, data: st.DataObject) -> None:
    other = data.draw(st.lists(st.booleans(), min_size=table.size, max_size=table.size))
    found = IndexMap.of(table.source, np.where(other, -1, table.index)).paired(table)
    if found is not None:
        np.testing.assert_allclose(found.matrix().T @ table.matrix(), np.eye(table.source), atol=1e-9)


@given(copies())
def test_plain_copies_before_a_tied_table_are_divided_by_their_number(m: IndexMap) -> None:
    found = m.paired(m)
    assert found is not None
    np.testing.assert_allclose(found.weight[m.copies], 1 / m.counts[m.index[m.copies]])


@given(copies())
def test_isometric_copies_pair_with_themselves(m: IndexMap) -> None:
    made = m.isometric()
    np.testing.assert_allclose(made.matrix().T @ made.matrix(), np.eye(m.source), atol=1e-9)
    assert made.pairs_with(made)


# ---------------------------------------------------------------------------------------- statistics


@given(maps())
def test_a_mean_a_sum_and_a_maximum_are_kept_where_that_is_claimed(m: IndexMap) -> None:
    x = sample(m)
    y = drawn(m) @ x
    if m.is_weighted_evenly():
        np.testing.assert_allclose(y.mean(axis=0), x.mean(axis=0))
    if m.sums_to_one():
        np.testing.assert_allclose(y.sum(axis=0), x.sum(axis=0))
    if m.covers():
        np.testing.assert_allclose(y.max(axis=0), x.max(axis=0))
    if m.covers(positive=True):
        np.testing.assert_allclose(y.max(axis=0).clip(0), x.max(axis=0).clip(0))
    if m.is_once():
        np.testing.assert_allclose((y * y).sum(axis=0), (x * x).sum(axis=0))


@given(maps(junk=False))
def test_no_kept_mean_or_sum_is_missed(m: IndexMap) -> None:
    columns = m.matrix().sum(axis=0)
    assert m.sums_to_one() == np.allclose(columns, 1)
    assert m.is_weighted_evenly() == np.allclose(columns / m.size, 1 / m.source)


@pytest.mark.parametrize("index", [[0, 1, 2, -1], [2, 0, 1], [0, 1, 2, 1], [0, 1, 2, 0, 1, 2]])
@pytest.mark.parametrize("mean", [0.0, 0.5, 1.0])
def test_maxima_over_zeros_copies_and_means_are_kept(index: list[int], mean: float) -> None:
    means = np.where(np.array(index) < 0, mean, 0.0)
    m = IndexMap.of(3, index, mean=means)
    assert m.covers(positive=True)
    assert m.covers() == (-1 not in index or mean == 1.0)
    assert m.is_once() == (sorted(index)[-3:] == [0, 1, 2] and len(index) < 5 and mean * index.count(-1) == 0)
    assert not IndexMap.of(3, [0, 1]).covers(positive=True)
