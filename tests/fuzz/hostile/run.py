"""Judge seeds: `python tests/fuzz/hostile/run.py --graphs FIRST LAST --modules FIRST LAST --json OUT`.

`--record FILE` keeps the counts alone, with revision and date, as docs/hostile.json holds them. A long run
may be done in parts: `--all --json PART` keeps every outcome, `--after PART …` counts those of one revision.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hostile.cases import BAD, Outcome


def graphs(seeds: list[int]) -> list[Outcome]:
    """Judge graphs."""
    from hostile.cases import judge

    return [judge(seed) for seed in seeds]


def modules(seeds: list[int]) -> list[Outcome]:
    """Judge modules."""
    from hostile.modules import judge

    return [judge(seed) for seed in seeds]


def summary(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Counts of everything, and what is bad."""
    listed = list(outcomes)
    report: dict[str, Any] = {}
    for family in ("graph", "module"):
        own = [o for o in listed if o.family == family]
        if not own:
            continue
        kinds = Counter(o.kind for o in own)
        equal = kinds["exact"] + kinds["unclaimed"]
        report[family] = {
            "cases": len(own),
            "kinds": dict(kinds.most_common()),
            "exact and changed": sum(o.kind == "exact" and o.nontrivial for o in own),
            "claimed of equal": kinds["exact"] / equal if equal else None,
            "seconds": sum(o.seconds for o in own),
            "refused": dict(Counter(o.detail.split()[0] for o in own if o.kind == "refused").most_common()),
            "unclaimed": [[o.seed, o.gaps[0], o.recipe] for o in own if o.kind == "unclaimed"],
            "features": _features(own),
        }
    report["bad"] = [o.as_json() for o in listed if o.kind in BAD]
    return report


def revision() -> str:
    """The revision of the compiler, and whether it was changed since."""
    asked = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def earlier(parts: Iterable[Path]) -> tuple[list[Outcome], float]:
    """The outcomes of earlier parts of a run, and their time. Exits where one is of another revision."""
    outcomes: list[Outcome] = []
    wall = 0.0
    for path in parts:
        report = json.loads(path.read_text())
        if report["revision"] != revision():
            sys.exit(f"{path} is of revision {report['revision']}, and this is {revision()}")
        outcomes += [Outcome(**one) for one in report["outcomes"]]
        wall += report["wall"]
    return outcomes, wall


def record(report: dict[str, Any], outcomes: Iterable[Outcome], jobs: int) -> dict[str, Any]:
    """The part of a report that is kept: the compiler's revision, the date, the seeds, and the counts."""
    seeds = {family: sorted(o.seed for o in outcomes if o.family == family) for family in ("graph", "module")}
    kept = ("cases", "kinds", "exact and changed", "claimed of equal", "seconds", "refused")
    counts = {
        family: {key: report[family][key] for key in kept}
        for family in ("graph", "module")
        if family in report
    }
    return {
        "revision": report["revision"],
        "date": datetime.now(UTC).date().isoformat(),
        "seeds": {family: [own[0], own[-1] + 1] for family, own in seeds.items() if own},
        "jobs": jobs,
        "wall": report["wall"],
        **counts,
        "bad": report["bad"],
    }


def _features(own: list[Outcome]) -> dict[str, list[int]]:
    """How often a feature occurs: at all, claimed, not claimed, refused."""
    table: dict[str, list[int]] = {}
    for o in own:
        for feature in o.features:
            row = table.setdefault(feature, [0, 0, 0, 0])
            row[0] += 1
            row[1] += o.claim == "exact"
            row[2] += o.claim == "gap"
            row[3] += o.kind == "refused"
    return dict(sorted(table.items()))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, nargs=2, default=(0, 0), metavar=("FIRST", "LAST"))
    parser.add_argument("--modules", type=int, nargs=2, default=(0, 0), metavar=("FIRST", "LAST"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--all", action="store_true", help="keep every outcome in the report")
    parser.add_argument("--after", type=Path, nargs="*", default=(), metavar="PART")
    given = parser.parse_args()
    outcomes, spent = earlier(given.after)
    began = time.perf_counter()
    with ProcessPoolExecutor(given.jobs) as pool:
        waiting = [pool.submit(graphs, part) for part in _parts(range(*given.graphs), 25)]
        waiting += [pool.submit(modules, part) for part in _parts(range(*given.modules), 10)]
        for job in waiting:
            for outcome in job.result():
                outcomes.append(outcome)
                if outcome.kind in BAD:
                    print(
                        f"{outcome.family} {outcome.seed}: {outcome.kind}: {outcome.detail or outcome.apart}"
                    )
                    print("    " + outcome.recipe.replace("\n", "\n    "), flush=True)
    report = summary(outcomes) | {"wall": spent + time.perf_counter() - began, "revision": revision()}
    if given.all:
        report["outcomes"] = [o.as_json() for o in outcomes]
    if given.json:
        given.json.write_text(json.dumps(report, indent=1))
    if given.record:
        kept = record(report, outcomes, given.jobs)
        given.record.write_text(json.dumps(kept, indent=1) + "\n")
    for family in ("graph", "module"):
        if family in report:
            print(family, {k: v for k, v in report[family].items() if k not in ("features", "unclaimed")})
    print(f"{report['wall']:.0f} s, {len(report['bad'])} bad")
    return 1 if report["bad"] else 0


def _parts(seeds: range, size: int) -> list[list[int]]:
    return [list(seeds[i : i + size]) for i in range(0, len(seeds), size)]


if __name__ == "__main__":
    sys.exit(main())
