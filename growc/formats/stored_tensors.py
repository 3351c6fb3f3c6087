"""The tensors that a model on disk stores, by name, in any form; values are read on demand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from growc.algebra.indexmap import Array
from growc.formats.required_libraries import require_torch

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from growc.plans.plan import Plan, WeightPlan


@dataclass(frozen=True)
class StoredTensor:
    """One stored tensor. read: maps its values if the form allows it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    read: Callable[[], Array] = field(repr=False)

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)


def form_name(path: Path) -> str:
    """The name of a form; models of one form name their tensors in one way."""
    if path.is_dir():
        return "checkpoint directory"
    return {".json": "config.json", ".pt2": ".pt2 program"}.get(path.suffix, "ONNX file")


def of_other_shape(plan: Plan, held: Mapping[str, StoredTensor]) -> WeightPlan | None:
    """The first weight of a plan that a model has in another shape. The model may lack weights."""
    return next((w for w in plan.weights if w.name in held and held[w.name].shape != w.after), None)


def stored_tensors(path: Path, names: Collection[str] = ()) -> dict[str, StoredTensor]:
    """The tensors of a model; none for a config.json.

    names: those of the class, for a distributed checkpoint. Raises GrowError: G309, G310.
    """
    if path.suffix == ".json" and not path.is_dir():
        return {}
    if path.is_dir() or path.suffix == ".pt2":
        require_torch(path)
    tensors = _of_directory(path, names) if path.is_dir() else _of_file(path)
    return {tensor.name: tensor for tensor in tensors}


def _of_directory(path: Path, names: Collection[str]) -> Iterator[StoredTensor]:
    from growc.checkpoint.files.directory import Checkpoint
    from growc.checkpoint.files.safetensors_file import DTYPES

    for name, tensor in Checkpoint.open(path, names).tensors.items():
        entry = tensor.entry
        yield StoredTensor(name, DTYPES[entry.dtype].name, entry.shape, entry.nbytes, tensor.read)


def _of_file(path: Path) -> Iterator[StoredTensor]:
    if path.suffix == ".pt2":
        from growc.dialects.torch.operators.arrays import name_of, to_numpy
        from growc.dialects.torch.programs.load import load

        program = load(path).program
        for name, tensor in {**program.state_dict, **program.constants}.items():
            size = tensor.numel() * tensor.element_size()
            yield StoredTensor(
                name, name_of(tensor.dtype), tuple(tensor.shape), size, partial(to_numpy, tensor.detach())
            )
        return
    yield from _of_onnx(path)


def _of_onnx(path: Path) -> Iterator[StoredTensor]:
    """Initializers and constants of nodes, of the graph and of all bodies and functions in it."""
    from onnx_ir.serde import deserialize_tensor

    from growc.dialects.onnx.files.load import outline
    from growc.dialects.onnx.files.references import bodies

    def within(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        for node in nodes:
            yield node
            for body in bodies(node.attribute):
                yield from within(body.node)

    proto = outline(path)
    nodes = [*within(proto.graph.node), *(node for f in proto.functions for node in within(f.node))]
    for graph in (proto.graph, *(body for node in nodes for body in bodies(node.attribute))):
        for tensor in graph.initializer:
            yield _of_tensor(tensor.name, deserialize_tensor(tensor))
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.HasField("t") and not node.input:
                yield _of_tensor(node.output[0], deserialize_tensor(attribute.t))


def _of_tensor(name: str, tensor: ir.TensorProtocol) -> StoredTensor:
    shape = tuple(int(size) for size in tensor.shape.numpy())
    return StoredTensor(name, tensor.dtype.name.lower(), shape, tensor.nbytes, partial(_values, tensor))


def _values(tensor: ir.TensorProtocol) -> Array:
    return np.asarray(tensor.numpy())
