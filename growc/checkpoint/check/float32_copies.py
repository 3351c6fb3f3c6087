"""Write copies of a checkpoint with 16-bit weights and of its result in single precision, which needs no
rounding.

Rounding weights to 16 bits hides all smaller differences.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from growc.checkpoint.classes.new_tensors import GrownWeights, write_grown
from growc.checkpoint.classes.on_disk import CheckpointOnDisk
from growc.checkpoint.files.key_mapping import ModuleNames
from growc.checkpoint.files.safetensors_file import NARROW, Readable
from growc.checkpoint.files.write import as_they_are, write_checkpoint
from growc.verification.rounding import COPY_BYTES


def _single(stored: Readable) -> Readable:
    """A tensor whose 16-bit numbers are read as single precision."""
    if stored.entry.dtype not in NARROW:
        return stored
    return Readable(replace(stored.entry, dtype="F32"), lambda: stored.read().astype(np.float32))


def write_in_single(grown: GrownWeights[CheckpointOnDisk], folder: Path) -> tuple[Path, Path] | None:
    """The source and the result in single precision; None if the source has no 16-bit weights or it takes too
    much space.
    """
    source = grown.source.checkpoint
    if not source.narrow or 4 * sum(grown.entry(name).elements for name in grown.plans) > COPY_BYTES:
        return None
    folder.mkdir()
    wide = replace(source, tensors={name: _single(tensor) for name, tensor in source.tensors.items()})
    entries = {name: tensor.entry for name, tensor in wide.tensors.items()}
    write_checkpoint(folder / "source", wide, source.config, as_they_are([*entries.values()], wide.read))
    names = ModuleNames(grown.source.module, entries, wide.read)
    write_grown(folder / "grown", replace(grown, source=replace(grown.source, checkpoint=wide, names=names)))
    return folder / "source", folder / "grown"
