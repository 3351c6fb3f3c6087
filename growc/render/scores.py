"""What a person reads of measured importance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from growc.render.text import many, short, table

SHOWN = 24
"""Index spaces that a person is shown; `--json` has all."""


def score_lines(scores: Mapping[str, NDArray[np.float64]]) -> Iterator[str]:
    """One line for each index space: its units, the least and the largest score, what the better half has.
    One for each run of layers: all of them, in order.
    """
    rows = []
    layers = {name: found for name, found in scores.items() if name.startswith("layers.")}
    for name, found in scores.items():
        if name in layers:
            continue
        best = np.sort(found)[::-1][: -(-len(found) // 2)].sum() / (found.sum() or 1.0)
        spread = f"{short(float(found.min()))} to {short(float(found.max()))}"
        rows.append((name, many(len(found), "unit"), spread, f"the better half has {best:.0%}"))
    yield from (f"  {line}" for line in table(rows[:SHOWN]))
    if len(rows) > SHOWN:
        yield f"  … {len(rows) - SHOWN} more (--json)"
    if not rows:
        yield "No axis with a name is read by a weight."
    yield from (f"  {name}   {' '.join(f'{x:.2f}' for x in found)}" for name, found in layers.items())


def rate_line(samples: int, seconds: float) -> str:
    """How fast it went, or that nothing had to be run."""
    if not samples:
        return "Nothing was run: these scores were kept from the same measurement."
    rate = f", {samples / seconds:.3g} a second" if seconds else ""
    return f"Measured: {many(samples, 'sample')} in {seconds:.1f} s{rate}."
