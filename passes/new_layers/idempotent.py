"""Idempotent functions of a tensor: a second application changes nothing. Each has a key by which it is
recognised.

Needs: the axis graph. Gives: `Again` for an operand of a node, with the grid of the numbers that the function
leaves unchanged.

Some operators are idempotent by themselves. So are choices that put c in the place of x if a condition p(x)
holds. Such an f leaves c unchanged, and all numbers that p does not choose, whatever p is: f(f(x)) = f(x).
The condition may read other tensors, but no other element of x. The function is recognised by its expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from growc.algebra.indexmap import Array
from growc.ir.graph import Node, Value
from growc.ir.notation import Line, Term, keeps_zero
from growc.passes.axes.infer import Axes
from growc.passes.new_layers.element_facts import Grid, content, numbers

LONG = 64
"""The largest number of nodes in a condition."""


class Again(NamedTuple):
    """An idempotent function.

    grid: the numbers that it leaves unchanged.
    puts: the numbers that it puts in the place of others; None if its results are neither stored nor elements
        of its operand.
    """

    grid: Grid
    puts: tuple[float, ...] | None


Find = Callable[[Node, int], Again | None]
"""Returns the idempotent function that a node is of the operand in a place, or None."""


def finder(axes: Axes) -> Find:
    """A function that finds idempotent functions of a graph, by a node and the place of its operand."""
    lines = {i.node: i.line for i in axes.instances}

    @cache
    def find(node: Node, place: int) -> Again | None:
        operand, line = node.inputs[place], lines.get(node)
        if operand is None or operand.sizes is None or operand.sizes != node.outputs[0].sizes or line is None:
            return None
        find_one = _choice if line.treatment == "select" else _operator
        return find_one(node, place, operand, lines)

    return find


def _operator(node: Node, place: int, operand: Value, lines: Mapping[Node, Line]) -> Again | None:
    """An idempotent operator, whose other operands are stored numbers."""
    laws, beside = node.laws, [v for v in node.inputs[1:] if v is not None]
    bounds = None if laws.clamp is None else laws.clamp(node).beside(operand)
    if bounds is None and (place or not laws.again):
        return None
    stored: Sequence[Value | float] = beside if bounds is None else [*bounds[0], *bounds[1]]
    values = [np.asarray(x) if isinstance(x, float) else numbers(x) for x in stored]
    arrays = [array for array in values if array is not None and np.isfinite(array).all()]
    if len(arrays) < len(stored):
        return None
    key: tuple[object, ...] = (node.op, attributes(node), *map(content, beside))
    if bounds is not None:
        key = tuple(tuple(x if isinstance(x, float) else content(x) for x in side) for side in bounds)
    along = not elementwise(lines[node]) or any(array.size > 1 for array in arrays)
    return Again(
        Grid(key, along, keeps_zero(node.treatment)), laws.puts if bounds is None else _elements(arrays)
    )


def _choice(node: Node, place: int, operand: Value, lines: Mapping[Node, Line]) -> Again | None:
    """A stored number in places where a condition holds, or where it does not.

    The number must be finite, since streams are assumed to be finite.
    """
    put_value = node.inputs[3 - place] if place else None
    array = numbers(put_value)
    if array is None or not np.isfinite(array).all():
        return None
    condition = ExpressionKeys(operand, lines).of(node.inputs[0])
    if condition is None:
        return None
    puts = _elements([array])
    grid = Grid(
        (node.op, place, content(put_value), condition.key),
        array.size > 1 or not condition.single,
        puts == (0.0,),
    )
    return Again(grid, puts)


def _elements(arrays: Sequence[Array]) -> tuple[float, ...]:
    return tuple(float(x) for array in arrays for x in np.unique(array))


class ExpressionKey(NamedTuple):
    """An expression.

    key: what tells it from other expressions.
    reads: whether it reads the operand.
    single: whether all else that it reads are single numbers.
    """

    key: object
    reads: bool = False
    single: bool = True


class ExpressionKeys:
    """Makes keys of expressions.

    An element of the operand may only be read at its own place; other tensors may be moved.
    """

    def __init__(self, operand: Value, lines: Mapping[Node, Line]) -> None:
        self.operand, self.lines, self.left = operand, lines, LONG

    def of(self, value: Value | None) -> ExpressionKey | None:
        """The expression that makes a value; None if it has no key."""
        if value is None or value is self.operand:
            return ExpressionKey("absent" if value is None else "operand", reads=value is not None)
        array, node = numbers(value), value.producer
        if array is not None:
            return ExpressionKey(content(value), single=array.size == 1)
        if node is None:
            return ExpressionKey(value, single=False)
        self.left -= 1
        line = self.lines.get(node)
        if self.left < 0 or line is None:
            return None
        parts = [self.of(v) for v in node.inputs]
        keyed_parts = [part for part in parts if part is not None]
        reads, plain = any(part.reads for part in keyed_parts), elementwise(line)
        if len(keyed_parts) < len(parts) or not (plain or (line.treatment == "layout" and not reads)):
            return None
        key = (node.op, attributes(node), node.outputs.index(value), *(part.key for part in keyed_parts))
        return ExpressionKey(key, reads, plain and all(part.single for part in keyed_parts))


def elementwise(line: Line) -> bool:
    """Whether each element of a result is made of the elements at the same place."""
    out_terms = line.outputs[0] if len(line.outputs) == 1 else None
    unaligned = out_terms is None or any(
        not isinstance(t, str) or t == "_" or t.endswith("!") for t in out_terms
    )
    return not unaligned and all(
        _at_its_place(terms, out_terms or ()) for terms in line.inputs if terms is not None
    )


def _at_its_place(terms: Sequence[Term], output_terms: Sequence[Term]) -> bool:
    pairs = zip(reversed(terms), reversed(output_terms), strict=False)
    return len(terms) <= len(output_terms) and all(a in (b, "1") for a, b in pairs)


def attributes(node: Node) -> tuple[tuple[str, str], ...]:
    """The attributes of a node in a form that can be compared."""
    return tuple(sorted((name, str(v)) for name, v in node.attributes.items()))
