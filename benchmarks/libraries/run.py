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
import traceback
import warnings
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import new_classes
import own_choice
import subjects
from alone import alone

LIMIT = 900
"""Seconds for one model."""
LIBRARIES = {
    "torchvision": subjects.torchvision_subjects,
    "timm": subjects.timm_subjects,
    "own": own_choice.own_subjects,
    "transformers": new_classes.new_subjects,
    "directories": new_classes.new_subjects,
}
"""Directories are the checkpoints of the models of transformers."""


def _work(library: str, name: str, pipe: Any) -> None:
    import torch

    if library == "directories":
        from directories import measured_directory as measured
    else:
        from measure import measured

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    subject = next(s for s in LIBRARIES[library]() if s.name == name)
    try:
        pipe.send(measured(subject))
    except subjects.TooLargeError:
        pipe.send({"skipped": "more parameters than are run"})
    except Exception as error:  # noqa: BLE001
        pipe.send({"skipped": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-2000:]})


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
    found: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    for library in [options.library] if options.library else LIBRARIES:
        for subject in LIBRARIES[library]():
            key = f"{subject.library} {subject.name}{' (directory)' * (library == 'directories')}"
            wanted = subject.name in options.names if options.names else key not in found
            if wanted:
                made = alone(_work, (library, subject.name), LIMIT, _crashed)
                found[key] = made | {"revision": revision(), "date": str(date.today())}
                options.json.write_text(json.dumps(found, indent=1))
                print(*_lines(key, found[key]), sep="\n", flush=True)


def _lines(key: str, model: dict[str, Any]) -> Iterator[str]:
    if "skipped" in model:
        yield f"{key:40} not run: {model['skipped'][:150]}"
    for case, o in model.get("cases", {}).items():
        numbers = f"{o.get('difference', 0):7.0e} {o.get('seconds', 0):6.1f} s"
        yield f"{key:40} {case:12} {o['status']:10} {numbers} {o['said'][:300]} {o.get('fixed') or ''}"


if __name__ == "__main__":
    main()
