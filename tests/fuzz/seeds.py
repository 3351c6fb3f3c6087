"""Many random models under random recipes: `python tests/fuzz/seeds.py FIRST LAST` judges these seeds.

It prints what must not be, on the smallest case that fails in the same way, and how many there are of each
kind. Exits with 1 where anything must not be.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import onnx
import onnx.printer
from choices import shrink
from verdicts import BAD, Verdict, case

EVERY = 500
"""Seeds between two reports."""


def judge_all(seeds: Iterable[int], folder: Path, tell: Callable[[str], None]) -> Counter[str]:
    """How many verdicts of each kind there are; `tell` is called with what a reader should look at."""
    kinds: Counter[str] = Counter()
    for number, seed in enumerate(seeds, 1):
        verdict, choices, text = case(seed, folder)
        kinds[verdict.kind] += 1
        if verdict.kind in BAD:
            tell(smallest(seed, verdict, choices.taken, folder))
        elif verdict.kind == "false gap":
            tell(f"seed {seed}: equal, not claimed: {text!r}: {verdict.detail}")
        if number % EVERY == 0:
            tell(f"{number} cases: {dict(kinds)}")
    return kinds


def smallest(seed: int, verdict: Verdict, taken: Sequence[int], folder: Path) -> str:
    """The case of a seed, as small as it gets, in words."""

    def fails(trial: Sequence[int]) -> bool:
        return case(trial, folder)[0].like(verdict)

    smaller, _, text = case(shrink(taken, fails, tries=150), folder)
    model = onnx.printer.to_text(onnx.load(folder / "model.onnx"))
    lines = (line[:200] for line in model.splitlines())
    return "\n".join([f"seed {seed}: {smaller}", text, *lines])


def main() -> int:
    """Judge the seeds from the first argument up to, and without, the second."""
    first, last = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="growc-seeds-") as folder:
        kinds = judge_all(range(first, last), Path(folder), lambda line: print(line, flush=True))
    print(dict(kinds))
    return int(bool(BAD & kinds.keys()))


if __name__ == "__main__":
    sys.exit(main())
