"""Recorded facts about the source of a growth: tensor shapes, and digests of the files that the recipe reads.

`require_shapes` checks whether another model has these shapes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.json_data import Json, fields, wholes
from growc.formats.stored_tensors import stored_tensors
from growc.recipe.expression import parts_of
from growc.recipe.syntax_tree import Text
from growc.resolve.bound import Bound

if TYPE_CHECKING:
    from torch import nn

Shapes = Mapping[str, tuple[int, ...]]

INDICES = frozenset({"int64", "int32", "bool"})
"""Element types of tensors that are no weights."""


def files_read(statements: Iterable[Bound]) -> Iterator[Text]:
    """The files whose contents statements depend on; included recipes do not count."""
    yield from (part for bound in statements for part in parts_of(bound.statement) if isinstance(part, Text))


def digest(path: Path) -> str:
    """The digest of a file; for a folder, that of its config.json."""
    with (path / "config.json" if path.is_dir() else path).open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def digests(statements: Iterable[Bound]) -> dict[str, Json]:
    """The digest of each file that statements read, by its path in the recipe."""
    return {text.value: digest(text.path) for text in files_read(statements)}


def shapes_of(model: Path, names: Collection[str]) -> Shapes:
    """The shapes of a stored model's tensors that hold more than one number and no indices.

    names: the tensor names of its class, by which a distributed checkpoint is read.
    """
    tensors = stored_tensors(model, names).values()
    return {t.name: t.shape for t in tensors if t.elements > 1 and t.dtype not in INDICES}


def shapes_of_module(module: nn.Module) -> Shapes:
    """The result of `shapes_of` for a module; tied tensors count once, by their first name."""
    tensors = dict(module.named_parameters())
    parameter_names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    tensors |= {name: tensor for name, tensor in module.state_dict().items() if name not in parameter_names}
    return {
        name: tuple(tensor.shape)
        for name, tensor in tensors.items()
        if tensor.numel() > 1 and str(tensor.dtype).removeprefix("torch.") not in INDICES
    }


def recorded_shapes(record: Mapping[str, Json]) -> Shapes:
    """The shapes in a record; empty in records of earlier versions of growc."""
    return {name: wholes(shape) for name, shape in fields(record.get("shapes", {})).items()}


def require_shapes(known: Shapes, present: Shapes, model: str) -> None:
    """Raise GrowError (G322) if a model lacks a tensor of the recorded source, or has it in another shape.

    Tensors may have other names if as many others have their shapes. If the record has no shapes, any model
    fits.
    """
    if not known:
        return
    missing = {name: shape for name, shape in known.items() if name not in present}
    additional = {name: shape for name, shape in present.items() if name not in known}
    for name, shape in known.items():
        if name in present and present[name] != shape:
            raise _unfit(f"`{name}` is {_spelled(present[name])} in `{model}`", shape)
    if Counter(missing.values()) == Counter(additional.values()):
        return
    for name, shape in missing.items():
        raise _unfit(f"`{model}` has no `{name}`", shape)
    name = next(iter(additional))
    message = f"`{model}` has `{name}` {_spelled(additional[name])}, and the source of the record has none"
    raise GrowError(Diagnostic("G322", message, help=REMEDY))


REMEDY = "a record is done again on a model of its source's shapes"


def _unfit(message: str, shape: tuple[int, ...]) -> GrowError:
    message = f"{message}, and {_spelled(shape)} in the source of the record"
    return GrowError(Diagnostic("G322", message, help=REMEDY))


def _spelled(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
