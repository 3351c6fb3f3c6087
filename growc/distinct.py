"""No file has two parts in one run: what a command writes is nothing that it reads, or writes besides.

One place for all that names files: OUT, `--lineage` and what is written beside OUT, the recipe and what it
includes or names, `--inputs`, `--optimizer`, and the files that the model is made of.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Source
from growc.files.commit import RECORD, has_opening, record_path
from growc.plans.scores import cache_path
from growc.recipe.expression import parts_of
from growc.recipe.layer_orders import statistic_of
from growc.recipe.statistics import IMPORTANCE
from growc.recipe.syntax_tree import Match, Measure, Order, Ranking, StackFrom
from growc.resolve.bound import Resolved


@dataclass(frozen=True)
class Part:
    """A file or folder, and what it is in a run, as a person reads it: `OUT`, `the model`."""

    role: str
    path: Path


def require_own_parts(
    sources: Sequence[Source],
    resolved: Resolved,
    model: Path,
    target: Path,
    options: Mapping[str, str | Path | None],
) -> Sequence[Part]:
    """All that `apply` reads; `options` are those that name files.

    Raises GrowError (G200) where a file has two parts.
    """
    named = [Part(f"the file of `{name}`", Path(path)) for name, path in options.items() if path is not None]
    texts = [part for part in named if part.role in ("the file of `--lineage`", "the file of `--report`")]
    written = [Part("OUT", target), Part("the record of OUT", record_path(target, model.is_dir())), *texts]
    read = [part for part in named if part not in texts]
    read += [*model_parts(model), *recipe_parts(sources, resolved)]
    require_distinct([*written, *kept_parts(model, resolved)], read, model=model)
    return read


def require_distinct(written: Sequence[Part], read: Iterable[Part], *, model: Path | None = None) -> None:
    """Raise GrowError (G200) where a file that is to be written has another part too, or would be lost in a
    folder that is to be written. The first of `written` may replace `model` as a whole.
    """
    for one, other in combinations(written, 2):
        for inner, outer in ((one, other), (other, one)):
            if _is_same(inner.path, outer.path):
                raise _twice(inner, outer)
            if Path(os.path.realpath(outer.path)) in Path(os.path.realpath(inner.path)).parents:
                message = f"{inner.role} is `{inner.path}`, in the folder that {outer.role} is to be"
                raise GrowError(Diagnostic("G200", message, help="name a file beside the folder"))
    for other in read:
        for one in written:
            whole = one is written[0] and model is not None and _is_same(other.path, model)
            if not whole and _is_same(one.path, other.path):
                raise _twice(one, other)


def model_parts(model: Path, role: str = "the model") -> Iterator[Part]:
    """A model and the files that it is made of. Texts that growc wrote into its folder are none of these."""
    yield Part(role, model)
    if model.is_dir():
        found = (Path(folder, name) for folder, _, names in os.walk(model) for name in names)
        yield from (Part(f"a file of {role}", p) for p in found if p.name == RECORD or not has_opening(p))
    elif model.suffix not in (".pt2", ".json"):
        from growc.dialects.onnx.files.load import files_of

        with contextlib.suppress(Exception):  # whoever opens the model says what is wrong with it
            yield from (Part(f"data of {role}", path) for path in files_of(model))


def recipe_parts(sources: Iterable[Source], resolved: Resolved) -> Iterator[Part]:
    """The recipe, and all files that it names."""
    yield from (Part("the recipe", Path(s.name)) for s in sources if Path(s.name).is_file())
    yield from (Part("an included recipe", Path(source.name)) for source in resolved.included)
    for part in (part for bound in resolved.statements for part in parts_of(bound.statement)):
        match part:
            case Match():
                yield from model_parts(part.file.path, "the model of `match`")
            case StackFrom():
                yield from model_parts(part.file.path, "the template")
            case Measure():
                yield Part("the inputs of `measure importance`", part.file.path)
            case Ranking() | Order() if part.file is not None:
                yield Part(f"the file of `by {part.name}`", part.file.path)


def kept_parts(model: Path, resolved: Resolved) -> Iterator[Part]:
    """Where scores are kept that a recipe measures."""
    statements = tuple(bound.statement for bound in resolved.statements)
    if any(isinstance(statement, Measure) for statement in statements):
        asked = (statistic_of(part) for part in parts_of(statements) if isinstance(part, Ranking | Order))
        for statistic in dict.fromkeys([IMPORTANCE, *(one for one in asked if one is not None)]):
            yield Part("the file of kept scores", cache_path(model, statistic))


def _is_same(a: Path, b: Path) -> bool:
    """Whether two paths are one file, though it may not be there yet."""
    if os.path.realpath(a) == os.path.realpath(b):
        return True
    try:
        return a.samefile(b)
    except OSError:
        return False


def _twice(one: Part, other: Part) -> GrowError:
    message = f"{one.role} is `{one.path}`, and so is {other.role}"
    return GrowError(Diagnostic("G200", message, help="each file has one part: name another one"))
