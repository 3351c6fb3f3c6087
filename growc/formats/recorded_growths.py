"""The growths in a record, read so that they can be carried out again on another model.

`growc.formats.provenance` writes records, and derives ports from the recipes in them. Here a user repeats the
whole growth, so files that recipes name are read, too: from the record's folder, or from where the user says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError, wrong
from growc.errors.json_data import Json, fields, text
from growc.errors.regular_files import irregular
from growc.formats.protocol import form_of
from growc.formats.provenance import recipe_of, records_in, source_of
from growc.formats.source_facts import Shapes, digest, files_read, recorded_shapes
from growc.recipe.expression import replaced
from growc.recipe.syntax_tree import Text
from growc.resolve.bound import ResolvedTexts


@dataclass(frozen=True)
class RecordedGrowth:
    """One recorded growth: its recipe, the config fields that were set, the shapes of its source, and remarks
    on its files.
    """

    recipe: ResolvedTexts
    parameters: Mapping[str, str]
    config: Mapping[str, Json]
    shapes: Shapes
    remarks: tuple[str, ...] = ()


def records_of(path: Path) -> Sequence[Mapping[str, Json]]:
    """The records of the growths that made a model, the first one first, from the model or from the file
    beside it.

    Raises GrowError: G200 if there are none; G310 if the path cannot be read.
    """
    if not path.exists():
        raise GrowError(Diagnostic("G310", f"there is no `{path}`"))
    if (kind := irregular(path)) and not path.is_dir():
        raise GrowError(Diagnostic("G310", f"`{path}` is {kind}, and no record"))
    if path.suffix == ".json" and not path.is_dir():
        records = records_in(_text_in(path))
    else:
        records = form_of(path).history(path)
    if not records:
        remedy = "name a model that growc made, or the `NAME.grown.json` beside it"
        raise wrong(f"`{path}` has no record of a growth", remedy)
    return records


def _text_in(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or "it is no text"
        raise GrowError(Diagnostic("G310", f"`{path}` cannot be read: {why.lower()}")) from error


def still_to_do(
    records: Sequence[Mapping[str, Json]], own: Sequence[Mapping[str, Json]], model: str
) -> Sequence[Mapping[str, Json]]:
    """The growths of a record that a model with its own history lacks. Raises GrowError (G200) if the
    histories differ.
    """
    recipes = [[record["recipe"], record["parameters"]] for record in records]
    applied = [[record["recipe"], record["parameters"]] for record in own]
    if recipes[: len(applied)] != applied:
        remedy = "give the model that the record's first growth began with, or one that it made"
        raise wrong(f"`{model}` was grown by other recipes than those of the record", remedy)
    if len(applied) == len(recipes):
        raise wrong(f"`{model}` has had all growths of the record")
    return records[len(applied) :]


def growth_of(
    record: Mapping[str, Json], place: Path, files: Mapping[str, Path], number: int
) -> RecordedGrowth:
    """One growth with its files.

    files: paths by their names in the recipe; the others are in the folder of `place`, the record. Raises
    GrowError (G200) for a missing file, or for one with other contents.
    """
    name = str(place.with_name(f"growth {number} of {place.name}"))
    source, resolved = source_of(record, name), recipe_of(record, name)
    recorded_digests = fields(record.get("files", {}))
    remarks = []
    for file in dict.fromkeys(files_read(resolved.statements)):
        path = files.get(file.value, file.path)
        if not path.exists():
            raise wrong(f"the recorded recipe reads `{file.value}`, and there is no `{path}`", _where(file))
        if file.value in recorded_digests and digest(path) != recorded_digests[file.value]:
            message = f"`{path}` is not the file that the recorded growth read as `{file.value}`"
            if file.value not in files:
                raise wrong(message, f"{_where(file)}; one that is named so may be another one")
            remarks.append(message)

    def found(node: Text) -> Text:
        return replace(node, found=files.get(node.value))

    bound = tuple(replace(b, statement=replaced(b.statement, Text, found)) for b in resolved.statements)
    parameters = {name: text(value) for name, value in fields(record["parameters"]).items()}
    return RecordedGrowth(
        ResolvedTexts((source,), replace(resolved, statements=bound)),
        parameters,
        fields(record.get("config", {})),
        recorded_shapes(record),
        tuple(remarks),
    )


def _where(file: Text) -> str:
    return f"`--file '{file.value}=PATH'` says where it is"
