"""Scores of a measurement: sums over values that a model computes, and their file between two runs.

A file of scores has a fingerprint of the model, the inputs and the number of samples. An interrupted
measurement continues from its file.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from growc.algebra.indexmap import Array, Floats
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.json_data import Json
from growc.errors.regular_files import parsing_foreign_file
from growc.recipe.statistics import IMPORTANCE, Statistic
from growc.system.fetched_models import put_beside

FORMAT = 5


@dataclass
class Scores:
    """Sums over activations, and the count of numbers in each; `done` of `cases` batches.

    profile: the costs of changes of layers, as JSON (growc.reports.layer_profile). samples, seconds: those of
    this run, without what was read from a file.
    """

    fingerprint: str
    cases: int
    done: int = 0
    sums: list[Floats] = field(default_factory=list)
    counts: list[Floats] = field(default_factory=list)
    profile: dict[str, Json] = field(default_factory=dict)
    samples: int = 0
    seconds: float = 0.0

    def values(self, statistic: Statistic = IMPORTANCE) -> list[Floats]:
        """The statistic of each sum: its root for l2, the sum itself for a largest value, else the mean."""
        if statistic.using == "l2":
            return [np.sqrt(s) for s in self.sums]
        if statistic.largest:
            return self.sums
        return [s / np.maximum(n, 1.0) for s, n in zip(self.sums, self.counts, strict=True)]


def cache_path(model: Path, statistic: Statistic = IMPORTANCE) -> Path:
    """The file for the scores of a model: beside the model, or in the current folder for a fetched model."""
    place, name = put_beside(model), statistic.name.replace(" ", "-")
    return place.with_name(f"{place.name if model.is_dir() else place.stem}.{name}.npz")


def fingerprint(
    files: Sequence[Path], data: Path, samples: int | None, statistic: Statistic = IMPORTANCE
) -> str:
    """A hash of the files of a model, the inputs, the number of samples, and the statistic.

    Raises GrowError (G323) if the inputs cannot be read.
    """
    name = "" if statistic == IMPORTANCE else f" {statistic.name}"
    digest = hashlib.blake2b(f"{FORMAT} {samples}{name}".encode(), digest_size=20)
    for path in files:
        digest.update(_digest(path))
    with parsing_foreign_file(data, "a .npz or .npy file", "G323"):
        digest.update(_digest(data))
    return digest.hexdigest()


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def write_scores(path: Path, scores: Scores) -> None:
    """Write scores to a file. Where the folder cannot be written to, nothing is kept."""
    head = {"fingerprint": scores.fingerprint, "cases": scores.cases, "done": scores.done}
    arrays: dict[str, Array] = {"growc": np.array(json.dumps(head | {"profile": scores.profile}))}
    for k, (total, count) in enumerate(zip(scores.sums, scores.counts, strict=True)):
        arrays |= {f"sum.{k}": total, f"count.{k}": count}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    draft = path.with_name(f"{path.name}.part")
    try:
        draft.write_bytes(buffer.getvalue())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)


def read_scores(path: Path) -> Scores | None:
    """The scores in a file; None where there is no file, or none that can be read."""
    if not path.is_file():
        return None
    # A file without scores can make numpy raise any error.
    # Numpy leaves a file open that it opened itself and cannot read.
    with suppress(Exception), path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        head = json.loads(str(file["growc"]))
        count = sum(name.startswith("sum.") for name in file.files)
        sums, counts = ([file[f"{kind}.{k}"] for k in range(count)] for kind in ("sum", "count"))
        known = head["fingerprint"], head["cases"], head["done"]
        return Scores(*known, sums, counts, head.get("profile", {}))
    return None


def require(path: Path, mark: str) -> None:
    """Raise GrowError (G501) where a file has no scores of the measurement with this fingerprint."""
    scores = read_scores(path)
    if scores is None or scores.fingerprint != mark:
        what = "is no file of scores" if scores is None else "has scores of another model, or of other inputs"
        raise GrowError(Diagnostic("G501", f"`{path}` exists, and {what}", help="`--force` replaces it"))
