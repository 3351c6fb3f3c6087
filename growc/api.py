"""What a program calls: plan, apply, verify, inspect. The command line is a thin layer over this module."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from growc.diagnostic import Diagnostic, GrowError
from growc.resolve import Bound, Resolved, load
from growc.source import Source

if TYPE_CHECKING:
    from growc.compilation import Compilation
    from growc.plan import Plan
    from growc.verify import Verification

Progress = Callable[[str, int, int], None]
"""(what is being done, done so far, of how much); a total of 0 means that it is not known."""


def _quiet(phrase: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Applied:
    """What `apply` did. `verification` is None where it was switched off, with the `reason`."""

    plan: Plan
    written: Path
    verification: Verification | None
    reason: str = ""
    files: tuple[Path, ...] = field(default=())


def recipe(text: str | Path | Sequence[Source], params: Mapping[str, str] | None = None) -> Resolved:
    """A resolved recipe: text, the path of a `.grow` file, or sources. Raises GrowError with every mistake in it."""
    if isinstance(text, Path):
        text = [read_source(text)]
    sources = [Source("<recipe>", text)] if isinstance(text, str) else list(text)
    return load(sources, params or {})


def read_source(path: Path) -> Source:
    """A recipe file. Raises GrowError (G213) where it cannot be read."""
    try:
        return Source(str(path), path.read_bytes().decode("utf-8"))
    except UnicodeDecodeError:
        problem = "is not text in UTF-8"
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
    raise GrowError(Diagnostic("G213", f"the recipe `{path}` {problem}"))


def compile(resolved: Resolved, model: str | Path, *, analysis_only: bool = False) -> Compilation:
    """Run the passes on an ONNX file. No weight is read but a few elements that recognise ties."""
    from growc.compilation import Compilation
    from growc.dialects.onnx.dialect import OnnxModel
    from growc.passes import ANALYSIS, PIPELINE, run

    path = Path(model)
    if not path.exists():
        raise GrowError(Diagnostic("G310", f"there is no model at `{path}`"))
    if path.is_dir() or path.suffix == ".pt2":
        raise GrowError(Diagnostic("G309", f"`{path}` is no ONNX file, and this version reads nothing else"))
    start = Compilation(path, OnnxModel.open(path), resolved.statements)
    return run(ANALYSIS if analysis_only else PIPELINE, start)


def plan(text: str | Path | Sequence[Source], model: str | Path, params: Mapping[str, str] | None = None) -> Plan:
    """What would become of a model. Writes nothing.

    >>> plan("widen ffn to 2 * ffn with uniform copy", "gpt2.onnx").certificate.exact  # doctest: +SKIP
    True
    """
    return compile(recipe(text, params), model).plan


def apply(
    text: str | Path | Sequence[Source],
    model: str | Path,
    out: str | Path | None = None,
    params: Mapping[str, str] | None = None,
    *,
    inputs: str | Path | None = None,
    check: bool = True,
    force: bool = False,
    lineage: str | Path | None = None,
    progress: Progress = _quiet,
    planned: Callable[[Plan], None] | None = None,
) -> Applied:
    """Grow a model: plan, write, verify, judge every `expect`, and only then put the files in place.

    `out` defaults to `NAME.grown.onnx` beside the model. `check=False` leaves verification out, but for
    `expect preserved`. `planned` is called with the plan before anything is written. Raises GrowError; then nothing
    has appeared at `out`.
    """
    from growc.expectations import judge_measured, judge_plan

    resolved = recipe(text, params)
    target = Path(out) if out is not None else default_output(Path(model))
    _guard(target, force)
    compilation = compile(resolved, model)
    if planned is not None:
        planned(compilation.plan)
    judge_plan(resolved.statements, compilation)
    needs = any(_is_preserved(b) for b in resolved.statements)
    with _workshop(target) as folder:
        files = _write(compilation, folder, target, progress)
        verification = None
        if check or needs:
            verification = _verify(compilation, files[-1], inputs, progress)
            judge_measured(resolved.statements, compilation.plan, verification, refute=check)
        record = _provenance(resolved, compilation, verification)
        _commit(files, target, record, compilation, lineage)
    reason = "" if verification is not None else "switched off by --no-verify"
    return Applied(compilation.plan, target, verification if check else None, reason, tuple(files))


def default_output(model: Path) -> Path:
    """`NAME.grown` with the same ending, beside the model."""
    return model.with_name(f"{model.stem}.grown{model.suffix}")


def inspect(model: str | Path) -> Compilation:
    """The analysis of a model: spaces, roles, what is frozen. See growc.render for how it is shown."""
    return compile(Resolved(()), model, analysis_only=True)


# ------------------------------------------------------------------------------------------ files


def _is_preserved(bound: Bound) -> bool:
    from growc.recipe import Expect, Preserved

    return isinstance(bound.statement, Expect) and isinstance(bound.statement.condition, Preserved)


def _guard(target: Path, force: bool) -> None:
    """Refuse to replace a file that growc did not make."""
    from growc.dialects.onnx.container import load as load_model

    if target.is_dir():
        raise GrowError(Diagnostic("G501", f"`{target}` is a folder"))
    if not target.parent.is_dir():
        raise GrowError(Diagnostic("G502", f"there is no folder `{target.parent}`"))
    if force or not target.exists():
        return
    try:
        ours = "growc" in load_model(target).metadata_props
    except GrowError:
        ours = False
    if not ours:
        raise GrowError(
            Diagnostic("G501", f"`{target}` exists, and growc did not make it", help="`--force` replaces it")
        )


class _workshop:
    """A folder beside the target for what is being made; it is gone afterwards, whatever happens."""

    def __init__(self, target: Path) -> None:
        self.parent = target.parent

    def __enter__(self) -> Path:
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=".growc-", dir=self.parent))
        except OSError as error:
            raise system_error(error) from error
        return self.folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def system_error(error: OSError) -> GrowError:
    """What the system refused, as a diagnostic."""
    place = f" `{error.filename}`" if error.filename else ""
    return GrowError(Diagnostic("G502", f"the system refused{place}: {(error.strerror or str(error)).lower()}"))


def _write(c: Compilation, folder: Path, target: Path, progress: Progress) -> list[Path]:
    from growc.dialects.onnx.container import EXTERNAL
    from growc.dialects.onnx.emit import EXTERNAL_ABOVE, rewrite, save

    model = c.model.source
    external = bool(model.meta.get(EXTERNAL)) or c.plan.bytes_to_write > EXTERNAL_ABOVE
    rewrite(c.graph, c.assembled, c.mended, c.attributes)
    done = 0

    def wrote(name: str, count: int) -> None:
        nonlocal done
        done += count
        progress(f"writing {name}", done, c.plan.bytes_to_write)

    try:
        return save(model, folder, target.name, external, wrote)
    except OSError as error:
        raise system_error(error) from error


def _verify(c: Compilation, result: Path, inputs: str | Path | None, progress: Progress) -> Verification:
    from growc.verify import verify

    maps = output_maps(c)
    chosen = None if inputs is None else Path(inputs)
    return verify(c.path, result, output_maps=maps, inputs=chosen, progress=lambda phrase: progress(phrase, 0, 0))


def output_maps(c: Compilation) -> dict[str, list[Any]]:
    """For every resized axis of an output, where the source's units stand."""
    from growc.verify import UnitMap

    found: dict[str, list[Any]] = {}
    for (name, axis), state in c.outputs.items():
        rows = np.flatnonzero(state.copies)
        order = rows[np.argsort(~np.isclose(state.weight[rows], 1.0), kind="stable")]
        units, first = np.unique(state.index[order], return_index=True)
        if len(units) == state.source and not state.is_identity:
            places = order[first]
            found.setdefault(name, []).append(UnitMap(axis, places, state.weight[places]))
    return found


def _provenance(resolved: Resolved, c: Compilation, verification: Verification | None) -> dict[str, Any]:
    from growc import __version__
    from growc.expression import spell
    from growc.render.terminal import statement_text

    certificate = c.plan.certificate
    return {
        "growc": __version__,
        "recipe": [statement_text(b.statement) for b in resolved.statements],
        "parameters": {k: spell(v) for k, v in resolved.parameters.items()},
        "certificate": {
            "exact": certificate.exact,
            "gaps": [{"node": g.node, "cause": g.cause} for g in certificate.gaps],
        },
        "measured": None if verification is None else float(f"{verification.relative:.1e}"),
    }


def _commit(
    files: Sequence[Path], target: Path, record: dict[str, Any], c: Compilation, lineage: str | Path | None
) -> None:
    """Put the files in place: data first, the model last. Its metadata is appended, which protobuf reads as merged."""
    import onnx

    from growc.dialects.onnx.emit import provenance
    from growc.lineage import lineage_of

    text = provenance(record)
    stem = target.stem.removesuffix(".grown")
    try:
        with files[-1].open("ab") as file:
            file.write(onnx.ModelProto(metadata_props=[{"key": "growc", "value": text}]).SerializeToString())
            file.flush()
            os.fsync(file.fileno())
        beside = files[-1].parent / f"{stem}.grown.json"
        beside.write_text(text, encoding="utf-8")
        if lineage is not None:
            draft = files[-1].parent / "lineage.json"
            draft.write_text(provenance(lineage_of(c.plan)), encoding="utf-8")
            os.replace(draft, lineage)
        for path in files[:-1]:
            os.replace(path, target.parent / path.name)
        os.replace(beside, target.parent / beside.name)
        os.replace(files[-1], target)
    except OSError as error:
        raise system_error(error) from error
