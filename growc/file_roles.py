"""Check that each file has only one role in a run: a command must not write a file that it reads or writes
otherwise.

All named files are checked here: OUT, `--lineage` and files written beside OUT, the recipe and files that it
includes or names, `--inputs`, `--optimizer`, and the files of the model.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import SourceText
from growc.files.commit import RECORD, has_opening, record_path
from growc.plans.scores import cache_path
from growc.recipe.expression import parts_of
from growc.recipe.layer_orders import statistic_of
from growc.recipe.statistics import IMPORTANCE
from growc.recipe.syntax_tree import LayerOrder, Match, Measure, Ranking, StackFrom
from growc.resolve.bound import Resolved


@dataclass(frozen=True)
class NamedPath:
    """A file or folder and its role in a run, in words for users: `OUT`, `the model`."""

    role: str
    path: Path


def require_own_parts(
    sources: Sequence[SourceText],
    resolved: Resolved,
    model: Path,
    target: Path,
    options: Mapping[str, str | Path | None],
) -> Sequence[NamedPath]:
    """All files that `apply` reads.

    options: the options that name files. Raises GrowError (G200) if a file has two roles.
    """
    named = [
        NamedPath(f"the file of `{name}`", Path(path)) for name, path in options.items() if path is not None
    ]
    texts = [part for part in named if part.role in ("the file of `--lineage`", "the file of `--report`")]
    written = [
        NamedPath("OUT", target),
        NamedPath("the record of OUT", record_path(target, model.is_dir())),
        *texts,
    ]
    inputs_read = [part for part in named if part not in texts]
    inputs_read += [*model_parts(model), *recipe_parts(sources, resolved)]
    require_distinct([*written, *kept_parts(model, resolved)], inputs_read, model=model)
    return inputs_read


def require_distinct(
    written: Sequence[NamedPath], read: Iterable[NamedPath], *, model: Path | None = None
) -> None:
    """Raise GrowError (G200) if a file to be written has another role, or would be lost in a folder to be
    written.

    The first of `written` may replace `model` as a whole.
    """
    for first, second in combinations(written, 2):
        for inner, outer in ((first, second), (second, first)):
            if _is_same(inner.path, outer.path):
                raise _twice(inner, outer)
            if Path(os.path.realpath(outer.path)) in Path(os.path.realpath(inner.path)).parents:
                message = f"{inner.role} is `{inner.path}`, in the folder that {outer.role} is to be"
                raise GrowError(Diagnostic("G200", message, help="name a file beside the folder"))
    for second in read:
        for first in written:
            replaced = first is written[0] and model is not None and _is_same(second.path, model)
            if not replaced and _is_same(first.path, second.path):
                raise _twice(first, second)


def model_parts(model: Path, role: str = "the model") -> Iterator[NamedPath]:
    """A model and its files, without texts that growc wrote into its folder."""
    yield NamedPath(role, model)
    if model.is_dir():
        files = (Path(folder, name) for folder, _, names in os.walk(model) for name in names)
        yield from (
            NamedPath(f"a file of {role}", p) for p in files if p.name == RECORD or not has_opening(p)
        )
    elif model.suffix not in (".pt2", ".json"):
        from growc.dialects.onnx.files.load import files_of

        with contextlib.suppress(Exception):  # opening the model reports its faults
            yield from (NamedPath(f"data of {role}", path) for path in files_of(model))


def recipe_parts(sources: Iterable[SourceText], resolved: Resolved) -> Iterator[NamedPath]:
    """The recipe, and all files that it names."""
    yield from (NamedPath("the recipe", Path(s.name)) for s in sources if Path(s.name).is_file())
    yield from (NamedPath("an included recipe", Path(source.name)) for source in resolved.included)
    for part in (part for bound in resolved.statements for part in parts_of(bound.statement)):
        match part:
            case Match():
                yield from model_parts(part.file.path, "the model of `match`")
            case StackFrom():
                yield from model_parts(part.file.path, "the template")
            case Measure():
                yield NamedPath("the inputs of `measure importance`", part.file.path)
            case Ranking() | LayerOrder() if part.file is not None:
                yield NamedPath(f"the file of `by {part.name}`", part.file.path)


def kept_parts(model: Path, resolved: Resolved) -> Iterator[NamedPath]:
    """The files that keep the scores that a recipe measures."""
    statements = tuple(bound.statement for bound in resolved.statements)
    if any(isinstance(statement, Measure) for statement in statements):
        statistics = (
            statistic_of(part) for part in parts_of(statements) if isinstance(part, Ranking | LayerOrder)
        )
        for statistic in dict.fromkeys(
            [IMPORTANCE, *(statistic for statistic in statistics if statistic is not None)]
        ):
            yield NamedPath("the file of kept scores", cache_path(model, statistic))


def _is_same(a: Path, b: Path) -> bool:
    """Whether two paths are one file, even if it does not exist yet."""
    if os.path.realpath(a) == os.path.realpath(b):
        return True
    try:
        return a.samefile(b)
    except OSError:
        return False


def _twice(one: NamedPath, other: NamedPath) -> GrowError:
    message = f"{one.role} is `{one.path}`, and so is {other.role}"
    return GrowError(Diagnostic("G200", message, help="each file has one part: name another one"))
