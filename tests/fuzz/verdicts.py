"""Verdicts on growc's result for one case, by onnxruntime alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from choices import Choices
from random_builder import INT64, Net
from random_models import random_model
from random_recipes import random_recipe

from growc import api
from growc.budgets.settle import settled
from growc.dialects.onnx.emit import emitted
from growc.dialects.onnx.files.save import save
from growc.errors.diagnostic import Attempt, GrowError
from growc.passes.compilation import Result
from growc.passes.finish.interface import ports_of
from growc.verification.difference import compare
from growc.verification.ort_session import Feeds, Session
from growc.verification.rounding import FLOOR, Rounding, limit, measure, ways

ROUNDING = 1e-4
"""A random model that moves further from itself than this shows nothing."""

LENGTHS = ((2, 3), (1, 5), (3, 4), (1, 1), (2, 7))
"""Batch and sequence of the five inputs."""


BAD = frozenset({"false exact", "broken", "crash"})
"""Verdicts that must never occur."""


@dataclass(frozen=True)
class Verdict:
    """`kind`: exact, gap, false gap (equal, not claimed), refused, ill (the model shows nothing); or BAD."""

    kind: str
    detail: str = ""
    difference: float = 0.0

    def like(self, other: Verdict) -> bool:
        """Whether both fail in the same way."""
        return self.kind == other.kind and self.detail[:20] == other.detail[:20]


def case(source: int | Sequence[int], folder: Path) -> tuple[Verdict, Choices, str]:
    """Make a model and a recipe from a seed or recorded choices, and judge what comes of them."""
    choices = Choices(source)
    net = random_model(choices)
    text = random_recipe(choices, net)
    model = net.save(folder / "model.onnx")
    return judged(model, text, feeds_of(net)), choices, text


def feeds_of(net: Net) -> list[Feeds]:
    """Five inputs of different lengths."""
    random = np.random.default_rng(7)
    cases = []
    for batch, length in LENGTHS:
        sizes = {"batch": batch, "seq": length, "source": length + 1}
        feeds: Feeds = {}
        for name, (kind, dims) in net.inputs.items():
            shape = [d if isinstance(d, int) else sizes[d] for d in dims]
            if name == "mask":
                feeds[name] = np.ones(shape, dtype=np.int64)
                feeds[name][0, 1 + length // 2 :] = 0
            elif kind == INT64:
                feeds[name] = random.integers(0, net.limits[name], shape)
            else:
                feeds[name] = random.standard_normal(shape).astype(np.float32)
        cases.append(feeds)
    return cases


def judged(model: Path, text: str, cases: Sequence[Feeds]) -> Verdict:
    """Whether what growc says of a recipe on a model is true."""
    if not _finite(_run(model, True, cases)):
        return Verdict("ill", "an output is not finite")
    with Attempt() as attempt:  # any other exception is what is looked for
        compilation = api.compile(settled(api.reading_of(text, {}), {}, model), model)
        target = written(compilation, model.with_name("grown"))
    if isinstance(attempt.error, GrowError):
        first = attempt.error.diagnostics[0]
        bad = first.code.startswith(("G1", "G2", "G4", "G5", "G9")) or not first.message
        return Verdict(
            "broken" if bad else "refused", f"{first.code} {first.message} {' '.join(first.notes)}"
        )
    if attempt.error is not None:
        return Verdict("crash", f"{type(attempt.error).__name__}: {attempt.error}")
    try:
        difference, rounding, finite = _measured(compilation, model, target, cases)
    except GrowError as error:
        return Verdict("broken", " ".join(error.diagnostics[0].notes))
    if rounding > ROUNDING:
        return Verdict("ill", f"the model's own rounding is {rounding:.1e}")
    equal = difference <= limit(rounding)
    plan = compilation.plan
    if plan.certificate.exact:
        return Verdict("exact" if equal else "false exact", "", difference)
    causes = "; ".join(f"{g.op} {g.node}: {g.cause}" for g in plan.certificate.gaps)
    if not finite:
        return Verdict("broken", f"not finite: {causes}")
    return Verdict("false gap" if equal else "gap", causes, difference)


def written(c: Result, folder: Path) -> Path:
    """The grown model of a compilation, in a folder."""
    folder.mkdir(exist_ok=True)
    return save(emitted(c), folder, "grown.onnx", False, lambda name, count: None)[-1]


def _difference(c: Result, expected: Sequence[Feeds], grown: Sequence[Feeds]) -> float:
    maps = ports_of(c).output_maps()
    largest = 0.0
    for before, after in zip(expected, grown, strict=True):
        for name, output in before.items():
            shown = after[name]
            for unit_map in maps.get(name, []):  # unscaled, as was asked for
                output, shown = replace(unit_map, scale=None).restrict(output, shown)
            largest = max(largest, compare(output, shown).relative)
    return largest


def _measured(c: Result, model: Path, target: Path, cases: Sequence[Feeds]) -> tuple[float, float, bool]:
    """How far the grown model lies from its source, the source's own rounding where that matters, and whether
    all that the grown one gives is finite.

    Without graph optimisations where they distort the source.
    """
    for optimised in (True, False):
        expected, grown = (_run(path, optimised, cases) for path in (model, target))
        difference, rounding = _difference(c, expected, grown), Rounding()
        if difference > FLOOR:
            with ways(model, model, rounding, cases[0], optimised=optimised) as others:
                measure(others, cases, expected, rounding)
        if not rounding.distorted:
            break
    return difference, rounding.largest, _finite(grown)


def _finite(seen: Sequence[Feeds]) -> bool:
    return all(np.isfinite(v).all() for outputs in seen for v in outputs.values())


def _run(path: Path, optimised: bool, cases: Sequence[Feeds]) -> list[Feeds]:
    with Session(path, optimised=optimised) as session:
        return [session.run(feeds) for feeds in cases]
