"""State dicts without a model, as `.safetensors` files: read tensor by tensor, written as a whole or not at
all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from growc.checkpoint.files.safetensors_file import Readable, read_header
from growc.checkpoint.files.shards import ShardWriter, laid_out
from growc.errors.arguments import checked_arguments
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import parsing_foreign_file
from growc.plans.lazy_rows import stored

if TYPE_CHECKING:
    from torch import Tensor, nn

MADE = "growc"
"""Key in a file's metadata for the version of growc that wrote it."""

LARGEST = 1 << 62
"""Limit in bytes of one file; so large that a state dict is never written to several files."""

TensorsOrFile = str | Path | Mapping[str, object]
"""A `.safetensors` file, or tensors or arrays by name."""


def read_state(tensors_or_file: TensorsOrFile) -> dict[str, Callable[[], Tensor]]:
    """A function that reads each tensor of a state dict. Raises GrowError (G309, G310) if a file cannot be
    read.
    """
    import torch

    from growc.dialects.torch.operators.arrays import to_torch

    if isinstance(tensors_or_file, Mapping):
        named = {
            n: t if isinstance(t, torch.Tensor) else to_torch(np.asarray(t))
            for n, t in tensors_or_file.items()
        }
        return {name: tensor.detach for name, tensor in named.items()}
    with parsing_foreign_file(Path(tensors_or_file), "a state dict"):
        stored, _ = read_header(Path(tensors_or_file))

    def reading(readable: Readable) -> Callable[[], Tensor]:
        return lambda: to_torch(readable.read())

    return {name: reading(one) for name, one in stored.items()}


@checked_arguments
def save(module: nn.Module, path: str | Path, *, force: bool = False) -> Path:
    """Write the state dict of a module as a `.safetensors` file.

    A tied tensor is stored under the first of its names. The other names are in the metadata, as
    `safetensors.torch.load_model` expects. Equal modules give equal bytes.

    Raises GrowError. G309: files cannot hold the elements. G501: a file exists that growc did not write, and
    not `force`. G502: the file cannot be written.
    """
    from growc.checkpoint.classes.class_weights import first_names
    from growc.checkpoint.files.torch_tensors import entry_of
    from growc.dialects.torch.operators.arrays import to_numpy
    from growc.files.commit import commit
    from growc.system.workshop import draft_folder, refused
    from growc.version import __version__

    target = Path(path)
    state, first = module.state_dict(keep_vars=True), first_names(module)
    unique = {name: tensor for name, tensor in state.items() if first[name] == name}
    aliases = {name: first[name] for name in state if first[name] != name}
    metadata = {"format": "pt", MADE: __version__, **aliases}
    entries = [entry_of(name, tensor) for name, tensor in unique.items()]

    def check() -> None:
        if target.is_dir() or (target.exists() and not force and not _made_by_growc(target)):
            message = f"`{target}` exists, and growc did not make it"
            raise GrowError(Diagnostic("G501", message, help="`force=True` replaces it"))

    check()
    if not target.parent.is_dir():
        raise refused(target, FileNotFoundError(2, "there is no such folder"))
    with draft_folder(target) as folder:
        with ShardWriter(laid_out(folder, entries, metadata, LARGEST, name=target.name)) as writer:
            for name, tensor in unique.items():
                writer.put(name, stored(to_numpy(tensor)))
        commit([(folder / target.name, target)], check)
    return target


def _made_by_growc(path: Path) -> bool:
    with contextlib.suppress(GrowError), parsing_foreign_file(path, "a state dict"):
        return MADE in read_header(path)[1]
    return False
