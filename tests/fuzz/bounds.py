"""Small inputs that stand for much, and large ones that stand for nothing: each a command and its files."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MODEL = Path(__file__).parents[2] / "examples" / "models" / "tiny-gpt.onnx"
WIDEN = "widen ffn to 2 * ffn with neighbor copy\n"
Make = Callable[[Path], list[str]]
"""Writes files into a folder and gives the command's arguments."""


# ---------------------------------------------------------------------------------------- recipes


def _checked(text: Callable[[], str], folder: Path) -> list[str]:
    (folder / "r.grow").write_text(text())
    return ["check", str(folder / "r.grow")]


def _planned(text: Callable[[], str], folder: Path) -> list[str]:
    (folder / "r.grow").write_text(text())
    return ["plan", str(folder / "r.grow"), str(MODEL)]


TEXTS: Mapping[str, Callable[[], str]] = {
    "10 MB of statements": lambda: WIDEN * 250_000,
    "10 MB of lets": lambda: "".join(f"let a{k} = {k}\n" for k in range(600_000)),
    "10 MB of mistakes": lambda: WIDEN.replace("to", "too") * 250_000,
    "10 MB of one expression": lambda: f"widen ffn to {'1 + ' * 2_500_000}1\n",
    "10 MB of brackets": lambda: "(" * 10_000_000,
    "10 MB of one word": lambda: "a" * 10_000_000,
    "10 MB of one string": lambda: f'keep "{"a" * 10_000_000}',
    "1 MB of statements": lambda: WIDEN * 24_000,
    "1 MB of mistakes": lambda: "a\n" * 490_000,
    "1 MB of closed blocks": lambda: "}\n" * 490_000,
    "1 MB of open blocks": lambda: "in layers 0..1 {\n" * 50_000,
    "1 MB of brackets": lambda: "(" * 990_000,
    "1,000 nested scopes": lambda: "in layers 0..1 {\n" * 1_000 + WIDEN + "}\n" * 1_000,
    "doubled lets": lambda: "let a0 = 2\n" + "".join(f"let a{k + 1} = a{k} * a{k}\n" for k in range(150)),
}
PLANS: Mapping[str, Callable[[], str]] = {
    "20,000 ranges": lambda: f"arrange layers as {', '.join(['0..1'] * 20_000)}\n",
    "a million layers": lambda: "stack layers to 1000000 by last with zero outputs\n",
    "20,000 layers": lambda: "stack layers to 20000 by last with zero outputs\n",
    "a trillion units": lambda: "widen ffn to 1000000000000 with neighbor copy\n",
}


# ---------------------------------------------------------------------------------------- ONNX


def _model(
    nodes: list[onnx.NodeProto],
    weights: Mapping[str, Any] | None = None,
    functions: list[onnx.FunctionProto] | None = None,
    rows: int = 2,
) -> onnx.ModelProto:
    """From `x` [rows, 4] to `y`."""
    initializers = [
        numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=opsets, functions=functions or [], ir_version=9)


def doubled(depth: int) -> onnx.ModelProto:
    """A function that calls another one twice, which does so, too: 2 ** depth nodes."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    last = [helper.make_node("Relu", ["a"], ["c"])]
    functions = [helper.make_function("own", "f0", ["a"], ["c"], last, opsets)]
    for k in range(depth):
        calls = [helper.make_node(f"f{k}", [one], [two], domain="own") for one, two in ("ab", "bc")]
        functions.append(helper.make_function("own", f"f{k + 1}", ["a"], ["c"], calls, opsets))
    return _model([helper.make_node(f"f{depth}", ["x"], ["y"], domain="own")], functions=functions)


def _chain(length: int) -> onnx.ModelProto:
    ends = ["x", *(f"v{k}" for k in range(1, length)), "y"]
    return _model([helper.make_node("Relu", [a], [b]) for a, b in pairwise(ends)])


def _residual(count: int) -> onnx.ModelProto:
    """A stream with as many branches, of three nodes and a sum each."""
    nodes, weights, stream = [], {}, "x"
    for k in range(count):
        weights |= {f"a{k}": np.ones((4, 8), np.float32), f"b{k}": np.ones((8, 4), np.float32)}
        after = "y" if k == count - 1 else f"h{k}"
        nodes += [
            helper.make_node("MatMul", [stream, f"a{k}"], [f"u{k}"]),
            helper.make_node("Relu", [f"u{k}"], [f"r{k}"]),
            helper.make_node("MatMul", [f"r{k}", f"b{k}"], [f"d{k}"]),
            helper.make_node("Add", [stream, f"d{k}"], [after]),
        ]
        stream = after
    return _model(nodes, weights)


def _claimed(dims: list[int]) -> onnx.ModelProto:
    """A weight with dims on paper."""
    model = _model([helper.make_node("MatMul", ["x", "w"], ["y"])])
    model.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims))
    return model


def _summed(node: onnx.NodeProto, **weights: Any) -> onnx.ModelProto:
    """A model that adds the sum of a node's output `c` to the input."""
    total = helper.make_node("ReduceSum", ["c"], ["t"], keepdims=0)
    return _model([node, total, helper.make_node("Add", ["x", "t"], ["y"])], weights)


def _one(op: str, *inputs: str) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), ["c"])


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "functions of 2^30 nodes": lambda: doubled(30),
    "functions of 2^20 nodes": lambda: doubled(20),
    "40,000 nodes": lambda: _chain(40_000),
    "20,000 nodes": lambda: _chain(20_000),
    "20,000 nodes of branches": lambda: _residual(5_000),
    "a sum of 100,000": lambda: _summed(helper.make_node("Concat", ["x"] * 100_000, ["c"], axis=0)),
    "dims of 2^40": lambda: _claimed([4, 2**40]),
    "two dims of 2^40": lambda: _claimed([2**40, 2**40]),
    "2^40 rows": lambda: _model([helper.make_node("Relu", ["x"], ["y"])], rows=2**40),
    "an expansion to 2^40": lambda: _summed(
        _one("Expand", "z", "s"), z=np.ones((1, 1), np.float32), s=np.array([2**20, 2**20])
    ),
    "tiles of 2^40": lambda: _summed(
        _one("Tile", "z", "s"), z=np.ones((1, 1), np.float32), s=np.array([2**20, 2**20])
    ),
    "pads of 2^40": lambda: _summed(_one("Pad", "x", "p"), p=np.array([2**20, 2**20, 0, 0])),
    "a constant of 2^40": lambda: _summed(_one("ConstantOfShape", "s"), s=np.array([2**40, 4])),
}


def _inspected(make: Callable[[], onnx.ModelProto], folder: Path) -> list[str]:
    (folder / "m.onnx").write_bytes(make().SerializeToString())
    return ["inspect", str(folder / "m.onnx")]


# ---------------------------------------------------------------------------------------- checkpoints


def _directory(change: Callable[[Path], object], good: Path, folder: Path) -> list[str]:
    shutil.copytree(good, folder / "m")
    change(folder / "m")
    return ["inspect", str(folder / "m")]


def _config(folder: Path, **said: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | said))


def _deep(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().rstrip()[:-1] + ', "a":' + "[" * 100_000 + "]" * 100_000 + "}")


def _header(length: int, content: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(length.to_bytes(8, "little") + content)


def _tensors(count: int, folder: Path) -> None:
    one = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    content = json.dumps({f"t{k}": one for k in range(count)}).encode()
    _header(len(content), content, folder)


def _terabytes(folder: Path) -> None:
    entry = {"dtype": "F32", "shape": [2**40, 2], "data_offsets": [0, 2**43]}
    content = json.dumps({"model.embed_tokens.weight": entry}).encode()
    _header(len(content), content, folder)


def _shards(count: int, folder: Path) -> None:
    places = {f"t{k}": f"m{k}.safetensors" for k in range(count)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / "model.safetensors").unlink()


DIRECTORIES: Mapping[str, Callable[[Path], object]] = {
    "10^9 layers in a config": lambda m: _config(m, num_hidden_layers=10**9),
    "10^9 units in a config": lambda m: _config(m, hidden_size=10**9),
    "10^9 places in a config": lambda m: _config(m, max_position_embeddings=10**9),
    "a deep config": _deep,
    "a config of brackets": lambda m: (m / "config.json").write_text("[" * 1_000_000),
    "a config of 100 MB": lambda m: (m / "config.json").write_text(json.dumps({"a": "x" * 100_000_000})),
    "a header of a terabyte": partial(_header, 2**40, b"{"),
    "a header of 2^64": partial(_header, 2**64 - 1, b"{"),
    "a tensor of terabytes": _terabytes,
    "a million tensors": partial(_tensors, 1_000_000),
    "300,000 shards": partial(_shards, 300_000),
}


# ---------------------------------------------------------------------------------------- archives


def _bomb(archive: zipfile.ZipFile, name: str, first: bytes, megabytes: int) -> None:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(info, "w", force_zip64=True) as file:
        file.write(first)
        for _ in range(megabytes):
            file.write(b" " * 2**20)


def _program(inside: str, first: bytes, good: Path, folder: Path) -> list[str]:
    """A program with one member that unpacks to gigabytes."""
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(folder / "m.pt2", "w") as target:
        for info in source.infolist():
            if inside in info.filename:
                _bomb(target, info.filename, first, 200)
            else:
                target.writestr(info.filename, source.read(info))
    return ["inspect", str(folder / "m.pt2")]


def _claims(rows: int) -> bytes:
    head = io.BytesIO()
    claims = {"descr": "<i8", "fortran_order": False, "shape": (rows,)}
    np.lib.format.write_array_header_1_0(head, claims)
    return head.getvalue()


def _inputs(rows: int, megabytes: int, folder: Path) -> list[str]:
    """Inputs that claim so many rows, in a member of so many megabytes."""
    with zipfile.ZipFile(folder / "i.npz", "w") as archive:
        _bomb(archive, "tokens.npy", _claims(rows), megabytes)
    out, inputs = str(folder / "o.onnx"), str(folder / "i.npz")
    return ["apply", "-e", WIDEN, str(MODEL), "-o", out, "--inputs", inputs]


# ---------------------------------------------------------------------------------------- all of them


def cases(good: Path, program: Path) -> Iterator[tuple[str, Make]]:
    """Every case by its name; a checkpoint and a program that are fine."""
    yield from ((name, partial(_checked, text)) for name, text in TEXTS.items())
    yield from ((name, partial(_planned, text)) for name, text in PLANS.items())
    yield from ((name, partial(_inspected, make)) for name, make in MODELS.items())
    yield from ((name, partial(_directory, change, good)) for name, change in DIRECTORIES.items())
    yield "a program that unpacks", partial(_program, "/models/model.json", b'{"a":"', program)
    yield "weights that unpack", partial(_program, "/weights/weight_", b"", program)
    yield "inputs that unpack", partial(_inputs, 2**27, 1100)
    yield "inputs on paper", partial(_inputs, 2**40, 1)
