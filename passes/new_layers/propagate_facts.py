"""Propagation of the facts of a stream through operators, and whether each element stays unchanged.

Needs: nodes with element types, the numbers of their other operands, and idempotent choices among elements.
Gives: `through` for one node, and `settles`, whether it may leave an operand unchanged.
"""

from __future__ import annotations

import math
from dataclasses import replace

from growc.ir.graph import Clamp, Node, Value
from growc.ir.notation import FACTORS
from growc.ir.traits import DEQUANTISE, QUANTISE, SAME, TURN, VIEW, WHOLE
from growc.passes.new_layers.element_facts import (
    FORMATS,
    REAL,
    ElementFacts,
    Grid,
    content,
    holds,
    lies,
    number,
)
from growc.passes.new_layers.idempotent import Again, Find

SETTLING = (VIEW, TURN, SAME, WHOLE, QUANTISE, DEQUANTISE)
"""Traits of operators that may leave every element unchanged."""


def through(
    node: Node, place: int, held: ElementFacts, find: Find, like: Node | None = None
) -> tuple[ElementFacts, bool]:
    """The facts behind a node, from those of its operand `place`, and whether each element stays unchanged.

    find: finds idempotent functions.
    like: the quantising operator whose steps the node takes instead of its own.
    """
    out = node.outputs[0]
    if node.has(QUANTISE, DEQUANTISE):
        return (_quantised if node.has(QUANTISE) else _dequantised)(node, held, like or node)
    if node.has(VIEW, TURN):
        return held.moved(), True
    if times_one(node, place):
        return held, True
    if node.has(SAME, WHOLE):
        grid = "whole" if node.has(WHOLE) else out.dtype
        return _open(replace(held.rounded(grid), dtype=out.dtype), held.on(grid))
    if (bounds := bounds_of(node, place)) is not None:
        bounded = held.bounded(*bounds)
        return (
            _open(bounded, bounded is held)
            if bounded is held or node.laws.keeps is None
            else (_within(bounded), False)
        )
    again = find(node, place)
    if again is None or held.half is not None:
        return ElementFacts.of(out), False
    unchanged = again.grid in held.grids
    return (held if unchanged else _once(held, again, out)), unchanged


def steps_for(node: Node, held: ElementFacts) -> Node | None:
    """An operator whose quantisation steps the tensor already has, and which a quantising node could take for
    its own.
    """
    candidates = [
        g.node for g in (held.half[1:2] if held.half else held.grids) if isinstance(g, Grid) and not g.along
    ]
    fitting = (
        one
        for one in candidates
        if one is not None and _whole(one) == _whole(node) and len(one.inputs) == len(node.inputs)
    )
    return next(fitting, None) if node.has(QUANTISE, DEQUANTISE) else None


def times_one(node: Node, place: int) -> bool:
    """Whether an operand is multiplied or divided by ones."""
    if node.treatment not in FACTORS or len(node.inputs) != 2 or (place and node.treatment == "divide"):
        return False
    ones = node.required(1 - place).known
    same_sizes = node.outputs[0].sizes == node.required(place).sizes
    return bool(ones) and same_sizes and all(bool((numbers == 1).all()) for numbers in ones or ())


def settles(node: Node, place: int, find: Find) -> bool:
    """Whether a node may leave an operand unchanged, depending on the operand's facts."""
    if bounds_of(node, place) is not None or times_one(node, place):
        return True
    return (place == 0 and node.has(*SETTLING)) or find(node, place) is not None


def widens(node: Node) -> bool:
    """Whether a node is a cast to a type that holds every number of its operand's type."""
    operand = node.input(0)
    return node.has(SAME) and operand is not None and holds(node.outputs[0].dtype, operand.dtype)


def _open(held: ElementFacts, same: bool) -> tuple[ElementFacts, bool]:
    """The facts, no longer inside a quantising pair if elements changed."""
    return (held if same else replace(held, half=None)), same


def _once(held: ElementFacts, again: Again, out: Value) -> ElementFacts:
    """The facts behind an idempotent function: each number stays, or is one that the function puts."""
    facts = ElementFacts.of(out)
    if again.puts is None:
        return replace(facts, grids=facts.grids | {again.grid})
    remaining = {g for g in held.grids if all(lies(c, g) for c in again.puts)}
    low, high = min(held.low, *again.puts), max(held.high, *again.puts)
    return replace(facts, low=low, high=high, grids=facts.grids | {again.grid, *remaining})


def _within(held: ElementFacts) -> ElementFacts:
    """The facts behind an operator that replaces numbers outside its bounds by other numbers than the
    nearest: only its type and bounds say where these lie.
    """
    return replace(held, grids=frozenset(g for g in held.grids if g in REAL or g == "whole"), half=None)


# ------------------------------------------------------------------------------------------ bounds

Bounds = tuple[float, float] | None
"""The lowest and the highest number; None if there are no bounds."""


def bounds_of(node: Node, place: int) -> Bounds:
    """The bounds between which a node leaves an operand unchanged, and in which all results lie.

    None if the node has no such bounds, or leaves no finite number unchanged.
    """
    bounds = _chosen(node, place) if node.treatment == "select" else node.laws.keeps
    if node.laws.clamp is not None:
        bounds = _nearest(node.laws.clamp(node), node.inputs[place])
    low, high = bounds or (math.inf, -math.inf)
    return (low, high) if low < math.inf and high > -math.inf else None


def _nearest(clamp: Clamp, operand: Value | None) -> Bounds:
    """The bounds that the other operands of a clamp give, if these are single numbers."""
    beside = clamp.beside(operand)
    if beside is None:
        return None
    side_numbers = [[x if isinstance(x, float) else number(x) for x in side] for side in beside]
    lows, highs = ([x for x in side if x is not None] for side in side_numbers)
    low, high = max(lows, default=-math.inf), min(highs, default=math.inf)
    return None if [lows, highs] != side_numbers or low > high else (low, high)


def _chosen(node: Node, place: int) -> Bounds:
    """The bounds of a choice between an operand and a bound: Where(x < c, c, x) is Max(x, c)."""
    comparison = node.inputs[0].producer if node.inputs[0] is not None else None
    if place not in (1, 2) or comparison is None or len(comparison.laws.signs - {0}) != 1:
        return None
    operand, put = node.inputs[place], number(node.inputs[3 - place])
    first = comparison.inputs[0] is operand
    if operand is None or operand.sizes is None or operand.sizes != node.outputs[0].sizes:
        return None
    if put is None or comparison.inputs[1 - first] is not operand or number(comparison.inputs[first]) != put:
        return None
    replaced_below = ((-1 in comparison.laws.signs) == first) == (place == 2)
    return (put, math.inf) if replaced_below else (-math.inf, put)


# -------------------------------------------------------------------------------------- quantising


def _whole(node: Node) -> str:
    """The element type of the whole numbers of a quantising operator."""
    value = node.inputs[0] if node.has(DEQUANTISE) else node.outputs[0]
    return "" if value is None else value.dtype


def _grid(node: Node, like: Node) -> tuple[Grid, float] | None:
    """The grid of a quantising operator, with the steps of `like`, and its lowest number.

    None if the grid is unknown, or if requantising may give other numbers: q·s, rounded and divided by s, is
    within a half of q only if the real type has enough digits.
    """
    value, whole_type = node.outputs[0] if node.has(DEQUANTISE) else node.inputs[0], _whole(node)
    real = "" if value is None else value.dtype
    scale, zero = content(like.input(1)), content(like.input(2))
    form, digits = FORMATS.get(whole_type), FORMATS.get(real)
    if scale is None or form is None or digits is None or (zero is None and like.input(2) is not None):
        return None
    if form.bits + form.signed + 3 > digits.bits:
        return None
    least, most = (-(2**form.top) if form.signed else 0), 2**form.top - 1
    middle = number(like.input(2)) if like.input(2) is not None else 0.0
    ends = (whole_type, zero) if middle is None else (least - middle, most - middle)
    single = scale[1] == ()
    where = () if single else (like.attributes.get("axis", 1), like.attributes.get("block_size", 0))
    return Grid((scale, ends, where), not single, True, like), 0.0 if middle == least else -math.inf


def _quantised(node: Node, held: ElementFacts, like: Node) -> tuple[ElementFacts, bool]:
    """The facts behind a quantising operator: whole numbers of a real tensor, or those from which it was
    dequantised.
    """
    out, grid_and_low = node.outputs[0], _grid(node, like)
    if grid_and_low is None:
        return ElementFacts.of(out), False
    grid, _ = grid_and_low
    if held.half is not None and held.half[0] == DEQUANTISE:
        before = held.half[2]
        if grid == held.half[1] and before.dtype == out.dtype:
            return before, True
        held = replace(held, half=None)
    unchanged = held.half is None and held.on(grid)
    return replace(ElementFacts.of(out), half=(QUANTISE, grid, held)), unchanged


def _dequantised(node: Node, held: ElementFacts, like: Node) -> tuple[ElementFacts, bool]:
    """The facts behind a dequantising operator: a real tensor of whole numbers, or the one that was quantised
    to them.
    """
    out, grid_and_low = node.outputs[0], _grid(node, like)
    if grid_and_low is None:
        return ElementFacts.of(out), False
    grid, low = grid_and_low
    if held.half is None:
        facts = ElementFacts.of(out).bounded(low, math.inf)
        return replace(facts, grids=frozenset({out.dtype}), half=(DEQUANTISE, grid, held)), True
    if held.half[0] != QUANTISE or held.half[1] != grid:
        return ElementFacts.of(out), False
    before = replace(held.half[2], half=None).rounded(grid)
    real = replace(before, dtype=out.dtype, grids=before.grids | {out.dtype})
    return real.bounded(low, math.inf), True
