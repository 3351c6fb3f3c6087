"""Sinusoidal tables over positions: how to recognise and continue them.

Every column of such a table is A·sin(w·p) + B·cos(w·p), so that t[p+1] + t[p-1] = 2·cos(w)·t[p]. No trained
table satisfies this.
"""

from __future__ import annotations

import numpy as np

from growc.algebra.indexmap import Array, Floats

MAX_STEPS, CONVERGED = 50, 1e-15
"""The most steps of Newton's method for a frequency, and the step below which double precision ends it."""

TOLERANCE = 1e-3
"""The largest error of the recurrence, relative to a column's largest value. It allows for tables stored in
a short element type.
"""


def is_sinusoid(table: Array) -> bool:
    """Whether the columns of a table of shape (positions, units) are sinusoids. Up to eight are tested."""
    if np.iscomplexobj(table):
        return is_sinusoid(table.real) and is_sinusoid(table.imag)
    positions, units = table.shape
    if positions < 8:
        return False
    columns = np.asarray(table[:, sorted({(units - 1) * k // 7 for k in range(8)})], dtype=np.float64)
    size = np.abs(columns).max(axis=0)
    if (size == 0).any() or not np.isfinite(columns).all():
        return False
    middle, around = columns[1:-1], columns[2:] + columns[:-2]
    twice = (middle * around).sum(axis=0) / np.maximum((middle**2).sum(axis=0), 1e-30)
    varies = np.ptp(columns, axis=0) > TOLERANCE * size
    return bool((np.abs(around - twice * middle) <= TOLERANCE * size).all() and varies.any())


def continued_rows(table: Array, size: int) -> Array:
    """Rows len(table) .. size-1 of a sinusoidal table. Shape (size - len(table), units)."""
    if np.iscomplexobj(table):
        return np.asarray(continued_rows(table.real, size) + 1j * continued_rows(table.imag, size))
    known = table.astype(np.float64)
    p = np.arange(len(known), dtype=np.float64)
    new = np.arange(len(known), size, dtype=np.float64)
    return np.stack([_column(known[:, k], p, new) for k in range(known.shape[1])], axis=1)


def _column(t: Floats, p: Floats, new: Floats) -> Floats:
    """Fit A·sin(w·p) + B·cos(w·p) by Gauss-Newton, and evaluate it at new positions.

    The fit starts from the recurrence's frequency.
    """
    middle, around = t[1:-1], t[2:] + t[:-2]
    cosine = float((middle * around).sum() / max((middle**2).sum(), 1e-30)) / 2
    w = float(np.arccos(np.clip(cosine, -1.0, 1.0)))
    for _ in range(MAX_STEPS):
        basis = np.stack([np.sin(w * p), np.cos(w * p)], axis=1)
        (a, b), *_rest = np.linalg.lstsq(basis, t, rcond=None)
        slope = p * (a * basis[:, 1] - b * basis[:, 0])
        step, *_rest = np.linalg.lstsq(np.concatenate([basis, slope[:, None]], axis=1), t, rcond=None)
        change = float(step[2])
        w += change
        if abs(change) < CONVERGED:
            break
    basis = np.stack([np.sin(w * p), np.cos(w * p)], axis=1)
    (a, b), *_rest = np.linalg.lstsq(basis, t, rcond=None)
    return np.asarray(a * np.sin(w * new) + b * np.cos(w * new))
