"""Checkpoints of torch.distributed (`.metadata` and `.distcp` files), read by what their metadata says.

Tensors lie there in pieces, as the processes of a training had them, beside other entries: the state of an
optimizer, steps, schedules. No code in such files is run.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from growc.checkpoint.files.safetensors_file import Entry, Readable, unreadable
from growc.checkpoint.files.torch_tensors import entry_of
from growc.dialects.torch.operators.arrays import to_numpy
from growc.errors.regular_files import companion, foreign
from growc.system.limits import require

if TYPE_CHECKING:
    import torch

    from growc.algebra.indexmap import Array

METADATA = ".metadata"
ENDING = ".distcp"

Path_ = tuple[str | int, ...]
"""Where an entry stands in the nested dictionaries that were saved."""

KNOWN = {
    "torch.distributed.checkpoint.metadata": (
        "Metadata",
        "TensorStorageMetadata",
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "TensorProperties",
        "MetadataIndex",
        "StorageMeta",
        "_MEM_FORMAT_ENCODING",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.serialization": ("_get_layout",),
    "torch": ("Size",),
    "collections": ("OrderedDict",),
    "pathlib": ("Path", "PosixPath", "WindowsPath"),
    "pathlib._local": ("Path", "PosixPath", "WindowsPath"),
}
"""What metadata is made of, by modules; types of elements besides."""


class _Plain(pickle.Unpickler):
    """Reads metadata, and refuses whatever else a pickle could name."""

    def find_class(self, module: str, name: str) -> Any:
        import torch

        if module == "torch" and isinstance(kind := getattr(torch, name, None), torch.dtype):
            return kind
        if name not in KNOWN.get(module, ()):
            raise ValueError(f"it holds code (`{module}.{name}`), and growc runs none")
        return super().find_class(module, name)


def is_distributed(folder: Path) -> bool:
    """Whether a folder is such a checkpoint."""
    return (folder / METADATA).is_file()


@dataclass(frozen=True)
class Distributed:
    """One such folder. metadata: of torch; its entries are called by paths, joined by dots."""

    folder: Path
    metadata: Any

    @staticmethod
    def open(folder: Path) -> Distributed:
        """Raises GrowError (G310) where it cannot be read, names files elsewhere, or has code in it."""
        place = folder / METADATA
        with foreign(place, "the metadata of a distributed checkpoint"):
            require("json_bytes", f"`{place}` has", place.stat().st_size)
            with place.open("rb") as file:
                found = Distributed(folder, _Plain(file).load())
            found._check()
        return found

    def _check(self) -> None:
        """Raises what `foreign` makes an error of where entries do not lie in the files."""
        sizes: dict[str, int] = {}
        for index, info in self.metadata.storage_data.items():
            if info.relative_path not in sizes:
                file = companion(self.folder / METADATA, info.relative_path)
                sizes[info.relative_path] = file.stat().st_size
            if not 0 <= info.offset <= info.offset + info.length <= sizes[info.relative_path]:
                raise ValueError(f"`{index.fqn}` does not lie in `{info.relative_path}`")
            if getattr(info, "transform_descriptors", None):  # older versions have none
                raise ValueError(f"`{index.fqn}` is compressed or encrypted")
        for key, meta in self.tensors.items():
            if sum(chunk.sizes.numel() for chunk in meta.chunks) != meta.size.numel():
                raise ValueError(f"parts of `{key}` are missing")

    @property
    def files(self) -> list[Path]:
        """Those that hold entries."""
        return [
            self.folder / n for n in sorted({i.relative_path for i in self.metadata.storage_data.values()})
        ]

    @cached_property
    def tensors(self) -> dict[str, Any]:
        """What is known of each tensor."""
        return {
            key: meta for key, meta in self.metadata.state_dict_metadata.items() if hasattr(meta, "chunks")
        }

    @property
    def others(self) -> list[str]:
        """Entries that are no tensors."""
        return [key for key in self.metadata.state_dict_metadata if key not in self.tensors]

    @cached_property
    def paths(self) -> dict[str, Path_]:
        """The path of each entry."""
        known: Mapping[str, Path_] = self.metadata.planner_data or {}
        return {key: tuple(known.get(key, (key,))) for key in self.metadata.state_dict_metadata}

    def prefix_of(self, names: Collection[str]) -> Path_:
        """The path below which the tensors of these names lie. Raises GrowError (G310) but for one."""
        wanted = set(names)
        counts = Counter(
            path[:-1] for key, path in self.paths.items() if path[-1] in wanted and key in self.tensors
        )
        best = [prefix for prefix, count in counts.items() if count == max(counts.values())]
        if len(best) == 1:
            return best[0]
        if not best:
            raise unreadable(self.folder / METADATA, f"it has no `{next(iter(names), '')}` of the class")
        both = " and ".join(f"`{'.'.join(map(str, prefix))}`" for prefix in sorted(best, key=str)[:2])
        raise unreadable(self.folder / METADATA, f"it has the model's weights twice, as {both}")

    def below(self, prefix: Path_) -> dict[str, Readable]:
        """The tensors right below a path by the last part of theirs, none of them read."""
        keys = {str(p[-1]): key for key, p in self.paths.items() if p[:-1] == prefix and key in self.tensors}
        return {name: Readable(self.entry(key, name), partial(self.array, key)) for name, key in keys.items()}

    def entry(self, key: str, name: str = "") -> Entry:
        """What a tensor is. Raises GrowError (G309) where growc cannot hold its elements."""
        import torch

        meta = self.tensors[key]
        return entry_of(name or key, torch.empty(meta.size, dtype=meta.properties.dtype, device="meta"))

    def array(self, key: str) -> Array:
        """A tensor, put together. Raises GrowError (G310) where it cannot be read."""
        return to_numpy(self.tensor(key))

    def tensor(self, key: str) -> torch.Tensor:
        """The same as a tensor of torch."""
        import torch
        from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

        meta = self.tensors[key]
        made = torch.empty(meta.size, dtype=meta.properties.dtype)
        planner = DefaultLoadPlanner(flatten_state_dict=False)
        planner.set_up_planner({key: made}, self.metadata, is_coordinator=True)
        reader = self.reader()
        with foreign(self.folder / METADATA, f"a checkpoint that has `{key}`"):
            reader.set_up_storage_reader(self.metadata, is_coordinator=True)
            reader.read_data(planner.create_local_plan(), planner).wait()
        return made

    def reader(self) -> Any:
        """torch's reader of the folder, with the metadata that was read here."""
        from torch.distributed.checkpoint.filesystem import FileSystemReader

        metadata = self.metadata

        class Reader(FileSystemReader):
            def read_metadata(self, *_: Any, **__: Any) -> Any:
                return metadata  # its own runs what a pickle says

        return Reader(self.folder)

    def content(self, key: str) -> bytes:
        """The bytes of an entry that is no tensor, as `torch.save` made them."""
        [info] = [info for index, info in self.metadata.storage_data.items() if index.fqn == key]
        with (self.folder / info.relative_path).open("rb") as file:
            file.seek(info.offset)
            return bytes(file.read(info.length))

    def value(self, key: str) -> Any:
        """The same as a value. Raises GrowError (G310) where it holds code."""
        import io

        import torch

        with foreign(self.folder / METADATA, f"a checkpoint that has `{key}`"):
            return torch.load(io.BytesIO(self.content(key)), map_location="cpu", weights_only=True)
