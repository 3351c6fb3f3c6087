"""Every fault at every step of every form, for a first result and for a second one, and every condition:
`run.py --json FILE`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from conditions import every
from harness import FAULTS, FORMS, Bench


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--form", choices=FORMS, action="append", help="default: all")
    parser.add_argument(
        "--kills", type=int, default=40, help="at random times, of first and second results of a form"
    )
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    forms = [(name, first) for name in options.form or FORMS for first in (True, False)]
    with ThreadPoolExecutor(options.jobs) as pool:
        made = [
            one for some in pool.map(lambda form: list(judged(*form, options.kills)), forms) for one in some
        ]
    counts, found = Counter(kind for kind, _ in made), [wrong for _, wrong in made if wrong]
    for kind, count in sorted(counts.items()):
        print(f"{kind}: {count}")
    revision = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    told = {"revision": revision.stdout.strip(), "date": date.today().isoformat()}
    options.json.write_text(json.dumps({**told, "faults": counts, "wrong": found}, indent=1) + "\n")
    print(f"{len(made)} faults, {len(found)} wrong")
    print("\n".join(found))
    return 1 if found else 0


def judged(name: str, first: bool, kills: int) -> Iterator[tuple[str, str]]:
    """All that may happen to a form of models: kind of fault, what is wrong."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        bench = Bench(FORMS[name], Path(folder), first=first)
        for step in range(1, bench.steps() + 1):
            for fault in FAULTS:
                yield f"{name} {fault}", bench.wrong(step, fault)
        for kind, wrong in every(bench, kills):
            yield f"{name} {kind}", wrong


if __name__ == "__main__":
    sys.exit(main())
