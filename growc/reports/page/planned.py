"""The page of a recipe and a model: planned, and compared with a result if there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from growc.budgets.settle import settled
from growc.errors.diagnostic import GrowError, wrong
from growc.errors.json_data import Json
from growc.errors.progress import Progress, quiet
from growc.errors.source import SourceText
from growc.formats.compiler import CompileOptions, compiled
from growc.formats.protocol import form_of
from growc.formats.stored_tensors import of_other_shape, stored_tensors
from growc.passes.finish.interface import ports_of
from growc.plans.plan import Plan
from growc.reports.page.page import MeasuredResult, Page, growth_of, page_of
from growc.resolve.bound import ResolvedTexts
from growc.resolve.resolve import load
from growc.verification.judge import judge_plan


def require_made(plan: Plan, result: Path) -> None:
    """Raise GrowError (G200) if the tensors of a model have other shapes than a plan makes."""
    changed = [w.name for w in plan.weights if w.worth_telling]
    tensors = stored_tensors(result, changed)
    remedy = "name a model that this recipe made"
    if changed and tensors.keys().isdisjoint(changed):
        raise wrong(f"`{result}` has none of the tensors that this recipe makes", remedy)
    if (other := of_other_shape(plan, tensors)) is not None:
        shapes = f"{list(tensors[other.name].shape)}, and the recipe makes it {list(other.after)}"
        raise wrong(f"`{other.name}` of `{result}` is {shapes}", remedy)


def planned(
    sources: Sequence[SourceText],
    params: Mapping[str, str],
    model: Path,
    result: Path | None = None,
    inputs: Path | None = None,
    config: Mapping[str, Json] | None = None,
    progress: Progress = quiet,
) -> tuple[Page, GrowError | None]:
    """A page, and the error that `growc plan` would report.

    result: the model that the recipe made; it is compared with the source, on the inputs if there are some.
    Raises GrowError: G200 if this recipe does not make such a model, G403 if it cannot be run.
    """
    example_inputs = inputs if model.is_dir() or model.suffix == ".json" else None
    growth, shown_sources, error = None, list(sources), None
    try:
        resolved = load(sources, params)
        shown_sources += resolved.included
        options: CompileOptions = {"example_inputs": example_inputs, "config": config, "progress": progress}
        resolved = settled(ResolvedTexts(tuple(sources), resolved), params, model, **options)
        c = compiled(resolved, model, **options)
    except GrowError as problem:
        return page_of(model, shown_sources, None, problem), problem
    measured = None
    if result is not None:
        require_made(c.plan, result)
        verification = form_of(model).verify(ports_of(c), model, result, inputs, progress)
        measured = MeasuredResult(result, verification, inputs)
    growth = growth_of(c, measured)
    try:
        judge_plan(resolved.statements, c)
    except GrowError as missed:
        error = missed
    return page_of(model, shown_sources, growth, error), error
