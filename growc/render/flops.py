"""FLOPs as text and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from growc.errors.json_data import Json
from growc.render.text import many

if TYPE_CHECKING:
    from growc.reports.flops import Flops

PREFIXES = (("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("K", 10**3))


def flops_line(flops: Flops) -> str:
    """`forward 1.1 MFLOP a token, backward 2.3 MFLOP, at 128 tokens`."""
    return (
        f"forward {amount(flops.forward)} a {flops.unit}, backward {amount(flops.backward)}"
        f"{_counted_at(flops)}{_left_out(flops)}"
    )


def change_line(before: Flops, after: Flops) -> str:
    """`FLOPs: forward 1.1 MFLOP -> 2.0 MFLOP a token, backward 2.3 MFLOP -> 4.0 MFLOP, at 128 tokens.`"""
    forward, backward = (
        " -> ".join(map(amount, pair))
        for pair in ((before.forward, after.forward), (before.backward, after.backward))
    )
    where = f"{_counted_at(before)}{_left_out(max(before, after, key=lambda one: len(one.uncounted)))}"
    return f"FLOPs: forward {forward} a {before.unit}, backward {backward}{where}."


def amount(n: float) -> str:
    """`1.1 MFLOP`."""
    return next((f"{n / size:.1f} {prefix}FLOP" for prefix, size in PREFIXES if n >= size), f"{n:.0f} FLOP")


def _counted_at(flops: Flops) -> str:
    each = [" × ".join(map(str, sizes)) for sizes in flops.each if sizes]
    if flops.unit == "token":
        behind = f" behind {' and '.join(map(str, flops.cached))} cached" if flops.cached else ""
        return f", at {' + '.join(each)} tokens{behind}"
    return f", at {' and '.join(each)}" if each else ""


def _left_out(flops: Flops) -> str:
    return f"; {many(len(flops.uncounted), 'node')} not counted (--json)" if flops.uncounted else ""


def flops_data(flops: Flops) -> dict[str, Json]:
    """Return the data that `--json` shows."""
    return {
        "unit": flops.unit,
        "forward": _each(flops.total_forward, flops.units),
        "backward": _each(flops.total_backward, flops.units),
        "inputs": {name: list(sizes) for name, sizes in flops.inputs.items()},
        "uncounted": list(flops.uncounted),
    }


def _each(total: int, units: int) -> float:
    return total / units if total % units else total // units
