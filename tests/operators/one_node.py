"""One operator by itself: a model of one node, its line, and what the compiler does when one label grows."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from growc.algebra.draws import Draws
from growc.algebra.indexmap import IndexMap
from growc.algebra.space import Space, find
from growc.dialects.onnx.emit import rewrite
from growc.dialects.onnx.model import OnnxModel
from growc.dialects.onnx.operators.number_ranges import RANGES
from growc.errors.diagnostic import GrowError
from growc.ir.lowered_statement import Sizes, SpaceRequest, Stage
from growc.ir.notation import Line, labels
from growc.passes.axes.infer import Axes, LineInstance, infer_spaces
from growc.passes.axes.unstacked_experts import ExpertRemoval
from growc.passes.dataflow.ranges import Ranges
from growc.passes.edits import Sampled
from growc.passes.finish.assemble import assemble_weights
from growc.passes.finish.certify import rounded
from growc.passes.layers.layer_runs import Layers
from growc.passes.layers.origin_of_layers import Ancestry
from growc.passes.solving.build_constraints import build_links, carriers_of
from growc.passes.solving.solution import Solution
from growc.passes.solving.solve import solve
from growc.passes.solving.weight_steps import weight_steps
from growc.recipe.fills import FILLS
from growc.recipe.option_rules import StatementOptions

OPSETS = (14, 17, 20, 23)
SYMBOLS = {"b": 2, "s": 3}
"""Sizes of symbolic dimensions when the model runs."""

onnxruntime.set_default_logger_severity(4)


@dataclass(frozen=True)
class Feed:
    """An operand: an input of the model, or (stored) one of its weights. Values are drawn."""

    shape: tuple[int | str, ...]
    kind: str = "real"
    bound: int = 0
    stored: bool = False

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
        if self.kind in ("integer", "index"):
            return random.integers(
                0, self.bound, shape, dtype=np.int64 if self.kind == "integer" else np.int32
            )
        if self.kind == "boolean":
            return random.integers(0, 2, shape).astype(bool)
        drawn = {
            "real": random.standard_normal(shape),
            "positive": random.uniform(0.5, 2.0, shape),
            "small": random.uniform(-0.9, 0.9, shape),
            "large": random.uniform(1.5, 3.0, shape),
        }
        return np.asarray(drawn[self.kind], dtype=np.float32)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(SYMBOLS[d] if isinstance(d, str) else d for d in self.shape)


def real(*shape: int | str) -> Feed:
    return Feed(shape)


def positive(*shape: int | str) -> Feed:
    return Feed(shape, "positive")


def small(*shape: int | str) -> Feed:
    return Feed(shape, "small")


def integers(bound: int, *shape: int | str) -> Feed:
    return Feed(shape, "integer", bound)


def booleans(*shape: int | str) -> Feed:
    return Feed(shape, "boolean")


def weight(*shape: int) -> Feed:
    return Feed(shape, stored=True)


def spread(*shape: int) -> Feed:
    """A positive weight: variances, slopes."""
    return Feed(shape, "positive", stored=True)


def numbers(*values: int) -> NDArray[Any]:
    """A stored shape operand."""
    return np.asarray(values, dtype=np.int64)


Operand = Feed | NDArray[Any] | None


@dataclass(frozen=True, eq=False)
class Case:
    """One node: its operands, attributes, and the opsets in which this form of it exists."""

    op: str
    inputs: tuple[Operand, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    since: int = 1
    until: int = 99
    declared: tuple[tuple[int, ...], ...] | None = None
    """Shapes of the results, for operators that onnx cannot infer."""
    absent: tuple[int, ...] = ()
    """Results that the node leaves out."""

    @property
    def name(self) -> str:
        shapes = ",".join("-" if o is None else "x".join(map(str, o.shape)) for o in self.inputs)
        listed = " ".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{self.op}({shapes}){' ' if listed else ''}{listed}"

    @property
    def opsets(self) -> tuple[int, ...]:
        return tuple(o for o in OPSETS if self.since <= o <= self.until)


_KINDS = {
    "integer": onnx.TensorProto.INT64,
    "index": onnx.TensorProto.INT32,
    "boolean": onnx.TensorProto.BOOL,
}


class OneNode:
    """A case at an opset: the model, captured and simulated, with the line of its node."""

    def __init__(self, case: Case, opset: int) -> None:
        self.case = case
        self.random = np.random.default_rng(zlib.crc32(case.name.encode()))
        self.arrays: dict[str, NDArray[Any]] = {}
        self.proto = self._build(opset)
        self.model = OnnxModel(ir.from_proto(self.proto))
        self.graph = self.model.capture()
        self.sampled = self.model.simulate(self.graph)
        self.axes: Axes = infer_spaces(self.graph)

    def _build(self, opset: int) -> onnx.ModelProto:
        inputs, stored, names = [], [], []
        for i, operand in enumerate(self.case.inputs):
            name = "" if operand is None else f"x{i}"
            names.append(name)
            if isinstance(operand, Feed) and not operand.stored:
                self.arrays[name] = operand.draw(self.random, operand.sizes)
                kind = _KINDS.get(operand.kind, onnx.TensorProto.FLOAT)
                inputs.append(helper.make_tensor_value_info(name, kind, operand.shape))
            elif operand is not None:
                drawn = operand.draw(self.random, operand.sizes) if isinstance(operand, Feed) else operand
                stored.append(onnx.numpy_helper.from_array(drawn, name))
        domain, _, op = self.case.op.rpartition("::")
        results = ["" if i in self.case.absent else f"y{i}" for i in range(self.case.outputs)]
        node = helper.make_node(op, names, results, name="node", domain=domain, **self.case.attributes)
        shapes = self.case.declared or (None,) * len(results)
        outputs = [
            helper.make_empty_tensor_value_info(r) if s is None else helper.make_tensor_value_info(r, 1, s)
            for r, s in zip(results, shapes, strict=True)
            if r
        ]
        graph = helper.make_graph([node], "one", inputs, outputs, stored)
        domains = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
        return helper.make_model(graph, opset_imports=domains, ir_version=10 if opset > 20 else 8)

    @property
    def is_shape_arithmetic(self) -> bool:
        """Whether every result is known from sizes alone: such a node constrains nothing."""
        return not self.axes.instances

    @property
    def line(self) -> Line:
        return self.axes.instances[0].line

    def growable(self) -> dict[str, Space]:
        """The space of every label that is not frozen and of every addressed axis, by name."""
        spaces = self.labelled(self.axes.instances[0])
        for k, instance in enumerate(self.axes.instances[1:], 1):  # the parts of a fused operator
            known = set(spaces.values())
            more = self.labelled(instance).items()
            spaces |= {f"{name}@{k}": space for name, space in more if space not in known}
        return {n: s for n, s in spaces.items() if self._may_grow(s)}

    def labelled(self, instance: LineInstance) -> dict[str, Space]:
        """The space of every label and every addressed axis of one line."""
        spaces: dict[str, Space] = {}
        node, line = instance.node, instance.line
        for values, sides in ((node.inputs, line.inputs), (node.outputs, line.outputs)):
            for i, (value, terms) in enumerate(zip(values, sides, strict=False)):
                for axis, term in enumerate(terms or ()):
                    if value is not None and term == "#":
                        spaces[f"#{i}.{axis}"] = find(self.axes.of(value)[axis])
                    spaces |= {n: find(instance.spaces[n]) for n in labels(term)}
        return spaces

    @staticmethod
    def _may_grow(space: Space) -> bool:
        free = (
            space.frozen is None or space.frozen.node is None
        )  # the model's own inputs are frozen, but not here
        return space.kind == "atom" and space.static and not space.unit and free

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs that onnxruntime computes."""
        return execute(self.proto, feeds)


def execute(proto: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        _unpacked(proto).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(y) for y in session.run(None, dict(feeds))]


def _unpacked(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Operands of MultiHeadAttention that are packed in five axes, apart: the CPU cannot run them packed."""
    node = proto.graph.node[0]
    if node.op_type != "MultiHeadAttention" or (len(node.input) > 2 and node.input[2]):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    node, before = copy.graph.node[0], len(node.input) - 1
    parts, flat = 3 - before, numbers(0, 0, -1)
    copy.graph.initializer.append(onnx.numpy_helper.from_array(flat, "flat"))
    for i in range(parts):
        copy.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(i), f"part{i}"))
        taken = helper.make_node("Gather", [node.input[before], f"part{i}"], [f"taken{i}"], axis=3)
        copy.graph.node.insert(2 * i, taken)
        copy.graph.node.insert(2 * i + 1, helper.make_node("Reshape", [f"taken{i}", "flat"], [f"flat{i}"]))
    copy.graph.node[-1].input[:] = [*node.input[:before], *(f"flat{i}" for i in range(parts))]
    return copy


@dataclass(frozen=True)
class Judgement:
    """The compiler's claim about one label that takes one map, where the claim is true of the result."""

    gaps: tuple[str, ...] = ()
    refused: str = ""
    lost: bool = False
    """Whether some unit of a result is no combination of the source's."""

    @property
    def passes(self) -> bool:
        return not self.gaps and not self.refused and not self.lost


def judge(case: Case, opset: int, label: str, wanted: IndexMap, fill: str) -> Judgement:
    """Let a label take a map and compare what is claimed of every result with what onnxruntime computes."""
    one = OneNode(case, opset)
    before = one.run(one.arrays)
    space = one.growable()[label]
    new = np.arange(wanted.size) >= wanted.source
    request = SpaceRequest(space, FILLS.get(fill), wanted, new, Draws.of(case.name, label))
    stage = Stage(1, "", "it", StatementOptions(), {space: request})
    links = build_links(one.axes, [], [], set(stage.requests))
    sizes = Sizes()
    solution = solve(links, stage, sizes, carriers_of(one.axes), Ranges(RANGES))
    gaps = tuple(g.cause for g in solution.gaps if g.op)
    if gaps:
        return Judgement(gaps)
    steps = weight_steps(solution, [], Ancestry(one.axes, Layers()))
    sizes.apply(stage)
    resized = {v: tuple(sizes.of(s) for s in one.axes.of(v)) for v in one.graph.inputs}
    try:
        repairs = one.model.repair(one.axes, Sampled(resized, one.sampled.counts), sizes.of, ExpertRemoval())
    except GrowError as refusal:
        return Judgement(refused=str(refusal.diagnostics[0]))
    shapes = {u: tuple(sizes.of(s)[0] for s in one.axes.of(u)) for u in one.graph.uses()}
    assembled = assemble_weights(one.graph, steps, {}, shapes, {}, repairs.patches)
    if gaps := tuple(g.cause for g in rounded(assembled)):
        return Judgement(gaps)
    attributes = {
        n: {"epsilon": float(n.attributes.get("epsilon", 1e-5)) * factor}
        for n, factor in solution.epsilons.items()
    }
    feeds = {v.name: grown(one, solution, v.name, i) for i, v in enumerate(one.graph.inputs)}
    try:
        own, _ = rewrite(one.graph, assembled, repairs, attributes)
        after = execute(ir.to_proto(own.source), feeds)
    except (GrowError, InvalidArgument) as refusal:
        return Judgement(refused=str(refusal))
    names = [v.name for v in one.graph.outputs]
    lost = [compare(solution, n, x, y) for n, x, y in zip(names, before, after, strict=True)]
    return Judgement(lost=any(lost))


def grown(one: OneNode, solution: Solution, name: str, number: int) -> NDArray[Any]:
    """An input as its states say; junk is drawn."""
    value, array = one.graph.inputs[number], one.arrays[name]
    feed = one.case.inputs[int(name[1:])]
    assert isinstance(feed, Feed)
    for axis, space in enumerate(one.axes.of(value)):
        variables = solution.links.of(value, axis)
        if variables:
            matrix = dense(space, [solution.of(v).matrix() for v in variables])
            junk = feed.draw(one.random, (len(matrix), *np.delete(array.shape, axis)))
            array = along(array, axis, matrix, junk)
    return array


def dense(space: Space, leaves: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The matrix of a whole axis from those of its leaves, written out; junk rows are not a number."""
    space = find(space)
    if space.kind == "atom":
        return np.eye(space.size[0]) if space.unit else leaves.pop(0)
    parts = [dense(p, leaves) for p in space.parts]
    if space.kind == "product":
        return reduce(np.kron, parts)
    rows, columns = (sum(p.shape[k] for p in parts) for k in (0, 1))
    matrix, at = np.zeros((rows, columns)), np.zeros(2, dtype=int)
    for part in parts:
        matrix[at[0] : at[0] + part.shape[0], at[1] : at[1] + part.shape[1]] = part
        at += part.shape
    return np.where(np.isnan(matrix).any(axis=1, keepdims=True), np.nan, matrix)


def along(
    array: NDArray[Any], axis: int, matrix: NDArray[np.float64], junk: NDArray[Any] | None = None
) -> NDArray[Any]:
    """The units of one axis after a map; junk rows are taken from `junk`, or are zero."""
    front = np.moveaxis(array, axis, 0)
    flat = front.reshape(front.shape[0], -1).astype(np.float64)
    lost = np.isnan(matrix).any(axis=1)
    done = (np.nan_to_num(matrix) @ flat).astype(front.dtype).reshape(len(matrix), *front.shape[1:])
    if junk is not None:
        done[lost] = junk[lost]
    return np.moveaxis(done, 0, axis)


def compare(solution: Solution, name: str, before: NDArray[Any], after: NDArray[Any]) -> bool:
    """Assert that a result is what its states say; whether some of it is junk."""
    keep = np.ones(after.shape, dtype=bool)
    for (output, axis), state in solution.outputs.items():
        if output == name:
            before = along(before, axis, state.matrix())
            np.moveaxis(keep, axis, 0)[state.junk] = False
    assert before.shape == after.shape
    if before.dtype.kind == "f":
        scale = np.abs(before[keep & np.isfinite(before)]).max(initial=1e-30)
        close = max(2e-5, 2 * float(np.finfo(before.dtype).eps))
        np.testing.assert_allclose(after[keep], before[keep], rtol=close, atol=close * scale)
    else:
        np.testing.assert_array_equal(after[keep], before[keep])
    return not keep.all()
