"""Put a result in place: made beside the target, then renamed, data before the model, all or nothing."""

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
from growc.files.inventory import changed
from growc.files.pt2_archive import record_of
from growc.files.reference import is_reference
from growc.system.fetched_models import put_beside
from growc.system.interrupts import committed, uninterrupted
from growc.system.workshop import alone, journal, kept_aside, synced

METADATA = "growc"
"""The key of provenance in a model's metadata."""

OPENING = '{\n  "growc": '
"""The first characters of every text that growc writes beside a model."""

PAGE = "<!doctype html>\n<!-- growc report -->\n"
"""The first characters of every page that growc writes."""

PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors of the system that do not concern the file: too many open files, or too little memory."""

WRITTEN = "written"
"""The entry of a folder's record that lists its files."""

RECORD = "growc.json"
"""File with the provenance inside a checkpoint directory."""


def canonical(record: Mapping[str, Json]) -> str:
    """A record as text: the version of growc first, one line for each entry. Equal records give equal
    texts.
    """
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
    """The path `NAME.grown` with the same ending, beside the model. Names of folders have no endings.

    For a fetched model it is in the current folder.
    """
    place = put_beside(model)
    stem, ending = (place.name, "") if model.is_dir() else (place.stem, place.suffix)
    return place.with_name(f"{stem}.grown{ending}")


def record_path(target: Path, folder: bool = False) -> Path:
    """The path `NAME.grown.json`, for provenance stored beside the model."""
    stem = target.name if folder else target.stem
    return target.with_name(f"{stem.removesuffix('.grown')}.grown.json")


# ------------------------------------------------------------------------------------------- before


def require_name(path: Path, option: str) -> None:
    """Raise GrowError (G200) if a path cannot name a new file."""
    require_path(path, f"`{option}`")
    if str(path) == "-":
        raise wrong(f"`{option} -` names no file", "name a file, such as `./-` if it is to be called so")
    if path.name in ("", ".."):
        raise wrong(f"`{option} {path}` names no file", f"write a file or a folder, such as `{option} grown`")
    if is_reference(path):
        remedy = "write a folder of this machine; `hf upload OWNER/NAME FOLDER` uploads it"
        raise wrong(f"`{option} {path}` is a reference, and growc uploads nothing", remedy)


def guard(target: Path, model: Path, texts: Sequence[Path], force: bool) -> None:
    """Refuse a target that cannot be written, or that would replace a file that growc did not make.

    texts: the files that the user asked for beside the result. Raises GrowError: G200, G501, G502.
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
    """Refuse a place that cannot be written to, or that holds a file that growc did not make.

    folder: whether a folder is to be written. elsewhere: an alternative to add to the help. Raises GrowError:
    G501, G502.
    """
    if not path.parent.is_dir():
        raise GrowError(Diagnostic("G502", f"there is no folder `{path.parent}`"))
    kind = irregular(path) or "a file"
    if path.exists() and kind != ("a folder" if folder else "a file"):
        raise GrowError(Diagnostic("G501", f"`{path}` is {kind}"))
    if path.exists() and not force and (problem := _not_ours(path)):
        problem = "is the model itself" if model.exists() and path.samefile(model) else problem
        raise GrowError(Diagnostic("G501", f"`{path}` {problem}", help=f"`--force` replaces it{elsewhere}"))


def _not_ours(path: Path) -> str:
    """The reason why a file or a folder must not be replaced; empty if growc made all of it."""
    if not made_by_growc(path):
        return "exists, and growc did not make it"
    if not path.is_dir():
        return ""
    try:
        listed = json.loads((path / RECORD).read_text(encoding="utf-8")).get(WRITTEN)
    except (ValueError, AttributeError, RecursionError):
        return f"has a damaged `{RECORD}`, which does not tell its files"
    name = changed(path, RECORD, listed) if isinstance(listed, dict) else ""
    return f"holds `{name}`, which was written after growc wrote the others" if name else ""


def _guard_kind(target: Path, model: Path) -> None:
    """Raise GrowError (G200) for a target whose ending belongs to another kind than the model."""
    endings = (".onnx", ".pt2")
    if model.is_dir() and target.suffix in endings:
        message = f"`{target}` is no folder, and the model is one"
        raise GrowError(Diagnostic("G200", message, help=f"write `-o {target.with_suffix('')}`"))
    if model.is_file() and target.suffix not in ("", model.suffix):
        remedy = f"write `-o {target.with_suffix(model.suffix)}`"
        message = f"`{target}` is no `{model.suffix}` file, and the model is one"
        raise GrowError(Diagnostic("G200", message, help=remedy))


def made_by_growc(path: Path) -> bool:
    """Whether growc wrote a file, as a model or record, or a folder has a record of growc.

    Raises the error that kept the system from reading it if that error is temporary.
    """
    from growc.dialects.onnx.files.load import metadata

    if path.is_dir():
        return (path / RECORD).is_file() and made_by_growc(path / RECORD)
    if has_opening(path):
        return True
    try:
        return bool(record_of(path)) or METADATA in metadata(path)
    except (OSError, GrowError) as error:
        if {getattr(cause, "errno", None) for cause in (error, error.__cause__)} & PASSING:
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
    """Write provenance into the metadata of an ONNX file. Protobuf merges appended bytes into the message."""
    entry = onnx.ModelProto(metadata_props=[{"key": METADATA, "value": text}])
    with model.open("ab") as file:
        file.write(entry.SerializeToString())


def commit(moves: Sequence[tuple[Path, Path]], check: Callable[[], None]) -> tuple[str, ...]:
    """Rename every (draft, place) in order. The last one is the model; its rename is the commit.

    `check()` is called once no other process can commit in this folder. If a step fails, the previous files
    are restored. If the process is killed, the next run restores them from the journal. Data that only the
    replaced model used is removed. Interrupts wait until the end. Returns descriptions of failures after the
    commit.
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
    """Finish after the commit: remove stale data and sync the folders. Yields descriptions of failures."""
    for path in stale:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            yield f"`{path}`, which nothing uses any more, stays: {(error.strerror or str(error)).lower()}"
    for folder in dict.fromkeys(place.parent for _, place in moves):
        with contextlib.suppress(OSError):  # not all systems sync folders
            synced(folder)


def own_data(model: Path) -> set[Path]:
    """The `STEM-<12 hex>.data` files of a model that growc wrote; they belong to this model alone."""
    from growc.dialects.onnx.files.load import files_of

    if not model.is_file() or record_of(model) or not made_by_growc(model):
        return set()
    places = set(files_of(model))
    data_name = re.compile(re.escape(model.stem) + r"-[0-9a-f]{12}\.data")
    siblings = (model.with_name(place.name) for place in places if data_name.fullmatch(place.name))
    return {place for place in siblings if place.resolve() in places}
