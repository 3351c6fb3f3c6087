"""Measurements of a model on inputs: the importance of its units and layers, and the cost of each layer.

Needs: a model file, and a file of inputs for it. They help to decide what to trim by importance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from growc.errors.arguments import checked_arguments
from growc.errors.diagnostic import Diagnostic, GrowError, wrong
from growc.errors.display import Shown
from growc.errors.progress import Progress, quiet
from growc.errors.regular_files import irregular
from growc.errors.short_repr import brief
from growc.files.hub import local
from growc.formats.compiler import analysed, lowered, opened
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from growc.measurement.probes import LayerScore
    from growc.reports.layer_profile import Profile


@dataclass(frozen=True)
class Measurement(Shown):
    """The measurements of a model.

    scores: of units, by `axis.number`. layers: their scores. samples, seconds: of the part that ran just now
    and was not kept from an earlier measurement.
    """

    __repr__ = brief

    scores: dict[str, NDArray[np.float64]]
    layers: tuple[LayerScore, ...]
    samples: int
    seconds: float


@checked_arguments
def measure(
    model: str | Path,
    inputs: str | Path,
    out: str | Path | None = None,
    samples: int | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> dict[str, NDArray[np.float64]]:
    """The importance of every unit of every named axis, by `axis.number`, and of every layer, by
    `layers.number`; kept in `out` or beside the model.

    Raises GrowError: G200 where `samples` is below 1, G3xx where the model or the inputs cannot be read, G403
    where onnxruntime cannot run the model, G501 where `out` has scores of another model or other inputs, and
    not `force`.
    """
    from growc.render.progress import in_python

    if samples is not None and samples < 1:
        raise wrong("`samples` is at least 1")
    with in_python(progress) as advance:
        return measurement(model, inputs, out, samples, force=force, progress=advance).scores


def measurement(
    model: str | Path,
    inputs: str | Path,
    out: str | Path | None = None,
    samples: int | None = None,
    *,
    force: bool = False,
    progress: Progress = quiet,
    ranks: Ranks = ALONE,
) -> Measurement:
    """The result of `measure`, with scores of layers and their branches, and the speed. ranks: the processes
    that run the cases. Raises GrowError as `measure`; G501 also where `out` is no regular file.
    """
    from growc.file_roles import NamedPath, model_parts, require_distinct
    from growc.measurement import importance
    from growc.measurement.probes import layer_scores, named_scores
    from growc.plans.scores import cache_path, require

    place, scores_file = local(model, progress), None if out is None else Path(out)
    written = NamedPath("the file of scores", cache_path(place) if scores_file is None else scores_file)
    require_distinct([written], [NamedPath("the file of `--inputs`", Path(inputs)), *model_parts(place)])
    if scores_file is not None and (kind := irregular(scores_file)):
        raise GrowError(Diagnostic("G501", f"`{scores_file}` is {kind}, and no file"))
    compilation = analysed(place)
    if scores_file is not None and scores_file.exists() and not force:
        require(scores_file, importance.mark(compilation, Path(inputs), samples))
    importances = importance.measure(
        compilation,
        Path(inputs),
        samples,
        kept=scores_file,
        progress=progress,
        ranks=ranks,
        remade=lowered,
    )
    scores = dict(named_scores(compilation, importances))
    layers = layer_scores(compilation, importances)
    return Measurement(scores, tuple(layers), importances.samples, importances.seconds)


def profile(
    model: str | Path,
    inputs: str | Path,
    samples: int | None = None,
    *,
    out: str | Path | None = None,
    layers: Sequence[LayerScore] | None = None,
    progress: Progress = quiet,
    ranks: Ranks = ALONE,
) -> Profile:
    """The part that each layer adds to its stream, and the cost of removing or doubling it.

    The costs are kept with the scores, in `out` or beside the model. layers: the layers' scores, if they were
    measured before. ranks: the processes that try the changes.
    """
    from growc.measurement.shared import Subject
    from growc.plans.scores import cache_path, fingerprint
    from growc.reports.layer_profile import TrialCache, profile

    if layers is None:
        layers = measurement(model, inputs, out, samples, progress=progress, ranks=ranks).layers
    path, data = local(model, progress), Path(inputs)
    source = opened(path)
    scores_file = cache_path(path) if out is None else Path(out)
    book = TrialCache.of(scores_file, fingerprint(source.files(path), data, samples))
    subject = Subject(path, source.file(path), lowered, data, samples, source.open_masks)
    c = analysed(subject.file)  # the file that onnxruntime runs
    return profile(c, subject, layers, progress, book, ranks)
