"""An opened checkpoint directory: its config, and every tensor by name, not yet read."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from growc.algebra.indexmap import Array
from growc.checkpoint.files.config_folders import home_of
from growc.checkpoint.files.distributed import Distributed
from growc.checkpoint.files.pieces import ENDING, METADATA, KeyPath, is_distributed
from growc.checkpoint.files.safetensors_file import NARROW, Readable, read_header, unreadable
from growc.checkpoint.files.torch_tensors import read_pickle
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import companion, parsing_foreign_file, stays_with
from growc.system.limits import require

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
PICKLED = "pytorch_model.bin"
INDEX = ".index.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")

HOLDERS = frozenset(
    (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".gguf", ".onnx", ENDING)
)
"""Endings of files with the source's weights or training state, which the result does not take over."""

STATE = frozenset(("trainer_state.json",))
"""Names of other files that describe a finished training."""


@dataclass(frozen=True)
class Checkpoint:
    """A directory with `config.json` and weights; the weights may be in a folder of their own.

    tensors: in the order of the files, and within a file in its order. metadata: that of the first file.
    distributed: the folder's distributed checkpoint, if it is one. prefix: the path of the weights in it.
    """

    path: Path
    config: dict[str, Any]
    tensors: Mapping[str, Readable]
    metadata: Mapping[str, str]
    distributed: Distributed | None = None
    prefix: KeyPath = ()

    @staticmethod
    def open(path: Path, names: Collection[str] = ()) -> Checkpoint:
        """The checkpoint of a class whose state has these names.

        Raises GrowError (G310) if it is no checkpoint, or if a part of it is missing or damaged.
        """
        home, config = home_of(path), config_of(path)
        files = weight_files(path)
        if path / METADATA in files:
            saved = Distributed.open(path)
            prefix = saved.prefix_of(names)
            return Checkpoint(home, config, saved.below(prefix), {"format": "pt"}, saved, prefix)
        tensors: dict[str, Readable] = {}
        metadata: dict[str, str] = {}
        for file, promised in files.items():
            readables, file_metadata = read_tensors(file)
            metadata = metadata or file_metadata
            absent = next((name for name in promised if name not in readables), None)
            if absent is not None:
                raise unreadable(file, f"the index says that it holds `{absent}`")
            tensors |= {name: readables[name] for name in promised or readables}
        return Checkpoint(home, config, tensors, metadata or {"format": "pt"})

    @property
    def narrow(self) -> bool:
        """Whether any tensor holds real numbers of 16 bits."""
        return any(tensor.entry.dtype in NARROW for tensor in self.tensors.values())

    def read(self, name: str) -> Array:
        """One tensor's values."""
        return self.tensors[name].read()

    def carried(self) -> Iterator[Path]:
        """The directory's other files and folders that the result takes over unchanged."""
        for place in sorted(self.path.iterdir()):
            if not place.name.startswith(".") and not self.is_left(place):
                yield place

    def left(self) -> Iterator[Path]:
        """Files that the result does not take over and does not write anew: other forms of weights and
        states.
        """
        written = (CONFIG, ADAPTER_CONFIG, *ADAPTER_WEIGHTS, WEIGHTS + INDEX, PICKLED + INDEX)
        weights = [] if self.distributed else weight_files(self.path)
        carried_elsewhere = {*weights, *self.path.glob("*" + ENDING), *(self.path / name for name in written)}
        yield from (p for p in sorted(self.path.iterdir()) if p not in carried_elsewhere and self.is_left(p))
        below = (
            Path(folder, name) for folder, *kinds in os.walk(self.path) for names in kinds for name in names
        )
        yield from (p for p in sorted(below) if p.parent != self.path and self.is_strange(p))

    def is_strange(self, place: Path) -> bool:
        """Whether a place is a link that leaves the directory or loops inside it, or cannot be copied."""
        inside = stays_with(self.path / CONFIG, place)
        if place.is_dir():
            above = Path(os.path.realpath(place.parent))
            return not inside or Path(os.path.realpath(place)) in (above, *above.parents)
        return not inside or not place.is_file()

    def is_left(self, place: Path) -> bool:
        """Whether the result does not take over a file or folder."""
        if self.is_strange(place):
            return True
        if place.is_dir():
            return (place / CONFIG).is_file() and any(p.suffix in HOLDERS for p in place.iterdir())
        is_rewritten = place.name in (CONFIG, ADAPTER_CONFIG) or place.name in STATE
        return is_rewritten or place.suffix in HOLDERS or place.name.endswith(INDEX)


def read_tensors(file: Path) -> tuple[Mapping[str, Readable], dict[str, str]]:
    """The tensors of a file by name, not yet read, and the file's metadata."""
    with parsing_foreign_file(file, "a file of weights"):
        return read_header(file) if file.suffix == ".safetensors" else (read_pickle(file), {})


def config_of(path: Path) -> dict[str, Any]:
    """The contents of a directory's `config.json`. Raises GrowError (G310) if it is missing or no JSON."""
    return read_json(home_of(path) / CONFIG)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises GrowError (G310) if there is none."""
    if not path.exists():
        remedy = "`--model DIR` names the folder that has it" if is_distributed(path.parent) else ""
        raise GrowError(Diagnostic("G310", f"`{path.parent}` has no `{path.name}`", help=remedy))
    with parsing_foreign_file(path, "JSON"):
        require("json_bytes", f"`{path}` has", path.stat().st_size)
        parsed = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(parsed, dict):
        raise unreadable(path, "it is no JSON object")
    return parsed


def weight_files(path: Path) -> dict[Path, tuple[str, ...]]:
    """The files of the weights, each with the names that an index places in it; without an index, none.

    Weights as safetensors go before pickled ones, in the order in which transformers loads models. Raises
    GrowError (G310) if there are none, or a file stands beside an index of the same weights.
    """
    for name in (WEIGHTS, PICKLED):
        single, index = path / name, path / (name + INDEX)
        if single.exists() and index.exists():
            message = f"`{path}` has both `{single.name}` and `{index.name}`, and one of them is old"
            raise GrowError(Diagnostic("G310", message, help="remove the one that is not the model"))
        if single.exists():
            return {single: ()}
        if index.exists():
            return _indexed(index)
    if is_distributed(path):
        return dict.fromkeys([path / METADATA, *sorted(path.glob("*" + ENDING))], ())
    message = f"`{path}` has no weights: neither `{WEIGHTS}` nor shards with an index"
    raise GrowError(Diagnostic("G310", message))


def _indexed(index: Path) -> dict[Path, tuple[str, ...]]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise unreadable(index, "it has no `weight_map`")
    require("tensors", f"`{index}` names", len(places))
    files: dict[Path, list[str]] = {}
    for name, place in places.items():
        file = index.parent / str(place)
        if file.parent != index.parent:
            raise unreadable(index, f"`{place}` is no file of this directory")
        companion(index, str(place))
        files.setdefault(file, []).append(name)
    return {file: tuple(files[file]) for file in sorted(files)}
