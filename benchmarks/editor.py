"""How soon an editor knows what is wrong: from a change of a recipe of 200 lines to its diagnostics.

    PYTHONPATH=tests/editor python benchmarks/editor.py [--lines 200] [--times 60] [--json docs/editor.json]

An editor's client changes a line, waits for the diagnostics of `growc lsp`, and asks for what may stand there
and what it means. `processor of the server` is the processor's time for each change, and `read` that for
reading and resolving alone: a machine that does other work as well makes them little longer.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import psutil
from client import Client

from growc.errors.source import SourceText
from growc.resolve.resolve import resolve

LINES = (
    "let width{n} = {n} + 700 * 2",
    "widen hidden to width{n} with tail copy noise 0.01 in blocks of head_dim",
    "widen ffn to 4 * ffn / 3 with uniform copy split random noise 0.02 balanced seed {n}",
    "stack layers to 24 by last with zero outputs",
    "expect hidden == 2 * width{n}",
    "subclone heads to heads / 2 by magnitude  # the others go",
    "in layers 0..6 {{ widen ffn to 2 * ffn with zero fill }}",
    "",
)
"""Statements of many kinds; a recipe is these again and again."""


def recipe(lines: int, wrong: bool) -> list[str]:
    """A recipe of so many lines; a `wrong` one has a mistake in every fourth."""
    plain = [LINES[n % len(LINES)].format(n=n // len(LINES)) for n in range(lines)]
    return [line.replace(" to ", " ot ") if wrong and n % 4 == 1 else line for n, line in enumerate(plain)]


def measured(
    times: int, work: Callable[[int], object], clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Milliseconds of a piece of work: the median, and the 95th of 100."""
    taken = []
    for number in range(times):
        begun = clock()
        work(number)
        taken.append((clock() - begun) * 1e3)
    return {"median": round(median(taken), 1), "95th": round(quantiles(taken, n=20)[-1], 1)}


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description="How soon an editor knows what is wrong.")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data: dict[str, object] = {"lines": options.lines, "times": options.times, "unit": "ms"}
    data |= {"cores": os.cpu_count(), "load before": round(os.getloadavg()[0], 2)}
    with tempfile.TemporaryDirectory() as folder, Client() as client:
        server = psutil.Process(client.process.pid)
        for name, wrong in (("without mistakes", False), ("with mistakes", True)):
            lines = recipe(options.lines, wrong)
            uri = client.open(Path(folder, f"{name.split()[0]}.grow"), "\n".join(lines))
            mistakes = len(client.diagnostics(uri))
            middle = options.lines // 2 // len(LINES) * len(LINES) + 1

            def typed(number: int, lines: list[str] = lines, uri: str = uri, middle: int = middle) -> None:
                edited = [*lines[:middle], f"{lines[middle]} seed {number}", *lines[middle + 1 :]]
                client.change(uri, "\n".join(edited))
                client.diagnostics(uri)

            def asked(number: int, uri: str = uri, middle: int = middle) -> None:
                client.at("completion" if number % 2 else "hover", uri, middle, 8)

            source = SourceText("recipe.grow", "\n".join(lines))
            before = sum(server.cpu_times()[:2])
            shown = measured(options.times, typed)
            spent = (sum(server.cpu_times()[:2]) - before) / options.times * 1e3
            data[name] = {
                "mistakes": mistakes,
                "diagnostics": shown,
                "processor of the server": round(spent, 1),
                "completion and hover": measured(options.times, asked),
                "read": measured(
                    options.times, lambda _, source=source: resolve([source], {}), time.process_time
                ),
            }
    text = json.dumps(data, indent=1) + "\n"
    print(text, end="")
    if options.json:
        options.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
