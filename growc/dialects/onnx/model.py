"""The ONNX dialect: everything that passes ask of a model in this format, in one place."""

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
from growc.dialects.onnx.capture.capture import capture
from growc.dialects.onnx.capture.computed_weights import Folded
from growc.dialects.onnx.capture.fused_ops import Fused
from growc.dialects.onnx.capture.split_broadcasts import part
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.dtype_names import dtype_name
from growc.dialects.onnx.experts.insert_mixture import insert
from growc.dialects.onnx.files.load import files_of, load
from growc.dialects.onnx.heads.insert_repeats import counting, spread
from growc.dialects.onnx.heads.unpack_qkv import unpack
from growc.dialects.onnx.layers.graft import graft
from growc.dialects.onnx.layers.rearrange import rebuild
from growc.dialects.onnx.operators.number_ranges import RANGES
from growc.dialects.onnx.operators.site import COMPLEX, REAL
from growc.dialects.onnx.operators.table import OPERATORS
from growc.dialects.onnx.repair.repair import ShapeRepair
from growc.dialects.onnx.shapes.body_lines import CONTROL
from growc.dialects.onnx.shapes.conflated_sizes import behind
from growc.dialects.onnx.shapes.sample_points import settle
from growc.dialects.onnx.shapes.simulate import simulate
from growc.dialects.onnx.shapes.simulator import ContradictionError, Simulator
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.short_repr import brief
from growc.errors.source import Span
from growc.ir.graph import Graph, Node, Value
from growc.ir.notation import Line, Operand
from growc.ir.operator_rows import Site, opaque
from growc.passes.axes.infer import Axes
from growc.passes.axes.unstacked_experts import ExpertRemoval
from growc.passes.compilation import Model, ModelWithMixtures, Rearranged, Result
from growc.passes.edits import HeadEdits, Mixture, Repairs, Sampled
from growc.passes.finish.assembled import Assembled
from growc.passes.layers.layer_runs import Layers, ResultLayer, Run
from growc.plans.scores import Scores
from growc.recipe.statistics import Statistic

MAX_ELEMENTS = 1 << 16
"""The most elements of values that are followed at sizes that someone asks for."""


@dataclass
class IrModel(ABC):
    """An open model in onnx-ir's form: its graph, its operator table, its simulation."""

    __repr__ = brief

    source: ir.Model
    simulator: Simulator = field(init=False)
    fused: list[Fused] = field(default_factory=list, kw_only=True)
    """Fused nodes that plain ones replace in `source`. Emission restores them."""
    folded: list[Folded] = field(default_factory=list, kw_only=True)
    """Computed weights that initializers replace in `source`. Emission keeps the initializers that change."""
    spreading: list[ir.Node] = field(default_factory=list, kw_only=True)
    """Operators of growc's own in `source` that count heads. Emission replaces them by plain ones."""
    scores: dict[tuple[Path, int | None, Statistic], Scores] = field(default_factory=dict, kw_only=True)
    """The scores measured on the model, by inputs, number of samples and statistic."""
    capture_notes: tuple[str, ...] = field(default=(), kw_only=True)
    """Notes for any plan on how the model was captured."""
    warnings: tuple[str, ...] = field(default=(), kw_only=True)
    """Warnings for any plan."""
    looped: frozenset[int] = field(default=frozenset(), kw_only=True)
    """The unit counts of loops whose bodies were captured once for each unit."""
    open_masks = False
    """Whether masks that are not given count as open."""
    repeats = False
    """Whether the operator that repeats heads stays in the written model, in front of attention too."""
    operators = OPERATORS | CONTROL
    ranges = RANGES

    def __post_init__(self) -> None:
        self.simulator = Simulator(self.source)

    def capture(self) -> Graph:
        """Return the neutral graph."""
        return capture(self.source, self)

    def edit(self, edit: HeadEdits) -> Self:
        """Return the model with counted heads, and with queries, keys and values taken apart."""
        clone = Clone.of(self.source)
        model = self.on(clone)
        unpack(clone, edit.packed)
        model.spreading += spread(edit, clone, inside=not self.repeats)
        return model

    def upcycle(self, mixtures: Sequence[Mixture]) -> ModelWithMixtures[Self]:
        """Return the model with mixtures of experts in place of networks."""
        return self.with_mixtures(mixtures)

    def with_mixtures(self, mixtures: Sequence[Mixture]) -> ModelWithMixtures[Self]:
        """Return the model with mixtures of experts in place of networks, without regard to its format."""
        clone = Clone.of(self.source)
        model = self.on(clone)
        for mixture in mixtures:
            replaced = set(insert(mixture, clone))
            model.fused = [one for one in model.fused if replaced.isdisjoint(one.lowering.nodes)]
        return ModelWithMixtures(model, clone.counterpart)

    def graft(self, template: Model, run: Run, span: Span) -> Model:
        """Return the model around the layers of a template. Raises GrowError (G309) if it cannot."""
        message = "layers can come from a template where both models are ONNX files"
        raise GrowError(Diagnostic("G309", message, span, help="export both, and grow the file"))

    def on(self, clone: Clone) -> Self:
        """Return the same model on a copy of its structure, with all scores kept."""
        model = copy(self)
        model.source, model.simulator = clone.model, self.simulator.on(clone.model)
        model.fused = [one.on(clone.value, clone.node) for one in self.fused]
        model.folded = [one.on(clone.value, clone.node) for one in self.folded]
        model.spreading = [*map(clone.node, self.spreading)]
        return model

    def rearrange(
        self, graph: Graph, layers: Layers, orders: Mapping[int, Sequence[ResultLayer]]
    ) -> Rearranged[Self]:
        """Return the model with other layers."""
        clone = Clone.of(self.source)
        model = self.on(clone)
        rebuilt = rebuild(graph, layers, orders, clone, model.folded, model.remember)
        placed = [p.values for run in rebuilt.runs for p in run if p.values]
        model.fused = [
            one for fused in model.fused for one in fused.copies(placed, rebuilt.gone, rebuilt.data)
        ]
        model.folded, model.spreading = [], counting(model.source)
        return Rearranged(model, rebuilt.renamed, rebuilt.layers)

    @abstractmethod
    def remember(self, nodes: Iterable[ir.Node]) -> None:
        """Keep the source's form of nodes that are about to change."""

    @abstractmethod
    def file(self, path: Path) -> Path:
        """Return the file that onnxruntime runs."""

    @abstractmethod
    def files(self, path: Path) -> list[Path]:
        """Return the files that decide what the model computes."""

    def fault(self, path: Path) -> str:
        """Return why the file itself is not valid; an empty string if it is, or if that is not known."""
        return ""

    def knows(self, op: str) -> bool:
        """Whether an operator has a row in the table."""
        return op in self.operators

    def line(self, node: Node, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> Line:
        """Return the line of a node's operator at these operands and results; opaque if it has no row."""
        site = Site(node, tuple(inputs), tuple(outputs), int(self.simulator.opsets.get("", 1)))
        return self.operators[node.op].line(site) if node.op in self.operators else opaque(site)

    def outermost(self, node: Node) -> bool:
        """Whether a node lies in no body."""
        return isinstance(node.origin, ir.Node) and node.origin.graph is self.source.graph

    def evaluate(self, node: Node, operands: Sequence[Array | None]) -> Sequence[Array] | None:
        """Return the results of a node at these operands; None if growc cannot compute them."""
        alike = self.simulator.alike(node, {}, len(operands), "")
        return self.simulator.evaluate(node, alike, list(operands))

    def simulate(self, graph: Graph) -> Sampled:
        """Set the sizes and known values of a graph. Raises GrowError (G311) if its sizes contradict."""
        try:
            inputs, simulation, several = settle(graph, self.simulator)
        except ContradictionError as failure:
            node = failure.node
            message = f"the sizes of the model contradict each other at `{node.name or node.op}` ({node.op})"
            raise GrowError(Diagnostic("G311", message, notes=(failure.message,))) from failure
        for value in graph.values():
            value.sizes, value.known = simulation.sizes.get(value), simulation.known.get(value)
            kind = simulation.types.get(value)
            value.floating = kind is None or kind in REAL | COMPLEX
            value.dtype = "" if kind is None else dtype_name(ir.DataType(kind))
        return Sampled(inputs, dict(simulation.counts), behind(several))

    def sizes_at(
        self, graph: Graph, inputs: Mapping[Value, tuple[Size, ...] | None], counts: Mapping[Value, Size]
    ) -> Mapping[Value, tuple[Size, ...] | None]:
        """Return the sizes of all values at other sizes of the inputs; empty if these contradict."""
        try:
            return simulate(graph, self.simulator, inputs, counts, most=MAX_ELEMENTS).sizes
        except ContradictionError:
            return {}

    def repair(
        self,
        axes: Axes,
        sampled: Sampled,
        resize: Callable[[Space], Size],
        taken: ExpertRemoval,
    ) -> Repairs:
        """Adapt all shape operands and attributes to the sizes of the result."""
        return ShapeRepair(axes, self.simulator, resize, taken).run(sampled)

    def put_back(self, assembled: Assembled) -> Assembled:
        """Return a plan's stored tensors, with changed computed weights made of their own stored tensors."""
        return assembled

    def fit_config(self, c: Result) -> Result:
        """Return a compilation with all that stores its result, if that is more than the graph itself."""
        return c


def opened(graph: Graph) -> IrModel:
    """Return the model that a graph was captured from."""
    assert isinstance(graph.dialect, IrModel), "every dialect is one of onnx-ir by now"
    return graph.dialect


@dataclass
class OnnxModel(IrModel):
    """An open ONNX file."""

    __repr__ = brief

    def __post_init__(self) -> None:
        super().__post_init__()
        part(self.source)

    def graft(self, template: Model, run: Run, span: Span) -> Model:
        """Return the model around the layers of a template. Raises GrowError: G309 or G314 if it cannot."""
        if not isinstance(template, OnnxModel) or self.fused or template.fused:
            return super().graft(template, run, span)
        return template.on(graft(self.source, template.source, run, span))

    @staticmethod
    def open(path: Path) -> OnnxModel:
        """Open an ONNX file. Raises GrowError (G310) if it cannot be read."""
        return OnnxModel(load(path))

    def remember(self, nodes: Iterable[ir.Node]) -> None:
        """Do nothing: a file is written from the nodes as they are now."""

    def file(self, path: Path) -> Path:
        """Return the file that onnxruntime runs: the model's own."""
        return path

    def files(self, path: Path) -> list[Path]:
        """Return the files that decide what the model computes."""
        return files_of(path)

    def fault(self, path: Path) -> str:
        """Return the complaint of onnx's checker, or an empty string."""
        from growc.dialects.onnx.files.checker import fault_of

        return fault_of(path)
