"""Repair of sizes: the new graph is simulated after the weights change, and repaired where sizes are read.

Needs: the source graph, the new shape of every weight use, and the sizes that the spaces demand of every
value. Gives: `Repairs`, patches of shape operands and attributes.

Each node is evaluated again in topological order. If its result differs from the demand, the node's own shape
operand is replaced. Remaining differences are refused (G308). So no number is changed because it happens to
equal a size, and none is overlooked. A real number that is computed from sizes at run time (a score scale)
keeps the source's value. Sizes that are equal at the sample points are equal, except behind comparisons and
bounds of sizes, which may change between the points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from growc.algebra.indexmap import Array
from growc.algebra.space import Size, Space, leaves
from growc.dialects.onnx.capture.fused_ops import MULTIPLE
from growc.dialects.onnx.capture.inline_control_flow import InlinedNode
from growc.dialects.onnx.repair import count_attributes as counts
from growc.dialects.onnx.repair import shape_operands as cuts
from growc.dialects.onnx.repair.asked_numbers import asked_numbers
from growc.dialects.onnx.repair.listed_sizes import listed
from growc.dialects.onnx.repair.patch import (
    Demands,
    changed_operand,
    leaves_doubt,
    loses_remainder,
    refusal,
    stands_for,
)
from growc.dialects.onnx.shapes.simulate import simulate
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.dialects.onnx.shapes.simulator import ContradictionError, Simulator
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Graph, Node, Value
from growc.ir.traits import SIZES
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.unstacked_experts import ExpertRemoval
from growc.passes.edits import Patch, Repairs, Sampled


class ShapeRepair:
    """The simulation of the result, with repairs. `resize` returns the new size of a space."""

    def __init__(
        self, axes: Axes, simulator: Simulator, resize: Callable[[Space], Size], taken: ExpertRemoval
    ) -> None:
        self.axes, self.simulator = axes, simulator
        self.wants = Demands(axes, resize, simulator.opsets)
        self.instances = {i.node: i for i in axes.instances}
        self.asked = asked_numbers(axes, self.wants)
        self.done = Repairs(taken)
        self.resized: set[Value] = set()
        """Lists of numbers that count up to a changed size, and are too long to be known."""
        self.unsure: set[Value] = set()
        """Numbers that compare or bound changed sizes; they may differ between the sample points."""
        self.merged: frozenset[Value] = frozenset()
        """Values whose numbers may differ elsewhere, even if they are the same at all sample points."""

    @cached_property
    def stored(self) -> set[Space]:
        """The atoms of weights."""
        axes = self.axes
        return {x for use in axes.graph.uses() for space in axes.of(use) for x in leaves(space)}

    def weight_shape(self, use: Value) -> tuple[int, ...]:
        """Return the shape of a stored tensor in the result."""
        return tuple(self.wants.resize(s)[0] for s in self.axes.of(use))

    def run(self, sampled: Sampled) -> Repairs:
        """Return all repairs. Raises GrowError (G308) naming the node that cannot be accounted for."""
        graph: Graph = self.axes.graph
        self.merged = sampled.merged
        # states change with the outputs that carry them on
        grown = {v: self.wants.demand(v) for v in sampled.inputs}
        try:
            after = simulate(
                graph, self.simulator, grown, sampled.counts, weight_shape=self.weight_shape, visit=self.visit
            )
        except ContradictionError as contradiction:
            raise refusal(contradiction.node, contradiction.message) from contradiction
        for value in graph.outputs:
            if _has_other_numbers(value, after) and value.producer is not None:
                raise refusal(value.producer, f"the output `{value.name}` is computed from sizes that change")
        self.done.sizes = after.sizes
        return self.done

    def visit(self, node: Node, sim: Simulation, run: Callable[..., None]) -> None:
        """Run a node with a patch that gives its results the demanded sizes. Raises GrowError (G308)."""
        instance = self.instances.get(node)
        if self.is_taken(node):
            operand = node.inputs[next(iter(self.done.taken.left.get(node, (0,))))]
            sim.sizes.update((out, self.wants.demand(out)) for out in node.outputs)
            if operand in sim.types:
                sim.types.update(dict.fromkeys(node.outputs, sim.types[operand]))
            return
        if instance is None or all(o.sizes is None for o in node.outputs):
            self.shape_arithmetic(node, sim, run)
            return
        self.agreed(node, sim)
        first = self.required(instance, sim)
        if self.repaired(node, sim, run, first):
            self.demanded(node, sim)
            return
        wanted = [self.wants.demand(o) for o in node.outputs]
        sizes = map(sim.sizes.get, node.outputs)
        raise refusal(node, f"its result should have {_spell(wanted)}, but has {_spell(sizes)}")

    def wanted(self, value: Value) -> tuple[Size, ...] | None:
        """Return the sizes that a value is to have."""
        return self.asked.get(value) or self.wants.demand(value)

    def may_vary(self, value: Value, k: int) -> bool:
        """Whether an element of a list of sizes may differ elsewhere from its value at the sample points.

        It may if it depends on a node that makes one size of several, unless it is the size of a weight's
        axis.
        """
        element, at = stands_for(value, k)
        node = element.producer
        if element not in self.merged or node is None or not node.has(SIZES) or element.rank != 1:
            return element in self.merged
        shown = self.axes.of(node.required(0))[node.integer("start", 0) + at]
        return not self.stored.issuperset(leaves(shown))

    def agreed(self, node: Node, sim: Simulation) -> None:
        """Raise GrowError (G308) if numbers that nothing else sizes lack the size that a reader demands."""
        for i, value in enumerate(node.inputs):
            if value is None or value not in self.asked:
                continue
            wanted, sizes = self.asked[value], sim.sizes.get(value)
            if sizes is not None and wanted != sizes:
                difference = f"should have {_spell([wanted])}, but has {_spell([sizes])}"
                raise refusal(node, f"its operand {i} {difference}")

    def repaired(self, node: Node, sim: Simulation, run: Callable[..., None], first: Patch) -> bool:
        """Whether a patch of the node's sizes, merged with `first`, gives its results the demanded sizes."""
        for patch in self.patches(node, sim, first):
            if self.fits(node, sim, run, patch):
                if patch.operands or patch.attributes or patch.op:
                    self.done.patches[node] = patch
                return True
        return False

    def patches(self, node: Node, sim: Simulation, first: Patch) -> Iterator[Patch]:
        """Yield `first`, then the same with each patch of the sizes that the node lists."""
        yield first
        yield from map(first.merged, self.shape_operand(node, sim))

    def demanded(self, node: Node, sim: Simulation) -> None:
        """Raise GrowError (G308) if onnxruntime cannot run the file's operator on a changed size."""
        multiple = node.integer(MULTIPLE, 1)
        for value in node.inputs[:3] if multiple > 1 else ():
            before, after = (None, None) if value is None else (value.sizes, sim.sizes.get(value))
            if before and after and before[-1] != after[-1] and any(n % multiple for n in after[-1]):
                message = (
                    f"`{node.name or node.kind}` ({node.kind}) cannot run on {after[-1][0]} channels a head"
                )
                note = f"onnxruntime takes a multiple of {multiple} channels there"
                remedy = f"ask for a multiple of {multiple}"
                raise GrowError(Diagnostic("G308", message, notes=(note,), help=remedy))

    def is_taken(self, node: Node) -> bool:
        """Whether a node's results are known without running it: it is removed, or reads another place."""
        taken = self.done.taken
        return node in taken.dead or node in taken.left or (node.op == "Split" and node in taken.numbers)

    def required(self, instance: LineInstance, sim: Simulation) -> Patch:
        """Return the patch that is needed whether or not the sizes come out right: cuts and counts.

        Any other number that the node reads keeps the source's value, even if it is computed from sizes.
        Raises GrowError (G308) if it cannot keep it.
        """
        node = instance.node
        sized = all(v is None or v.sizes is not None for v in node.inputs)
        rule = _PLACES.get(node.op) if sized else None  # the rules need axes
        if node in self.axes.cuts:
            patch = cuts.numbered(node, self.done.taken.numbers.get(node))
        elif node in self.done.taken.constants:
            patch = Patch({1: self.done.taken.constants[node]})
        else:
            patch = Patch() if rule is None else rule(self.wants, instance, sim)
        step = node.origin if isinstance(node.origin, InlinedNode) else None
        for i, value in enumerate(node.inputs):
            unsure = value in self.unsure and i != node.laws.shape
            if (unsure or value in self.resized) and i not in patch.judged:
                if instance.line.treatment != "layout":
                    raise refusal(node, f"its operand {i} is computed from sizes that change")
                self.resized.update(node.outputs)
            if (
                patch.op
                or value is None
                or value.known is None
                or i in patch.operands
                or i in patch.judged
                or i == node.laws.shape  # judged by the result
                or (step is not None and i not in step.deciding)  # the result of a body only passes through
                or (value.weight is not None and sim.sizes.get(value) != value.sizes)  # by plan
            ):
                continue
            after = sim.known.get(value)
            if after is not None and all(
                np.array_equal(a, b) for a, b in zip(value.known, after, strict=True)
            ):
                continue
            before = value.known[0]
            if _alike(value, after) and sim.sizes.get(value) == self.wants.demand(value):
                continue
            if instance.line.treatment == "layout" and after is not None and before.shape != after[0].shape:
                self.resized.update(node.outputs)
                continue
            if (
                step is not None
                or before.dtype.kind not in "iu"
                or before.ndim > 1
                or not all(np.array_equal(k, before) for k in value.known)
            ):
                raise refusal(node, f"its operand {i} is computed from sizes that change")
            patch.operands[i] = tuple(int(k) for k in np.atleast_1d(before))
        return patch

    def fits(self, node: Node, sim: Simulation, run: Callable[..., None], patch: Patch) -> bool:
        """Whether the results of a node with this patch have the demanded sizes."""
        operands = {}
        for i in patch.operands:
            operand = changed_operand(patch, node, i, sim)
            if operand is None:
                return False
            operands[i] = operand
        try:
            run(operands=operands, attributes=patch.attributes, op=patch.op)
        except ContradictionError:
            return False
        for out in node.outputs:
            wanted = self.wanted(out)
            if wanted is not None and sim.sizes.get(out) != wanted:
                return False
        self.keep_numbers(node, sim)
        return True

    # ---------------------------------------------------------------- numbers

    def shape_arithmetic(self, node: Node, sim: Simulation, run: Callable[..., None]) -> None:
        """Run a node without demands, except those of readers on numbers that it lays out."""
        lays = node.laws.shape is not None and not self.asked.keys().isdisjoint(node.outputs)
        if lays and self.repaired(node, sim, run, Patch()):
            return
        try:
            run()
        except ContradictionError:
            for out in node.outputs:
                sim.sizes[out] = None
            return
        if loses_remainder(node, sim):
            sim.known.pop(node.outputs[0], None)
        if any(v in self.unsure for v in node.inputs) or leaves_doubt(node, sim):
            self.unsure.update(node.outputs)
        self.keep_numbers(node, sim)

    def keep_numbers(self, node: Node, sim: Simulation) -> None:
        """Keep the source's value of real numbers computed from sizes."""
        for out in node.outputs:
            before, after = out.known, sim.known.get(out)
            if before is None or after is None or before[0].dtype.kind != "f":
                continue
            same = all(
                a.shape == b.shape and np.array_equal(a, b) for a, b in zip(before, after, strict=True)
            )
            if (
                not same
                and all(np.array_equal(b, before[0]) for b in before)
                and before[0].shape == after[0].shape
            ):
                sim.known[out] = before
                self.done.constants[out] = before[0]

    # ---------------------------------------------------------------- candidates

    def shape_operand(self, node: Node, sim: Simulation) -> list[Patch]:
        """Return patches by which a node lists the sizes that its result is to have."""
        i = node.laws.shape
        wanted, value = self.wanted(node.outputs[0]), None if i is None else node.input(i)
        if i is None and (patch := cuts.as_reshape(self.wants, node, sim)) is not None:
            return [patch]
        if i is None or wanted is None or value is None:
            return []
        return listed(node, value, wanted, sim, partial(self.may_vary, value))


_PLACES: dict[str, Callable[[Demands, LineInstance, Simulation], Patch]] = {
    **dict.fromkeys(counts.COUNTS, counts.count),
    "Split": cuts.split,
    "Slice": cuts.slice_,
    "Gather": cuts.gather,
    "GatherND": cuts.gather,
    "Tile": cuts.tile,
    "ScatterND": cuts.scatter,
    "Pad": cuts.pad,
    "OneHot": cuts.depth,
    "TopK": cuts.chosen,
    "Equal": cuts.numbers_of_all,
    "growc::SplitPacked": counts.packed,
    "growc::Attention": counts.scale,
}
"""The rules for cuts and counts, by operator."""


def _alike(value: Value, after: Sequence[Array] | None) -> bool:
    """Whether numbers are the same after the change, apart from repeats along an axis."""
    if after is None:
        return value.producer is not None and value.producer.op == "ConstantOfShape"
    return all(map(_repeats, value.known or (), after))


def _repeats(one: Array, other: Array) -> bool:
    """Whether two arrays are equal except along axes of other sizes, along which each has one number."""
    if one.ndim != other.ndim or not one.size or not other.size:
        return one.ndim == other.ndim and one.size == other.size  # no number is in either
    first = tuple(slice(1) if m != n else slice(None) for m, n in zip(one.shape, other.shape, strict=True))
    same = np.array_equal(one[first], other[first])
    return same and all(bool((a == a[first]).all()) for a in (one, other))


def _has_other_numbers(value: Value, sim: Simulation) -> bool:
    """Whether a computed value, of the same shape, has other numbers at some sample point."""
    before, after = value.known or (), sim.known.get(value, ())
    pairs = zip(before, after, strict=False)
    return value.weight is None and any(a.shape == b.shape and not np.array_equal(a, b) for a, b in pairs)


def _spell(shapes: Any) -> str:
    return ", ".join("unknown" if s is None else "[" + ", ".join(str(d[0]) for d in s) + "]" for s in shapes)
