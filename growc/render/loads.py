"""The bytes that each process reads and writes, as text and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from growc.errors.json_data import Json
from growc.errors.printable import size_of

if TYPE_CHECKING:
    from growc.reports.loads import Loads


def load_line(loads: Loads) -> str:
    """`64 processes: the largest reads 1.2 GB and writes 2.3 GB, 1.02 times the mean; at 1 GB/s 3.5 s.`"""
    largest = loads.largest
    sizes = f"the largest reads {size_of(largest.read)} and writes {size_of(largest.written)}"
    whole = max(one.whole for one in loads.each)
    at_once = f"; tensors made as a whole take up to {size_of(whole)} of memory" if whole else ""
    count = f"{len(loads.each)} process{'es' if len(loads.each) > 1 else ''}"
    return (
        f"{count}: {sizes}, {loads.ratio:.2f} times the mean; "
        f"at {size_of(loads.bandwidth)}/s {_duration(loads.seconds)}{at_once}."
    )


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def loads_data(loads: Loads) -> dict[str, Json]:
    """Return the data that `--json` shows."""
    return {
        "processes": [{"read": e.read, "written": e.written, "whole": e.whole} for e in loads.each],
        "largest_to_mean": round(loads.ratio, 4),
        "bandwidth": loads.bandwidth,
        "seconds": round(loads.seconds, 3),
    }
