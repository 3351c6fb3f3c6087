"""Every fault at every step of every form, for a first result and for a second one, and every condition:
`run.py --json FILE`, which has what was found of each form, when.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from conditions import every
from full_runs import Record, heed_interrupts
from harness import FAULTS, FORMS, Bench


def main() -> int:
    heed_interrupts()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--form", choices=FORMS, action="append", help="default: all")
    parser.add_argument(
        "--kills", type=int, default=40, help="at random times, of first and second results of a form"
    )
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    record = Record(options.json)
    forms = [(name, first) for name in options.form or FORMS for first in (True, False)]
    failed = False
    with ThreadPoolExecutor(options.jobs) as pool:
        for (name, first), outcomes in zip(
            forms, pool.map(lambda form: [*judged(*form, options.kills)], forms), strict=True
        ):
            wrong = [error for _, error in outcomes if error]
            counted = dict(sorted(Counter(kind for kind, _ in outcomes).items()))
            results = {"faults": counted, "wrong": wrong}
            record.add(f"{name}, {'first' if first else 'second'} result", results)
            print(name, first, len(outcomes), "faults", len(wrong), "wrong", *wrong, sep="\n  ", flush=True)
            failed |= bool(wrong)
    return 1 if failed else 0


def judged(name: str, first: bool, kills: int) -> Iterator[tuple[str, str]]:
    """All that may happen to a form of models: kind of fault, what is wrong."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        bench = Bench(FORMS[name], Path(folder), first=first)
        for step in range(1, bench.steps() + 1):
            for fault in FAULTS:
                yield fault, bench.wrong(step, fault)
        yield from every(bench, kills)


if __name__ == "__main__":
    sys.exit(main())
