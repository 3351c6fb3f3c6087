"""Judge cases at random: `fuzz.py [--kind KIND] [--count N] [--first SEED] [--json FILE] [--corpus]`.

Each case is a seed of its kind. Cases run in forked processes, some to a process: one that ends otherwise
than with exit status 0 to 4, takes more than 10 seconds or a gigabyte over what was imported, or dies, is
wrong. `--corpus` keeps the first case of each diagnostic that no kept one has led to.
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
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kinds import CORPUS, KINDS, RECIPE, Stock, stock

SECONDS, MEGABYTES = 10, 1000
TOGETHER = {"recipe-grammar": 500, "recipe-bytes": 500}
"""Cases in one process; of the other kinds 50."""
KEPT = {"recipe-grammar": RECIPE, "recipe-bytes": RECIPE, "onnx-structure": "m.onnx", "onnx-bytes": "m.onnx"}
"""The file of a case that the corpus keeps, of kinds that need only one."""
SMALL = 4000
"""Bytes of a file that is kept."""


@dataclass(frozen=True)
class Case:
    """What became of a seed. `said`: the first diagnostic, without names and numbers."""

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
        said = io.StringIO()
        start = time.monotonic()
        signal.alarm(SECONDS)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = main(arguments)
        signal.alarm(0)
    seconds, taken, text = time.monotonic() - start, _peak() - before, said.getvalue()
    wrong = ""
    if status not in range(5) or "Traceback" in text:
        wrong = f"{arguments} ends with {status}: {text[-400:]}"
    elif taken > MEGABYTES:
        wrong = f"{arguments} takes {taken:.0f} MB"
    found = re.search(r"(?:error|warning)\[(G\d+)\]: (.*)", text)
    plain = "" if found is None else f"{found[1]} {re.sub(r'`[^`]*`|[0-9]+', '#', found[2])[:80]}"
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
            yield Case(kind, left.pop(0), -1, SECONDS, 0, wrong=death)


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
        return cases, f"takes over {SECONDS} s" if number == signal.SIGALRM else f"dies of signal {number}"
    return cases, "" if not status else f"ends the process with {status >> 8}"


def _report(kind: str, seeds: Sequence[int], given: Stock, pipe: int) -> None:
    """The child: judges, writes a line for each case, ends."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
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
    import onnxruntime  # noqa: F401
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    from growc.passes import PIPELINE

    assert PIPELINE


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
    counts: dict[str, Counter[str]] = {}
    wrong: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="fuzz-stock-") as folder:
        given = stock(Path(folder))
        for kind in options.kind or KINDS:
            seeds = range(options.first, options.first + (options.count or KINDS[kind].whole))
            counts[kind], known = Counter(), set()
            for case in judged_apart(kind, seeds, given):
                counts[kind][f"status {case.status}"] += 1
                wrong += [case] if case.wrong else []
                if case.said not in known and options.corpus and kind in KEPT:
                    keep(case, given)
                known.add(case.said)
                if case.wrong:
                    print(kind, case.seed, case.wrong, flush=True)
            print(kind, dict(counts[kind]), f"{len(known)} diagnostics", flush=True)
    if options.json:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        told = {"revision": asked.stdout.strip(), "date": date.today().isoformat(), "cases": counts}
        options.json.write_text(
            json.dumps({**told, "wrong": [asdict(one) for one in wrong]}, indent=1) + "\n"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
