"""Open a model in any form, and run the passes on it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from growc.errors.diagnostic import Diagnostic, GrowError, wrong
from growc.errors.json_data import Json
from growc.errors.progress import Progress, quiet
from growc.errors.regular_files import irregular
from growc.errors.source import RECIPE_SUFFIX
from growc.files.hub import local, no_model
from growc.formats.required_libraries import require_torch
from growc.recipe.syntax_tree import Undecided, Upcycle
from growc.resolve.bound import Resolved
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch import nn

    from growc.measurement.rank_scores import Scoring
    from growc.passes.compilation import After, Analysis, Providers, Result, Source
    from growc.passes.compilation import Model as Opened

    Model = str | Path | nn.Module


def unobserved(name: object, result: object, filled: object) -> None:
    """Observe nothing of what a pass makes."""


class CompileOptions(TypedDict, total=False):
    """The optional arguments of `compiled`."""

    keeps: bool
    example_inputs: object
    keep_class: bool
    config: Mapping[str, Json] | None
    progress: Progress
    after: After
    ranks: Ranks


@overload
def compiled(
    resolved: Resolved,
    model: Model,
    *,
    analysis_only: Literal[False] = False,
    **options: Unpack[CompileOptions],
) -> Result: ...


@overload
def compiled(
    resolved: Resolved, model: Model, *, analysis_only: Literal[True], **options: Unpack[CompileOptions]
) -> Analysis: ...


def compiled(
    resolved: Resolved,
    model: Model,
    *,
    analysis_only: bool = False,
    keeps: bool = False,
    example_inputs: object = None,
    keep_class: bool = False,
    config: Mapping[str, Json] | None = None,
    progress: Progress = quiet,
    after: After = unobserved,
    ranks: Ranks = ALONE,
) -> Analysis:
    """Run the passes on a model on disk or a module.

    No weights are read, except a few elements to recognise ties, and weights by which a ranking goes. keeps:
    whether measured importance may be kept beside the model. keep_class: whether the result of a transformers
    module has the same class. config: values of fields of the result's config. after: called with each pass,
    its result, and the fields that it filled in. ranks: the processes that measure. Raises GrowError: G200,
    and G3xx for a model that cannot be read or cannot be changed like this.
    """
    from growc.passes import ANALYSIS, PIPELINE, run
    from growc.passes.compilation import Source

    require_plain(resolved)
    if any(isinstance(bound.statement, Upcycle) for bound in resolved.statements):
        from growc.dialects.transformers.named_class import name_results_alone

        name_results_alone()
    import_module("growc.dialects.onnx")  # postpones imports, which works until a thread shows the progress
    outer = outside(ranks)
    progress(f"reading {model.name}" if isinstance(model, Path) else "reading the model", 0, 0)
    path, opened_model = _named(model, example_inputs, keep_class, progress)
    progress("planning", 0, 0)
    opened_model = decided(path, opened_model, config) if config else opened_model
    start = Source(path, opened_model, outer, resolved.statements, progress, keeps, after=after)
    with valid(start):
        if analysis_only:
            return run(ANALYSIS, start)
        result = run(PIPELINE, start)
    result.plan.decided = resolved.decided
    return result


def require_plain(resolved: Resolved) -> None:
    """Raise GrowError (G200) for a budget that is not settled (growc.budgets.settle): passes need sizes."""
    for bound in resolved.statements:
        if isinstance(bound.statement, Undecided):
            message = "a budget has no sizes yet"
            remedy = "`growc.plan` and `growc.apply` find them; here write plain statements"
            raise GrowError(Diagnostic("G200", message, bound.statement.span, help=remedy))


@contextlib.contextmanager
def valid(start: Source) -> Iterator[None]:
    """In this context, passes may rely on a valid model: if one fails on an invalid file, GrowError (G311) is
    raised.
    """
    try:
        yield
    except GrowError:
        raise
    except Exception as error:
        if not (fault := start.model.fault(start.path)):
            raise
        message = f"`{start.path}` is not valid: {fault}"
        raise GrowError(Diagnostic("G311", message)) from error


def asked_of(analysis: Analysis, resolved: Resolved) -> Result:
    """The result of a recipe on a model that was analysed before. See `fitted` for its class."""
    from growc.passes import AFTER_ANALYSIS, run

    require_plain(resolved)
    with valid(analysis):
        return run(AFTER_ANALYSIS, replace(analysis, statements=resolved.statements))


def fitted(result: Result) -> Result:
    """The result in the class of its model, if there is one. Raises GrowError if the class cannot hold it."""
    from growc.passes import FIT_CONFIG, run

    with valid(result):
        return run(FIT_CONFIG, result)


def outside(ranks: Ranks = ALONE) -> Providers:
    """The functions outside the graph that passes call, such as scores that processes measure."""
    from growc.passes.compilation import Providers

    scoring = scoring_of(ranks)
    return Providers(scoring.units, scoring.layers, analysed)


def scoring_of(ranks: Ranks = ALONE) -> Scoring:
    """The scores that statements use, measured on models of this machine."""
    from growc.measurement.rank_scores import Scoring

    return Scoring(lowered, analysed, ranks)


def lowered(path: Path) -> Path:
    """The file that onnxruntime runs for a model on disk. Raises GrowError: G309, G310, G317, G403."""
    return opened(path).file(path)


def analysed(path: Path) -> Analysis:
    """The analysis of a model on disk. Raises GrowError: G309, G310, G311, G317."""
    return compiled(Resolved(()), path, analysis_only=True)


def _named(model: Model, example_inputs: object, keep_class: bool, progress: Progress) -> tuple[Path, Opened]:
    """A model with the path that names it. Raises GrowError: G200, G309, G310, G317, G321."""
    if not (isinstance(model, str | Path) or is_module(model)):
        raise wrong(f"`{str(model)[:60]}` is no model", "it is a path, or a module of torch")
    if not isinstance(model, str | Path):
        if keep_class and has_config(model):
            from growc.checkpoint.classes.fit_config import FittingModel

            return Path(type(model).__name__), FittingModel.of_module(model, example_inputs)
        from growc.dialects.torch.model import TorchModel

        return Path(type(model).__name__), TorchModel.of(model, example_inputs)
    place = local(model, progress)
    return place, opened(place, example_inputs)


def decided(path: Path, model: Opened, config: Mapping[str, Json]) -> Opened:
    """The model with these values in its result's config. Raises GrowError (G200) if it has no such
    fields.
    """
    from growc.checkpoint.classes.model import ClassModel

    if not isinstance(model, ClassModel):
        raise wrong(f"`config` is for classes of transformers, and `{path}` is none")
    return model.deciding(config)


def opened(path: Path, example_inputs: object = None) -> Opened:
    """A model on disk, as passes see it; a config.json is opened without weights.

    example_inputs: for the forward of a checkpoint's class, or the `.npz` file that holds them. Raises
    GrowError: G200, G309, G310, G317, G323.
    """
    if not path.exists():
        raise no_model(path)
    if (kind := irregular(path)) and not path.is_dir():
        raise GrowError(Diagnostic("G310", f"`{path}` is {kind}, and no model"))
    if path.suffix == RECIPE_SUFFIX and path.is_file():
        raise GrowError(Diagnostic("G310", f"`{path}` is a recipe, and no model"))
    if path.is_dir() or path.suffix in (".pt2", ".json"):
        require_torch(path)
    if path.is_dir() or path.suffix == ".json":
        from growc.checkpoint.classes.fit_config import FittingModel

        return FittingModel.at(path, example_inputs)
    if example_inputs is not None:
        raise wrong(f"`{path}` is a graph already: `example_inputs` are for modules and directories")
    if path.suffix == ".pt2":
        from growc.dialects.torch.model import TorchModel

        return TorchModel.of_program(path)
    from growc.dialects.onnx.model import OnnxModel

    return OnnxModel.open(path)


def is_module(value: Any) -> bool:
    """Whether an object is a torch module; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def has_config(module: Any) -> bool:
    """Whether a module is of a class of transformers, which is built from a config."""
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(module, transformers.PreTrainedModel)
