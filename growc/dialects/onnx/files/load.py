"""Reading an ONNX file without its weights, and writing one without holding all weights in memory.

onnx-ir maps external data into memory and leaves it untouched. Weights inside the `.onnx` file are treated
alike. The protobuf is walked once over a memory map, and each large `raw_data` field is replaced by a
reference to its place in the file. So onnx-ir sees external data.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, BinaryIO

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from growc.dialects.onnx.files.references import INLINE_LIMIT, places, relate, settle
from growc.dialects.onnx.files.stored_bytes import check_tensors
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import first_line, parsing_foreign_file
from growc.system.limits import require

EXTERNAL = "growc.external"
"""Key of `model.meta`: whether the file keeps weights in other files."""

KIND = "an ONNX model"

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # field numbers in onnx.proto: ModelProto, GraphProto, TensorProto


def load(path: Path) -> ir.Model:
    """Return the model at `path`, its weights still on disk. Raises GrowError (G310) if it cannot be read."""
    with parsing_foreign_file(path, KIND):
        proto = outline(path)
        if not proto.graph.node and not proto.graph.output:
            raise ValueError("the file holds no graph")
        model = ir.from_proto(proto)
        model.meta[EXTERNAL] = any(place != os.path.realpath(path) for place in places(proto))
    return model


def load_model(path: Path) -> ir.Model:
    """Return the model at `path` with its functions inlined.

    Raises GrowError: G310 if it cannot be read, G311 if functions cannot be inlined, G324 for too many calls
    or nodes.
    """
    return inlined(load(Path(path)))


def outline(path: Path) -> onnx.ModelProto:
    """Return the model at `path` with references in place of its large weights.

    All references have real paths, also those into the file itself. Raises GrowError (G310) if one names a
    file that is not the model's.
    """
    return _outlined(path)[0]


def _outlined(path: Path) -> tuple[onnx.ModelProto, bool]:
    """Return the outline of a model, and whether some of its small tensors lie in other files."""
    proto = onnx.ModelProto()
    with parsing_foreign_file(path, KIND):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            proto.ParseFromString(_without_weights(data, path.name))
        small = settle(proto, path)
        check_tensors(proto, path)
    return proto, small


def inlined(model: ir.Model) -> ir.Model:
    """Return the model with the functions that it defines inlined.

    Raises GrowError: G311 if they cannot be inlined, G324 for too many calls or nodes.
    """
    if model.functions:
        require("calls", "the model has", _calls(model))
        model = _written_out(model)
    require("nodes", "the model has", sum(1 for _ in model.graph.all_nodes()))
    return model


def _written_out(model: ir.Model) -> ir.Model:
    try:
        return InlinePass()(model).model
    except Exception as error:  # from onnx-ir: functions that call each other, or read undefined values
        message = f"the functions of the model cannot be written out: {first_line(error)}"
        raise GrowError(Diagnostic("G311", message)) from error


def _calls(model: ir.Model) -> int:
    """Return the number of calls when all functions are inlined; 0 if the calls form a cycle."""
    called = {name: Counter(_called(f.all_nodes(), model)) for name, f in model.functions.items()}
    try:
        order = list(TopologicalSorter(called).static_order())
    except CycleError:  # inlining reports it
        return 0
    within: dict[ir.OperatorIdentifier, int] = {}
    for name in order:
        within[name] = sum(count * (1 + within[other]) for other, count in called[name].items())
    return sum(1 + within[name] for name in _called(model.graph.all_nodes(), model))


def _called(nodes: Iterable[ir.Node], model: ir.Model) -> Iterator[ir.OperatorIdentifier]:
    return (node.op_identifier() for node in nodes if node.op_identifier() in model.functions)


def files_of(path: Path) -> list[Path]:
    """Return the files of a model: its own, and those that hold its weights."""
    return sorted({Path(os.path.realpath(path)), *map(Path, places(outline(path)))})


def metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a model, by key."""
    return {entry.key: entry.value for entry in outline(path).metadata_props}


def loadable(path: Path) -> tuple[bytes, Path] | None:
    """Return a model's outline and the folder of its files if onnxruntime cannot load the file, else None.

    onnxruntime looks for data in one folder, and infers no shapes from external data.
    """
    proto, small = _outlined(path)
    return in_one_folder(proto, path) if small or path.is_symlink() else None


def in_one_folder(proto: onnx.ModelProto, path: Path) -> tuple[bytes, Path]:
    """Return the outline of the model at `path`, with references relative to the folder of all its files."""
    files = (os.path.realpath(path), *places(proto))
    folder = Path(os.path.commonpath([Path(file).parent for file in files]))
    relate(proto, folder)
    return proto.SerializeToString(), folder


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, start with its tag, start of its content, end) for each field of a message."""
    at = start
    while at < end:
        first = at
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 2:
            length, at = _varint(data, at)
            content, at = at, at + length
        elif kind == 0:
            content = at
            _, at = _varint(data, at)
        elif kind in (1, 5):
            content, at = at, at + (8 if kind == 1 else 4)
        else:
            raise ValueError("this is no protobuf file")
        if at > end:
            raise ValueError("the file is cut off")
        yield tag >> 3, first, content, at


def _message(number: int, payload: bytes) -> bytes:
    return _encode(number << 3 | 2) + _encode(len(payload)) + payload


def _without_weights(data: mmap.mmap, location: str) -> bytes:
    model = bytearray()
    for number, first, content, end in _fields(data, 0, len(data)):
        if number == _GRAPH:
            graph = bytearray()
            for inner, inner_first, inner_content, inner_end in _fields(data, content, end):
                if inner == _INITIALIZER and inner_end - inner_content >= INLINE_LIMIT:
                    graph += _message(_INITIALIZER, _tensor(data, inner_content, inner_end, location))
                else:
                    graph += data[inner_first:inner_end]
            model += _message(_GRAPH, bytes(graph))
        else:
            model += data[first:end]
    return bytes(model)


def _tensor(data: mmap.mmap, start: int, end: int, location: str) -> bytes:
    remaining, reference = bytearray(), b""
    for number, first, content, stop in _fields(data, start, end):
        if number == _RAW_DATA and stop - content >= INLINE_LIMIT:
            stub = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
            for key, value in (("location", location), ("offset", content), ("length", stop - content)):
                stub.external_data.add(key=key, value=str(value))
            reference = stub.SerializeToString()
        else:
            remaining += data[first:stop]
    return bytes(remaining) + reference


def write_inline(
    proto: onnx.ModelProto, tensors: Mapping[str, Any], file: BinaryIO, progress: Callable[[str, int], None]
) -> None:
    """Write a model with its weights inside the file, one at a time.

    `tensors` are computed when they are written. Their initializers in `proto` are stubs; `proto` is changed.
    """
    stubs = [t for t in proto.graph.initializer if t.name in tensors]
    others = [t for t in proto.graph.initializer if t.name not in tensors]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(others)
    heads = [
        onnx.TensorProto(dims=t.dims, data_type=t.data_type, name=t.name).SerializeToString() for t in stubs
    ]
    sizes = [int(tensors[t.name].nbytes) for t in stubs]
    raw = [_encode(_RAW_DATA << 3 | 2) + _encode(n) for n in sizes]
    lengths = [len(h) + len(r) + n for h, r, n in zip(heads, raw, sizes, strict=True)]
    tags = [_encode(_INITIALIZER << 3 | 2) + _encode(n) for n in lengths]
    graph = proto.graph.SerializeToString(deterministic=True)
    proto.ClearField("graph")
    file.write(proto.SerializeToString(deterministic=True))
    total = len(graph) + sum(len(t) + n for t, n in zip(tags, lengths, strict=True))
    file.write(_encode(_GRAPH << 3 | 2) + _encode(total) + graph)
    for stub, tag, head, start, size in zip(stubs, tags, heads, raw, sizes, strict=True):
        file.write(tag + head + start)
        before = file.tell()
        tensors[stub.name].tofile(file)
        if file.tell() - before != size:
            raise AssertionError(f"{stub.name} has {file.tell() - before} bytes, not {size}")
        progress(stub.name, size)
