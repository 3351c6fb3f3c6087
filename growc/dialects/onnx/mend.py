"""After the weights change, every size is accounted for: the new graph is simulated and mended at the consumer.

Needs: the source graph, the new shape of every weight use, and the sizes that the spaces demand of every value.
Gives: `Mended`, patches of shape operands and attributes. Each node is evaluated again in topological order; where
its result differs from what is demanded, that node's own shape operand is replaced. What still differs is refused
(G308), so no number is touched because it happens to equal a size, and none is overlooked. A real number that is
computed from sizes at run time (a score scale) keeps the source's value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from growc.axes import Space, find
from growc.diagnostic import Diagnostic, GrowError
from growc.dialects.onnx.simulate import Contradiction, Simulation, Simulator, simulate
from growc.graph import Array, Graph, Node, Size, Value
from growc.operators import Term, labels
from growc.passes.spaces import Axes, Instance

Entries = tuple[int | None, ...]
"""A shape operand: a number, or None for the element that stood there."""


@dataclass
class Patch:
    """Changed operands (by number) and attributes (None: dropped) of one node."""

    operands: dict[int, Entries] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Mended:
    """What must change besides weights. `constants`: run-time numbers that keep the source's value."""

    patches: dict[Node, Patch] = field(default_factory=dict)
    constants: dict[Value, Array] = field(default_factory=dict)
    sizes: dict[Value, tuple[Size, ...] | None] = field(default_factory=dict)


def mend(
    axes: Axes,
    simulator: Simulator,
    inputs: Mapping[Value, tuple[Size, ...] | None],
    resize: Callable[[Space], Size],
) -> Mended:
    """Simulate the result and mend it; `resize` gives the new size of a space.

    Raises GrowError (G308) naming the node that cannot be accounted for.
    """
    return _Mender(axes, simulator, resize).run(inputs)


class _Mender:
    def __init__(self, axes: Axes, simulator: Simulator, resize: Callable[[Space], Size]) -> None:
        self.axes, self.simulator, self.resize = axes, simulator, resize
        self.instances = {i.node: i for i in axes.instances}
        self.done = Mended()

    def demand(self, value: Value) -> tuple[Size, ...] | None:
        """The sizes that the spaces demand of a value."""
        return None if value.sizes is None else tuple(self.resize(s) for s in self.axes.of(value))

    def weight_shape(self, use: Value) -> tuple[int, ...]:
        return tuple(self.resize(s)[0] for s in self.axes.of(use))

    def run(self, inputs: Mapping[Value, tuple[Size, ...] | None]) -> Mended:
        graph: Graph = self.axes.graph
        try:
            after = simulate(graph, self.simulator, inputs, weight_shape=self.weight_shape, visit=self.visit)
        except Contradiction as found:
            raise self.refusal(found.node, found.message) from found
        self.done.sizes = after.sizes
        return self.done

    def refusal(self, node: Node, message: str) -> GrowError:
        label = node.name or node.op
        return GrowError(
            Diagnostic(
                "G308",
                f"the size of `{label}` ({node.op}) cannot be accounted for after the change",
                notes=(message,),
                help="this is a limit of growc, not of the model: please report the graph around this node",
            )
        )

    def visit(self, node: Node, sim: Simulation, run: Callable[..., None]) -> None:
        instance = self.instances.get(node)
        if instance is None:
            self.shape_arithmetic(node, sim, run)
            return
        if self.fits(node, sim, run, Patch()):
            return
        for patch in self.candidates(instance, sim):
            if self.fits(node, sim, run, patch):
                self.done.patches[node] = patch
                return
        wanted = [self.demand(o) for o in node.outputs]
        raise self.refusal(node, f"its result should have {_spell(wanted)}, but has {_spell(map(sim.sizes.get, node.outputs))}")

    def fits(self, node: Node, sim: Simulation, run: Callable[..., None], patch: Patch) -> bool:
        operands = {}
        for i, entries in patch.operands.items():
            made = self.operand(node, i, entries, sim)
            if made is None:
                return False
            operands[i] = made
        try:
            run(operands=operands, attributes=patch.attributes)
        except Contradiction:
            return False
        for out in node.outputs:
            wanted = self.demand(out)
            if wanted is not None and sim.sizes.get(out) != wanted:
                return False
        self.keep_numbers(node, sim)
        return True

    @staticmethod
    def operand(node: Node, i: int, entries: Entries, sim: Simulation) -> tuple[Array, ...] | None:
        value = node.input(i)
        old = sim.known.get(value) if value is not None else None
        found = []
        for point in range(sim.points):
            row = []
            for k, entry in enumerate(entries):
                if entry is None and (old is None or k >= old[point].size):
                    return None
                row.append(int(np.atleast_1d(old[point])[k]) if entry is None and old is not None else entry)
            scalar = old is not None and old[point].ndim == 0
            found.append(np.asarray(row[0] if scalar else row, dtype=np.int64))
        return tuple(found)

    # ---------------------------------------------------------------- numbers

    def shape_arithmetic(self, node: Node, sim: Simulation, run: Callable[..., None]) -> None:
        try:
            run()
        except Contradiction:
            for out in node.outputs:
                sim.sizes[out] = None
            return
        self.keep_numbers(node, sim)

    def keep_numbers(self, node: Node, sim: Simulation) -> None:
        """Reals computed from sizes: the source's value stays."""
        for out in node.outputs:
            before, after = out.known, sim.known.get(out)
            if before is None or after is None or before[0].dtype.kind != "f":
                continue
            same = all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(before, after, strict=True))
            if not same and all(np.array_equal(b, before[0]) for b in before) and before[0].shape == after[0].shape:
                sim.known[out] = before
                self.done.constants[out] = before[0]

    # ---------------------------------------------------------------- candidates

    def candidates(self, instance: Instance, sim: Simulation) -> list[Patch]:
        node = instance.node
        rule = {
            "Reshape": self.shape_operand,
            "Expand": self.shape_operand,
            "ConstantOfShape": self.shape_operand,
            "Split": self.split,
            "Slice": self.slice,
            "Gather": self.gather,
            "Tile": self.tile,
            "Conv": self.group,
            "ConvTranspose": self.group,
        }.get(node.op)
        return [] if rule is None else rule(instance, sim)

    def shape_operand(self, instance: Instance, sim: Simulation) -> list[Patch]:
        """Keep what is right, write what is static, leave at most one dimension to -1."""
        node = instance.node
        i = 0 if node.op == "ConstantOfShape" else 1
        wanted, value = self.demand(node.outputs[0]), node.input(i)
        if wanted is None or value is None:
            return []
        old = sim.known.get(value)
        source = sim.sizes.get(node.inputs[0]) if i and node.inputs[0] is not None else None
        zero_copies = node.op == "Reshape" and not node.attributes.get("allowzero", 0)
        entries: list[int | None] = []
        for axis, size in enumerate(wanted):
            now = None if old is None else tuple(int(o[axis]) if axis < o.size else -2 for o in old)
            copied = zero_copies and now is not None and not any(now) and source is not None and source[axis : axis + 1] == (size,)
            if now == size or copied:
                entries.append(None)
            elif len(set(size)) == 1:
                entries.append(size[0])
            else:
                entries.append(-1)
        if node.op != "Reshape" and -1 in entries or entries.count(-1) > 1:
            return []
        patches = [Patch({i: tuple(entries)})]
        kept = [k for k, e in enumerate(entries) if e is None]
        dynamic = [k for k in kept if len(set(wanted[k])) > 1]
        if node.op == "Reshape" and len(dynamic) <= 1 and -1 not in entries:
            fixed = tuple(-1 if k in dynamic else wanted[k][0] for k in range(len(entries)))
            patches.insert(0, Patch({i: fixed}))
        return patches

    def parts(self, node: Node, outputs: Sequence[Value], axis: int) -> list[int]:
        return [(self.demand(o) or ())[axis][0] for o in outputs]

    def split(self, instance: Instance, sim: Simulation) -> list[Patch]:
        node = instance.node
        axis = int(node.attributes.get("axis", 0)) % max(node.outputs[0].rank, 1)
        sizes = tuple(self.parts(node, node.outputs, axis))
        if "split" in node.attributes or self.simulator.opsets.get("", 13) < 13:
            return [Patch({}, {"split": list(sizes)})]
        return [Patch({1: sizes}, {"num_outputs": None} if "num_outputs" in node.attributes else {})]

    def slice(self, instance: Instance, sim: Simulation) -> list[Patch]:
        """New bounds of static cuts: the sizes of the segments in front and inside."""
        node, line = instance.node, instance.line
        data = node.inputs[0]
        assert data is not None
        cuts = {a: self.cut(instance, line.inputs[0], a) for a in range(data.rank)}
        if "starts" in node.attributes:
            order = node.attributes.get("axes") or range(len(node.attributes["starts"]))
            starts, ends = list(node.attributes["starts"]), list(node.attributes["ends"])
            for k, a in enumerate(order):
                if cuts[a % data.rank] is not None:
                    starts[k], ends[k] = cuts[a % data.rank]  # type: ignore[misc]
            return [Patch({}, {"starts": starts, "ends": ends})]
        operands = [sim.known.get(v) if (v := node.input(k)) is not None else None for k in (1, 2, 3)]
        if operands[0] is None or operands[1] is None:
            return []
        count = operands[0][0].size
        axes = range(count) if operands[2] is None else [int(a) % data.rank for a in np.atleast_1d(operands[2][0])]
        found = [cuts[a] for a in axes]
        return [Patch({1: tuple(c[0] if c else None for c in found), 2: tuple(c[1] if c else None for c in found)})]

    def cut(self, instance: Instance, terms: Sequence[Term] | None, axis: int) -> tuple[int, int] | None:
        """(start, end) of the segment labelled y in the term of an axis, in new sizes."""
        term = (terms or ())[axis]
        if not any(n.startswith("y") for n in labels(term)) or isinstance(term, tuple) and term[0] == "*":
            return None
        start = 0
        for name in labels(term):
            size = self.new_size(instance, name)
            if name.startswith("y"):
                return start, start + size
            start += size
        return None

    def new_size(self, instance: Instance, name: str) -> int:
        return self.resize(find(instance.spaces[name]))[0]


    def gather(self, instance: Instance, sim: Simulation) -> list[Patch]:
        node = instance.node
        data, index = node.inputs[0], node.inputs[1]
        assert data is not None and index is not None
        axis = int(node.attributes.get("axis", 0)) % data.rank
        cut = self.cut(instance, instance.line.inputs[0], axis)
        if cut is not None:
            scalar = index.rank == 0
            return [Patch({1: (cut[0],) if scalar else tuple(range(*cut))})]
        if (instance.line.inputs[0] or ())[axis] == (instance.line.outputs[0] or ())[axis] and index.rank == 1:
            return [Patch({1: tuple(range((self.demand(data) or ())[axis][0]))})]
        return []

    def tile(self, instance: Instance, sim: Simulation) -> list[Patch]:
        node = instance.node
        wanted, source = self.demand(node.outputs[0]), sim.sizes.get(node.inputs[0])  # type: ignore[arg-type]
        if wanted is None or source is None:
            return []
        repeats = [{w // s for w, s in zip(a, b, strict=True) if s} for a, b in zip(wanted, source, strict=True)]
        return [Patch({1: tuple(r.pop() if len(r) == 1 else None for r in repeats)})]

    def group(self, instance: Instance, sim: Simulation) -> list[Patch]:
        if "g" not in instance.spaces:
            return []
        return [Patch({}, {"group": self.new_size(instance, "g")})]


def _spell(shapes: Any) -> str:
    return ", ".join("unknown" if s is None else "[" + ", ".join(str(d[0]) for d in s) + "]" for s in shapes)

