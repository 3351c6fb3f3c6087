"""FLOPs as text and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from growc.errors.json_data import Json
from growc.render.text import many

if TYPE_CHECKING:
    from growc.reports.flops import Flops

PREFIXES = (("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("K", 10**3))


def flops_line(found: Flops) -> str:
    """`forward 1.1 MFLOP a token, backward 2.3 MFLOP, at 128 tokens`."""
    return (
        f"forward {amount(found.forward)} a {found.unit}, backward {amount(found.backward)}"
        f"{_counted_at(found)}{_left_out(found)}"
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


def _counted_at(found: Flops) -> str:
    each = [" × ".join(map(str, sizes)) for sizes in found.each if sizes]
    if found.unit == "token":
        behind = f" behind {' and '.join(map(str, found.cached))} cached" if found.cached else ""
        return f", at {' + '.join(each)} tokens{behind}"
    return f", at {' and '.join(each)}" if each else ""


def _left_out(found: Flops) -> str:
    return f"; {many(len(found.uncounted), 'node')} not counted (--json)" if found.uncounted else ""


def flops_data(found: Flops) -> dict[str, Json]:
    """Return the data that `--json` shows."""
    return {
        "unit": found.unit,
        "forward": _each(found.total_forward, found.units),
        "backward": _each(found.total_backward, found.units),
        "inputs": {name: list(sizes) for name, sizes in found.inputs.items()},
        "uncounted": list(found.uncounted),
    }


def _each(total: int, units: int) -> float:
    return total / units if total % units else total // units
