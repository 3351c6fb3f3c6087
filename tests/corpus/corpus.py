"""Emitted results and plans against the digests of an earlier compiler.

    python tests/corpus/corpus.py [ZOO] [--only TEXT] [--jobs N] [--write]

Prints every result that is not what tests/corpus/digests.json says, and exits with 1. Where the source is not
that of the record, or the result differs beside other libraries or another processor, that is counted only.
`--write` makes every result twice, names those that differ, and records the others.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).resolve().parent))

from corpus_cases import ROOT, Case, everything
from digests import Digests, versions

RECORD = Path(__file__).resolve().parent / "digests.json"
SAME, UNKNOWN, DIFFERENT = "same", "not on record", "different"
OTHER_SOURCE, OTHER_MACHINE = "another source", "different, beside other libraries or another processor"


def made(case: Case) -> Digests:
    """The digests of one case."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dict(case.make(Path(folder)))


def verdict(found: Digests, name: str, record: Mapping[str, Any]) -> str:
    """How a result stands to the record."""
    known = record["results"].get(name)
    if known is None:
        return UNKNOWN
    if found == known:
        return SAME
    if found.get("source") != known.get("source"):
        return OTHER_SOURCE
    return DIFFERENT if record["versions"] == versions() else OTHER_MACHINE


def recorded() -> dict[str, Any]:
    """The record: versions of libraries, and the digests by the names of cases."""
    return dict(json.loads(RECORD.read_text())) if RECORD.exists() else {"versions": {}, "results": {}}


def differences(found: Digests, known: Digests) -> str:
    """The files that differ, by name."""
    names = sorted(name for name in {*found, *known} if found.get(name) != known.get(name))
    return ", ".join(names)


def _named(zoo: Path, name: str) -> tuple[str, Digests]:
    """A case by its name, in a process that has not made it yet."""
    _quiet()
    return name, made(_by_name(zoo)[name])


@cache
def _by_name(zoo: Path) -> Mapping[str, Case]:
    return {case.name: case for case in everything(zoo)}


def _quiet() -> None:
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)


def results(zoo: Path, names: Iterable[str], jobs: int) -> dict[str, Digests]:
    """The digests of cases, by name."""
    with get_context("spawn").Pool(jobs, maxtasksperchild=25) as pool:
        return dict(pool.imap(partial(_named, zoo), names))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("zoo", nargs="?", type=Path, default=ROOT / "build" / "zoo")
    parser.add_argument("--only", default="", help="cases whose names have this text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="record the results")
    given = parser.parse_args()
    names = [case.name for case in everything(given.zoo) if given.only in case.name]
    first = results(given.zoo, names, given.jobs)
    known = recorded()
    if given.write:
        again = results(given.zoo, names, given.jobs)
        steady = {name: digests for name, digests in first.items() if digests == again[name]}
        for name in first.keys() - steady.keys():
            print(f"not the same twice: {name}: {differences(first[name], again[name])}")
        kept = {name: digests for name, digests in known["results"].items() if given.only not in name}
        record = {"versions": versions(), "results": dict(sorted((kept | steady).items()))}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        return 0
    verdicts = {name: verdict(digests, name, known) for name, digests in first.items()}
    counts = Counter(verdicts.values())
    for name, digests in first.items():
        if verdicts[name] == DIFFERENT:
            print(f"different: {name}: {differences(digests, known['results'][name])}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    return 1 if counts[DIFFERENT] or not counts[SAME] else 0


if __name__ == "__main__":
    sys.exit(main())
