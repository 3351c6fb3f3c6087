"""Measure what growc can do to the models of a zoo: every model × flavour × recipe, written, run and judged.

    python benchmarks/coverage.py [ZOO] [--only MODEL,…] [--flavour FLAVOUR,…] [--recipe NAME,…] [--jobs N]

ZOO is a folder of `NAME.FLAVOUR[.anon].onnx` with `NAME.inputs.npz` and `zoo.json`, as tests/zoo/build.py
writes it. Results of this compiler and these benchmarks are kept in build/coverage and not measured again;
 docs/coverage.md is written when nothing was left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from coverage_page import failures, page
from coverage_recipes import RECIPES, Recipe, lacking

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "coverage"
PAGE = ROOT / "docs" / "coverage.md"
FLAVOURS = ("dynamo", "torchscript", "torchscript14", "dynamo23")
LIMIT = 600
"""Seconds for one file."""

Record = dict[str, Any]


def compiler_digest() -> str:
    """Changes whenever a result may change."""
    digest = hashlib.sha256()
    for folder in ("growc", "passes", "grammar", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".lark") and path.name != "coverage_page.py":
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def files(zoo: Path, only: Sequence[str], flavours: Sequence[str]) -> Iterator[tuple[str, str, Path]]:
    """(model, flavour, file) of what lies in a zoo."""
    names = list(json.loads((zoo / "zoo.json").read_text()))
    for flavour in (f"{f}{anon}" for anon in ("", ".anon") for f in flavours):
        for name in names:
            path = zoo / f"{name}.{flavour}.onnx"
            if path.exists() and (not only or name in only):
                yield name, flavour, path


def asked(facts: Mapping[str, Any], recipes: Sequence[Recipe]) -> list[Recipe]:
    """The recipes that a model is measured under."""
    return [recipe for recipe in recipes if recipe.asked(facts) and not lacking(recipe, facts)]


def _work(path: Path, names: Sequence[str], result: Path, digest: str) -> None:
    from coverage_measure import measure

    recipes = [recipe for recipe in RECIPES if recipe.name in names]
    draft = result.with_suffix(".tmp")
    draft.write_text(json.dumps({"digest": digest} | measure(path, recipes), indent=1))
    draft.replace(result)


def measured(path: Path, recipes: Sequence[Recipe], digest: str) -> Record:
    """The record of one file: the one that is kept, or made in a process of its own."""
    names = [recipe.name for recipe in recipes]
    key = hashlib.sha256(f"{digest} {path} {path.stat().st_mtime_ns} {names}".encode()).hexdigest()
    result = RESULTS / f"{path.stem}.json"
    if result.exists() and (kept := json.loads(result.read_text()))["digest"] == key:
        return dict(kept)
    result.unlink(missing_ok=True)
    process = CONTEXT.Process(target=_work, args=(path, names, result, key))
    process.start()
    process.join(LIMIT)
    if process.is_alive():
        process.kill()
    if result.exists():
        return dict(json.loads(result.read_text()))
    crash = {"status": "crash", "detail": f"the process ended with {process.exitcode}"}
    return {"roles": {}, "trouble": "crash", "cases": dict.fromkeys(names, crash)}


CONTEXT = multiprocessing.get_context("forkserver")


def main() -> None:
    """Measure what is asked for, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("zoo", nargs="?", type=Path, default=ROOT / "build" / "zoo")
    parser.add_argument("--only", default="", help="models, with commas between them")
    parser.add_argument(
        "--flavour", default=",".join(FLAVOURS[:3]), help="flavours, with commas between them"
    )
    parser.add_argument("--recipe", default="", help="recipes, with commas between them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--failures", type=Path, help="write every case that is not exact into this file")
    parser.add_argument("--facts", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # all of the compiler: what is edited while this runs does not mix with what was measured before
    CONTEXT.set_forkserver_preload(["coverage_measure", "growc.passes", "growc.dialects.onnx.model"])
    RESULTS.mkdir(parents=True, exist_ok=True)
    names = [word for word in options.recipe.split(",") if word]
    recipes = [recipe for recipe in RECIPES if not names or recipe.name in names]
    entries = json.loads((options.facts or options.zoo / "zoo.json").read_text())
    only = [word for word in options.only.split(",") if word]
    wanted = list(files(options.zoo, only, options.flavour.split(",")))
    digest, records = compiler_digest(), dict[tuple[str, str], Record]()
    with ThreadPoolExecutor(options.jobs) as pool:
        tasks = {
            pool.submit(measured, path, asked(entries[name]["facts"], recipes), digest): (name, flavour)
            for name, flavour, path in wanted
        }
        for task in as_completed(tasks):
            records[tasks[task]] = task.result()
            print(*tasks[task], *_marks(task.result()), flush=True)
            if options.failures:
                options.failures.write_text(failures(entries, records))
    if not only and not names:
        PAGE.write_text(page(entries, records), encoding="utf-8")


def _marks(record: Record) -> Iterator[str]:
    for name, case in record["cases"].items():
        if case["status"] != "exact":
            yield f"[{name}: {case['status']}]"


if __name__ == "__main__":
    main()
