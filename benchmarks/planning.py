"""How planning grows with depth: inspect and plan of a pre-norm transformer of 24 and of 384 layers.

    python benchmarks/planning.py [--layers N N …] [--recipe 'STATEMENT']

Prints the processor seconds of every pass and their ratio between the first and the last depth.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

RECIPE = """
widen hidden to 2 * hidden with neighbor copy
widen heads to 2 * heads with neighbor copy
widen ffn to 2 * ffn with uniform copy
"""


class Transformer:
    """A pre-norm decoder without a mask, of any depth, written node by node."""

    def __init__(self, hidden: int = 16, heads: int = 2, ffn: int = 32, vocab: int = 24) -> None:
        self.hidden, self.heads, self.ffn, self.vocab = hidden, heads, ffn, vocab
        self.random = np.random.default_rng(0)
        self.weights: list[onnx.TensorProto] = []
        self.nodes: list[onnx.NodeProto] = []

    def model(self, layers: int) -> onnx.ModelProto:
        """The model, of so many layers."""
        self.constant("cut", 0, 0, self.heads, self.hidden // self.heads)
        self.constant("join", 0, 0, self.hidden)
        x = self.node("Gather", "stream", self.weight("table", self.vocab, self.hidden), "ids")
        for layer in range(layers):
            x = self.attention(f"h{layer}/attention", x)
            x = self.feed_forward(f"h{layer}/mlp", x)
        self.linear("logits", self.norm("last", x), self.hidden, self.vocab)
        ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch", "time"])
        shape = ["batch", "time", self.vocab]
        logits = onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, shape)
        graph = onnx.helper.make_graph(self.nodes, "deep", [ids], [logits], self.weights)
        opset = onnx.helper.make_opsetid("", 17)
        return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)

    def attention(self, name: str, x: str) -> str:
        """x plus the attention of its norm."""
        normed = self.norm(f"{name}/norm", x)
        turns = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
        q, k, v = (self.head(f"{name}/{part}", normed, turn) for part, turn in turns.items())
        scores = self.node("Softmax", f"{name}/p", self.node("MatMul", f"{name}/qk", q, k), axis=-1)
        context = self.node("MatMul", f"{name}/pv", scores, v)
        turned = self.node("Transpose", f"{name}/turn", context, perm=[0, 2, 1, 3])
        joined = self.node("Reshape", f"{name}/join", turned, "join")
        return self.node("Add", f"{name}/sum", x, self.linear(f"{name}/o", joined, self.hidden, self.hidden))

    def head(self, name: str, x: str, turn: list[int]) -> str:
        """One of query, key and value, cut into heads."""
        cut = self.node("Reshape", f"{name}/cut", self.linear(name, x, self.hidden, self.hidden), "cut")
        return self.node("Transpose", f"{name}/turn", cut, perm=turn)

    def feed_forward(self, name: str, x: str) -> str:
        """x plus the feed-forward network of its norm."""
        up = self.linear(f"{name}/up", self.norm(f"{name}/norm", x), self.hidden, self.ffn)
        biased = self.node("Add", f"{name}/biased", up, self.weight(f"{name}/bias", self.ffn))
        act = self.node("Relu", f"{name}/act", biased)
        return self.node("Add", f"{name}/sum", x, self.linear(f"{name}/down", act, self.ffn, self.hidden))

    def norm(self, name: str, x: str) -> str:
        """A LayerNormalization with gain and bias."""
        parameters = (self.weight(f"{name}/{part}", self.hidden) for part in ("gain", "bias"))
        return self.node("LayerNormalization", name, x, *parameters, axis=-1)

    def linear(self, name: str, x: str, inner: int, outer: int) -> str:
        """A product with a weight."""
        return self.node("MatMul", name, x, self.weight(f"{name}/weight", inner, outer))

    def node(self, op: str, out: str, *inputs: str, **attributes: object) -> str:
        """A node that bears the name of its result."""
        self.nodes.append(onnx.helper.make_node(op, list(inputs), [out], name=out, **attributes))
        return out

    def weight(self, name: str, *shape: int) -> str:
        """A drawn weight."""
        drawn = 0.3 * self.random.standard_normal(shape).astype(np.float32)
        self.weights.append(onnx.numpy_helper.from_array(drawn, name))
        return name

    def constant(self, name: str, *values: int) -> None:
        """The target shape of a Reshape."""
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(values, np.int64), name))


def measure(path: Path, recipe: str) -> dict[str, float]:
    """Processor seconds of every pass of a plan, and of what `inspect` adds."""
    from growc import api
    from growc.dialects.onnx.model import OnnxModel
    from growc.formats.compiler import outside
    from growc.passes import PIPELINE, run
    from growc.passes.compilation import Source
    from growc.render.inspection import inspect_data, inspect_lines

    resolved, seconds, start = api.recipe(recipe), dict[str, float](), time.process_time()

    def took(name: str, *made: object) -> None:
        nonlocal start
        now = time.process_time()
        seconds[name], start = seconds.get(name, 0.0) + now - start, now

    model = OnnxModel.open(path)
    took("open")
    c = run(PIPELINE, Source(path, model, outside(), resolved.statements, after=took))
    start = time.process_time()
    _ = [*inspect_lines(c)], inspect_data(c)
    seconds["what inspect shows"] = time.process_time() - start
    return seconds | {"all": sum(seconds.values())}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[24, 384])
    parser.add_argument("--recipe", default=RECIPE)
    options = parser.parse_args()
    columns = []
    with tempfile.TemporaryDirectory() as folder:
        for layers in options.layers:
            path = Path(folder) / f"deep{layers}.onnx"
            onnx.save(Transformer().model(layers), path)
            if not columns:
                measure(path, options.recipe)  # the first use imports and fills caches
            columns.append(measure(path, options.recipe))
    print(f"{'':20}" + "".join(f"{layers:>6} layers" for layers in options.layers))
    for name, first in columns[0].items():
        times = "".join(f"{column[name]:11.3f} s" for column in columns)
        print(f"{name:20}{times}   x {columns[-1][name] / max(first, 1e-6):.1f}")


if __name__ == "__main__":
    main()
