"""A recipe applied to a file or a directory: planned, written, verified, judged, put in place as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from growc.budgets.settle import settled
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.display import Shown
from growc.errors.json_data import Json
from growc.errors.progress import Progress
from growc.errors.regular_files import require_path
from growc.files.hub import local
from growc.formats.compiler import CompileOptions, compiled
from growc.resolve.recipe_forms import Recipes, parameters_of, reading_of
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from growc.formats.checkpoint_directory import Weights
    from growc.formats.protocol import Form
    from growc.passes.compilation import Result
    from growc.plans.plan import Plan
    from growc.reports.calibration import Outcome
    from growc.training.optimizer_state import New
    from growc.verification.verify import Verification


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
    from growc.formats.protocol import form_of
    from growc.formats.provenance import provenance
    from growc.passes.finish.interface import ports_of
    from growc.plans.memory_bound import read_bound
    from growc.render.progress import in_python
    from growc.source_changes import identities, unchanged
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
        compilation = compiled(resolved, source, **options_given)
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
            from growc.reports.calibration import calibrated

            calibration, uncalibrated = calibrated(compilation, files[-1], inputs, advance, ranks)
        record_fields = provenance(
            sources, resolved, compilation, measured, earlier, config, inputs_given=capture_inputs is not None
        )
        record = canonical(record_fields)
        if source.is_dir():
            from growc.formats.model_card import repository_in
            from growc.render.card import card_of, options_of
            from growc.system.fetched_models import reference_of

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
            from growc.plans.lineage import lineage_of

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


def _draft(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
