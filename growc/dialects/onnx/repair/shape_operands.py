"""Places of cuts in the result: numbers that a node reads besides its data, after sizes have changed.

Each function needs a node's line, the demands of the spaces, and the simulation of the result up to the node.
It returns the operands and attributes that must change, whether or not the sizes would come out right
without.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from growc.algebra.space import Size, find
from growc.dialects.onnx.operators.index_grids import counted, is_list
from growc.dialects.onnx.repair.patch import Demands, part_of, refusal
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.ir.graph import Node, Value
from growc.ir.notation import labels
from growc.passes.axes.infer import LineInstance
from growc.passes.axes.routing import ROUTED, counting
from growc.passes.edits import ChangedAttribute, Part, Patch, ShapeEntries


def numbered(node: Node, numbers: Sequence[int | None] | None) -> Patch:
    """Return a cut or a comparison with the unit of another number; None: the present one."""
    number = None if numbers is None else numbers[0]
    if number is None:
        return Patch()
    if node.op == "Slice" and "starts" in node.attributes:
        return Patch({}, {"starts": [number], "ends": [number + 1]})
    if node.op == "Slice":
        return Patch({1: (number,), 2: (number + 1,)})
    constant = 1 if node.op == "Gather" else next(i for i, v in enumerate(node.inputs) if v and v.known)
    return Patch({constant: (number,)})


def split(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Update the sizes of the parts."""
    node = instance.node
    axis = node.integer("axis", 0) % max(node.outputs[0].rank, 1)
    sizes = tuple((wants.demand(o) or ())[axis][0] for o in node.outputs)
    even = len(set(sizes)) == 1 and "split" not in node.attributes and node.input(1) is None
    if even or sizes == tuple((o.sizes or ())[axis][0] for o in node.outputs):
        return Patch()
    if "split" in node.attributes or wants.opsets.get("", 13) < 13:
        return Patch({}, {"split": list(sizes)})
    return Patch({1: sizes}, {"num_outputs": None} if "num_outputs" in node.attributes else {})


def slice_(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Update bounds of static cuts to the sizes of the segments in front and inside. Other bounds stay."""
    node, data = instance.node, instance.node.inputs[0]
    assert data is not None
    cuts = {a: _cut(wants, instance, a) or _whole(wants, instance, a) for a in range(data.rank)}
    before, after = node.integers("starts"), node.integers("ends")
    if before is not None and after is not None:
        order = node.integers("axes") or range(len(before))
        starts, ends = list(before), list(after)
        for k, a in enumerate(order):
            starts[k], ends[k] = cuts[a % data.rank] or (starts[k], ends[k])
        return Patch() if (starts, ends) == (before, after) else Patch({}, {"starts": starts, "ends": ends})
    axes = node.input(3)
    count = (node.inputs[1].sizes or ((data.rank,),))[0][0] if node.inputs[1] is not None else data.rank
    order = (
        range(count) if axes is None or axes.known is None else [int(a) for a in np.atleast_1d(axes.known[0])]
    )
    bounds = {
        i: tuple(None if (c := cuts[a % data.rank]) is None else c[i - 1] for a in order) for i in (1, 2)
    }
    sizes = wants.demand(data) or ()
    return _judged(node, bounds, sim, [sizes[a % data.rank][0] for a in order])


def _judged(
    node: Node, wanted: dict[int, tuple[int | None, ...]], sim: Simulation, within: Sequence[int] = ()
) -> Patch:
    """Replace operands that lack a wanted element; elements that nothing wants keep the source's number.

    `within`: the axes' sizes for elements that are bounds, which may count from the end or lie behind it.
    """
    operands: dict[int, ShapeEntries] = {}
    for i, entries in wanted.items():
        value = node.input(i)
        known = None if value is None else value.known
        if known is not None and all(np.array_equal(k, known[0]) for k in known):
            row = np.atleast_1d(known[0])
            entries = tuple(int(row[k]) if e is None else e for k, e in enumerate(entries))
        if not _holds(node, i, entries, sim, within):
            operands[i] = entries
    settled = (
        i for i, entries in wanted.items() if i not in operands and any(e is not None for e in entries)
    )
    return Patch(operands, judged=tuple(settled))


def _holds(
    node: Node, i: int, wanted: tuple[int | None, ...], sim: Simulation, within: Sequence[int]
) -> bool:
    """Whether operand i has the wanted elements already after the change. None matches any element."""
    value = node.input(i)
    after = None if value is None else sim.known.get(value)
    if after is None:
        return all(w is None for w in wanted)

    def meant(k: int, number: int) -> int:
        return min(max(number + within[k] * (number < 0), 0), within[k]) if within else number

    rows = [np.atleast_1d(a) for a in after]
    return all(
        w is None or (k < r.size and meant(k, int(r[k])) == meant(k, w))
        for r in rows
        for k, w in enumerate(wanted)
    )


def _cut(wants: Demands, instance: LineInstance, axis: int) -> tuple[int, int] | None:
    """Return (start, end) in new sizes of the segment that is taken from an axis (label `y…`)."""
    term = (instance.line.inputs[0] or ())[axis]
    if not isinstance(term, tuple) or term[0] != "+":
        return None
    start = 0
    for name in labels(term):
        size = wants.resize(find(instance.spaces[name]))[0]
        if name.startswith("y"):
            return start, start + size
        start += size
    return None


def _whole(wants: Demands, instance: LineInstance, axis: int) -> tuple[int, int] | None:
    """Return (0, size) of a resized axis that a Slice takes as a whole, else None."""
    data, left, right = instance.node.inputs[0], instance.line.inputs[0], instance.line.outputs[0]
    if (
        data is None
        or data.sizes is None
        or not left
        or not right
        or left[axis] != right[axis]
        or left[axis] == "_"
    ):
        return None
    size = (wants.demand(data) or data.sizes)[axis]
    return (0, size[0]) if size != data.sizes[axis] and len(set(size)) == 1 else None


def gather(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Update the indices of a segment that is taken, or of a whole axis."""
    node, data, index = instance.node, instance.node.inputs[0], instance.node.inputs[1]
    assert data is not None
    assert index is not None
    alone = node.op == "Gather"  # GatherND has its indices in vectors of one element
    axis = node.integer("axis", 0) % data.rank
    cut, size = _cut(wants, instance, axis), (wants.demand(data) or ())[axis]
    term, whole = (instance.line.inputs[0] or ())[axis], None
    if cut is None and term not in ("_", "#") and all(t == "_" for t in instance.line.inputs[1] or ()):
        return _gather_all(wants, node, index, size, sim)
    if cut is not None:
        whole = (cut[0],) if index.rank == 1 - alone else tuple(range(*cut))
    if whole is None:
        return Patch()
    return Patch(judged=(1,)) if _same_index(index, whole, size, sim) else Patch({1: whole})


def _gather_all(wants: Demands, node: Node, index: Value, size: Size, sim: Simulation) -> Patch:
    """Replace a look-up by a Reshape if its indices no longer count over a whole axis."""
    after, wanted = sim.known.get(index), wants.demand(node.outputs[0])
    counts = after is not None and all(
        k.size == n and (k.reshape(-1) % n == np.arange(n)).all() for k, n in zip(after, size, strict=True)
    )
    if counts and wanted is not None and sim.sizes.get(index) == index.sizes:
        return Patch(judged=(1,))
    entries = tuple(s[0] if len(set(s)) == 1 else -1 for s in wanted or ())
    attributes = ("axis", "batch_dims")
    return Patch({1: entries}, {n: None for n in attributes if n in node.attributes}, "Reshape")


def as_reshape(wants: Demands, node: Node, sim: Simulation) -> Patch | None:
    """Return a Reshape for a Squeeze or Unsqueeze if one of its axes has more than one element now."""
    if node.op not in ("Squeeze", "Unsqueeze"):
        return None
    wanted, source = wants.demand(node.outputs[0]), sim.sizes.get(node.required(0))
    if wanted is None or source is None:
        return None
    entries = tuple(
        size[0] if len(set(size)) == 1 else 0 if source[axis : axis + 1] == (size,) else -1
        for axis, size in enumerate(wanted)
    )
    dropped: dict[str, ChangedAttribute] = {"axes": None} if "axes" in node.attributes else {}
    return Patch({1: entries}, dropped, "Reshape") if entries.count(-1) < 2 else None


def _same_index(index: Value, wanted: tuple[int, ...], size: Size, sim: Simulation) -> bool:
    """Whether indices into an axis of this size are the wanted ones already; negative ones count back."""
    after = sim.known.get(index)
    return after is not None and all(
        np.array_equal(a.reshape(-1) % n, wanted) for a, n in zip(after, size, strict=True)
    )


def scatter(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Require indices that count along an axis to do so still, from the new start of the segment.

    Raises GrowError (G308) if they do not.
    """
    node = instance.node
    for axis, begin in enumerate(counted(node)):
        current = counted(node, sim.known.get)[axis]
        cut = _cut(wants, instance, axis)
        size = (wants.demand(node.outputs[0]) or ())[axis]
        if is_list(node) and begin is not None and len(set(size)) == 1:
            index, wanted = node.inputs[1], tuple(range(*(cut or (0, size[0]))))
            assert index is not None
            return Patch(judged=(1,)) if _same_index(index, wanted, size, sim) else Patch({1: wanted})
        if begin is not None and current != (begin if cut is None else cut[0]):
            raise refusal(node, f"its indices no longer count along axis {axis}")
    return Patch(judged=(1,))


def pad(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Update the number of zeros in front of each axis and behind it, if they are segments."""
    node, rank = instance.node, instance.node.outputs[0].rank
    amounts, axes = node.integers("pads"), node.input(3)
    value, as_attribute = node.input(1), amounts is not None
    if amounts is None and value is not None and value.known is not None:
        amounts = [int(p) for p in value.known[0].reshape(-1)]
    if amounts is None:
        return Patch()
    chosen = range(rank) if axes is None or axes.known is None else axes.known[0].reshape(-1) % rank
    wanted = list(amounts)
    for k, axis in enumerate(chosen):
        for i, side in ((k, "p"), (k + len(chosen), "q")):
            if f"{side}{axis}" in instance.spaces:
                wanted[i] = wants.resize(find(instance.spaces[f"{side}{axis}"]))[0]
    if wanted == amounts:
        return Patch()
    if as_attribute:
        return Patch({}, {"pads": wanted})
    return Patch({1: tuple(w if w != a else None for w, a in zip(wanted, amounts, strict=True))})


def depth(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Update the number of units that one-hot numbers choose from."""
    [out] = instance.node.outputs
    axis = instance.node.integer("axis", -1) % out.rank
    size = (wants.demand(out) or ())[axis]
    return _judged(instance.node, {1: (size[0],)}, sim) if len(set(size)) == 1 else Patch()


def chosen(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Update the number of chosen units."""
    node = instance.node
    axis = node.integer("axis", -1) % node.outputs[0].rank
    sizes = [wants.demand(out) for out in node.outputs if out.users]
    size, before = next((shape[axis] for shape in sizes if shape), ()), node.outputs[0].sizes
    if len(set(size)) != 1 or before is None or size == before[axis]:
        return Patch()
    if "k" in node.attributes:
        return Patch({}, {"k": size[0]})
    return _judged(node, {1: (size[0],)}, sim)


def numbers_of_all(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Update the numbers of all units, with which those of a ranking are compared."""
    numbers = counting(instance.node)
    if numbers is None or (instance.line.outputs[0] or ("",))[-1] != ROUTED:
        return Patch()
    operand, axis = numbers
    before, after = (
        (instance.node.outputs[0].sizes or ())[axis],
        (wants.demand(instance.node.outputs[0]) or ())[axis],
    )
    return Patch(judged=(operand,)) if before == after else Patch({operand: tuple(range(after[0]))})


def tile(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Update how often each axis is repeated."""
    node, data = instance.node, instance.node.inputs[0]
    assert data is not None
    wanted, source = wants.demand(node.outputs[0]), wants.demand(data)
    if wanted is None or source is None:
        return Patch()
    entries: list[int | Part | None] = []
    for axis, sizes in enumerate(zip(wanted, source, strict=True)):
        repeats = tuple(w // s if s else 0 for w, s in zip(*sizes, strict=True))
        part = part_of(node.inputs[1], axis, repeats, sim)
        stays = part is not None and part.factor == 1 and part.whole is None
        entries.append(repeats[0] if len(set(repeats)) == 1 else None if stays else part)
    if any(isinstance(e, Part) for e in entries):
        return Patch({1: tuple(entries)})
    return _judged(node, {1: tuple(e for e in entries if not isinstance(e, Part))}, sim)
