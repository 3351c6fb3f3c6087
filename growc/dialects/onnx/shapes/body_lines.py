"""Lines and sizes of the steps that `flatten` puts around bodies.

An If's results have the states of its branches' results. A value that a Loop or Scan carries has one state in
front of the body, in it and behind it. An axis whose size is not the same everywhere is opaque, and so is the
axis that iterations are counted along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.algebra.space import Size
from growc.dialects.onnx.origins import value_of
from growc.ir.graph import Node, Value
from growc.ir.notation import AxisTerms, Line, Operand, Term
from growc.ir.operator_rows import LineRule, Row, Site

if TYPE_CHECKING:
    from growc.dialects.onnx.shapes.simulation import Simulation

BodyShape = tuple[Size, ...] | None
Known = Mapping[int, tuple[Array, ...]]
"""Known operands, by index."""

Follow = Callable[[Node, "Simulation", Known], None]

_TRIPS = (41, 43, 47, 53)
"""The number of iterations at each sample point if nothing tells it."""


# ------------------------------------------------------------------------------------------- lines


def _branches(site: Site) -> Line:
    n = len(site.outputs)
    inputs: list[AxisTerms | None] = [_opaque(o) for o in site.inputs]
    outputs: list[AxisTerms | None] = []
    for k, out in enumerate(site.outputs):
        slots = range(1 + k, len(site.inputs), n)
        *branch_terms, result = _one(f"a{k}_", [*(site.inputs[i] for i in slots), out])
        for i, terms in zip(slots, branch_terms, strict=True):
            inputs[i] = terms
        outputs.append(result)
    return Line(tuple(inputs), tuple(outputs), "layout")


def _begin(site: Site) -> Line:
    first, states = _carried(site.node)
    inputs = [_opaque(o) for o in site.inputs]
    outputs = [_opaque(o) for o in site.outputs]
    for k in range(first, first + states):
        inputs[k], outputs[k] = _one(f"a{k}_", [site.inputs[k], site.outputs[k]])
    for k, axis in _scanned(site.node, [0 if o is None else o.rank for o in site.inputs]).items():
        inputs[k], outputs[k] = _along(f"b{k}_", site.outputs[k], axis, whole=site.inputs[k])
    return Line(tuple(inputs), tuple(outputs), "layout")


def _end(site: Site) -> Line:
    first, states = _carried(site.node)
    results = site.node.integer("results")
    leave = results - len(site.outputs)
    inputs = [_opaque(o) for o in site.inputs]
    outputs: list[AxisTerms | None] = []
    for k in range(states):
        inside, around = leave + k, results + first + k
        operands = [site.inputs[inside], site.inputs[around], site.outputs[k]]
        inputs[inside], inputs[around], result = _one(f"a{k}_", operands)
        outputs.append(result)
    for k in range(states, len(site.outputs)):
        axis = _stacked(site.node, k - states, site.outputs[k].rank)
        whole, inputs[leave + k] = _along(f"b{k}_", site.inputs[leave + k], axis, whole=site.outputs[k])
        outputs.append(whole)
    for k in range(results + first + states, len(site.inputs)):  # sequences that a Scan takes apart
        (inputs[k],) = _one(f"c{k}_", [site.inputs[k]])
    return Line(tuple(inputs), tuple(outputs), "layout")


def _one(name: str, operands: Sequence[Operand | None]) -> list[AxisTerms | None]:
    """Return the terms of values that are one value; an axis is opaque if its sizes differ."""
    shapes = [None if o is None else o.sizes for o in operands]
    alike = None not in shapes and len({len(s or ()) for s in shapes}) == 1

    def term(axis: int, size: Size) -> Term:
        same = alike and all(s is not None and s[axis] == size for s in shapes)
        return f"{name}{axis}" if same else "_"

    return [None if s is None else tuple(term(k, size) for k, size in enumerate(s)) for s in shapes]


def _along(
    name: str, part: Operand | None, axis: int, whole: Operand | None
) -> tuple[AxisTerms | None, AxisTerms | None]:
    """Return the terms of a tensor, and of the slice that one iteration reads from it or adds to it."""
    if part is None or part.sizes is None or whole is None or whole.sizes is None:
        return _opaque(whole), _opaque(part)
    terms: list[Term] = [f"{name}{k}" for k in range(part.rank)]
    return (*terms[:axis], "_", *terms[axis:]), tuple(terms)


def _opaque(operand: Operand | None) -> AxisTerms | None:
    return None if operand is None or operand.sizes is None else ("_",) * operand.rank


def _carried(node: Node) -> tuple[int, int]:
    """Return the index of the first value that iterations carry, and the number of such values."""
    return node.integer("first"), node.integer("states")


def _scanned(node: Node, ranks: Sequence[int]) -> dict[int, int]:
    """Return the axis of each operand that a Scan takes apart, by operand."""
    states, count = node.integer("states"), node.integer("num_scan_inputs")
    axes = node.integers("scan_input_axes") or [0] * count
    return {states + k: axis % max(ranks[states + k], 1) for k, axis in enumerate(axes)}


def _stacked(node: Node, k: int, rank: int) -> int:
    """Return the axis along which iterations' results are stacked."""
    axes = node.integers("scan_output_axes")
    return axes[k] % max(rank, 1) if axes else 0


# ------------------------------------------------------------------------------------------- sizes


def _follow_branches(node: Node, done: Simulation, known: Known) -> None:
    n, condition = len(node.outputs), known.get(0)
    for k, out in enumerate(node.outputs):
        branches = node.inputs[1 + k :: n]
        taken = (
            [branches[0 if c.all() else -1] for c in condition] if condition else [branches[0]] * done.points
        )
        _pass(out, taken, done)
        rows_known = [
            done.known.get(v) if v is not None else None for v in (taken if condition else branches)
        ]
        if all(v is not None for v in rows_known):
            rows = [tuple(v[p] for v in rows_known if v is not None) for p in range(done.points)]
            if condition:
                done.known[out] = tuple(row[p] for p, row in enumerate(rows))
            elif all(row[0].shape == b.shape and (row[0] == b).all() for row in rows for b in row):
                done.known[out] = tuple(row[0] for row in rows)


def _ranks(node: Node, done: Simulation) -> list[int]:
    """Return the rank of every operand, 0 if it is not known."""
    return [0 if v is None else len(done.sizes.get(v) or ()) for v in node.inputs]


def _pass(out: Value, sources: Sequence[Value | None], done: Simulation) -> None:
    """Give a value the sizes of another value at each sample point."""
    shapes = [done.sizes.get(v) if v is not None else None for v in sources]
    ranks = {None if s is None else len(s) for s in shapes}
    done.sizes[out] = None
    if None not in ranks and len(ranks) == 1:
        points = [[s[p] for s in shape] for p, shape in enumerate(shapes) if shape is not None]
        done.sizes[out] = tuple(zip(*points, strict=True))
    kind = next((done.types[v] for v in sources if v in done.types), None)
    if kind is not None:
        done.types[out] = kind


def _follow_begin(node: Node, done: Simulation, known: Known) -> None:
    first, _ = _carried(node)
    for k, (operand, out) in enumerate(zip(node.inputs, node.outputs, strict=True)):
        _pass(out, [operand] * done.points, done)
        if k - first in (node.integers("kept") or ()) and k in known:
            done.known[out] = known[k]
    for k, axis in _scanned(node, _ranks(node, done)).items():
        shape = done.sizes[node.outputs[k]]
        done.sizes[node.outputs[k]] = None if shape is None else (*shape[:axis], *shape[axis + 1 :])
    if first:
        for out, kind in zip(node.outputs, (ir.DataType.INT64, ir.DataType.BOOL), strict=False):
            declared = tuple(value_of(out).shape or ())
            done.sizes[out], done.types[out] = ((1,) * done.points,) * len(declared), int(kind)


def _follow_end(node: Node, done: Simulation, known: Known) -> None:
    first, states = _carried(node)
    results = node.integer("results")
    leave = results - len(node.outputs)
    for k, out in enumerate(node.outputs):
        _pass(out, [node.inputs[leave + k]] * done.points, done)
        if k in (node.integers("kept") or ()) and results + first + k in known:
            done.known[out] = known[results + first + k]
        shape = done.sizes[out]
        if k >= states and shape is not None:
            axis = _stacked(node, k - states, len(shape) + 1)
            done.sizes[out] = (*shape[:axis], _trips(node, done), *shape[axis:])


def _trips(node: Node, done: Simulation) -> Size:
    """Return the number of iterations, from the axis of a Scan or the limit of a Loop."""
    begin = next(v.producer for v in node.inputs[node.integer("results") :] if v is not None)
    assert begin is not None
    for k, axis in _scanned(begin, _ranks(begin, done)).items():
        scanned = begin.inputs[k]
        shape = None if scanned is None else done.sizes.get(scanned)
        if shape is not None:
            return shape[axis]
    limit = begin.inputs[0] if node.op == "Loop end" else None
    if limit is not None and limit in done.known:
        limits = tuple(int(m.reshape(-1)[0]) for m in done.known[limit])
        if max(limits) < 1 << 31:
            return limits
    return _TRIPS[: done.points]


_STEPS: dict[str, tuple[LineRule, Follow]] = {
    "If end": (_branches, _follow_branches),
    "Loop begin": (_begin, _follow_begin),
    "Loop end": (_end, _follow_end),
    "Scan begin": (_begin, _follow_begin),
    "Scan end": (_end, _follow_end),
}

CONTROL = {op: Row(op, "layout", rule=rule, partial=True) for op, (rule, _) in _STEPS.items()}
"""Rows of the steps around bodies."""

FOLLOW = {op: follow for op, (_, follow) in _STEPS.items()}
"""The functions that pass sizes and values through each of them."""
