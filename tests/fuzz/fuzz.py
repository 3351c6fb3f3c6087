"""Judge cases at random: `fuzz.py [--kind KIND] [--count N] [--first SEED] [--json FILE] [--corpus]`.

Each case is a seed of its kind. Cases run in forked processes, some to a process: one that ends otherwise
than with exit status 0 to 4, takes more than its kind's seconds or a gigabyte over what was imported, or
dies, is wrong. `--corpus` keeps the first case of each diagnostic. The file has what was found of each kind,
when.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from full_runs import Record
from kinds import CORPUS, KINDS, RECIPE, Stock, stock

MEGABYTES = 1000
BUSY, TIMERS = 10, (signal.SIGALRM, signal.SIGPROF)
TOGETHER = {"recipe-grammar": 500, "recipe-bytes": 500}
"""Cases in one process; of the other kinds 50."""
KEPT = {"recipe-grammar": RECIPE, "recipe-bytes": RECIPE, "onnx-structure": "m.onnx", "onnx-bytes": "m.onnx"}
"""The file of a case that the corpus keeps, of kinds that need only one."""
SMALL = 4000
"""Bytes of a file that is kept."""


@dataclass(frozen=True)
class Case:
    """The outcome of a seed. `said`: the first diagnostic, without names and numbers."""

    kind: str
    seed: int
    status: int
    seconds: float
    megabytes: float
    said: str = ""
    wrong: str = ""


def judged(kind: str, seed: int, given: Stock) -> Case:
    """Run growc on one case, here."""
    from growc.cli.main import main

    before = _peak()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, contextlib.chdir(folder):
        arguments = KINDS[kind].make(random.Random(f"{kind} {seed}"), given, Path(folder))
        stream = io.StringIO()
        start = time.monotonic()
        limit = KINDS[kind].seconds
        signal.setitimer(signal.ITIMER_PROF, limit)  # of the processor: the machine may be busy
        signal.alarm(BUSY * limit)
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            status = main(arguments)
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds, taken, text = time.monotonic() - start, _peak() - before, stream.getvalue()
    wrong = ""
    if status not in range(5) or "Traceback" in text:
        wrong = f"{arguments} ends with {status}: {text[-400:]}"
    elif taken > MEGABYTES:
        wrong = f"{arguments} takes {taken:.0f} MB"
    match = re.search(r"(?:error|warning)\[(G\d+)\]: (.*)", text)
    plain = "" if match is None else f"{match[1]} {re.sub(r'`[^`]*`|[0-9]+', '#', match[2])[:80]}"
    return Case(kind, seed, status, round(seconds, 3), round(taken), plain, wrong)


def _peak() -> float:
    """Megabytes, of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def judged_apart(kind: str, seeds: Sequence[int], given: Stock) -> Iterator[Case]:
    """The same in processes of their own; who dies is judged by how."""
    left = list(seeds)
    while left:
        count = TOGETHER.get(kind, 50)
        cases, death = _forked(kind, left[:count], given)
        yield from cases
        left = left[len(cases) :] if death or len(cases) == 0 else left[count:]
        if death:
            yield Case(kind, left.pop(0), -1, KINDS[kind].seconds, 0, wrong=death)


def _forked(kind: str, seeds: Sequence[int], given: Stock) -> tuple[list[Case], str]:
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        _report(kind, seeds, given, theirs)
    os.close(theirs)
    with os.fdopen(ours) as lines:
        cases = [Case(**json.loads(line)) for line in lines]
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        timed_out = f"takes over {KINDS[kind].seconds} s"
        return cases, timed_out if number in TIMERS else f"dies of signal {number}"
    return cases, "" if not status else f"ends the process with {status >> 8}"


def _report(kind: str, seeds: Sequence[int], given: Stock, pipe: int) -> None:
    """The child: judges, writes a line for each case, ends."""
    for number in TIMERS:
        signal.signal(number, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nowhere, number)
    status = 1
    try:
        with os.fdopen(pipe, "w") as lines:
            for seed in seeds:
                print(json.dumps(asdict(judged(kind, seed, given))), file=lines, flush=True)
        status = 0
    finally:
        os._exit(status)


def imported() -> None:
    """Import what the kinds need, so that children share it."""
    for name in ("onnxruntime", "transformers", "growc.passes"):
        import_module(name)
    import torch

    torch.set_num_threads(1)


def keep(case: Case, given: Stock) -> None:
    """Put the file of a case into the corpus, where it is small."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        KINDS[case.kind].make(random.Random(f"{case.kind} {case.seed}"), given, Path(folder))
        path = Path(folder) / KEPT[case.kind]
        if path.stat().st_size <= SMALL:
            shutil.copy(path, CORPUS / f"{case.kind}-{case.seed}{path.suffix}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all")
    parser.add_argument("--count", type=int, help="of each kind; default: a full run")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--corpus", action="store_true")
    options = parser.parse_args()
    imported()
    record = Record(options.json) if options.json else None
    failed = False
    with tempfile.TemporaryDirectory(prefix="fuzz-stock-") as folder:
        given = stock(Path(folder))
        for kind in options.kind or KINDS:
            seeds = range(options.first, options.first + (options.count or KINDS[kind].whole))
            results = _found(judged_apart(kind, seeds, given), given if options.corpus else None)
            failed |= bool(results["wrong"])
            print(kind, results["statuses"], f"{results['diagnostics']} diagnostics", flush=True)
            if record is not None:
                record.add(kind, {"cases": len(seeds), **results})
    return 1 if failed else 0


def _found(cases: Iterable[Case], given: Stock | None) -> dict[str, Any]:
    """Counts of cases, and those that are wrong. given: for a corpus that keeps new diagnostics."""
    statuses: Counter[int] = Counter()
    wrong: list[Case] = []
    diagnostics: set[str] = set()
    for case in cases:
        statuses[case.status] += 1
        if given is not None and case.said not in diagnostics and case.kind in KEPT:
            keep(case, given)
        diagnostics.add(case.said)
        if case.wrong:
            wrong.append(case)
            print(case.kind, case.seed, case.wrong, flush=True)
    counted = {str(status): count for status, count in sorted(statuses.items())}
    return {"statuses": counted, "diagnostics": len(diagnostics), "wrong": [asdict(one) for one in wrong]}


if __name__ == "__main__":
    sys.exit(main())
