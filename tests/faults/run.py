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
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    found: list[str] = []
    for form in (FORMS[name] for name in options.form or FORMS):
        for first in (True, False):
            with tempfile.TemporaryDirectory(prefix="faults-") as folder:
                bench = Bench(form, Path(folder), first=first)
                for step in range(1, bench.steps() + 1):
                    for fault in FAULTS:
                        counts[f"{form.name} {fault}"] += 1
                        found += filter(None, [bench.wrong(step, fault)])
                for kind, wrong in every(bench, options.kills):
                    counts[f"{form.name} {kind}"] += 1
                    found += filter(None, [wrong])
    for kind, count in sorted(counts.items()):
        print(f"{kind}: {count}")
    revision = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    told = {"revision": revision.stdout.strip(), "date": date.today().isoformat()}
    options.json.write_text(json.dumps({**told, "faults": counts, "wrong": found}, indent=1) + "\n")
    print(f"{sum(counts.values())} faults, {len(found)} wrong")
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
