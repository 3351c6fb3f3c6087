"""Putting a result in place: made beside the target, then renamed, data before the model, all or nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from growc.errors.diagnostic import Diagnostic, GrowError, wrong
from growc.errors.json_data import Json
from growc.errors.regular_files import irregular, require_path
from growc.files.atomic_rename import on_disk, put
from growc.files.pt2_archive import record_of
from growc.files.reference import is_reference
from growc.system.interrupts import committed, uninterrupted
from growc.system.origins import put_beside
from growc.system.workshop import alone, journal, kept_aside, synced

METADATA = "growc"
"""The key of provenance in the metadata of a model."""

OPENING = '{\n  "growc": '
"""How every text begins that growc writes beside a model."""

PAGE = "<!doctype html>\n<!-- growc report -->\n"
"""How every page begins that growc writes."""

PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors that say nothing of a file: there are too many open ones, or there is too little memory."""

RECORD = "growc.json"
"""Where provenance stands inside a checkpoint directory."""


def canonical(record: Mapping[str, Json]) -> str:
    """A record as text, the version of growc first, a line for each entry; equal records give equal texts."""
    from growc.version import __version__

    entries = ({"growc": __version__} | dict(record)).items()
    return "{\n" + ",\n".join(f"  {_json(key)}: {_block(value)}" for key, value in entries) + "\n}\n"


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _block(value: Json) -> str:
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"    {_json(k)}: {_json(v)}" for k, v in value.items()) + "\n  }"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {_json(v)}" for v in value) + "\n  ]"
    return _json(value)


def default_output(model: Path) -> Path:
    """`NAME.grown` with the same ending, beside the model. The names of folders have no endings.

    A model that was fetched has it in the current folder.
    """
    place = put_beside(model)
    stem, ending = (place.name, "") if model.is_dir() else (place.stem, place.suffix)
    return place.with_name(f"{stem}.grown{ending}")


def record_path(target: Path, folder: bool = False) -> Path:
    """`NAME.grown.json`, where the provenance stands beside the model as well."""
    stem = target.name if folder else target.stem
    return target.with_name(f"{stem.removesuffix('.grown')}.grown.json")


# ------------------------------------------------------------------------------------------- before


def require_name(path: Path, option: str) -> None:
    """Raise GrowError (G200) where a path cannot be that of a new file."""
    require_path(path, f"`{option}`")
    if path.name in ("", ".."):
        raise wrong(f"`{option} {path}` names no file", f"write a file or a folder, such as `{option} grown`")
    if is_reference(path):
        remedy = "write a folder of this machine; `hf upload OWNER/NAME FOLDER` uploads it"
        raise wrong(f"`{option} {path}` is a reference, and growc uploads nothing", remedy)


def guard(target: Path, model: Path, texts: Sequence[Path], force: bool) -> None:
    """Refuse what cannot be written, and what would replace a file that growc did not make. texts: the files
    that a person asked for beside the result.
    """
    _guard_kind(target, model)
    for path in (target, record_path(target, model.is_dir())):
        folder = model.is_dir() and path == target
        require_replaceable(path, model, force, folder, ", `-o OUT` writes elsewhere")
    for path in texts:
        require_replaceable(path, model, force)


def require_replaceable(
    path: Path, model: Path, force: bool, folder: bool = False, elsewhere: str = ""
) -> None:
    """Refuse a place that cannot be written to, or that holds something that growc did not make. folder:
    whether a folder is to be written; elsewhere: what else a person can do.
    """
    if not path.parent.is_dir():
        raise GrowError(Diagnostic("G502", f"there is no folder `{path.parent}`"))
    kind = irregular(path) or "a file"
    if path.exists() and kind != ("a folder" if folder else "a file"):
        raise GrowError(Diagnostic("G501", f"`{path}` is {kind}"))
    if path.exists() and not force and not made_by_growc(path):
        own = model.exists() and path.samefile(model)
        what = "is the model itself" if own else "exists, and growc did not make it"
        raise GrowError(Diagnostic("G501", f"`{path}` {what}", help=f"`--force` replaces it{elsewhere}"))


def _guard_kind(target: Path, model: Path) -> None:
    """Refuse a target whose name says that it is of another kind than the model."""
    endings = (".onnx", ".pt2")
    if model.is_dir() and target.suffix in endings:
        message = f"`{target}` is no folder, and the model is one"
        raise GrowError(Diagnostic("G200", message, help=f"write `-o {target.with_suffix('')}`"))
    if model.is_file() and target.suffix not in ("", model.suffix):
        remedy = f"write `-o {target.with_suffix(model.suffix)}`"
        message = f"`{target}` is no `{model.suffix}` file, and the model is one"
        raise GrowError(Diagnostic("G200", message, help=remedy))


def made_by_growc(path: Path) -> bool:
    """Whether a file is a model or a record that growc wrote, or a folder has such a record.

    Raises what kept the system from telling, where that passes.
    """
    from growc.dialects.onnx.files.load import metadata

    if path.is_dir():
        return (path / RECORD).is_file() and made_by_growc(path / RECORD)
    if has_opening(path):
        return True
    try:
        return bool(record_of(path)) or METADATA in metadata(path)
    except (OSError, GrowError) as error:
        if {getattr(one, "errno", None) for one in (error, error.__cause__)} & PASSING:
            raise
    return False


def has_opening(path: Path) -> bool:
    """Whether a file is a text that growc wrote."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(len(PAGE)).startswith((OPENING.encode(), PAGE.encode()))
    return False


# -------------------------------------------------------------------------------------------- after


def stamp(model: Path, text: str) -> None:
    """Write provenance into the metadata of an ONNX file: protobuf reads what is appended as merged."""
    entry = onnx.ModelProto(metadata_props=[{"key": METADATA, "value": text}])
    with model.open("ab") as file:
        file.write(entry.SerializeToString())


def commit(moves: Sequence[tuple[Path, Path]], check: Callable[[], None]) -> tuple[str, ...]:
    """Rename every (draft, place) in order; the last one is the model, whose rename is the commit.

    `check()` is called once nobody else is committing in this folder. Where anything fails, what was there
    before is there again, at the latest when the next run finds what a killed one wrote down of its renames.
    Data that only the replaced model used is removed. Nothing interrupts this. Returns what failed once all
    was in place.
    """
    for draft, _ in moves:
        on_disk(draft)
    _, target = moves[-1]
    with alone(target.parent), uninterrupted():
        check()
        stale = sorted(own_data(target) - {place for _, place in moves})
        journal(moves, stale)
        with contextlib.ExitStack() as undoing:
            for number, (draft, place) in enumerate(moves):
                undoing.callback(put(draft, place, kept_aside(draft, number)))
            undoing.pop_all()
        committed()
        failed = list(_after(moves, stale))
    return tuple(failed)


def _after(moves: Sequence[tuple[Path, Path]], stale: Sequence[Path]) -> Iterator[str]:
    """What is left to do once all is in place, and what of it failed."""
    for path in stale:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            yield f"`{path}`, which nothing uses any more, stays: {(error.strerror or str(error)).lower()}"
    for folder in dict.fromkeys(place.parent for _, place in moves):
        with contextlib.suppress(OSError):  # not all systems sync folders
            synced(folder)


def own_data(model: Path) -> set[Path]:
    """The `STEM-<12 hex>.data` files of a model that growc wrote: it made them for this model alone."""
    from growc.dialects.onnx.files.load import files_of

    if not model.is_file() or record_of(model) or not made_by_growc(model):
        return set()
    places = set(files_of(model))
    own = re.compile(re.escape(model.stem) + r"-[0-9a-f]{12}\.data")
    beside = (model.with_name(place.name) for place in places if own.fullmatch(place.name))
    return {place for place in beside if place.resolve() in places}
