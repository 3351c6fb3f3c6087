"""Models as a cache of downloads keeps them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def cached(folder: Path, files: Mapping[str, Path]) -> Path:
    """A cache of downloads as Hugging Face has it: links in `snapshots` to what lies in `blobs`."""
    snapshot, blobs = folder / "snapshots/0", folder / "blobs"
    blobs.mkdir(parents=True)
    for number, (name, file) in enumerate(files.items()):
        place = snapshot / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, blobs / f"{number:040x}")
        place.symlink_to(os.path.relpath(blobs / f"{number:040x}", place.parent))
    return snapshot
