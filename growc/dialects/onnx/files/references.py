"""References of an ONNX file to tensors in other files, and the real paths of these files.

No file is opened before growc has checked that it may belong to the model (growc.errors.regular_files). This
holds wherever its name stands: in initializers, attributes, sparse tensors, bodies and functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import onnx

from growc.errors.regular_files import companion

INLINE_LIMIT = 4096
"""Size in bytes below which tensors stand in the graph itself: shape constants, scalars.

Shapes follow from these.
"""


def settle(proto: onnx.ModelProto, owner: Path) -> bool:
    """Give every reference the real path of its file. Raises GrowError (G310) if that is no companion.

    Large initializers of the graph stay references; other tensors are read. Returns whether any were read.
    """
    large = [t for t in proto.graph.initializer if _is_reference(t)]
    inner = [t for t in _inner_tensors(proto) if _is_reference(t)]
    entries = list(_locations([*large, *inner]))
    real_paths = {name: str(companion(owner, name)) for name in dict.fromkeys(e.value for e in entries)}
    for entry in entries:
        entry.value = real_paths[entry.value]
    size_of = cache(file_size)  # most tensors lie in one file
    small = [*inner, *(t for t in large if _is_small(t, size_of))]
    by_file: dict[str, list[onnx.TensorProto]] = {}
    for tensor in small:
        by_file.setdefault(reference(tensor)["location"], []).append(tensor)
    for location, tensors in by_file.items():
        _read(tensors, Path(location))
    return bool(small)


def places(proto: onnx.ModelProto) -> list[str]:
    """Return the paths of the files that settled references name."""
    return [entry.value for entry in _locations(proto.graph.initializer)]


def relate(proto: onnx.ModelProto, folder: Path) -> None:
    """Make the paths of settled references relative to a folder."""
    for entry in _locations(proto.graph.initializer):
        entry.value = os.path.relpath(entry.value, folder)


def _locations(tensors: Iterable[onnx.TensorProto]) -> Iterator[onnx.StringStringEntryProto]:
    return (e for t in tensors if _is_reference(t) for e in t.external_data if e.key == "location")


def _is_reference(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def reference(tensor: onnx.TensorProto) -> dict[str, str]:
    """Return the fields of a reference: `location`, and `offset` and `length` in bytes if present."""
    return {entry.key: entry.value for entry in tensor.external_data}


def file_size(path: str) -> int | None:
    """Return the size of a file in bytes; None if there is no such file."""
    place = Path(path)
    return place.stat().st_size if place.is_file() else None


def _is_small(tensor: onnx.TensorProto, size_of: Callable[[str], int | None]) -> bool:
    """Whether a tensor has few bytes, and its file exists."""
    fields = reference(tensor)
    size = size_of(fields.get("location", ""))
    return size is not None and int(fields.get("length", size - int(fields.get("offset", 0)))) < INLINE_LIMIT


def _read(tensors: Iterable[onnx.TensorProto], path: Path) -> None:
    """Replace references to elements in a file by the elements."""
    with path.open("rb") as file:
        for tensor in tensors:
            fields = reference(tensor)
            file.seek(int(fields.get("offset", 0)))
            tensor.raw_data = file.read(int(fields.get("length", -1)))
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")


# ------------------------------------------------------------------------------- tensors inside of others


def _inner_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of a file except the initializers of its graph."""
    yield from _of_sparse(proto.graph.sparse_initializer)
    yield from _of_nodes(proto.graph.node)
    for function in proto.functions:
        yield from (*_of_nodes(function.node), *_of_attributes(function.attribute_proto))
    for training in proto.training_info:
        yield from (*_of_graph(training.initialization), *_of_graph(training.algorithm))


def _of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from (*_of_sparse(graph.sparse_initializer), *_of_nodes(graph.node))


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    return (tensor for node in nodes for tensor in _of_attributes(node.attribute))


def _of_attributes(attributes: Iterable[onnx.AttributeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in attributes:
        yield from (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors)
        sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else ()
        yield from _of_sparse((*sparse, *attribute.sparse_tensors))
        for graph in bodies([attribute]):
            yield from _of_graph(graph)


def bodies(attributes: Iterable[onnx.AttributeProto]) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that attributes of a node hold."""
    for attribute in attributes:
        yield from (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)


def _of_sparse(tensors: Iterable[onnx.SparseTensorProto]) -> Iterator[onnx.TensorProto]:
    return (part for tensor in tensors for part in (tensor.values, tensor.indices))
