"""Files that are no good: truncated, flipped, of wrong types and sizes, wherever growc reads one.

Every case writes into an empty folder and gives the command that is to refuse it.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from graphs import STREAM, save
from mutations import in_bytes
from onnx import TensorProto

Case = tuple[str, Callable[[Path], list[str]]]
"""A name, and what writes the files of a case and gives the arguments of growc."""

WIDEN = ["-e", "widen ffn to 24 with tail copy"]
APPLY, INSPECT = ["apply", *WIDEN, "m.onnx"], ["inspect", "m.onnx"]

WRONG_JSON = ("", "{", "[]", "null", "3", '"text"', "{}", "[" * 100_000, '{"a": ' * 50_000, "\ufeff{}", "NaN")
"""Texts to put in the place of a JSON object."""

WRONG_VALUES: tuple[Any, ...] = (None, -1, 0, 1e308, 10**30, "text", [], {}, [[]], {"a": []}, True)
"""Values to put in the place of any value in JSON."""


def good(folder: Path) -> onnx.ModelProto:
    """A model that growc grows, as a protobuf."""
    return onnx.load(save(folder / "m.onnx", STREAM))


# ------------------------------------------------------------------------------------------------ ONNX


def damaged(seed: int, folder: Path) -> list[str]:
    """Bytes of a model that are others."""
    path = save(folder / "m.onnx", STREAM)
    path.write_bytes(in_bytes(random.Random(seed), path.read_bytes()))
    return APPLY


def changed(change: Callable[[onnx.ModelProto], None], command: list[str], folder: Path) -> list[str]:
    """A model of which one thing is wrong."""
    model = good(folder)
    change(model)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return command


def _set(path: str, value: Any) -> Callable[[onnx.ModelProto], None]:
    """Set a field of the model by its path: `graph.initializer.0.dims`."""
    *way, last = path.split(".")

    def change(model: onnx.ModelProto) -> None:
        place: Any = model
        for step in way:
            place = place[int(step)] if step.isdigit() else getattr(place, step)
        if isinstance(value, (list, tuple)):
            del getattr(place, last)[:]
            getattr(place, last).extend(value)
        else:
            setattr(place, last, value)

    return change


def _external(**said: Any) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in said.items():
            tensor.external_data.add(key=key, value=str(value))

    return change


def _cyclic(model: onnx.ModelProto) -> None:
    model.graph.node[2].input[0] = model.graph.node[-2].output[0]


def _itself(model: onnx.ModelProto) -> None:
    model.graph.node[2].input[0] = model.graph.node[2].output[0]


def _twice(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[3])


def _two_makers(model: onnx.ModelProto) -> None:
    model.graph.node.append(model.graph.node[2])


def _no_branch(model: onnx.ModelProto) -> None:
    model.graph.node.add(op_type="If", input=["c"], output=["branch"])


def _deep(depth: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        inner = onnx.helper.make_node("Relu", ["d"], ["deep"])
        for _ in range(depth):
            body = onnx.GraphProto(name="body", node=[inner])
            body.output.add(name="deep").type.tensor_type.elem_type = 1
            inner = onnx.helper.make_node("If", ["c"], ["deep"], then_branch=body)
        model.graph.node.append(inner)

    return change


def _long(model: onnx.ModelProto) -> None:
    last = model.graph.node[-1].output[0]
    for k in range(1000):
        model.graph.node.add(op_type="Relu", input=[last], output=[f"long{k}"])
        last = f"long{k}"
    model.graph.output[0].name = last


def _recursive(model: onnx.ModelProto) -> None:
    node = onnx.helper.make_node("F", ["x"], ["y"], domain="own")
    function = onnx.helper.make_function("own", "F", ["x"], ["y"], [node], list(model.opset_import))
    model.functions.append(function)
    model.opset_import.add(domain="own", version=1)
    model.graph.node.add(op_type="F", domain="own", input=["tokens"], output=["recursive"])
    model.graph.output.add(name="recursive").type.tensor_type.elem_type = 7


def _no_opset(model: onnx.ModelProto) -> None:
    del model.opset_import[:]


CHANGES: dict[str, Callable[[onnx.ModelProto], None]] = {
    **{f"type {n}": _set("graph.initializer.0.data_type", n) for n in (0, 8, 14, 16, 17, 21, 22, 23, 99, -1)},
    **{
        f"dims {dims}": _set("graph.initializer.0.dims", dims)
        for dims in ([-1, 8], [16, 9], [2**40, 2**40], [2**62], [0, 8], [], [16, 8, 1], [15, 8])
    },
    **{f"bytes {n}": _set("graph.initializer.0.raw_data", b"\0" * n) for n in (0, 1, 511, 513, 5000)},
    **{f"weight {n} bytes": _set(f"graph.initializer.{n}.raw_data", b"abc") for n in range(1, 9)},
    "floats and bytes": _set("graph.initializer.0.float_data", [1.0, 2.0]),
    "segment": lambda m: setattr(m.graph.initializer[0].segment, "begin", 3),
    **{
        f"reference {said}": _external(**said)
        for said in (
            {},
            {"location": ""},
            {"location": "\0"},
            {"location": "x" * 5000},
            {"location": "nosuch.data"},
            {"location": "m.onnx", "offset": -1},
            {"location": "m.onnx", "offset": "x"},
            {"location": "m.onnx", "offset": 2**70},
            {"location": "m.onnx", "offset": 10, "length": -5},
            {"location": "m.onnx", "offset": 10, "length": 2**62},
            {"location": "m.onnx", "offset": 10, "length": 7},
            {"location": "*/_ORT_MEM_ADDR_/*", "offset": 4096, "length": 512},
            {"location": "pipe"},
            {"location": "folder"},
        )
    },
    "cycle": _cyclic,
    "cycle of one": _itself,
    "initializer twice": _twice,
    "made twice": _two_makers,
    "no branch": _no_branch,
    "deep bodies": _deep(20),
    "deeper bodies": _deep(24),
    "long": _long,
    "recursive function": _recursive,
    "no opset": _no_opset,
    **{f"opset {n}": _set("opset_import.0.version", n) for n in (0, -1, 3, 10**9)},
    **{f"ir version {n}": _set("ir_version", n) for n in (0, -1, 2, 10**9)},
    "no graph": lambda m: m.ClearField("graph"),
    "no nodes": _set("graph.node", []),
    "no outputs": _set("graph.output", []),
    "no inputs": _set("graph.input", []),
    "no initializers": _set("graph.initializer", []),
    "unknown output": _set("graph.output.0.name", "nowhere"),
    "unknown input": _set("graph.node.1.input", ["nowhere", "norm1_weight", "norm1_bias"]),
    "empty names": _set("graph.node.1.input", ["", "", ""]),
    "no operands": _set("graph.node.1.input", []),
    "no results": _set("graph.node.1.output", []),
    "too many operands": _set("graph.node.2.input", ["n1", "up_weight", "up_weight", "up_weight"]),
    "unnamed initializer": _set("graph.initializer.2.name", ""),
    "input type": lambda m: m.graph.input[0].type.ClearField("tensor_type"),
    "input sequence": lambda m: setattr(
        m.graph.input[0].type.sequence_type.elem_type.tensor_type, "elem_type", 1
    ),
    "input dtype": lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 77),
    "input size": lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", -3),
    "huge input": lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 2**60),
    "attribute type": lambda m: setattr(m.graph.node[1].attribute[0], "type", 3),
    "attribute value": lambda m: setattr(m.graph.node[1].attribute[0], "i", 99),
    "no attributes": lambda m: m.graph.node[1].ClearField("attribute"),
    "reference attribute": lambda m: setattr(m.graph.node[1].attribute[0], "ref_attr_name", "x"),
    "attribute twice": lambda m: m.graph.node[1].attribute.append(m.graph.node[1].attribute[0]),
    "domain": lambda m: setattr(m.graph.node[2], "domain", "no.such"),
    "operator": lambda m: setattr(m.graph.node[2], "op_type", ""),
    "sparse": lambda m: m.graph.sparse_initializer.add(),
    "metadata": lambda m: m.metadata_props.add(key="growc", value='{"recipe": 3}'),
}


def bad_names(folder: Path) -> list[str]:
    """Names that are no UTF-8."""
    data = save(folder / "m.onnx", STREAM).read_bytes()
    (folder / "m.onnx").write_bytes(data.replace(b"up_weight", b"up\xff\xfe\xed\xa0\x80ght"))
    return APPLY


def large_reference(said: dict[str, Any], folder: Path) -> list[str]:
    """A weight in another file that is too short, or a pipe."""
    model = onnx.load(
        save(folder / "m.onnx", STREAM.replace("float[16, 8] table", "float[512, 8] table"), external=True),
        load_external_data=False,
    )
    [table] = [t for t in model.graph.initializer if t.name == "table"]
    for entry in table.external_data:
        entry.value = str(said.get(entry.key, entry.value))
    onnx.save(model, folder / "m.onnx")
    (folder / "short.data").write_bytes(b"\0" * 100)
    (folder / "empty.data").write_bytes(b"")
    return APPLY


def onnx_cases() -> Iterator[Case]:
    """Of ONNX files."""
    for name, change in CHANGES.items():
        for command in (INSPECT, APPLY, [*APPLY, "--no-verify"]):
            yield f"onnx {name} {command[0]} {command[-1]}", partial(changed, change, command)
    yield "onnx names", bad_names
    for place in ("short.data", "empty.data", "nosuch.data"):
        for offset in (0, -1, 2**40, "x"):
            reference = {"location": place, "offset": offset}
            yield f"onnx data {place} {offset}", partial(large_reference, reference)
    yield "onnx name that is no text", partial(_renamed, b"stream", b"str\x80am")
    for text in (b"", b"\0", b"text", b"\xff" * 1000, b"\x08\x08\x3a\xff\xff\xff\xff\xff\x7f"):
        yield f"onnx content {text[:9]!r}", partial(_content, "m.onnx", text, INSPECT)


def _renamed(before: bytes, name: bytes, folder: Path) -> list[str]:
    path = save(folder / "m.onnx", STREAM)
    path.write_bytes(path.read_bytes().replace(before, name))
    return ["apply", "-e", "untie head", "m.onnx", "-o", "made.onnx"]


def _content(name: str, text: bytes, command: list[str], folder: Path) -> list[str]:
    (folder / name).write_bytes(text)
    return command


# ------------------------------------------------------------------------------------------------ arrays


def archive(**arrays: np.ndarray) -> bytes:
    """A `.npz` file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays, allow_pickle=True)
    return buffer.getvalue()


def bomb() -> bytes:
    """A `.npz` file whose array says that it has a terabyte."""
    buffer = io.BytesIO()
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (268435456, 1024), }".ljust(117) + b"\n"
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("tokens.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    return buffer.getvalue()


def arrays() -> dict[str, bytes]:
    """Contents of a `.npz` or `.npy` file that are no good."""
    fine = archive(tokens=np.arange(8))
    return {
        "empty": b"",
        "text": b"text",
        "cut": fine[:40],
        "flipped": fine[:30] + bytes([fine[30] ^ 255]) + fine[31:],
        "checksum": fine[:-90] + b"\xff" + fine[-89:],
        "objects": archive(tokens=np.array([{"a": 1}, None], dtype=object)),
        "bomb": bomb(),
        "none": archive(other=np.arange(8)),
        "type": archive(tokens=np.array(["a", "b"])),
        "nan": archive(tokens=np.full(8, np.nan)),
        "outside": archive(tokens=np.array([10**9, -(10**9)])),
        "axes": archive(tokens=np.zeros((2, 2, 2), np.int64)),
        "no rows": archive(tokens=np.zeros(0, np.int64)),
        "pickle": pickle.dumps({"tokens": [1]}),
        "zip": _zipped({"a.txt": b"a", "tokens.npy": b"no array"}),
        "npy": b"\x93NUMPY\x01\x00\xff\xff{",
    }


def _zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def _inputs(content: bytes, command: list[str], folder: Path) -> list[str]:
    save(folder / "m.onnx", STREAM)
    (folder / "x.npz").write_bytes(content)
    return command


def array_cases() -> Iterator[Case]:
    """Of inputs, calibration data and kept scores."""
    measured = [
        "plan",
        "-e",
        'measure importance on "x.npz"',
        "-e",
        "subclone ffn to 6 by importance",
        "m.onnx",
    ]
    commands = {
        "inputs": [*APPLY, "--inputs", "x.npz"],
        "verify": ["verify", "m.onnx", "m.onnx", "--inputs", "x.npz"],
        "calibration": measured,
        "given scores": ["plan", "-e", 'subclone ffn to 6 by scores "x.npz"', "m.onnx"],
        "measure": ["measure", "m.onnx", "--inputs", "x.npz"],
    }
    for name, content in arrays().items():
        for what, command in commands.items():
            yield f"{what} {name}", partial(_inputs, content, command)
        yield f"scores {name}", partial(_scores, content)
    heads = [json.dumps({"fingerprint": 3, "cases": "x", "done": []}), "[]", "{}", "x", "[" * 10**5]
    for k, head in enumerate(heads):
        yield f"scores head {k}", partial(_scores, archive(growc=np.array(head)))


def _scores(content: bytes, folder: Path) -> list[str]:
    save(folder / "m.onnx", STREAM)
    np.savez(folder / "x.npz", tokens=np.arange(8))
    (folder / "m.importance.npz").write_bytes(content)
    return ["measure", "m.onnx", "--inputs", "x.npz"]


# ------------------------------------------------------------------------------------------------ recipes


def recipe_cases() -> Iterator[Case]:
    """Of recipes, and of files that they name."""
    for k, text in enumerate(WRONG_JSON):
        yield f"match {k}", partial(_match, text)
    for k, value in enumerate(WRONG_VALUES):
        config = json.dumps({"hidden_size": value, "num_attention_heads": value, "n_layer": value})
        yield f"match value {k}", partial(_match, config)
        record = {
            "recipe": value,
            "parameters": value,
            "certificate": value,
            "ports": value,
            "earlier": value,
        }
        yield f"record {k}", partial(_record, json.dumps(record))
        spoilt = {"recipe": ["widen ffn to 12 with tail copy"], "parameters": {}, "ports": value}
        yield f"record ports {k}", partial(_record, json.dumps(spoilt))
        spoilt = {"recipe": [value], "parameters": {"a": value}}
        yield f"record recipe {k}", partial(_record, json.dumps(spoilt))
    for k, content in enumerate((b"\xff\xfe", b"\0" * 50, b"(" * 10**5, b"in encoder {" * 100, b"\x1b" * 99)):
        yield f"recipe {k}", partial(_recipe, content)
    for k, content in enumerate((b"\xff", b"1e3\n", b"9" * 5000, b"-1", "٣".encode(), b"1\n1\n")):
        yield f"keep {k}", partial(_keep, content)


def _match(text: str, folder: Path) -> list[str]:
    save(folder / "m.onnx", STREAM)
    (folder / "c.json").write_text(text)
    return ["plan", "-e", 'match "c.json" with tail copy', "m.onnx"]


def _record(text: str, folder: Path) -> list[str]:
    model = good(folder)
    onnx.save(model, folder / "a.onnx")
    model.metadata_props.add(key="growc", value=text)
    onnx.save(model, folder / "m.onnx")
    return ["verify", "a.onnx", "m.onnx"]


def _recipe(content: bytes, folder: Path) -> list[str]:
    save(folder / "m.onnx", STREAM)
    (folder / "r.grow").write_bytes(content)
    return ["plan", "r.grow", "m.onnx"]


def _keep(content: bytes, folder: Path) -> list[str]:
    save(folder / "m.onnx", STREAM)
    (folder / "k.txt").write_bytes(content)
    return ["plan", "-e", 'subclone vocab to 4 by keep "k.txt"', "m.onnx"]


def cases(seeds: range) -> Iterator[Case]:
    """All cases that need no torch; `seeds` of damaged models."""
    yield from onnx_cases()
    yield from array_cases()
    yield from recipe_cases()
    for seed in seeds:
        yield f"damaged {seed}", partial(damaged, seed)
