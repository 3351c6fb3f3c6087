"""One model file of the zoo, measured: its roles, and what becomes of it under every recipe.

onnxruntime judges, on the inputs that lie beside the model; nothing of growc's own verification decides.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from coverage_recipes import RECIPES, Recipe
from numpy.typing import NDArray

from growc import api
from growc.dialects.onnx.emit import emitted
from growc.dialects.onnx.files.save import save
from growc.errors.diagnostic import GrowError
from growc.passes.compilation import Result
from growc.passes.finish.interface import ports_of
from growc.passes.lowering.scopes import numbers
from growc.plans.plan import WeightPlan
from growc.verification.ort_session import Session
from growc.verification.rounding import own_rounding

Feeds = dict[str, NDArray[Any]]

TOLERANCE = 2e-4
"""The relative difference above which a result that was claimed to be exact is wrong."""
ROLES = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")
RESOLVED = {recipe.name: api.recipe(recipe.text) for recipe in RECIPES}
FAULTS = 4
"""Weights that are spoilt in turn until one shows: of some, softmax or a dead unit hides every change."""


@dataclass
class Case:
    """The outcome of one recipe.

    status: `exact`, `gap`, `refused`, `wrong` (claimed exact, and off by more than TOLERANCE), `false claim`
        (claimed exact, and off by more than the model's own rounding allows), `unseen` (exact, but no planted
        fault shows), `crash`.
    detail: the diagnostic, the gaps, or the traceback's end.
    r: the largest relative difference. limit: what a proof is refuted by.
    fault: by how many times the limit the result with a planted fault differs.
    """

    status: str
    detail: str = ""
    r: float | None = None
    limit: float | None = None
    fault: float | None = None
    seconds: float = 0.0


@dataclass
class Source:
    """A model file with its inputs, its answers, and its own rounding."""

    path: Path
    feeds: Sequence[Feeds]
    answers: Sequence[Feeds]
    limit: float


@dataclass(frozen=True)
class Maps:
    """How resized inputs (of a cache) follow from the source's, and where outputs show its units."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    @classmethod
    def of(cls, c: Result) -> Maps:
        """Those of a compilation."""
        ports = ports_of(c)
        return cls(ports.input_maps(), ports.output_maps())


def measure(path: Path, recipes: Sequence[Recipe]) -> dict[str, Any]:
    """The roles that `inspect` reports of a file, and a Case for each recipe."""
    roles, trouble = inspected(path)
    cases: dict[str, Any] = {}
    source: Source | None = None
    for recipe in recipes:
        start = time.perf_counter()
        try:
            source = source or opened(path)
            case = tried(source, recipe)
        except GrowError as error:
            case = Case("refused", " | ".join(f"{d.code} {d.message}" + _notes(d) for d in error.diagnostics))
        except Exception:  # noqa: BLE001 - a traceback is what is looked for
            case = Case("crash", " / ".join(traceback.format_exc().strip().splitlines()[-3:]))
        case.seconds = round(time.perf_counter() - start, 2)
        cases[recipe.name] = asdict(case)
    return {"roles": roles, "trouble": trouble, "cases": cases}


def _notes(diagnostic: Any) -> str:
    return "".join(f"; {note}" for note in diagnostic.notes[:2])


def inspected(path: Path) -> tuple[dict[str, list[int]], str]:
    """The distinct sizes of every role and of `layers`, or why there are none."""
    try:
        compilation = api.inspect(path)
    except Exception as error:  # noqa: BLE001 - reported as a mismatch
        return {}, f"{type(error).__name__}: {error}".splitlines()[0]
    sizes = {role: sorted(compilation.roles.sizes(role)) for role in ROLES}
    return sizes | {"layers": sorted(numbers(compilation.layers.runs))}, ""


def opened(path: Path) -> Source:
    """The model with those of the inputs beside it that it can run on; a file may have fixed sizes."""
    name = path.name.split(".")[0]
    feeds, answers = [], []
    with np.load(path.with_name(f"{name}.inputs.npz")) as stored, Session(path) as session:
        for k in range(3):
            feed = {key.split(".", 1)[1]: stored[key] for key in stored if key.startswith(f"in{k}.")}
            try:
                answers.append(session.run(feed))
            except GrowError:
                continue
            feeds.append(feed)
    if not feeds:
        raise RuntimeError("the model runs on none of its inputs")
    return Source(path, feeds, answers, max(20 * own_rounding(path, feeds), 1e-6))


def tried(source: Source, recipe: Recipe) -> Case:
    """Compile, write, run, and spoil. Raises GrowError where the recipe is refused."""
    c = api.compile(RESOLVED[recipe.name], source.path)
    maps, certificate = Maps.of(c), c.plan.certificate
    weights = c.plan.weights
    with tempfile.TemporaryDirectory(prefix="coverage-") as folder, _no_diagnostics():
        grown = save(emitted(c), Path(folder), "grown.onnx", False, lambda name, count: None)[-1]
        r = difference(source, grown, maps)
        case = Case("exact", "", r, source.limit)
        if not certificate.exact:
            case.status = "gap"
            case.detail = " | ".join(f"{g.op} {g.node}: {g.cause}" for g in certificate.gaps[:3])
        elif not r <= TOLERANCE:
            case.status = "wrong"
        elif not r <= source.limit:
            case.status = "false claim"
        else:
            case.fault = max(spoilt(source, grown, maps, weights, recipe.name), default=0.0) / source.limit
            case.status = "exact" if case.fault >= 50 else "unseen"
    return case


@contextlib.contextmanager
def _no_diagnostics() -> Iterator[None]:
    """From here on a diagnostic is no refusal: a model that was planned is written, loaded and run."""
    try:
        yield
    except GrowError as error:
        raise RuntimeError(
            " | ".join(f"{d.code} {d.message}{_notes(d)}" for d in error.diagnostics)
        ) from error


def spoilt(source: Source, grown: Path, maps: Maps, weights: Sequence[WeightPlan], seed: str) -> list[float]:
    """The differences with one grown weight spoilt, up to the first that shows."""
    proto = onnx.load(grown)
    tensors = {t.name: t for t in proto.graph.initializer}
    changed = [w for w in weights if w.steps and w.before != w.after and len(w.after) > 1]
    grown_weights = [w for w in changed if w.name in tensors]
    random.Random(f"{source.path.name.split('.')[0]} {seed}").shuffle(grown_weights)
    differences: list[float] = []
    for weight in grown_weights[:FAULTS]:
        kept = onnx.TensorProto()
        kept.CopyFrom(tensors[weight.name])
        tensors[weight.name].CopyFrom(_every_other_unit(kept, weight))
        onnx.save(proto, grown)
        differences.append(difference(source, grown, maps))
        tensors[weight.name].CopyFrom(kept)
        if differences[-1] >= 50 * source.limit:
            break
    return differences


def _every_other_unit(tensor: onnx.TensorProto, weight: WeightPlan) -> onnx.TensorProto:
    """The tensor with every other unit of the axis that grew one and a half times as large."""
    axis = next(i for i, (a, b) in enumerate(zip(weight.before, weight.after, strict=True)) if a != b)
    values = onnx.numpy_helper.to_array(tensor)
    factor = np.where(np.arange(values.shape[axis]) % 2, 1.5, 1.0)
    shape = [-1 if i == axis else 1 for i in range(values.ndim)]
    spoilt = (values * factor.reshape(shape)).astype(values.dtype)
    return onnx.numpy_helper.from_array(spoilt, tensor.name)


def difference(source: Source, grown: Path, maps: Maps) -> float:
    """max |a - b| / max |a| over outputs and inputs, on the source's units; infinite where shapes differ."""
    worst = 0.0
    with Session(grown) as session:
        for feed, answer in zip(source.feeds, source.answers, strict=True):
            given = dict(feed)
            for name, state_maps in maps.inputs.items():
                for state_map in state_maps:
                    given[name] = state_map.extend(given[name])
            results = session.run(given)
            for name, a in answer.items():
                b = results[name]
                for unit_map in maps.outputs.get(name, ()):
                    a, b = unit_map.restrict(a, b)
                worst = max(worst, _relative(a, b))
    return worst


def _relative(a: NDArray[Any], b: NDArray[Any]) -> float:
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    regular = np.isfinite(a) & (np.abs(a) < 1e30)
    scale = float(np.abs(a[regular]).max(initial=0.0))
    return float(np.abs(a[regular].astype(np.float64) - b[regular]).max(initial=0.0)) / (scale or 1.0)
