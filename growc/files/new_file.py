"""Put a small file in place as a whole: the old or the new one is there, even if the process dies."""

from __future__ import annotations

import contextlib
from codecs import getincrementaldecoder
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import irregular, require_path
from growc.files.atomic_rename import put
from growc.files.commit import require_name
from growc.system.workshop import draft_folder, kept_aside

LOOKED_AT = 4096
"""Bytes at the start of a file that tell whether it is text."""


def require_new(path: Path, force: bool, *, text: bool = True) -> None:
    """Raise GrowError if `-o` names no place for a file.

    G501 if a file exists, unless `force`, which replaces only texts by a text; G502 if its folder is missing.
    """
    require_path(path, "`-o`")
    require_name(path, "-o")
    if not path.parent.is_dir():
        raise GrowError(Diagnostic("G502", f"there is no folder `{path.parent}`"))
    if kind := irregular(path):
        raise GrowError(Diagnostic("G501", f"`{path}` is {kind}"))
    if path.exists() and not force:
        raise GrowError(Diagnostic("G501", f"`{path}` exists", help="`--force` replaces it"))
    if text and path.exists() and not _is_text(path):
        raise GrowError(Diagnostic("G501", f"`{path}` is no text", help="name another file"))


def _is_text(path: Path) -> bool:
    """Whether the first bytes of a file are text, as those of no model are."""
    with path.open("rb") as file:
        first = file.read(LOOKED_AT)
    with contextlib.suppress(UnicodeDecodeError):
        getincrementaldecoder("utf-8")().decode(first)
        return b"\0" not in first
    return False


def write_file(path: Path, data: bytes) -> None:
    """Write a file; if the path is a link, write its target."""
    put_file(path.resolve(), data)


def put_file(place: Path, data: bytes) -> None:
    """Write a file in place of the one with its name, even if that is a link."""
    with draft_folder(place) as folder:
        draft = folder / place.name
        draft.write_bytes(data)
        put(draft, place, kept_aside(draft, 0))
