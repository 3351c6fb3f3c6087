"""One seed: a model, a recipe, the compiler's claim, and what is measured of it."""

from __future__ import annotations

import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from growc.errors.diagnostic import Attempt
from hostile import judging
from hostile.graphs import graph
from hostile.net import Net
from hostile.recipes import Seen, recipe

if TYPE_CHECKING:
    from growc.errors.diagnostic import GrowError
    from growc.passes.compilation import Analysis, Result
    from growc.passes.compilation import Source as Begun
    from growc.plans.plan import Plan

ATTEMPTS = 8
RECIPES = 4
BLUNT = 1e-4
POLES = frozenset({"Reciprocal", "Log", "Constant", "If", "Loop", "Scan"})
"""Operators that have a pole where they make infinity of finite numbers, or that have infinity in them."""
SECONDS = 20
BAD = ("false exact", "traceback", "unloadable", "timeout")


class Late(BaseException):
    """A case took too long."""


@dataclass
class Outcome:
    """The outcome of a seed. `kind`: refused, exact, gap, unclaimed, degenerate, overflow, or a bad one;
    `gap, fine`: one that only double precision shows."""

    seed: int
    kind: str = "degenerate"
    family: str = "graph"
    recipe: str = ""
    claim: str = ""
    detail: str = ""
    nontrivial: bool = False
    apart: float = 0.0
    allowed: float = 0.0
    seconds: float = 0.0
    features: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    def refuse(self, error: GrowError) -> None:
        """The recipe was refused."""
        first = error.diagnostics[0]
        self.kind, self.detail = "refused", f"{first.code} {first.message}"

    def blame(self, kind: str, error: BaseException) -> None:
        """Something failed that must not."""
        self.kind, self.detail = kind, tail(error)

    def take(self, plan: Plan) -> None:
        """Take over the claims of a plan."""
        self.claim = "exact" if plan.certificate.exact else "gap"
        self.gaps = [f"{g.op}: {g.cause}" for g in plan.certificate.gaps]
        self.nontrivial = any(w.changed for w in plan.weights)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@contextmanager
def limited(seconds: int = SECONDS) -> Iterator[None]:
    """Raises Late after so many seconds of this process's own time."""

    def late(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def tail(error: BaseException) -> str:
    """An error with the places in the compiler that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames][-4:]
    return f"{type(error).__name__}: {str(error)[:300]} | {' < '.join(reversed(places))}"


@dataclass
class Source:
    """A model that says something: the file, its cases, its outputs, and its own rounding."""

    model: onnx.ModelProto
    net: Net
    cases: list[judging.Feed]
    names: list[str]
    results: list[judging.Results]


def source(seed: int) -> Source | None:
    """The first model of a seed that loads and is not degenerate."""
    for number in range(ATTEMPTS):
        with Attempt() as attempt:  # a model that does not run is drawn anew
            model, net = graph(seed * ATTEMPTS + number)
            session = judging.session(model)
            inputs = [(v.name, _kind(v), _shape(v)) for v in model.graph.input]
            cases = judging.feeds(inputs, seed, 7)
            names = [v.name for v in model.graph.output]
            results = judging.run(session, cases, names)
        if attempt.error is not None:
            source.reasons.append(tail(attempt.error))
            continue
        if not judging.degenerate(results):
            for info, value in zip(model.graph.output, results[0], strict=True):
                for _ in range(0 if info.type.tensor_type.HasField("shape") else value.ndim):
                    info.type.tensor_type.shape.dim.add()
                info.type.tensor_type.shape.SetInParent()
            return Source(model, net, cases, names, results)
        source.reasons.append("degenerate")
    return None


source.reasons = []


def _kind(value: onnx.ValueInfoProto) -> str:
    return {1: "f32", 7: "i64", 10: "f16", 11: "f64"}[value.type.tensor_type.elem_type]


def _shape(value: onnx.ValueInfoProto) -> list[Any]:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def planned(begun: Begun, text: str) -> Result:
    """The passes that are left for a recipe; they may change the graph of the model."""
    from growc.api import recipe as resolved
    from growc.passes import AFTER_EDIT, EDIT, PIPELINE, run
    from growc.passes.compilation import Analysis

    begun = replace(begun, statements=resolved(text).statements)
    return run(EDIT >> AFTER_EDIT, begun) if isinstance(begun, Analysis) else run(PIPELINE, begun)


def seen(analysed: Analysis, model: onnx.ModelProto) -> Seen:
    """The findings of `inspect` on a file, and its weights by shape."""
    from growc.render.inspection import inspect_data

    inspection = inspect_data(analysed)
    axes = {name: size if isinstance(size, list) else [size] for name, size in inspection["axes"].items()}
    weights = {t.name: list(t.dims) for t in model.graph.initializer if t.data_type in (1, 10, 11, 16, 3)}
    scopes = [name for name in inspection["scopes"] if " " not in name]
    return Seen(axes, [run["layers"] for run in inspection["runs"]], scopes, weights)


def judge(seed: int, text: str = "") -> Outcome:
    """Judge the graph of a seed, under a recipe of its own or another one."""
    outcome, began = Outcome(seed), time.process_time()
    try:
        with limited(), tempfile.TemporaryDirectory() as folder:
            model = source(seed)
            if model is not None:
                outcome.features = model.net.features
                _compile(outcome, model, Path(folder), text)
    except Late:
        outcome.kind = "timeout"
    outcome.seconds = round(time.process_time() - began, 3)
    return outcome


def _compile(outcome: Outcome, made: Source, folder: Path, text: str) -> None:
    from growc import GrowError, inspect
    from growc.formats.protocol import form_of
    from growc.passes.finish.interface import ports_of

    path, target = folder / "source.onnx", folder / "result.onnx"
    onnx.save(made.model, path)
    with Attempt() as attempt:  # any exception is a finding
        analysed = inspect(path)
        seen_parts = None if text else seen(analysed, made.model)
        for again in range(RECIPES):
            outcome.recipe = text or recipe(outcome.seed * RECIPES + again, seen_parts)
            try:
                c = planned(analysed, outcome.recipe)
                break
            except GrowError:
                if again == RECIPES - 1 or text:
                    raise
                analysed = inspect(path)
        files = form_of(path).write(c, folder, target, lambda *_: None)
        ports = ports_of(c)
    if isinstance(attempt.error, GrowError):
        outcome.refuse(attempt.error)
        return
    if attempt.error is not None:
        outcome.blame("traceback", attempt.error)
        return
    outcome.take(c.plan)
    renamed = [ports.renamed.get(name, name) for name in made.names]
    kept = [(old, new) for old, new in zip(made.names, renamed, strict=True) if new]
    fed = ports.input_maps()
    cases = [{name: _grown(value, fed.get(name, ())) for name, value in case.items()} for case in made.cases]
    with Attempt() as attempt:  # any exception is a finding
        runner = judging.session(str(files[-1]))
        results = judging.run(runner, cases, [new for _, new in kept])
        if outcome.seed % 8 == 0 and _loads_optimised(path):
            judging.session(str(files[-1]), optimised=True)
    if attempt.error is not None:
        outcome.blame("unloadable", attempt.error)
        return
    differs = _measure(outcome, made, [old for old, _ in kept], results, ports.output_maps())
    differing = [case for case, apart in zip(cases, differs, strict=True) if apart]
    if outcome.kind == "false exact" and all(_overflows(files[-1], case) for case in differing):
        outcome.kind = "overflow"
    if outcome.kind == "unclaimed" and _apart_in_double(
        made, (path, files[-1]), cases, kept, ports.output_maps()
    ):
        outcome.kind = "gap, fine"


def _overflows(path: Path, case: judging.Feed) -> bool:
    """Whether a number is too large for its type: the certificate speaks of real numbers there.

    Then a node makes infinity of finite numbers, and is not at a pole of what it computes.
    """
    model = onnx.load(path)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    computed = {name for node in model.graph.node for name in node.output if name}
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info  # numpy has no bfloat16
    unread = {v.name for v in inferred if v.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16}
    fresh = computed - unread - {v.name for v in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(fresh))
    names = [v.name for v in model.graph.output]
    [results] = judging.run(judging.session(model), [case], names)
    values = {**weights, **case, **dict(zip(names, results, strict=True))}
    large = {name for name, v in values.items() if v.dtype.kind == "f" and np.isinf(v).any()}
    for node in model.graph.node:
        if not large.isdisjoint(node.input):
            large.update(unread.intersection(node.output))
        elif not large.isdisjoint(node.output):
            if _is_too_large(node, values):
                return True
        elif node.op_type.endswith("Attention"):  # its scores are not given out
            given = [np.abs(values[name].astype(np.float64)).max() for name in node.input[:2] if name]
            if np.prod(given) > np.finfo(np.float32).max:
                return True
    return False


def _is_too_large(node: onnx.NodeProto, values: dict[str, np.ndarray]) -> bool:
    """Whether a node makes infinity of finite numbers because the result is too large, not at a pole."""
    place = judging.AT_ZERO.get(node.op_type.lower())
    if place is None:
        return node.op_type not in POLES
    return judging.is_too_large(values[node.input[place]], values[node.output[0]])


def _loads_optimised(path: Path) -> bool:
    """Whether onnxruntime's optimisations leave a file valid: its propagation of quantising pairs may not."""
    with Attempt() as attempt:  # it may fail with anything
        judging.session(str(path), optimised=True)
    return attempt.error is None


def _grown(value: Any, maps: Any) -> Any:
    for mapped in maps:
        value = mapped.extend(value)
    return value


def _measure(
    outcome: Outcome, made: Source, names: list[str], results: list[judging.Results], maps: Any
) -> np.ndarray:
    """Measure the result, and say for each case whether it differs from the source."""
    wanted = _chosen(made, names)
    try:
        distances = judging.compared(wanted, results, names, maps)
    except (IndexError, ValueError) as error:
        distances = np.full((len(wanted), len(names)), np.inf)
        outcome.detail = tail(error)
    decides = outcome.claim == "exact" or bool((distances <= BLUNT).all())  # else it is a gap, however blunt
    shakes = (1, 48) if decides else (1,)
    allowed = _allowed(made.model, made.cases, names, wanted, distances, judging.FLOOR, shakes)
    equal = bool((distances <= allowed).all())
    at = np.unravel_index(
        np.argmax(np.nan_to_num(distances / allowed, nan=0.0, posinf=1e300)), distances.shape
    )
    outcome.apart, outcome.allowed = float(distances[at]), float(allowed[at])
    sharp = bool((distances <= np.minimum(allowed, BLUNT)).all())
    outcome.kind = kind_of(outcome.claim == "exact", equal, sharp)
    return ~(distances <= allowed).all(axis=1)


def _chosen(made: Source, names: list[str]) -> list[judging.Results]:
    """The source's results for these outputs."""
    places = [made.names.index(name) for name in names]
    return [[case[j] for j in places] for case in made.results]


def _allowed(
    model: onnx.ModelProto,
    cases: list[judging.Feed],
    names: list[str],
    wanted: list[judging.Results],
    found: np.ndarray,
    floor: float,
    shakes: Sequence[int] = (1, 48),
) -> np.ndarray:
    """How far apart numbers may be: the source's own rounding, looked at closely where they are farther."""
    for count in shakes:
        own = judging.rounding(model, cases, names, wanted, count)
        allowed = np.maximum(judging.ROUNDINGS * own, floor)
        if (found <= allowed).all():
            break
    return allowed


def _apart_in_double(
    made: Source, paths: tuple[Path, Path], cases: list[judging.Feed], kept: list[tuple[str, str]], maps: Any
) -> bool:
    """Whether copies of source and result in double precision tell them apart.

    The certificate speaks of real numbers; an eps that is too small for single precision shows here.
    """
    from growc.verification.float_copies import WIDER, write_copy

    names = [old for old, _ in kept]
    copies = [write_copy(path, path.with_suffix(".double.onnx"), WIDER) for path in paths]
    with Attempt() as attempt:  # it may fail with anything
        runners = [judging.session(str(path)) for path in copies]
        wide = [[_wide(case) for case in one] for one in (made.cases, cases)]
        wanted = judging.run(runners[0], wide[0], names)
        results = judging.run(runners[1], wide[1], [new for _, new in kept])
        distances = judging.compared(wanted, results, names, maps)
    if attempt.error is not None:
        return False
    allowed = _allowed(onnx.load(copies[0]), wide[0], names, wanted, distances, judging.FINE)
    return not bool((distances <= allowed).all())


def _wide(case: judging.Feed) -> judging.Feed:
    return {name: v.astype(np.float64) if v.dtype == np.float32 else v for name, v in case.items()}


def kind_of(exact: bool, equal: bool, sharp: bool) -> str:
    """A verdict. Blunt: equality says nothing, because a last bit of the source decides a lot."""
    if exact:
        return "false exact" if not equal else "exact" if sharp else "exact, blunt"
    return "gap" if not equal else "unclaimed" if sharp else "gap, blunt"
