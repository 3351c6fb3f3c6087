"""The archive that a `.pt2` program is: how it came to be stands in it, among what torch leaves alone."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from pathlib import Path

RECORD = "extra/growc.json"
"""Where in the archive, behind the name of its root."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time that torch writes for every member: none."""


def record_of(path: Path) -> str:
    """What growc wrote into an archive; nothing where it wrote none, or there is no archive."""
    if not path.is_file():
        return ""
    with suppress(Exception), zipfile.ZipFile(path) as archive:  # a damaged one leads to anything
        names = [name for name in archive.namelist() if name.partition("/")[2] == RECORD]
        return archive.read(names[0]).decode("utf-8") if names else ""
    return ""


def add_record(path: Path, text: str) -> None:
    """Write it into an archive that has none yet."""
    # zipfile opens what it may not change anew, and empty
    with path.open("r+b") as file, zipfile.ZipFile(file, "a", zipfile.ZIP_STORED) as archive:
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(zipfile.ZipInfo(f"{root}/{RECORD}", EPOCH), text)
