"""How near two sets of scores are, where outputs look like logits: as distributions over their last axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from growc.algebra.indexmap import Array

_BLOCK = 1 << 20
"""Elements that are looked at together."""


@dataclass(frozen=True)
class Closeness:
    """kl: the mean of KL(source, result), in nats; agreement: how often both have the same unit on top; rows:
    over how many places.
    """

    kl: float = 0.0
    agreement: float = 1.0
    rows: int = 0


def closeness(source: Array, result: Array) -> Closeness:
    """Of two arrays of logits of one shape; places with a number that is not finite do not count."""
    width = source.shape[-1]
    a, b = source.reshape(-1, width), result.reshape(-1, width)
    step = max(1, _BLOCK // max(width, 1))
    return together(_of_rows(a[k : k + step], b[k : k + step]) for k in range(0, len(a), step))


def together(parts: Iterable[Closeness]) -> Closeness:
    """Of several sets of places."""
    kl = agreement = 0.0
    rows = 0
    for part in parts:
        kl, agreement, rows = (
            kl + part.kl * part.rows,
            agreement + part.agreement * part.rows,
            rows + part.rows,
        )
    return Closeness(kl / rows, agreement / rows, rows) if rows else Closeness()


def _of_rows(source: Array, result: Array) -> Closeness:
    a, b = source.astype(np.float64), result.astype(np.float64)
    usable = np.isfinite(a).all(1) & np.isfinite(b).all(1)
    a, b = _log_softmax(a[usable]), _log_softmax(b[usable])
    if not len(a):
        return Closeness()
    kl = float(np.maximum((np.exp(a) * (a - b)).sum(1), 0.0).mean())
    return Closeness(kl, float((a.argmax(1) == b.argmax(1)).mean()), len(a))


def _log_softmax(x: Array) -> Array:
    x = x - x.max(axis=1, keepdims=True, initial=-np.inf)
    return np.asarray(x - np.log(np.exp(x).sum(axis=1, keepdims=True)))
