"""The provenance that a grown model records, and its plans, made again from these records."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from growc import grammar
from growc.dialects.onnx.files.load import load as load_model
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.json_data import Json, fields, text, texts
from growc.errors.progress import Progress
from growc.errors.source import SourceText
from growc.files.commit import METADATA, WRITTEN
from growc.formats.compiler import compiled
from growc.formats.source_facts import digests, files_read, shapes_of
from growc.passes.finish.interface import Ports, ports_of
from growc.passes.finish.interface_json import from_json, to_json
from growc.recipe.expression import spell
from growc.recipe.syntax_tree import (
    Arrange,
    Blank,
    Comment,
    Include,
    Item,
    Language,
    RecipeTree,
    Reorder,
    Scoped,
    Subclone,
    Undecided,
)
from growc.resolve.bound import Bound, Resolved
from growc.resolve.resolve import load
from growc.system.fetched_models import reference_of
from growc.system.workshop import scratch_folder

if TYPE_CHECKING:
    import onnx_ir as ir

    from growc.passes.compilation import Result
    from growc.verification.verify import Verification

Write = Callable[["Result", Path, Path, Progress], list[Path]]
"""Makes a result in a folder, under the name of a target; the last file is the model."""
IN_MODEL = "the recipe in the model"
"""Name of the text of a recorded recipe."""
Declared = dict[str, tuple[int | None, ...]]
"""The declared sizes of inputs and outputs; None if a size is not fixed."""


def provenance(
    sources: Sequence[SourceText],
    resolved: Resolved,
    c: Result,
    verification: Verification | None,
    earlier: Sequence[Mapping[str, Json]],
    config: Mapping[str, Json] | None = None,
    *,
    inputs_given: bool = False,
) -> dict[str, Json]:
    """The record of how the result was made; it does not depend on time, place or machine.

    A fetched source is recorded by its reference with the commit. earlier: the source's history. config: the
    fields that the caller set. inputs_given: whether the caller gave inputs for the capture.
    """
    certificate = c.plan.certificate
    stores_ports = any(map(_reads_files, resolved.statements)) or any("ports" in record for record in earlier)
    stores_ports = stores_ports or bool(config) or inputs_given
    prefixes = {share: dict(sizes) for share, sizes in c.lowered.prefixes.items()}
    nested: dict[str, Json] = {"nested": prefixes} if prefixes else {}
    decided: dict[str, Json] = {"config": dict(config)} if config else {}
    ports = {"ports": to_json(ports_of(c))} if stores_ports else {}
    source_fields: dict[str, Json] = {"source": reference} if (reference := reference_of(c.path)) else {}
    file_digests: dict[str, Json] = (
        {"files": digests_by_name} if (digests_by_name := digests(resolved.statements)) else {}
    )
    return {
        **source_fields,
        "language": resolved.language,
        "recipe": recipe_lines(sources, resolved),
        "parameters": {name: spell(value) for name, value in resolved.parameters.items()},
        "certificate": {
            "exact": certificate.exact,
            "gaps": [{"node": g.node, "cause": g.cause} for g in certificate.gaps],
        },
        "measured": None if verification is None else float(f"{verification.relative:.1e}"),
        **nested,
        **decided,
        **ports,
        **file_digests,
        "shapes": dict(shapes_of(c.path, {weight.source for weight in c.plan.weights})),
        "earlier": list(earlier),
    }


def _reads_files(bound: Bound) -> bool:
    """Whether a statement depends on other files, which may be missing when the recipe is read again."""
    return any(files_read([bound]))


def recipe_lines(sources: Sequence[SourceText], resolved: Resolved, *, comments: bool = False) -> list[str]:
    """The recipe in canonical form, with included recipes and the results of budgets in place, with or
    without comments.

    The version of its language is recorded separately.
    """
    included, decided = iter(resolved.included), iter(resolved.decided)

    def expanded(body: Iterable[Item]) -> Iterator[Item]:
        for item in body:
            if isinstance(item, Include):
                yield from expanded(grammar.parse(next(included)).body)
            elif isinstance(item, Undecided) and (decision := next(decided, None)):
                yield from decision.items
            elif isinstance(item, Scoped):
                yield replace(item, body=tuple(expanded(item.body)))
            elif not isinstance(item, Language) and (comments or not isinstance(item, Comment | Blank)):
                yield item

    return grammar.format(RecipeTree(tuple(expanded(grammar.parse(*sources).body)))).splitlines()


@dataclass(frozen=True)
class EarlierRecord:
    """A model's file, the records of the growths that made it, and its declared sizes."""

    path: Path
    records: Sequence[Mapping[str, Json]]
    declared: Declared

    @staticmethod
    def of(path: Path) -> EarlierRecord:
        """The past of an ONNX file."""
        model = load_model(path)
        return EarlierRecord(path, records_in(model.metadata_props.get(METADATA, "")), declared_by(model))


def retraced(source: EarlierRecord, result: EarlierRecord, write: Write, progress: Progress) -> Ports:
    """The maps from the inputs and outputs of `source` to those of `result`, by the recipes in its records.

    A grown source must be a model on the way to the result; a source without a record may be any of them.
    There are no maps if both have the same inputs and outputs and no unit changed its place. There are none
    either if the recipes do not lead from this source to this result. write: writes models of this form.
    """
    records, source_records = list(result.records), list(source.records)
    if records[: len(source_records)] != source_records:
        return Ports()
    for first in [len(source_records)] if source_records else range(len(records)):
        with contextlib.suppress(GrowError):
            recipes = [recipe_of(record) for record in records[first:]]
            if source.declared == result.declared and not any(map(_moves_units, recipes)):
                return Ports()
            ports = _replayed(source.path, list(zip(records[first:], recipes, strict=True)), write, progress)
            if _leads_to(ports, result.declared):
                return ports
    return Ports()


def records_in(text: str) -> list[dict[str, Json]]:
    """The records of the growths that made a model, the first one first, each without earlier ones.

    text: as `provenance` made it.
    """
    try:
        last = json.loads(text)
        last.pop(WRITTEN, None)
        records = [*last.pop("earlier", ()), last]
        return records if all(map(_is_record, records)) else []
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _is_record(record: Mapping[str, Json]) -> bool:
    lines, parameters = record["recipe"], record["parameters"]
    texts = isinstance(lines, list) and isinstance(parameters, dict) and [*lines, *parameters.values()]
    return isinstance(texts, list) and all(isinstance(text, str) for text in texts)


def source_of(record: Mapping[str, Json], name: str = IN_MODEL) -> SourceText:
    """The text of the recipe in a record, in its version of the language."""
    version = [f"language {text(record['language'])}"] if "language" in record else []
    return SourceText(name, "\n".join([*version, *texts(record["recipe"])]))


def recipe_of(record: Mapping[str, Json], name: str = IN_MODEL) -> Resolved:
    """The recipe in a record; it must include nothing."""
    parameters = {name: text(value) for name, value in fields(record["parameters"]).items()}
    return load([source_of(record, name)], parameters, read=_unread)


def replayable(recipe: Resolved) -> Resolved:
    """The recipe of a record, to be carried out again.

    Raises GrowError (G207) if it names files: a model must not open other files of this machine.
    """
    if any(map(_reads_files, recipe.statements)):
        raise GrowError(Diagnostic("G207", "the recipe in the model names files, which are not read"))
    return recipe


def _unread(path: Path) -> str:
    raise OSError(errno.EACCES, "a model includes no files")


def _moves_units(recipe: Resolved) -> bool:
    """Whether inputs or outputs of unchanged size may hold other units."""
    return any(isinstance(bound.statement, Subclone | Reorder | Arrange) for bound in recipe.statements)


def _replayed(
    source: Path, growths: Sequence[tuple[Mapping[str, Json], Resolved]], write: Write, progress: Progress
) -> Ports:
    """The ports of several growths in sequence, from their records, or else from their recipes, carried out
    again.

    Raises GrowError if a recipe is refused.
    """
    ports = Ports()
    with scratch_folder() as name:
        for number, (record, recipe) in enumerate(growths, 1):
            if "ports" in record:
                ports = ports.then(from_json(record["ports"]))
                continue
            compilation = compiled(replayable(recipe), source, progress=progress)
            ports = ports.then(ports_of(compilation))
            if number < len(growths) and "ports" not in growths[number][0]:
                folder = name / str(number)
                folder.mkdir()
                source = write(compilation, folder, folder / source.name, progress)[-1]
    return ports


def _leads_to(ports: Ports, declared: Declared) -> bool:
    """Whether every resized axis has its declared size."""
    for (name, axis), state in ports.outputs.items():
        for port in filter(None, (name, ports.states.get(name, ("",))[0])):
            new_name = ports.renamed.get(port, port)
            sizes = () if new_name is None else declared.get(new_name, ())
            if new_name is not None and (axis >= len(sizes) or sizes[axis] not in (None, state.size)):
                return False
    return True


def declared_by(model: ir.Model) -> Declared:
    """The declared sizes of a model's inputs and outputs."""
    declared: Declared = {}
    for value in (*model.graph.inputs, *model.graph.outputs):
        sizes = value.shape or ()
        declared[value.name or ""] = tuple(d if isinstance(d, int) else None for d in sizes)
    return declared
