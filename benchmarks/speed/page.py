"""The page of measured times: docs/performance.md, of docs/performance.json.

python benchmarks/speed/page.py JSON
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from run import CASES

HEAD = """# How fast growc is

`make bench` measures; this page is made of [performance.json](performance.json). Contenders of a case take
turns, and each writes where nothing is; the median of their runs counts, start-up and the way to the disk
inside. CPU is that of all threads. Memory is the most that a process held beside mapped files, what its
libraries take included. `× cp` is against a copy of the result to the disk in the same run. The scripts are
in [benchmarks/speed/peers](../benchmarks/speed/peers): each knows one model and one recipe, and does the same
gathers.
"""


def lines(said: Mapping[str, Any]) -> Iterator[str]:
    """The page."""
    yield HEAD
    for case, record in said.items():
        host = record["machine"]
        yield f"## {(CASES[case].__doc__ or case).rstrip('.')}\n"
        yield (
            f"{host['processor']}, {host['cores']} cores, {host['system']}, Python {host['python']}; load"
            f" {host['load before']} before; {host['revision']}, {host['date']}; medians of"
            f" {len(next(iter(record['contenders'].values()))['runs'])}.\n"
        )
        yield "| | wall | CPU | memory | × cp |"
        yield "| --- | --- | --- | --- | --- |"
        base = record["contenders"].get("cp of the result", {}).get("wall", 0)
        for label, one in record["contenders"].items():
            times = f"{one['wall'] / base:.1f}" if base else ""
            memory = f"{one['memory'] / 1e6:.0f} MB" if one["memory"] else ""
            yield f"| {label} | {one['wall']:.2f} s | {one['cpu']:.2f} s | {memory} | {times} |"
        yield ""


def main() -> None:
    """Write the page beside the file."""
    path = Path(sys.argv[1])
    text = "\n".join(lines(json.loads(path.read_text())))
    path.with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
