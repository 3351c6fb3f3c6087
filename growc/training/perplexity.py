"""Retention of domains that a model learned in turn: ELLE's two averages of perplexities.

Qin et al. 2022, "ELLE: Efficient Lifelong Pre-training for Emerging Data", AP and AP⁺. A perplexity is exp of
the mean loss per token, in nats. It has no unit, and is at least 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def average_perplexity(now: Sequence[float]) -> float:
    """AP = exp(1/j · Σ log PPL_i): the geometric mean of the perplexities on the j domains learned so far.

    >>> average_perplexity([2.0, 8.0])
    4.0

    Raises ValueError for no domains, and for values below 1.
    """
    if not now or min(now) < 1:
        raise ValueError(f"no mean of the perplexities {list(now)}")
    return math.exp(math.fsum(map(math.log, now)) / len(now))


def average_increase(now: Sequence[float], learned: Sequence[float]) -> float:
    """AP⁺ = 1/(j - 1) · Σ_{i<j} (PPL_i - PPL_i^f): how much of the earlier domains is forgotten.

    `now` has the j perplexities of the present model, the last on the domain that it is learning. `learned`
    has those of the j - 1 earlier domains, each at the end of its own training. Negative: later domains
    helped.

    >>> average_increase([5.0, 9.0, 7.0], learned=[4.0, 7.0])
    1.5

    Raises ValueError if the numbers do not match, or if no earlier domain exists.
    """
    if not learned or len(now) != len(learned) + 1:
        raise ValueError(f"{len(now)} domains, of which {len(learned)} are learned: the last is not to be")
    return math.fsum(a - b for a, b in zip(now, learned, strict=False)) / len(learned)
