"""Measuring importance: the mean of |activation| of every unit, over calibration inputs (weight subcloning).

Needs: the analysis of a model, and a file of inputs. Gives: `Scores`. onnxruntime runs the model in batches,
and sums are taken inside the graph, so that memory does not grow with the number of samples. What has been
measured is kept beside the model under a fingerprint of model, data and number of samples: a measurement that
was interrupted goes on where it stopped, and comes to the same numbers.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from growc.axes import Space, factors, find
from growc.diagnostic import Diagnostic, GrowError
from growc.dialects.onnx.probes import Mask, Probe, counted, probed
from growc.expression import evaluate
from growc.feeds import read_inputs
from growc.float_copies import runnable
from growc.passes.activations import Activations, Reading
from growc.passes.measured import Measured, counterparts
from growc.recipe import Measure
from growc.session import Feeds, Session
from growc.signature import Role, read_signature

if TYPE_CHECKING:
    from growc.compilation import Compilation
    from growc.graph import Value
    from growc.passes.spaces import Axes

FORMAT = 1
SAVED_EVERY = 10.0
"""Seconds between two states that a measurement can go on from."""

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]


@dataclass
class Scores:
    """Sums over activations, and how many numbers each adds up; `done` of `cases` batches."""

    fingerprint: str
    cases: int
    done: int = 0
    sums: list[Floats] = field(default_factory=list)
    counts: list[Floats] = field(default_factory=list)

    @property
    def means(self) -> list[Floats]:
        """The mean of every element."""
        return [s / np.maximum(n, 1.0) for s, n in zip(self.sums, self.counts, strict=True)]


def measure(
    c: Compilation,
    data: Path,
    samples: int | None = None,
    *,
    kept: Path | None = None,
    keeps: bool = True,
    progress: Progress = lambda phrase, done, total: None,
) -> Scores:
    """Measure all units of a model, or read what was measured before.

    `kept` is where the scores are kept: `NAME.importance.npz` beside the model unless it says so. They are
    read from there, and, if `keeps`, written there. Raises GrowError: G403 where the inputs do not fit or
    onnxruntime cannot run the model, G309 where what is to be measured stands inside of an operator.
    """
    cases = read_inputs(data, c.path, samples)
    scores = Scores(fingerprint(c.path, data, samples), len(cases))
    path = kept or cache_path(c.path)
    found = read_scores(path)
    if found is not None and found.fingerprint == scores.fingerprint:
        scores = found
    if scores.done < len(cases):
        masks = masks_of(c)
        probes = [_probe(r, c.axes, masks) for r in Activations(c.axes).readings]
        _run(c.path, probes, cases, scores, path if keeps else None, progress)
    return scores


def measured(c: Compilation, statement: Measure) -> Measured:
    """What a `measure importance` finds, for a compilation whose layers may have moved."""
    from growc.api import inspect

    data, samples = statement.file.span.source.folder / statement.file.value, None
    if statement.samples is not None:
        samples = evaluate(statement.samples, lambda name, span: 0, lambda moment, name, span: 0)
    moved = c.depth is not None and c.depth.changed
    source = inspect(c.path) if moved else c
    scores = measure(source, data, samples, keeps=c.keeps, progress=c.progress)
    known = counterparts(c.axes, source.axes) if moved else None
    return Measured(Activations(source.axes), scores.means, known)


def cache_path(model: Path) -> Path:
    """Where the scores of a model are kept."""
    return model.with_name(f"{model.stem}.importance.npz")


def _run(
    model: Path,
    probes: Sequence[Probe],
    cases: list[Feeds],
    scores: Scores,
    path: Path | None,
    progress: Progress,
) -> None:
    """All batches that are not done yet; what is measured is kept where `path` says."""
    last = time.monotonic()
    with runnable(model) as copy, Session(copy, graph=probed(copy, probes)) as session:
        try:
            while scores.done < len(cases):
                progress("measuring importance", scores.done, len(cases))
                _add(scores, session.run(cases[scores.done]), probes)
                scores.done += 1
                if path is not None and time.monotonic() - last > SAVED_EVERY:
                    write_scores(path, scores)
                    last = time.monotonic()
        finally:
            if path is not None:
                write_scores(path, scores)


def _add(scores: Scores, outputs: Feeds, probes: Sequence[Probe]) -> None:
    """One batch more."""
    sums: list[Floats] = []
    counts: list[Floats] = []
    for k, probe in enumerate(probes):
        name = f"growc.probe.{k}"
        weight = float(outputs[f"{name}.weight"]) if probe.masks else 1.0
        sums.append(outputs[f"{name}.sum"].astype(np.float64))
        counts.append(np.array(counted(probe, outputs[f"{name}.shape"].tolist(), weight)))
    for totals, found in ((scores.sums, sums), (scores.counts, counts)):
        totals[:] = [np.add(a, b) for a, b in zip(totals, found, strict=True)] if totals else found


# Where activations are


def masks_of(c: Compilation) -> list[Value]:
    """The model's inputs that say which places count."""
    names = {port.name for port in read_signature(c.path) if port.role is Role.MASK and len(port.dims) > 1}
    return [value for value in c.graph.inputs if value.name in names]


def _probe(reading: Reading, axes: Axes, masks: Sequence[Value]) -> Probe:
    value = reading.value
    if value.producer is not None and value.producer.part_of:
        message = f"an activation inside of `{value.producer.name or value.producer.kind}` cannot be measured"
        raise GrowError(Diagnostic("G309", message, help="measure a model without fused operators"))
    found = (_aligned(mask, value, axes) for mask in masks)
    return Probe(value.name, value.rank, reading.kept, tuple(m for m in found if m is not None))


def _aligned(mask: Value, value: Value, axes: Axes) -> Mask | None:
    """Where the axes of a mask stand in a tensor; None where not all of them do, or it cannot be told."""
    wanted = [find(s) for s in axes.of(mask)]
    spaces = [find(s) for s in axes.of(value)]
    for place, space in enumerate(spaces):
        parts = factors(space)
        if len(parts) == len(wanted) > 1 and all(map(_same, parts, wanted)):
            return Mask(mask.name, (place,), merged=True)
    places = [[i for i, s in enumerate(spaces) if _same(s, w)] for w in wanted]
    if any(len(found) != 1 for found in places):
        return None
    return Mask(mask.name, tuple(found[0] for found in places))


def _same(a: Space, b: Space) -> bool:
    """Whether two axes go over the same: one space, or the same symbol (equal sizes at all sample points)."""
    return a is b or (not a.static and a.size == b.size)


# What is kept


def fingerprint(model: Path, data: Path, samples: int | None) -> str:
    """Changes with the model, the inputs, and how many of them are used."""
    from growc.dialects.onnx.container import files_of

    found = hashlib.blake2b(f"{FORMAT} {samples}".encode(), digest_size=20)
    for path in (*files_of(model), data):
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "blake2b").digest())
    return found.hexdigest()


def write_scores(path: Path, scores: Scores) -> None:
    """Keep scores; a folder that cannot be written to keeps none."""
    head = json.dumps({"fingerprint": scores.fingerprint, "cases": scores.cases, "done": scores.done})
    arrays: dict[str, Any] = {"growc": np.array(head)}
    for k, (total, count) in enumerate(zip(scores.sums, scores.counts, strict=True)):
        arrays |= {f"sum.{k}": total, f"count.{k}": count}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    draft = path.with_name(f"{path.name}.part")
    try:
        draft.write_bytes(buffer.getvalue())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)


def read_scores(path: Path) -> Scores | None:
    """What was kept; None where nothing is, or nothing that can be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            head = json.loads(str(file["growc"]))
            count = sum(name.startswith("sum.") for name in file.files)
            sums, counts = ([file[f"{kind}.{k}"] for k in range(count)] for kind in ("sum", "count"))
            return Scores(head["fingerprint"], head["cases"], head["done"], sums, counts)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def require(path: Path, model: Path, data: Path, samples: int | None) -> None:
    """Raise GrowError (G501) where a file is there that has no scores of this measurement."""
    found = read_scores(path)
    if found is None or found.fingerprint != fingerprint(model, data, samples):
        what = "is no file of scores" if found is None else "has scores of another model, or of other inputs"
        raise GrowError(Diagnostic("G501", f"`{path}` exists, and {what}", help="`--force` replaces it"))


def named_scores(c: Compilation, scores: Scores) -> Iterator[tuple[str, Floats]]:
    """(`ffn.0`, one number for each unit) of every axis that has a name and is measured."""
    activations, means = Activations(c.axes), scores.means
    for name, found in c.roles.axes.items():
        for k, axis in enumerate(found):
            if all(find(s).kind == "atom" and id(find(s)) in activations.of_atom for s in axis.spaces):
                yield f"{name}.{k}", activations.scores(means, axis.spaces)
