"""The record of provenance in the archive of a `.pt2` program, in a place that torch ignores."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from pathlib import Path

RECORD = "extra/growc.json"
"""The record's path in the archive, under its root."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The constant time that torch writes for every member."""


def record_of(path: Path) -> str:
    """The record that growc wrote into an archive; empty if there is none, or no archive."""
    if not path.is_file():
        return ""
    with suppress(Exception), zipfile.ZipFile(path) as archive:  # a damaged archive may raise anything
        names = [name for name in archive.namelist() if name.partition("/")[2] == RECORD]
        return archive.read(names[0]).decode("utf-8") if names else ""
    return ""


def add_record(path: Path, text: str) -> None:
    """Write a record into an archive that has none yet."""
    # zipfile opens a file that it may not change as new and empty, so the file is opened here.
    with path.open("r+b") as file, zipfile.ZipFile(file, "a", zipfile.ZIP_STORED) as archive:
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(zipfile.ZipInfo(f"{root}/{RECORD}", EPOCH), text)
