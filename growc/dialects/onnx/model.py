"""The ONNX dialect: what the passes ask of a model in this format, in one place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.algebra.space import Size, Space
from growc.dialects.onnx.capture.capture import capture, dtype_name
from growc.dialects.onnx.capture.computed_weights import Folded
from growc.dialects.onnx.capture.fused_ops import Fused
from growc.dialects.onnx.capture.split_broadcasts import part
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.experts.insert_mixture import insert
from growc.dialects.onnx.files.load import files_of, load
from growc.dialects.onnx.heads.insert_repeats import counting, spread
from growc.dialects.onnx.heads.unpack_qkv import unpack
from growc.dialects.onnx.layers.graft import graft
from growc.dialects.onnx.layers.rearrange import rebuild
from growc.dialects.onnx.operators.number_ranges import RANGES
from growc.dialects.onnx.operators.site import COMPLEX, REAL
from growc.dialects.onnx.operators.table import OPERATORS
from growc.dialects.onnx.repair.repair import Mender
from growc.dialects.onnx.shapes.body_lines import CONTROL
from growc.dialects.onnx.shapes.merging import behind
from growc.dialects.onnx.shapes.sample_points import settle
from growc.dialects.onnx.shapes.simulate import simulate
from growc.dialects.onnx.shapes.simulator import ContradictionError, Simulator
from growc.errors.brief import brief
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.ir.graph import Graph, Node, Value
from growc.ir.notation import Line, Operand
from growc.ir.rows import Site, opaque
from growc.passes.axes.infer import Axes
from growc.passes.axes.unstacked_experts import Taken
from growc.passes.compilation import Model, Rearranged, Result
from growc.passes.edits import HeadEdits, Mixture, Repairs, Sampled
from growc.passes.finish.assembled import Assembled
from growc.passes.layers.layer_runs import Instance, Layers, Run
from growc.plans.scores import Scores
from growc.recipe.statistics import Statistic


@dataclass
class IrModel(ABC):
    """A model in onnx-ir's form, opened: its graph, its operator table, its simulation."""

    __repr__ = brief

    source: ir.Model
    simulator: Simulator = field(init=False)
    fused: list[Fused] = field(default_factory=list, kw_only=True)
    """Fused nodes for which plain ones stand in `source`; emission puts them back."""
    folded: list[Folded] = field(default_factory=list, kw_only=True)
    """Computed weights for which initializers stand in `source`; emission keeps those that change."""
    spreading: list[ir.Node] = field(default_factory=list, kw_only=True)
    """Operators that count heads, put into `source`; emission writes plain ones in their place."""
    scores: dict[tuple[Path, int | None, Statistic], Scores] = field(default_factory=dict, kw_only=True)
    """What was measured of the model, by the inputs and the number of samples."""
    told: tuple[str, ...] = field(default=(), kw_only=True)
    """What a reader of any plan should know of how the model was captured."""
    warnings: tuple[str, ...] = field(default=(), kw_only=True)
    """What any plan warns of."""
    looped: frozenset[int] = field(default=frozenset(), kw_only=True)
    """Of how many units the loops were whose bodies were captured once for each."""
    lenient = False
    """Whether masks that are not given are open."""
    repeats = False
    """Whether what repeats heads stays one operator when the model is written, in front of attention too."""
    operators = OPERATORS | CONTROL
    ranges = RANGES

    def __post_init__(self) -> None:
        self.simulator = Simulator(self.source)

    def capture(self) -> Graph:
        """The neutral graph."""
        return capture(self.source, self)

    def edit(self, edit: HeadEdits) -> Self:
        """The model with heads that are counted, and queries, keys and values that are cut apart."""
        there = Clone.of(self.source)
        made = self.on(there)
        unpack(there, edit.packed)
        made.spreading += spread(edit, there, inside=not self.repeats)
        return made

    def upcycle(self, mixtures: Sequence[Mixture]) -> Self:
        """The model with mixtures in the place of networks."""
        return self.with_mixtures(mixtures)

    def with_mixtures(self, mixtures: Sequence[Mixture]) -> Self:
        """The same, whatever becomes of it."""
        there = Clone.of(self.source)
        made = self.on(there)
        for mixture in mixtures:
            gone = set(insert(mixture, there))
            made.fused = [one for one in made.fused if gone.isdisjoint(one.lowering.made)]
        return made

    def graft(self, template: Model, run: Run, span: Span) -> Model:
        """The model around the layers of a template."""
        message = "layers can come from a template where both models are ONNX files"
        raise GrowError(Diagnostic("G309", message, span, help="export both, and grow the file"))

    def on(self, there: Clone) -> Self:
        """The same model with a structure of its own; what was measured of it is known."""
        made = copy(self)
        made.source, made.simulator = there.model, self.simulator.on(there.model)
        made.fused = [one.on(there.value, there.node) for one in self.fused]
        made.folded = [one.on(there.value, there.node) for one in self.folded]
        made.spreading = [*map(there.node, self.spreading)]
        return made

    def rearrange(
        self, graph: Graph, layers: Layers, orders: Mapping[int, Sequence[Instance]]
    ) -> Rearranged[Self]:
        """The model with other layers."""
        there = Clone.of(self.source)
        own = self.on(there)
        made = rebuild(graph, layers, orders, there, own.folded, own.remember)
        placed = [p.values for run in made.runs for p in run if p.values]
        own.fused = [one for fused in own.fused for one in fused.copies(placed, made.gone, made.data)]
        own.folded, own.spreading = [], counting(own.source)
        return Rearranged(own, made.renamed, made.layers)

    @abstractmethod
    def remember(self, nodes: Iterable[ir.Node]) -> None:
        """Nodes are about to say something else than in the source."""

    @abstractmethod
    def file(self, path: Path) -> Path:
        """The file that onnxruntime runs."""

    @abstractmethod
    def files(self, path: Path) -> list[Path]:
        """The files that say what the model computes."""

    def fault(self, path: Path) -> str:
        """What is wrong with the file as such, if it can be told."""
        return ""

    def knows(self, op: str) -> bool:
        """Whether an operator has a row."""
        return op in self.operators

    def line(self, node: Node, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> Line:
        """The row of a node's operator at these operands and results; opaque where it has none."""
        site = Site(node, tuple(inputs), tuple(outputs), int(self.simulator.opsets.get("", 1)))
        return self.operators[node.op].line(site) if node.op in self.operators else opaque(site)

    def outermost(self, node: Node) -> bool:
        """Whether a node stands in no body."""
        return isinstance(node.origin, ir.Node) and node.origin.graph is self.source.graph

    def evaluate(self, node: Node, operands: Sequence[Array | None]) -> Sequence[Array] | None:
        """What a node makes of these operands; None where that cannot be told."""
        alike = self.simulator.alike(node, {}, len(operands), "")
        return self.simulator.evaluate(node, alike, list(operands))

    def simulate(self, graph: Graph) -> Sampled:
        """Fill in sizes and known values of a graph. Raises GrowError (G311)."""
        try:
            inputs, done, several = settle(graph, self.simulator)
        except ContradictionError as failure:
            node = failure.node
            message = f"the sizes of the model contradict each other at `{node.name or node.op}` ({node.op})"
            raise GrowError(Diagnostic("G311", message, notes=(failure.message,))) from failure
        for value in graph.values():
            value.sizes, value.known = done.sizes.get(value), done.known.get(value)
            kind = done.types.get(value)
            value.floating = kind is None or kind in REAL | COMPLEX
            value.dtype = "" if kind is None else dtype_name(ir.DataType(kind))
        return Sampled(inputs, dict(done.counts), behind(several))

    def sizes_at(
        self, graph: Graph, inputs: Mapping[Value, tuple[Size, ...] | None], counts: Mapping[Value, Size]
    ) -> Mapping[Value, tuple[Size, ...] | None]:
        """The sizes of all values at other sizes of the inputs; empty where these contradict each other."""
        try:
            return simulate(graph, self.simulator, inputs, counts).sizes
        except ContradictionError:
            return {}

    def repair(
        self,
        axes: Axes,
        sampled: Sampled,
        resize: Callable[[Space], Size],
        taken: Taken,
    ) -> Repairs:
        """Account for every size of the result."""
        return Mender(axes, self.simulator, resize, taken).run(sampled)

    def put_back(self, made: Assembled) -> Assembled:
        """The stored tensors of a plan, where computed weights that change are made of what others are."""
        return made

    def hold(self, c: Result) -> Result:
        """A compilation with what stores its result, where that is more than the graph itself."""
        return c


def opened(graph: Graph) -> IrModel:
    """The model that a graph was captured from."""
    assert isinstance(graph.dialect, IrModel), "every dialect is one of onnx-ir by now"
    return graph.dialect


@dataclass
class OnnxModel(IrModel):
    """An ONNX file, opened."""

    __repr__ = brief

    def __post_init__(self) -> None:
        super().__post_init__()
        part(self.source)

    def graft(self, template: Model, run: Run, span: Span) -> Model:
        """The model around the layers of a template."""
        if not isinstance(template, OnnxModel) or self.fused or template.fused:
            return super().graft(template, run, span)
        return template.on(graft(self.source, template.source, run, span))

    @staticmethod
    def open(path: Path) -> OnnxModel:
        """Raises GrowError (G310) where the file cannot be read."""
        return OnnxModel(load(path))

    def remember(self, nodes: Iterable[ir.Node]) -> None:
        """A file is written from what nodes say now."""

    def file(self, path: Path) -> Path:
        """The file that onnxruntime runs: itself."""
        return path

    def files(self, path: Path) -> list[Path]:
        """The files that say what the model computes."""
        return files_of(path)

    def fault(self, path: Path) -> str:
        """What onnx's checker says."""
        from growc.dialects.onnx.files.check import fault_of

        return fault_of(path)
