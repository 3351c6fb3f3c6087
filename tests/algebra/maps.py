"""Random index maps, and what they mean written out with dense matrices."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from growc.algebra.indexmap import IndexMap

Dense = NDArray[np.float64]

WEIGHTS = st.sampled_from([1.0, 1.0, 0.5, 2.0, -1.0, 1 / 3])
MEANS = st.sampled_from([0.0, 0.0, 0.0, 1.0, 0.5])


@st.composite
def maps(
    draw: st.DrawFn, source: int | None = None, size: int | None = None, junk: bool = True, most: int = 7
) -> IndexMap:
    """Any map of the form that growc uses."""
    d = draw(st.integers(1, 5)) if source is None else source
    size = draw(st.integers(1, most)) if size is None else size
    rows = [
        (draw(st.integers(-1, d - 1)), draw(WEIGHTS), draw(MEANS), junk and draw(st.integers(0, 5)) == 0)
        for _ in range(size)
    ]
    index, weight, mean, lost = zip(*rows, strict=True)
    return IndexMap.of(d, index, weight, mean, lost)


@st.composite
def copies(draw: st.DrawFn, source: int | None = None, weighted: bool = False) -> IndexMap:
    """Every unit at least once, no means, nothing lost; zero rows here and there."""
    d = draw(st.integers(1, 5)) if source is None else source
    more = draw(st.lists(st.integers(-1, d - 1), max_size=6))
    index = draw(st.permutations([*range(d), *more]))
    weight = [draw(WEIGHTS) if weighted else 1.0 for _ in index]
    return IndexMap.of(d, index, weight)


@st.composite
def twins(draw: st.DrawFn) -> tuple[IndexMap, IndexMap]:
    """Two maps of one shape; often nearly the same."""
    a = draw(maps())
    b = draw(maps(source=a.source, size=a.size))
    mixed = np.asarray(draw(st.lists(st.booleans(), min_size=a.size, max_size=a.size)))
    columns = [np.where(mixed, x, y) for x, y in zip(_columns(a), _columns(b), strict=True)]
    return a, IndexMap.of(a.source, *columns)


def _columns(m: IndexMap) -> tuple[np.ndarray, ...]:
    return m.index, m.weight, m.mean, m.junk


def known(m: IndexMap) -> Dense:
    """The matrix with zeros in place of junk rows."""
    return np.nan_to_num(m.matrix())


def drawn(m: IndexMap, seed: int = 0) -> Dense:
    """The matrix with random numbers in place of junk rows."""
    dense = m.matrix()
    return np.where(np.isnan(dense), np.random.default_rng(seed).standard_normal(dense.shape), dense)


def agrees(claim: IndexMap, truth: Dense) -> bool:
    """Whether every row that the claim does not give up is the true one."""
    held = ~claim.junk
    return truth.shape == (claim.size, claim.source) and np.allclose(
        known(claim)[held], truth[held], 1e-9, 1e-9
    )


def state_holds(claim: IndexMap, x: Dense, y: Dense) -> bool:
    """Whether y = claim·x on every row that the claim does not give up."""
    held = ~claim.junk
    return np.allclose((known(claim) @ x)[held], y[held], 1e-9, 1e-9)
