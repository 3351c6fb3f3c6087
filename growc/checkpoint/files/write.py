"""A new checkpoint directory: its weights as they are made, its config, and what else the source has."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from growc.algebra.indexmap import Array
from growc.checkpoint.files.directory import ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG, Checkpoint
from growc.checkpoint.files.safetensors_file import Entry
from growc.checkpoint.files.shards import SHARD_SIZE, Part, laid_out
from growc.checkpoint.files.shares import Tell, WriteShare, quiet
from growc.errors.json_data import Json
from growc.plans.rows import Rows, stored
from growc.system.ranks import ALONE, Ranks
from growc.system.workshop import empty


def write_checkpoint(
    folder: Path,
    source: Checkpoint,
    config: Mapping[str, Json],
    parts: Iterable[Part],
    *,
    shard_size: int = SHARD_SIZE,
    parameters: int | None = None,
    wrote: Tell = quiet,
    ranks: Ranks = ALONE,
    remade: Callable[[], Iterable[Part]] = list,
    done: Path | None = None,
) -> None:
    """Fill a folder. What is made together is open together, and nothing else.

    config: of the result; that of the source, unchanged, is copied as it is written there. `wrote(name,
    bytes)` is called for every tensor. ranks: who writes; `remade` is how another process comes by the parts,
    and `done` a folder where they write down what is on the disk. If the folder is there, weights stay that
    were written down.
    """
    folder.mkdir(exist_ok=True)
    empty(folder, lambda path: path.is_file() and path.suffix == ".safetensors")
    write_beside(folder, source, config)
    made = list(parts)
    entries = in_order(made)
    places = laid_out(folder, entries, source.metadata, shard_size, parameters=parameters)
    written = ranks.each(WriteShare(remade, places, done), WriteShare(lambda: made, places, done, wrote))
    if sum(written) != (total := sum(entry.nbytes for entry in entries)):
        raise AssertionError(f"{sum(written)} bytes are written, not {total}")


def in_order(parts: Iterable[Part]) -> list[Entry]:
    """Tensors as they stand in files; those of which nobody says where are last."""
    placed = [
        (part.positions[k] if part.positions else math.inf, entry)
        for part in parts
        for k, entry in enumerate(part.entries)
    ]
    return [entry for _, entry in sorted(placed, key=lambda one: one[0])]


def write_beside(folder: Path, source: Checkpoint, config: Mapping[str, Json]) -> None:
    """What a folder has beside weights: the config of the result, and the source's other files."""
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
    """What stays behind in a folder of the source, and what is written anew of an adapter."""
    strange = {name for name in names if source.is_strange(Path(folder, name))}
    return strange | ({ADAPTER_CONFIG, *ADAPTER_WEIGHTS} & set(names) if ADAPTER_CONFIG in names else set())


def as_they_are(entries: Sequence[Entry], read: Callable[[str], Array]) -> list[Part]:
    """Tensors that files have under their own names, each by itself."""

    def one(name: str) -> Callable[[], Mapping[str, Rows]]:
        return lambda: {name: stored(read(name))}

    return [Part((entry,), one(entry.name)) for entry in entries]
