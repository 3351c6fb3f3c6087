"""Put a small file in place as a whole: the old or the new one is there, even if the process dies."""

from __future__ import annotations

from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import irregular, require_path
from growc.files.atomic_rename import put
from growc.files.commit import require_name
from growc.system.workshop import draft_folder, kept_aside


def require_new(path: Path, force: bool) -> None:
    """Raise GrowError if `-o` names no place for a file.

    G501 if a file exists, unless `force`; G502 if its folder is missing.
    """
    require_path(path, "`-o`")
    require_name(path, "-o")
    if not path.parent.is_dir():
        raise GrowError(Diagnostic("G502", f"there is no folder `{path.parent}`"))
    if kind := irregular(path):
        raise GrowError(Diagnostic("G501", f"`{path}` is {kind}"))
    if path.exists() and not force:
        raise GrowError(Diagnostic("G501", f"`{path}` exists", help="`--force` replaces it"))


def write_file(path: Path, data: bytes) -> None:
    """Write a file; if the path is a link, write its target."""
    put_file(path.resolve(), data)


def put_file(place: Path, data: bytes) -> None:
    """Write a file in place of the one with its name, even if that is a link."""
    with draft_folder(place) as folder:
        draft = folder / place.name
        draft.write_bytes(data)
        put(draft, place, kept_aside(draft, 0))
