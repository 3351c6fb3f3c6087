"""The functions for programs: plan, apply, verify, inspect. The command line is a thin layer over them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from growc.budgets.settle import settled
from growc.errors.arguments import checked_arguments, joined
from growc.errors.diagnostic import Diagnostic, GrowError, wrong
from growc.errors.display import Shown
from growc.errors.json_data import Json
from growc.errors.progress import Progress
from growc.errors.regular_files import irregular, require_path
from growc.errors.source import SourceText
from growc.files.hub import local
from growc.formats.compiler import CompileOptions, compiled, has_config, is_module
from growc.formats.compiler import opened as opened
from growc.resolve.bound import Resolved, ResolvedTexts
from growc.resolve.builder import Recipe
from growc.resolve.resolve import as_text, load, read_some
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from growc.formats.checkpoint_directory import Weights
    from growc.formats.protocol import Form
    from growc.passes.compilation import Analysis, Result
    from growc.plans.plan import Plan
    from growc.reports.calibration import Outcome
    from growc.training.optimizer_state import New
    from growc.verification.verify import Verification

    Model = str | Path | nn.Module
    State = str | Path | Mapping[str, object]

compile = compiled  # noqa: A001 - growc.api.compile is what it is

Recipes = str | Path | Recipe | Sequence[SourceText] | ResolvedTexts
"""A recipe: its text, a `.grow` file, a recipe built in Python, sources, or the result of reading these."""


@dataclass(frozen=True)
class Applied(Shown):
    """The outcome of `apply`.

    reason: why there is no verification. files: all files that were written. calibration: the cost of a plan
    with gaps on the inputs of the recipe or the caller. uncalibrated: why that was not measured. remarks:
    notes on the model's other files.
    """

    plan: Plan
    written: Path
    verification: Verification | None
    reason: str = ""
    files: tuple[Path, ...] = field(default=())
    calibration: Outcome | None = None
    uncalibrated: str = ""
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The path of the result, the claim, and what was measured."""
        measured = "not verified" if self.verification is None else repr(self.verification)
        return f"<Applied: {self.written}, {self.plan.certificate!r}, {measured}>"


def recipe(text: Recipes, params: Mapping[str, str] | None = None) -> Resolved:
    """A resolved recipe. Raises GrowError (G1xx, G2xx) with every mistake in it."""
    return reading_of(text, params).recipe


def reading_of(text: Recipes, params: Mapping[str, str] | None = None) -> ResolvedTexts:
    """A recipe with the texts in which it was given. Raises GrowError (G1xx, G2xx) with all its mistakes."""
    if isinstance(text, ResolvedTexts):
        return text
    sources = sources_of(text)
    return ResolvedTexts(tuple(sources), load(sources, parameters_of(params)))


def parameters_of(params: Mapping[str, str] | None) -> Mapping[str, str]:
    """The values for `let`s. Raises GrowError (G200) if `params` is no mapping."""
    if not isinstance(params or {}, Mapping):
        raise wrong("`params` is no mapping", 'it sets `let`s by name, as in `{"width": "1024"}`')
    return {name: str(value) for name, value in (params or {}).items()}


def sources_of(text: Recipes) -> list[SourceText]:
    """The sources in which a recipe was given. Raises GrowError (G200) if it is no recipe."""
    if isinstance(text, ResolvedTexts):
        return list(text.sources)
    if isinstance(text, Path):
        return [read_source(text)]
    if isinstance(text, str) and re.fullmatch(r"\S+[./]\S+", text):
        remedy = f"a file is given as `pathlib.Path({text!r})`; the recipe comes first, and then the model"
        raise wrong(f"`{text[:60]}` is no recipe, but looks like a path", remedy)
    if isinstance(text, str | Recipe):
        return [SourceText("<recipe>", str(text))]
    sources = (
        [source for source in text if isinstance(source, SourceText)] if isinstance(text, Sequence) else []
    )
    if not isinstance(text, Sequence) or len(sources) < len(text):
        remedy = "it is a text, the path of a `.grow` file, or a growc.Recipe"
        raise wrong(f"`{str(text)[:60]}` is no recipe", remedy)
    return sources


def read_source(path: Path) -> SourceText:
    """The source in a recipe file. Raises GrowError (G213) if it cannot be read."""
    if kind := irregular(path):
        raise GrowError(Diagnostic("G213", f"the recipe `{path}` is {kind}, and no file"))
    try:
        return decoded(str(path), read_some(path))
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise GrowError(Diagnostic("G213", f"the recipe `{path}` cannot be read: {problem}")) from error


def decoded(name: str, data: bytes) -> SourceText:
    """The source in the bytes of a recipe. Raises GrowError (G213) if they are no text."""
    try:
        if b"\0" in data:
            raise GrowError(Diagnostic("G213", f"the recipe `{name}` is no text, but a file of bytes"))
        return SourceText(name, as_text(data))
    except UnicodeDecodeError as error:
        raise GrowError(Diagnostic("G213", f"the recipe `{name}` is not text in UTF-8")) from error


@checked_arguments
def plan(
    text: Recipes,
    model: Model,
    params: Mapping[str, str] | None = None,
    *,
    example_inputs: object = None,
    state_dict: State | None = None,
    keep_class: bool = True,
    config: Mapping[str, Json] | None = None,
) -> Plan:
    """The plan of a recipe for a model. Writes nothing. A module and its recipe may come in either order.

    `example_inputs` are for the forward of a module, by name or in order. Classes of transformers need none
    if growc finds inputs that they run on. For a checkpoint directory they may be a `.npz` file.
    `state_dict`, `keep_class` and `config` are as for `grow`. The plan judges no `expect`: `apply` does.

    Raises GrowError: G1xx and G2xx for mistakes in the recipe or the call, G3xx for a model that cannot be
    read, or cannot be changed like this.

    >>> plan("widen ffn to 2 * ffn with uniform copy", "gpt2.onnx").certificate.exact  # doctest: +SKIP
    True
    """
    words, source = _in_order(text, model)
    source = _with_state(source, state_dict)
    options: CompileOptions = {"example_inputs": example_inputs, "keep_class": keep_class, "config": config}
    resolved = settled(reading_of(words, params), parameters_of(params), source, **options)
    return compile(resolved, source, **options).plan


@checked_arguments
def grow(
    module: nn.Module,
    text: Recipes,
    example_inputs: object = None,
    params: Mapping[str, str] | None = None,
    *,
    state_dict: State | None = None,
    check: bool = True,
    keep_class: bool = True,
    config: Mapping[str, Json] | None = None,
) -> Any:
    """The module that a recipe makes of another one: trainable, with the names and ties of its parameters.

    A module of transformers becomes one of the same class, with the config that has the planned sizes. Any
    other module, and any module with `keep_class=False`, becomes a GrownModule, which no class and no config
    restrict. `config` sets fields of the class's config (`{"num_attention_heads": 8}`); growc finds the
    others, and compares the class with the plan as always.

    The result has the `plan`, the `lineage` and, unless `check=False`, the measured `verification`.
    `example_inputs` are for forward, by name or in order; modules of transformers need none. `state_dict`, a
    `.safetensors` file or a mapping, has the weights of a module that may be on meta; the module itself stays
    unchanged.

    Raises GrowError: as `plan`, G401 if an `expect` fails, G402 and G403 if the measurement refutes the
    certificate or cannot run, G406 if the module is not what its plan computes.
    """
    module = _with_state(module, state_dict)
    if keep_class and has_config(module):
        from growc.checkpoint.grow_module import grow as grow_class

        options: CompileOptions = {"example_inputs": example_inputs, "keep_class": True, "config": config}
        resolved = settled(reading_of(text, params), parameters_of(params), module, **options)
        return grow_class(resolved, module, example_inputs, check=check, config=config)
    if config:
        raise wrong(
            f"`config` is for classes of transformers, and `{type(module).__name__}` grows as a module"
        )
    from growc.modules.grow import grow

    reading = reading_of(text, params)
    resolved = settled(reading, parameters_of(params), module, example_inputs=example_inputs)
    return grow(resolved, module, example_inputs, check=check)


@overload
def apply(
    text: nn.Module,
    model: Recipes,
    example_inputs: object = None,
    params: Mapping[str, str] | None = None,
    *,
    state_dict: State | None = None,
    check: bool = True,
    keep_class: bool = True,
    config: Mapping[str, Json] | None = None,
) -> Any: ...


@overload
def apply(
    text: Recipes,
    model: nn.Module,
    example_inputs: object = None,
    params: Mapping[str, str] | None = None,
    *,
    state_dict: State | None = None,
    check: bool = True,
    keep_class: bool = True,
    config: Mapping[str, Json] | None = None,
) -> Any: ...


@overload
def apply(
    text: Recipes,
    model: str | Path,
    out: str | Path | None = None,
    params: Mapping[str, str] | None = None,
    *,
    inputs: str | Path | None = None,
    check: bool = True,
    force: bool = False,
    lineage: str | Path | None = None,
    report: str | Path | None = None,
    shard_size: str = "",
    memory: str = "",
    optimizer: str | Path | None = None,
    optimizer_new: New | None = None,
    weights: Weights | None = None,
    home: str | Path | None = None,
    model_class: str | type[PreTrainedModel] | None = None,
    config: Mapping[str, Json] | None = None,
    card: bool = True,
    progress: Progress | None = None,
    planned: Callable[[Plan], None] | None = None,
    ranks: Ranks = ALONE,
) -> Applied: ...


@checked_arguments
def apply(text: object, model: object, *others: Any, **options: Any) -> Any:
    """Grow a file or a directory, or a module.

    `apply(recipe, model, out, …)` is `apply_file`, with its options: `params`, `inputs`, `check`, `force`,
    `lineage`, `report`, `shard_size`, `memory`, `optimizer`, `optimizer_new`, `weights`, `home`, `config`,
    `card`, `progress` and others; it returns an `Applied`. `apply(module, recipe, example_inputs, …)` is
    `grow`, with its options; it returns a module. A module and its recipe may come in either order.

    Raises GrowError, as `apply_file` and `grow` do; then nothing was written.
    """
    words, source = _in_order(text, model)
    if is_module(source):
        return grow(source, words, *others, **options)
    return apply_file(words, source, *others, **options)


def _in_order(text: Any, model: Any) -> tuple[Any, Any]:
    """The recipe and the model; a module may come before its recipe."""
    return (model, text) if is_module(text) else (text, model)


def _with_state(model: Any, state_dict: State | None) -> Any:
    """A module with the weights of a state dict, if one is given. Raises GrowError (G200, G322)."""
    if state_dict is None:
        return model
    if not is_module(model):
        raise wrong(f"`state_dict` is for modules, and `{model}` has its own weights")
    from growc.checkpoint.classes.load_state_dict import filled

    return filled(model, state_dict)


def apply_file(
    text: Recipes,
    model: str | Path,
    out: str | Path | None = None,
    params: Mapping[str, str] | None = None,
    *,
    inputs: str | Path | None = None,
    check: bool = True,
    force: bool = False,
    lineage: str | Path | None = None,
    report: str | Path | None = None,
    shard_size: str = "",
    memory: str = "",
    optimizer: str | Path | None = None,
    optimizer_new: New | None = None,
    weights: Weights | None = None,
    home: str | Path | None = None,
    model_class: str | type[PreTrainedModel] | None = None,
    config: Mapping[str, Json] | None = None,
    card: bool = True,
    progress: Progress | None = None,
    planned: Callable[[Plan], None] | None = None,
    ranks: Ranks = ALONE,
) -> Applied:
    """Grow a model: plan, write, verify, judge every `expect`, and only then put the files in place.

    `model` may be a reference to the Hugging Face Hub, `hf://owner/name@revision`. `out` defaults to
    `NAME.grown` beside the model, with the same ending; for a fetched model, in the current folder.
    `check=False` skips verification, except for `expect preserved`. `planned` is called with the plan before
    anything is written. `inputs`, a `.npz` file, are the inputs on which both models run; a checkpoint
    directory is captured on them too. `memory` (`256M`) limits the memory that writing takes beside that of
    libraries; a result that needs more is refused (G502). `report` is the path of a page that shows plan and
    measurement.

    Options for checkpoint directories: `shard_size` (`5GB`) limits the files of weights. `optimizer` is the
    state of Adam, SGD or Muon to carry over. With `optimizer_new`, entries of new units in it are those that
    the map of gradients gives (`mapped`), or `zero`. `weights` is the kind of the result's files,
    `safetensors` or a distributed checkpoint (`distcp`), if it differs from the source's. `home` is the
    directory with the config of a folder of weights that has none. `model_class` is the class of a checkpoint
    that transformers does not have, or its `MODULE:NAME`. `config` is as for `grow`. `card` is whether the
    result has a model card. `ranks` are the processes that write the weights; only the first one calls this
    function.

    Raises GrowError: as `plan`, G401 if an `expect` fails, G402 and G403 if the measurement refutes the
    certificate or cannot run, G501 if the target exists, G502 if the system refuses to write or `memory` is
    too small. Then no file has appeared at `out`.
    """
    from growc.checkpoint.files.config_folders import described_in
    from growc.dialects.transformers.named_class import class_named
    from growc.file_roles import require_own_parts
    from growc.files.commit import canonical, commit, default_output, guard, record_path, require_name
    from growc.formats.model_card import repository_in
    from growc.formats.protocol import form_of
    from growc.formats.provenance import provenance
    from growc.passes.finish.interface import ports_of
    from growc.plans.lineage import lineage_of
    from growc.plans.memory_bound import read_bound
    from growc.render.card import card_of, options_of
    from growc.render.progress import in_python
    from growc.reports.calibration import calibrated
    from growc.source_changes import identities, unchanged
    from growc.system.fetched_models import reference_of
    from growc.system.workshop import draft_folder
    from growc.verification.judge import doubts, judge_measured, judge_plan, preserved_conditions
    from growc.version import __version__

    reading = reading_of(text, params)
    sources, resolved = reading.sources, reading.recipe
    require_path(model, "the model")
    for path, option in ((out, "`out`"), (lineage, "`lineage`")):
        if path is not None:
            require_path(path, option)
    with in_python(progress) as advance:
        source = local(model, advance)
    target = Path(out) if out is not None else default_output(source)
    lineage_file = None if lineage is None else Path(lineage)
    page = None if report is None else Path(report)
    for path, option in ((target, "-o"), (lineage_file, "--lineage"), (page, "--report")):
        if path is not None:
            require_name(path, option)
    texts = [path for path in (lineage_file, page) if path is not None]
    for input_file, role in ((inputs, "`--inputs`"), (optimizer, "`--optimizer`")):
        if input_file is not None:
            require_path(input_file, role)
    form = form_of(
        source, shard_size, None if optimizer is None else Path(optimizer), optimizer_new, ranks, weights
    )
    bound = read_bound(memory)
    options = {
        "--lineage": lineage,
        "--report": report,
        "--inputs": inputs,
        "--optimizer": optimizer,
        "--model": home,
    }
    parts = require_own_parts(sources, resolved, source, target, options)
    guard(target, source, texts, force)
    measured, reason = None, "" if check else "switched off by --no-verify"
    calibration, uncalibrated = None, ""
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(in_python(progress))
        stack.enter_context(class_named(model_class))
        stack.enter_context(described_in(source, None if home is None else Path(home)))
        require_unchanged = stack.enter_context(unchanged(parts))
        capture_inputs = inputs if source.is_dir() else None
        options_given: CompileOptions = {
            "keeps": True,
            "progress": advance,
            "config": config,
            "example_inputs": capture_inputs,
            "ranks": ranks,
        }
        resolved = settled(reading, parameters_of(params), source, **options_given)
        compilation = compile(resolved, source, **options_given)
        if planned is not None:
            planned(compilation.plan)
        judge_plan(resolved.statements, compilation)
        remark = _within(form, compilation, bound, bool(memory))
        earlier = form.history(source)
        key = ""
        if ranks.size > 1:
            key_parts = [__version__, [s.text for s in sources], params, config, shard_size, weights]
            key = canonical({"what": [*key_parts, identities(parts)]})
        folder = stack.enter_context(draft_folder(target, key, ranks.again))
        files = form.write(compilation, folder, target, advance)
        if check or preserved_conditions(resolved.statements):
            measured = form.verify(ports_of(compilation), source, files[-1], inputs, advance)
            if check and compilation.plan.certificate.exact:
                wider = form.in_wider(compilation, folder, inputs, advance)
                measured = replace(measured, beside={**measured.beside, **wider})
            judge_measured(
                resolved.statements, compilation.plan, measured, refute=check, notes=doubts(compilation)
            )
        if check and not compilation.plan.certificate.exact:
            calibration, uncalibrated = calibrated(compilation, files[-1], inputs, advance, ranks)
        record_fields = provenance(
            sources, resolved, compilation, measured, earlier, config, inputs_given=capture_inputs is not None
        )
        record = canonical(record_fields)
        if source.is_dir():
            others = {"--shard-size": shard_size, "--weights": weights or ""}
            card_options = options_of(params or {}, config or {}, others, capture_inputs is not None)
            body = (
                card_of(compilation, sources, resolved, card_options, files[-1], measured, earlier)
                if card
                else None
            )
            form.describe(files[-1], body, repository_in(reference_of(source)))
        form.stamp(files[-1], record)
        moves = [(path, target.with_name(path.name)) for path in files[:-1]]
        place = record_path(target, source.is_dir())
        moves.append((_draft(folder, place.name, record), place))
        if lineage_file is not None:
            elsewhere = stack.enter_context(draft_folder(lineage_file))
            moves.append(
                (_draft(elsewhere, "lineage", canonical(lineage_of(compilation.plan))), lineage_file)
            )
        if page is not None:
            from growc.render.page.html import page_text
            from growc.reports.page.page import MeasuredResult, growth_of, page_of

            inputs_file = Path(inputs) if inputs is not None else None
            measurements = MeasuredResult(files[-1], measured if check else None, inputs_file, reason)
            page_html = page_text(
                page_of(source, [*sources, *resolved.included], growth_of(compilation, measurements))
            )
            elsewhere = stack.enter_context(draft_folder(page))
            moves.append((_draft(elsewhere, "report", page_html), page))
        moves.append((files[-1], target))
        require_unchanged()
        failed = commit(moves, lambda: guard(target, source, texts, force))
    if measured is not None and not check:
        reason += f" (`expect preserved` was measured: {measured.relative:.1e})"
    return Applied(
        compilation.plan,
        target,
        measured if check else None,
        reason,
        tuple(place for _, place in moves),
        calibration,
        uncalibrated,
        form.remarks + remark + failed,
    )


def _within(form: Form, c: Result, bound: int, limited: bool) -> tuple[str, ...]:
    """A remark on the memory that writing takes, if any. Raises GrowError (G502) if it exceeds a requested
    limit.
    """
    from growc.plans.memory_bound import excess

    remark = excess(form.whole(c), bound)
    if remark and limited:
        raise GrowError(Diagnostic("G502", remark, help="a larger `--memory`, or none"))
    return (remark,) if remark else ()


@checked_arguments
def report(
    text: Recipes,
    model: str | Path,
    params: Mapping[str, str] | None = None,
    *,
    result: str | Path | None = None,
    inputs: str | Path | None = None,
    config: Mapping[str, Json] | None = None,
) -> str:
    """One HTML page that shows the plan of a recipe for a model, or the problems in it. Writes nothing.

    `result`, a model that the recipe made of this one, is compared with it on `inputs`. Raises GrowError:
    G200 if the recipe does not make such a result, G310 if `result` cannot be read, G403 if it cannot run.

    >>> Path("report.html").write_text(report(Path("wider.grow"), "gpt2.onnx"))  # doctest: +SKIP
    """
    from growc.render.page.html import page_text
    from growc.reports.page.planned import planned

    measured = None if result is None else local(result)
    data = None if inputs is None else Path(inputs)
    page, _ = planned(sources_of(text), parameters_of(params), local(model), measured, data, config)
    return page_text(page)


@checked_arguments
def verify(
    source: Model,
    result: Model,
    *,
    inputs: Any = None,
    progress: Progress | None = None,
) -> Verification:
    """Run two models on the same inputs and compare their outputs.

    The expected contents of grown caches and outputs follow from the recipes in the metadata of `result`. For
    two modules, `inputs` are for forward, by name or in order.

    Raises GrowError: G200 if `inputs` of two files are no path, G309 to G325 if a model or the inputs cannot
    be read, G403 if a model does not run. A difference is no error.
    """
    if not (isinstance(source, str | Path) and isinstance(result, str | Path)):
        from growc.modules.grow import verify

        return verify(cast("nn.Module", source), cast("nn.Module", result), inputs)
    from growc.file_roles import NamedPath, model_parts
    from growc.formats.protocol import form_of
    from growc.render.progress import in_python
    from growc.source_changes import unchanged

    with in_python(progress) as advance:
        before, after = local(source, advance), local(result, advance)
        form = form_of(before)
        parts = [*model_parts(before, "the source"), *model_parts(after, "the result")]
        if inputs is not None and not isinstance(inputs, str | Path):
            raise wrong("`inputs` of two files are the path of a `.npz` file")
        parts += [] if inputs is None else [NamedPath("the inputs", Path(inputs))]
        with unchanged(parts) as require_unchanged:
            advance("planning", 0, 0)
            ports = form.retraced(before, after, advance)
            measured = form.verify(ports, before, after, inputs, advance)
            require_unchanged()
    return measured


@checked_arguments
def inspect(model: Model, *, example_inputs: object = None, state_dict: State | None = None) -> Analysis:
    """The analysis of a model: spaces, roles, what is frozen. See growc.render for how it is shown.

    `example_inputs` and `state_dict` are as for `grow`. Raises GrowError (G200, G3xx) for a model that cannot
    be read.
    """
    source = _with_state(model, state_dict)
    return compile(Resolved(()), source, analysis_only=True, example_inputs=example_inputs)


# ------------------------------------------------------------------------------------------ parts of apply


def _draft(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


vars(apply)["__signature__"] = joined(apply_file, grow)
