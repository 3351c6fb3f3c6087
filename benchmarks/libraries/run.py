"""Measure growc on whole libraries of models that it was not developed against.

    python benchmarks/libraries/run.py [LIBRARY [NAME…]] [--json FILE]

`make libraries` installs the libraries first. Each model is measured in a process of its own; what the file
has already is not run again, unless it is named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import new_classes
import own_choice
import subjects
import torch
from alone import alone
from subjects import Subject
from torch import nn

LIMIT = 900
"""Seconds for one model."""
LIBRARIES: Mapping[str, Callable[[], Iterator[Subject]]] = {
    "torchvision": subjects.torchvision_subjects,
    "timm": subjects.timm_subjects,
    "own": own_choice.own_subjects,
    "transformers": new_classes.new_subjects,
    "directories": new_classes.new_subjects,
    "dynamo": lambda: families("torchvision", "own", "timm", "transformers"),
    "torchscript": lambda: families("torchvision", "own", "timm", "transformers"),
}
"""Directories are the checkpoints of the models of transformers; the last two are ONNX files, by exporter."""


def families(*libraries: str) -> Iterator[Subject]:
    """For each family the first model that is not too large, by the family's name."""
    subjects_of: dict[tuple[str, str], list[Subject]] = {}
    for subject in chain.from_iterable(LIBRARIES[library]() for library in libraries):
        subjects_of.setdefault((subject.library, subject.family), []).append(subject)
    for (library, family), members in subjects_of.items():
        yield Subject(library, family, family, partial(_first, members), members[0].axes)


def _first(members: Sequence[Subject]) -> tuple[nn.Module, subjects.Feeds]:
    for member in members:
        with suppress(subjects.TooLargeError):
            return member.make()
    raise subjects.TooLargeError


def _measured(library: str, subject: Subject) -> dict[str, Any]:
    if library == "directories":
        from directories import measured_directory

        return measured_directory(subject)
    if library in ("dynamo", "torchscript"):
        from exported import measured_export

        return measured_export(subject, dynamo=library == "dynamo")
    from measure import measured

    return measured(subject)


def _work(library: str, key: str, pipe: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    subject = next(s for s in LIBRARIES[library]() if _key(library, s) == key)
    try:
        record = _measured(library, subject)
        pipe.send(record | {"seconds": time.process_time()} if "seconds" in record else record)
    except subjects.TooLargeError:
        pipe.send({"skipped": "more parameters than are run"})
    except Exception as error:  # noqa: BLE001
        pipe.send({"skipped": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-2000:]})


def _key(library: str, subject: Subject) -> str:
    way = {"directories": " (directory)", "dynamo": " (dynamo)", "torchscript": " (torchscript)"}
    return f"{subject.library} {subject.name}{way.get(library, '')}"


def _crashed(said: str) -> dict[str, Any]:
    return {"cases": {"all": {"status": "crash", "said": said}}}


def revision() -> str:
    """The revision of growc; with a + where files differ from it."""
    return subprocess.check_output(["git", "describe", "--always", "--dirty=+"], text=True).strip()


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", nargs="?", choices=LIBRARIES)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path, default=Path("build/libraries.json"))
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    for library in [options.library] if options.library else LIBRARIES:
        for subject in LIBRARIES[library]():
            key = _key(library, subject)
            wanted = subject.name in options.names if options.names else key not in results
            if wanted:
                record = alone(_work, (library, key), LIMIT, _crashed)
                results[key] = record | {"revision": revision(), "date": str(date.today())}
                options.json.write_text(json.dumps(results, indent=1))
                print(*_lines(key, results[key]), sep="\n", flush=True)


def _lines(key: str, model: dict[str, Any]) -> Iterator[str]:
    if "skipped" in model:
        yield f"{key:40} not run: {model['skipped'][:150]}"
    for case, o in model.get("cases", {}).items():
        numbers = f"{o.get('difference', 0):7.0e} {o.get('seconds', 0):6.1f} s"
        yield f"{key:40} {case:12} {o['status']:10} {numbers} {o['said'][:300]} {o.get('fixed') or ''}"


if __name__ == "__main__":
    main()
