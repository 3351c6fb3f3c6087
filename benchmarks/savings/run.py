"""Train what is missing of a table, in its order. A run that was stopped goes on from its last checkpoint.

    python -m benchmarks.savings.run --table cpu                      # all that is missing
    python -m benchmarks.savings.run --table cpu --only FPI --again   # the three runs of a line anew
    python -m benchmarks.savings.run --table gpu --grow               # make initial weights, train nothing
    python -m benchmarks.savings.run --table gpu --device cuda --jobs 16 --minutes 9 --only-seed 0

It may run several times at once: each run has one runner. A run whose source is not yet there waits.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.savings.records import RUNS, WORK, Places
from benchmarks.savings.runner import Runner, needed_by
from benchmarks.savings.tables import MINIATURE, TABLES, Row, Table

WEIGHTS_LIMIT = 60_000_000
"""Bytes that initial and source weights of one seed may take: they travel to the machine with the GPU."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing; 1 where something is left."""
    given = _parser().parse_args(arguments)
    table = TABLES[given.table](MINIATURE if given.miniature else None)
    places = Places(given.runs, given.work)
    try:
        rows = [table.row(name) for name in given.only or ()]
    except StopIteration:
        names = ", ".join(row.name for row in table.rows)
        raise SystemExit(f"--only names no row of {table.name}; the rows are: {names}") from None
    if given.again:
        _forget(table, rows, places)
    wanted = needed_by(table, rows) if rows else table.order()
    seeds = given.only_seed or table.seeds
    wanted = [(row, seed) for row, seed in wanted if seed in seeds or row.tunes]
    torch.set_num_threads(1)
    runner = Runner(table, places, given.device, time.monotonic() + 60 * given.minutes, given.save)
    if given.grow:
        return _grow(runner, wanted)
    others = [subprocess.Popen(_single(arguments)) for _ in range(given.jobs - 1)]
    left = runner.run(wanted)
    for other in others:
        other.wait()
    for row, seed in left:
        print(f"{row.name}, seed {seed}: left", flush=True)
    return int(bool(left))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", choices=TABLES, required=True)
    parser.add_argument("--only", action="append", metavar="NAME", help="this row, and what it needs")
    parser.add_argument("--only-seed", type=int, action="append", metavar="SEED")
    parser.add_argument("--again", action="store_true", help="forget what there is of the rows of --only")
    parser.add_argument("--grow", action="store_true", help="write initial weights, and train nothing")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--save", type=float, default=60, metavar="SECONDS", help="between two checkpoints")
    parser.add_argument("--miniature", action="store_true", help="every row in seconds: proves the program")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--work", type=Path, default=WORK)
    return parser


def _forget(table: Table, rows: Sequence[Row], places: Places) -> None:
    """Delete the records of these rows, and what they left at work."""
    for row in rows:
        for seed in table.seeds:
            for kind in ("checkpoint.pt", "initial.pt", "weights.pt"):
                places.at_work(table, row, seed, kind).unlink(missing_ok=True)
            places.record(table, row, seed).unlink(missing_ok=True)


def _single(arguments: Sequence[str] | None) -> list[str]:
    """The same command for one more process, which neither forgets nor starts others."""
    words = [word for word in (sys.argv[1:] if arguments is None else arguments) if word != "--again"]
    return [sys.executable, "-m", "benchmarks.savings.run", *words, "--jobs", "1"]


def _grow(runner: Runner, wanted: Sequence[tuple[Row, int]]) -> int:
    """Write all initial weights whose sources are there, and say what all weights of each seed take."""
    for row, seed in wanted:
        runner.grow(row, seed)
    folder = runner.places.work / runner.table.name
    status = 0
    for seed in runner.table.seeds:
        size = sum(path.stat().st_size for path in folder.glob(f"*-{seed}.*.pt"))
        print(f"seed {seed}: {size / 1e6:.1f} MB of weights")
        status = max(status, int(size > WEIGHTS_LIMIT))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
