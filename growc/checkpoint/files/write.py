"""Write a new checkpoint directory: weights as they are made, the config, and the source's other files."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from growc.algebra.indexmap import Array
from growc.checkpoint.files.directory import ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG, Checkpoint
from growc.checkpoint.files.process_shares import Tell, WriteShare, quiet
from growc.checkpoint.files.safetensors_file import HeaderEntry
from growc.checkpoint.files.shards import SHARD_SIZE, TensorGroup, laid_out
from growc.errors.json_data import Json
from growc.plans.lazy_rows import Rows, stored
from growc.system.ranks import ALONE, Ranks
from growc.system.workshop import empty


def write_checkpoint(
    folder: Path,
    source: Checkpoint,
    config: Mapping[str, Json],
    parts: Iterable[TensorGroup],
    *,
    shard_size: int = SHARD_SIZE,
    parameters: int | None = None,
    wrote: Tell = quiet,
    ranks: Ranks = ALONE,
    remade: Callable[[], Iterable[TensorGroup]] = list,
    done: Path | None = None,
) -> None:
    """Fill a folder. Only tensors that are made together are in memory together.

    config: the result's; if it equals the source's, the source's file is copied. `wrote(name, bytes)` is
    called for every tensor. ranks: the processes that write. remade: makes the parts in another process.
    done: a folder in which processes record what is on disk. If the folder exists, recorded weights stay.
    """
    folder.mkdir(exist_ok=True)
    empty(folder, lambda path: path.is_file() and path.suffix == ".safetensors")
    write_beside(folder, source, config)
    own_parts = list(parts)
    entries = in_order(own_parts)
    places = laid_out(folder, entries, source.metadata, shard_size, parameters=parameters)
    written = ranks.each(WriteShare(remade, places, done), WriteShare(lambda: own_parts, places, done, wrote))
    if sum(written) != (total := sum(entry.nbytes for entry in entries)):
        raise AssertionError(f"{sum(written)} bytes are written, not {total}")


def in_order(parts: Iterable[TensorGroup]) -> list[HeaderEntry]:
    """Tensors in the order of the files; tensors without a position are last."""
    placed = [
        (part.positions[k] if part.positions else math.inf, entry)
        for part in parts
        for k, entry in enumerate(part.entries)
    ]
    return [entry for _, entry in sorted(placed, key=lambda pair: pair[0])]


def write_beside(folder: Path, source: Checkpoint, config: Mapping[str, Json]) -> None:
    """Write the files of a folder other than weights: the result's config, and the source's other files."""
    if config == source.config:
        shutil.copy2(source.path / CONFIG, folder / CONFIG)
    else:
        (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for place in source.carried():
        if place.is_dir():
            shutil.copytree(place, folder / place.name, ignore=partial(_ignored, source))
        else:
            shutil.copy2(place, folder / place.name)


def _ignored(source: Checkpoint, folder: str, names: list[str]) -> set[str]:
    """Files in a folder of the source that are not copied, or that are written anew for an adapter."""
    strange = {name for name in names if source.is_strange(Path(folder, name))}
    return strange | ({ADAPTER_CONFIG, *ADAPTER_WEIGHTS} & set(names) if ADAPTER_CONFIG in names else set())


def as_they_are(entries: Sequence[HeaderEntry], read: Callable[[str], Array]) -> list[TensorGroup]:
    """Tensors that files store under their own names, each as a part of its own."""

    def one(name: str) -> Callable[[], Mapping[str, Rows]]:
        return lambda: {name: stored(read(name))}

    return [TensorGroup((entry,), one(entry.name)) for entry in entries]
