"""The closed forms of the norms against numerical norms with a large eps; facts.md's table by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from maps import Dense, copies, drawn, known, maps

from growc.algebra.indexmap import IndexMap
from growc.passes.axes.norms import Formula

EPS = 1e-2
"""Large: at 1e-5 a wrong eps would not show."""


NORMS = {
    "layer_norm": Formula(centred=True),
    "rms_norm": Formula(),
    "l2_norm": Formula(total=True, outside=True),
    "layer_norm with eps outside": Formula(centred=True, outside=True),
    "rms_norm with eps outside": Formula(outside=True),
    "layer_norm of a sum": Formula(centred=True, total=True),
    "sum of squares": Formula(total=True),
    "sum of magnitudes": Formula(total=True, outside=True, power=1),
    "mean of magnitudes": Formula(outside=True, power=1),
    "mean of centred magnitudes": Formula(centred=True, outside=True, power=1),
}


def normed(norm: str, x: Dense, eps: float) -> Dense:
    formula = NORMS[norm]
    v = x - x.mean(axis=0) if formula.centred else x
    powers = np.abs(v) ** formula.power
    statistic = powers.sum(axis=0) if formula.total else powers.mean(axis=0)
    if not formula.outside:
        return np.asarray(v / np.sqrt(statistic + eps))
    root = statistic ** (1 / formula.power)
    return np.asarray(v / (np.maximum(root, eps) if formula.total else root + eps))


def samples(d: int) -> Dense:
    """Rows of all lengths, so that eps and the bound of the L2 norm matter in some of them."""
    return np.random.default_rng(d).standard_normal((d, 12)) * np.logspace(-3, 1, 12)


def claim(norm: str, m: IndexMap) -> tuple[IndexMap, float] | None:
    return NORMS[norm].behind(m)


def error(norm: str, m: IndexMap, eps: float | None = None, x: Dense | None = None) -> float:
    """How far the claimed state is from the norm of the mapped stream, or what another eps does to it."""
    found = claim(norm, m)
    assert found is not None
    state, factor = found
    x = samples(m.source) if x is None else x
    y = normed(norm, drawn(m) @ x, EPS * factor if eps is None else eps)
    return float(np.abs(known(state) @ normed(norm, x, EPS) - y).max())


@pytest.mark.parametrize("norm", NORMS)
@given(maps())
def test_a_norm_that_is_claimed_to_be_exact_is(norm: str, m: IndexMap) -> None:
    if claim(norm, m) is not None:
        assert error(norm, m) < 1e-9


@pytest.mark.parametrize("norm", NORMS)
@given(copies(weighted=True))
def test_a_norm_over_weighted_copies_that_is_claimed_to_be_exact_is(norm: str, m: IndexMap) -> None:
    if claim(norm, m) is not None:
        assert error(norm, m) < 1e-9


@pytest.mark.parametrize("norm", ["sum of magnitudes", "mean of magnitudes"])
@given(copies(weighted=True))
def test_copies_are_exact_under_magnitudes_that_sum_to_one_number(norm: str, m: IndexMap) -> None:
    sums = np.abs(m.matrix()).sum(axis=0)
    assert (claim(norm, m) is not None) == np.allclose(sums, sums[0])


@pytest.mark.parametrize("norm", [name for name, formula in NORMS.items() if formula.power == 2])
@given(maps(junk=False))
def test_no_exact_norm_is_missed(norm: str, m: IndexMap) -> None:
    """R is exact if and only if HR·1 = 0 (LayerNorm) and (HR)ᵀ(HR) = a·H with a > 0."""
    dense, d = m.matrix(), m.source
    assume(d > 1)
    centre = NORMS[norm].centred
    core = np.eye(d) - centre / d
    left = (np.eye(m.size) - centre / m.size) @ dense
    gram = left.T @ left
    a = np.trace(gram) / max(np.trace(core), 1e-30)
    exact = np.allclose(gram, a * core, atol=1e-12) and a > 1e-12
    if centre:
        exact = exact and np.allclose(left.sum(axis=1), 0, atol=1e-12)
    if not exact:
        assert claim(norm, m) is None
    elif d > 2 and (centre or not m.mean.any()):
        assert claim(norm, m) is not None


# ---------------------------------------------------------------------------------------- facts.md

D = 6
AVERAGE = IndexMap.of(D, [*range(D), *range(D), -1, -1], None, [0.0] * 12 + [1.0, 1.0])
UNEQUAL = IndexMap.of(D, [*range(D), 0, 1])
ZEROS = IndexMap.of(D, [*range(D), -1, -1])


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_equal_copies_are_exact_and_eps_is_kept(norm: str, k: int) -> None:
    state, factor = claim(norm, IndexMap.of(D, np.arange(k * D) % D)) or pytest.fail("a gap")
    assert factor == pytest.approx(1)
    np.testing.assert_allclose(state.weight, 1)


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_unequal_copies_are_not_exact(norm: str) -> None:
    assert claim(norm, UNEQUAL) is None


def test_copies_and_the_mean_are_exact_behind_a_layer_norm_with_a_smaller_eps() -> None:
    state, factor = AVERAGE.layer_norm() or pytest.fail("a gap")
    assert factor == pytest.approx(2 * D / 14)
    np.testing.assert_allclose(state.weight[:12], 1 / np.sqrt(factor))
    assert state.zeros[12:].all()
    assert error("layer_norm", AVERAGE) < 1e-12
    assert error("layer_norm", AVERAGE, eps=EPS) > 1e-3


def test_copies_and_the_mean_are_not_exact_behind_an_rms_norm() -> None:
    assert AVERAGE.rms_norm() is None


def test_zeros_on_a_stream_that_is_not_centred_are_not_exact_behind_a_layer_norm() -> None:
    assert ZEROS.layer_norm() is None


def test_zeros_on_a_centred_stream_are_exact_behind_a_layer_norm() -> None:
    """The producers are centred: the stream is x − mean(x), which is the state e − 1ᵀ/d."""
    centred = IndexMap.of(D, ZEROS.index, ZEROS.weight, [-1.0] * D + [0.0] * 2)
    state, factor = centred.layer_norm() or pytest.fail("a gap")
    assert factor == pytest.approx(D / 8)
    assert error("layer_norm", centred) < 1e-12
    assert state.zeros[D:].all()


def test_zeros_are_exact_behind_an_rms_norm_with_a_smaller_eps() -> None:
    _, factor = ZEROS.rms_norm() or pytest.fail("a gap")
    assert factor == pytest.approx(D / 8)
    assert error("rms_norm", ZEROS) < 1e-12
    assert error("rms_norm", ZEROS, eps=EPS) > 1e-3


def test_copies_over_the_root_of_their_number_are_exact_behind_an_rms_norm_at_any_width() -> None:
    state, factor = UNEQUAL.isometric().rms_norm() or pytest.fail("a gap")
    assert factor == pytest.approx(D / 8)
    np.testing.assert_allclose(state.weight, np.sqrt(8 / D) / np.sqrt(UNEQUAL.counts[UNEQUAL.index]))
    assert error("rms_norm", UNEQUAL.isometric()) < 1e-12


@pytest.mark.parametrize("weights", [(1 / 2, 1 / 2), (2 / 3, 1 / 6, 1 / 6)])
def test_weights_with_equal_sums_are_exact_behind_a_layer_norm_only_with_equal_squares(
    weights: tuple[float, ...],
) -> None:
    """facts.md: (1/2, 1/2) beside (2/3, 1/6, 1/6) has both; the rows are centred by the mean."""
    index = [0, 0, *(i for i in range(1, 4) for _ in weights)]
    values = [0.5, 0.5, *weights * 3]
    m = IndexMap.of(4, index, values, -np.asarray(values))
    assert m.layer_norm() is not None
    assert error("layer_norm", m) < 1e-12


def test_weights_with_unequal_squares_are_not_exact() -> None:
    values = np.asarray([0.5, 0.5, 0.75, 0.25])
    assert IndexMap.of(2, [0, 0, 1, 1], values, -values).layer_norm() is None


def test_a_lost_unit_is_not_exact_behind_any_norm() -> None:
    for norm in NORMS:
        assert claim(norm, IndexMap.of(D, range(D - 1))) is None
        assert claim(norm, IndexMap.of(D, range(D), None, None, [False] * 5 + [True])) is None


def test_an_l2_norm_scales_its_bound_with_the_copies() -> None:
    twice = IndexMap.of(D, np.arange(2 * D) % D)
    state, factor = claim("l2_norm", twice) or pytest.fail("a gap")
    assert factor == pytest.approx(np.sqrt(2))
    np.testing.assert_allclose(state.weight, 1 / np.sqrt(2))
    assert error("l2_norm", twice) < 1e-12
    assert error("l2_norm", twice, eps=EPS) > 1e-3
