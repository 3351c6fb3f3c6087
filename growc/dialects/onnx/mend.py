"""After the weights change, every size is accounted for: the new graph is simulated and mended at the
consumer.

Needs: the source graph, the new shape of every weight use, and the sizes that the spaces demand of every
value. Gives: `Mended`, patches of shape operands and attributes. Each node is evaluated again in topological
order; where its result differs from what is demanded, that node's own shape operand is replaced. What still
differs is refused (G308), so no number is touched because it happens to equal a size, and none is overlooked.
A real number that is computed from sizes at run time (a score scale) keeps the source's value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from growc.axes import Space, find
from growc.diagnostic import Diagnostic, GrowError
from growc.dialects.onnx.flatten import Step
from growc.dialects.onnx.grids import counted
from growc.dialects.onnx.patches import Entries, Part, Patch, loses_remainder, part_of
from growc.dialects.onnx.simulate import Contradiction, Simulation, Simulator, simulate
from growc.graph import Array, Graph, Node, Size, Value
from growc.operators import labels
from growc.passes.spaces import Axes, Instance


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
        self.resized: set[Value] = set()
        """Numbers that are counted up to a size that changes, once they are too many to be known."""

    def demand(self, value: Value) -> tuple[Size, ...] | None:
        """The sizes that the spaces demand of a value."""
        return None if value.sizes is None else tuple(self.resize(s) for s in self.axes.of(value))

    def weight_shape(self, use: Value) -> tuple[int, ...]:
        return tuple(self.resize(s)[0] for s in self.axes.of(use))

    def run(self, inputs: Mapping[Value, tuple[Size, ...] | None]) -> Mended:
        graph: Graph = self.axes.graph
        grown = {v: self.demand(v) for v in inputs}  # states grow with the outputs that carry them on
        try:
            after = simulate(graph, self.simulator, grown, weight_shape=self.weight_shape, visit=self.visit)
        except Contradiction as found:
            raise self.refusal(found.node, found.message) from found
        self.done.sizes = after.sizes
        return self.done

    def refusal(self, node: Node, message: str) -> GrowError:
        label = node.name or node.kind
        return GrowError(
            Diagnostic(
                "G308",
                f"the size of `{label}` ({node.kind}) cannot be accounted for after the change",
                notes=(message,),
                help="this is a limit of growc, not of the model: please report the graph around this node",
            )
        )

    def visit(self, node: Node, sim: Simulation, run: Callable[..., None]) -> None:
        instance = self.instances.get(node)
        if instance is None or all(o.sizes is None for o in node.outputs):
            self.shape_arithmetic(node, sim, run)
            return
        first = self.required(instance, sim)
        for patch in [first, *(first.merged(p) for p in self.candidates(instance, sim))]:
            if self.fits(node, sim, run, patch):
                if patch.operands or patch.attributes or patch.op:
                    self.done.patches[node] = patch
                return
        wanted = [self.demand(o) for o in node.outputs]
        found = map(sim.sizes.get, node.outputs)
        raise self.refusal(node, f"its result should have {_spell(wanted)}, but has {_spell(found)}")

    def required(self, instance: Instance, sim: Simulation) -> Patch:
        """What must hold whether or not the sizes come out right: where cuts are made, and how many groups
        there are.

        Any other number that the node reads keeps the source's value, though it may be computed from sizes.
        """
        node = instance.node
        rule = _PLACES.get(node.op)
        patch = Patch() if rule is None else rule(self, instance, sim)
        for i, value in enumerate(node.inputs):
            if value in self.resized and i not in patch.judged:
                if instance.line.treatment != "layout":
                    raise self.refusal(node, f"its operand {i} is computed from sizes that change")
                self.resized.update(node.outputs)
            if (
                patch.op
                or value is None
                or value.known is None
                or i in patch.operands
                or i in patch.judged
                or i in _SIZES.get(node.op, ())
                or isinstance(node.origin, Step)  # the result of a body only passes through
                or (value.weight is not None and sim.sizes.get(value) != value.sizes)  # by plan
            ):
                continue
            after = sim.known.get(value)
            if after is not None and all(
                np.array_equal(a, b) for a, b in zip(value.known, after, strict=True)
            ):
                continue
            before = value.known[0]
            if instance.line.treatment == "layout" and after is not None and before.shape != after[0].shape:
                self.resized.update(node.outputs)
                continue
            if (
                before.dtype.kind not in "iu"
                or before.ndim > 1
                or any((k != before).any() for k in value.known)
            ):
                raise self.refusal(node, f"its operand {i} is computed from sizes that change")
            patch.operands[i] = tuple(int(k) for k in np.atleast_1d(before))
        return patch

    def fits(self, node: Node, sim: Simulation, run: Callable[..., None], patch: Patch) -> bool:
        operands = {}
        for i in patch.operands:
            made = patch.operand(node, i, sim)
            if made is None:
                return False
            operands[i] = made
        try:
            run(operands=operands, attributes=patch.attributes, op=patch.op)
        except Contradiction:
            return False
        for out in node.outputs:
            wanted = self.demand(out)
            if wanted is not None and sim.sizes.get(out) != wanted:
                return False
        self.keep_numbers(node, sim)
        return True

    # ---------------------------------------------------------------- numbers

    def shape_arithmetic(self, node: Node, sim: Simulation, run: Callable[..., None]) -> None:
        try:
            run()
        except Contradiction:
            for out in node.outputs:
                sim.sizes[out] = None
            return
        if loses_remainder(node, sim):
            sim.known.pop(node.outputs[0], None)
        self.keep_numbers(node, sim)

    def keep_numbers(self, node: Node, sim: Simulation) -> None:
        """Reals computed from sizes: the source's value stays."""
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

    def candidates(self, instance: Instance, sim: Simulation) -> list[Patch]:
        return self.shape_operand(instance, sim) if instance.node.op in _SIZES else []

    def shape_operand(self, instance: Instance, sim: Simulation) -> list[Patch]:
        """Keep what is right, write what is static, leave at most one dimension to -1."""
        node = instance.node
        i = {"ConstantOfShape": 0, "Resize": 3}.get(node.op, 1)
        wanted, value = self.demand(node.outputs[0]), node.input(i)
        if wanted is None or value is None:
            return []
        old = sim.known.get(value)
        source = sim.sizes.get(node.inputs[0]) if i and node.inputs[0] is not None else None
        zero_copies = node.op == "Reshape" and not node.attributes.get("allowzero", 0)
        entries: list[int | Part | None] = []
        for axis, size in enumerate(wanted):
            now = None if old is None else tuple(int(o[axis]) if axis < o.size else -2 for o in old)
            part = part_of(value, axis, size, sim)
            at = axis - len(wanted) + len(source or ())
            stays = source is not None and at >= 0 and source[at] == size
            if node.op == "Expand" and now is not None and set(now) == {1} and stays:
                entries.append(None)  # one: what is there stays
                continue
            copied = (
                zero_copies
                and now is not None
                and not any(now)
                and source is not None
                and source[axis : axis + 1] == (size,)
            )
            if copied:
                entries.append(0)
            elif now == size:
                entries.append(None)
            elif len(set(size)) == 1:
                entries.append(size[0])
            elif part is not None:
                entries.append(part)
            else:
                entries.append(-1)
        if (node.op != "Reshape" and -1 in entries) or entries.count(-1) > 1:
            return []
        patches = [Patch({i: tuple(entries)})]
        kept = [k for k, e in enumerate(entries) if e is None]
        dynamic = [k for k in kept if len(set(wanted[k])) > 1]
        if node.op == "Reshape" and len(dynamic) <= 1 and -1 not in entries:
            fixed = tuple(
                -1 if k in dynamic else 0 if e == 0 else wanted[k][0] for k, e in enumerate(entries)
            )
            patches.insert(0, Patch({i: fixed}))
        return patches

    def split(self, instance: Instance, sim: Simulation) -> Patch:
        node = instance.node
        axis = int(node.attributes.get("axis", 0)) % max(node.outputs[0].rank, 1)
        sizes = tuple((self.demand(o) or ())[axis][0] for o in node.outputs)
        even = len(set(sizes)) == 1 and "split" not in node.attributes and node.input(1) is None
        if even or sizes == tuple((o.sizes or ())[axis][0] for o in node.outputs):
            return Patch()
        if "split" in node.attributes or self.simulator.opsets.get("", 13) < 13:
            return Patch({}, {"split": list(sizes)})
        return Patch({1: sizes}, {"num_outputs": None} if "num_outputs" in node.attributes else {})

    def slice(self, instance: Instance, sim: Simulation) -> Patch:
        """Bounds of static cuts: the sizes of the segments in front and inside. Other bounds stay."""
        node, data = instance.node, instance.node.inputs[0]
        assert data is not None
        cuts = {a: self.cut(instance, a) for a in range(data.rank)}
        if "starts" in node.attributes:
            order = node.attributes.get("axes") or range(len(node.attributes["starts"]))
            starts, ends = list(node.attributes["starts"]), list(node.attributes["ends"])
            for k, a in enumerate(order):
                starts[k], ends[k] = cuts[a % data.rank] or (starts[k], ends[k])
            same = (starts, ends) == (list(node.attributes["starts"]), list(node.attributes["ends"]))
            return Patch() if same else Patch({}, {"starts": starts, "ends": ends})
        axes = node.input(3)
        count = (node.inputs[1].sizes or ((data.rank,),))[0][0] if node.inputs[1] is not None else data.rank
        order = (
            range(count)
            if axes is None or axes.known is None
            else [int(a) for a in np.atleast_1d(axes.known[0])]
        )
        bounds = {
            i: tuple(None if (c := cuts[a % data.rank]) is None else c[i - 1] for a in order) for i in (1, 2)
        }
        return self.judge(node, bounds, sim)

    def judge(self, node: Node, wanted: dict[int, tuple[int | None, ...]], sim: Simulation) -> Patch:
        """Operands that lack a wanted element are replaced; where nothing is wanted the source's number
        stays.
        """
        operands: dict[int, Entries] = {}
        for i, entries in wanted.items():
            value = node.input(i)
            known = None if value is None else value.known
            if known is not None and all(np.array_equal(k, known[0]) for k in known):
                row = np.atleast_1d(known[0])
                entries = tuple(int(row[k]) if e is None else e for k, e in enumerate(entries))
            if not self.holds(node, i, entries, sim):
                operands[i] = entries
        settled = (
            i for i, entries in wanted.items() if i not in operands and any(e is not None for e in entries)
        )
        return Patch(operands, judged=tuple(settled))

    def holds(self, node: Node, i: int, wanted: tuple[int | None, ...], sim: Simulation) -> bool:
        """Whether operand i has the wanted elements after the change already; None: any."""
        value = node.input(i)
        after = None if value is None else sim.known.get(value)
        if after is None:
            return all(w is None for w in wanted)
        rows = [np.atleast_1d(a) for a in after]
        return all(w is None or (k < r.size and int(r[k]) == w) for r in rows for k, w in enumerate(wanted))

    def cut(self, instance: Instance, axis: int) -> tuple[int, int] | None:
        """(start, end) in new sizes of the segment that is taken from an axis (its label begins with y)."""
        term = (instance.line.inputs[0] or ())[axis]
        if not isinstance(term, tuple) or term[0] != "+":
            return None
        start = 0
        for name in labels(term):
            size = self.resize(find(instance.spaces[name]))[0]
            if name.startswith("y"):
                return start, start + size
            start += size
        return None

    def gather(self, instance: Instance, sim: Simulation) -> Patch:
        node, data, index = instance.node, instance.node.inputs[0], instance.node.inputs[1]
        assert data is not None
        assert index is not None
        alone = node.op == "Gather"  # a GatherND has its numbers in vectors of one element
        axis = int(node.attributes.get("axis", 0)) % data.rank
        cut, size = self.cut(instance, axis), (self.demand(data) or ())[axis]
        term, whole = (instance.line.inputs[0] or ())[axis], None
        if cut is None and term not in ("_", "#") and all(t == "_" for t in instance.line.inputs[1] or ()):
            return self.gather_all(node, index, size, sim)
        if cut is not None:
            whole = (cut[0],) if index.rank == 1 - alone else tuple(range(*cut))
        if whole is None:
            return Patch()
        return Patch(judged=(1,)) if self.same_index(index, whole, size, sim) else Patch({1: whole})

    def gather_all(self, node: Node, index: Value, size: Size, sim: Simulation) -> Patch:
        """Indices that counted over a whole axis and do no longer: the look-up becomes the reshape that it
        was.
        """
        after, wanted = sim.known.get(index), self.demand(node.outputs[0])
        counts = after is not None and all(
            k.size == n and (k.reshape(-1) == np.arange(n)).all() for k, n in zip(after, size, strict=True)
        )
        if counts and wanted is not None and sim.sizes.get(index) == index.sizes:
            return Patch(judged=(1,))
        entries = tuple(s[0] if len(set(s)) == 1 else -1 for s in wanted or ())
        given = ("axis", "batch_dims")
        return Patch({1: entries}, {n: None for n in given if n in node.attributes}, "Reshape")

    @staticmethod
    def same_index(index: Value, wanted: tuple[int, ...], size: Size, sim: Simulation) -> bool:
        """Whether indices into an axis of this size are the wanted ones already; negative ones count back."""
        after = sim.known.get(index)
        return after is not None and all(
            np.array_equal(a.reshape(-1) % n, wanted) for a, n in zip(after, size, strict=True)
        )

    def scatter(self, instance: Instance, sim: Simulation) -> Patch:
        """Indices that counted along an axis still must, from where the segment begins now."""
        node = instance.node
        for axis, begin in enumerate(counted(node)):
            now = counted(node, sim.known.get)[axis]
            cut = self.cut(instance, axis)
            if begin is not None and now != (begin if cut is None else cut[0]):
                raise self.refusal(node, f"its indices no longer count along axis {axis}")
        return Patch(judged=(1,))

    def pad(self, instance: Instance, sim: Simulation) -> Patch:
        """How many zeros stand in front of each axis and behind it, where they are segments."""
        node, rank = instance.node, instance.node.outputs[0].rank
        given, axes = node.attributes.get("pads"), node.input(3)
        value = node.input(1)
        if given is None and (value is None or value.known is None):
            return Patch()
        amounts = [int(p) for p in (value.known[0].reshape(-1) if given is None else given)]  # type: ignore[index, union-attr]
        chosen = range(rank) if axes is None or axes.known is None else axes.known[0].reshape(-1) % rank
        wanted = list(amounts)
        for k, axis in enumerate(chosen):
            for i, side in ((k, "p"), (k + len(chosen), "q")):
                if f"{side}{axis}" in instance.spaces:
                    wanted[i] = self.resize(find(instance.spaces[f"{side}{axis}"]))[0]
        if wanted == amounts:
            return Patch()
        return Patch({}, {"pads": wanted}) if given is not None else Patch({1: tuple(wanted)})

    def tile(self, instance: Instance, sim: Simulation) -> Patch:
        node, data = instance.node, instance.node.inputs[0]
        assert data is not None
        wanted, source = self.demand(node.outputs[0]), self.demand(data)
        if wanted is None or source is None:
            return Patch()
        found: list[int | Part | None] = []
        for axis, sizes in enumerate(zip(wanted, source, strict=True)):
            repeats = tuple(w // s if s else 0 for w, s in zip(*sizes, strict=True))
            part = part_of(node.inputs[1], axis, repeats, sim)
            stays = part is not None and part.factor == 1 and part.whole is None
            found.append(repeats[0] if len(set(repeats)) == 1 else None if stays else part)
        if any(isinstance(e, Part) for e in found):
            return Patch({1: tuple(found)})
        return self.judge(node, {1: tuple(e for e in found if not isinstance(e, Part))}, sim)

    def count(self, instance: Instance, sim: Simulation) -> Patch:
        """Attributes that are the size of a label."""
        node, changed = instance.node, {}
        for name, label in _COUNTS[node.op].items():
            if label in instance.spaces:
                size = self.resize(find(instance.spaces[label]))[0]
                if size != instance.spaces[label].size[0] and node.attributes.get(name):
                    changed[name] = size
        return Patch({}, changed)

    def packed(self, instance: Instance, sim: Simulation) -> Patch:
        """How many heads lie side by side, and the widths of q, k and v where they are given."""
        patch, before = self.count(instance, sim), instance.node.attributes.get("widths")
        sizes = [[self.resize(find(instance.spaces[n]))[0] for n in pair] for pair in ("qd", "ke", "vf")]
        widths = [heads * channels for heads, channels in sizes]
        spelt = before is not None or len({channels for _, channels in sizes}) > 1
        if spelt and list(before or ()) != widths:
            patch.attributes["widths"] = widths
        return patch

    def scale(self, instance: Instance, sim: Simulation) -> Patch:
        """A score scale that is computed from the channels keeps the source's value."""
        depth = instance.spaces.get("d")
        if depth is None or "scale" in instance.node.attributes or self.resize(find(depth)) == depth.size:
            return Patch()
        return Patch({}, {"scale": depth.size[0] ** -0.5})


_PLACES: dict[str, Callable[[_Mender, Instance, Simulation], Patch]] = {
    "Split": _Mender.split,
    "Slice": _Mender.slice,
    "Gather": _Mender.gather,
    "GatherND": _Mender.gather,
    "Tile": _Mender.tile,
    "ScatterND": _Mender.scatter,
    "Pad": _Mender.pad,
    "Conv": _Mender.count,
    "ConvTranspose": _Mender.count,
    "GroupNormalization": _Mender.count,
    "LSTM": _Mender.count,
    "GRU": _Mender.count,
    "RNN": _Mender.count,
    "RotaryEmbedding": _Mender.count,
    "com.microsoft::RotaryEmbedding": _Mender.count,
    "growc::SplitHeads": _Mender.count,
    "growc::Unpack": _Mender.count,
    "growc::Unfold": _Mender.count,
    "growc::Repeat": _Mender.count,
    "growc::SplitPacked": _Mender.packed,
    "growc::Attention": _Mender.scale,
}
"""Where cuts are made, and what is counted, by operator."""

_COUNTS: dict[str, Mapping[str, str]] = {
    "Conv": {"group": "g"},
    "ConvTranspose": {"group": "g"},
    "GroupNormalization": {"num_groups": "g"},
    "LSTM": {"hidden_size": "h"},
    "GRU": {"hidden_size": "h"},
    "RNN": {"hidden_size": "h"},
    "RotaryEmbedding": {"num_heads": "h"},
    "com.microsoft::RotaryEmbedding": {"num_heads": "h"},
    "growc::SplitHeads": {"num_heads": "h"},
    "growc::Unpack": {"num_heads": "h"},
    "growc::Unfold": {"num_heads": "h"},
    "growc::Repeat": {"num_heads": "h", "times": "g"},
    "growc::SplitPacked": {"num_heads": "q", "kv_num_heads": "k"},
}
"""Attributes that are the size of a label."""

_SIZES: dict[str, tuple[int, ...]] = {
    "Reshape": (1,),
    "Expand": (1,),
    "ConstantOfShape": (0,),
    "Resize": (3,),
}
"""Operands that are nothing but sizes of the result: judged by the result."""


def _spell(shapes: Any) -> str:
    return ", ".join("unknown" if s is None else "[" + ", ".join(str(d[0]) for d in s) + "]" for s in shapes)
