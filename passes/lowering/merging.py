"""Merging of consecutive units to their mean (`merge experts to N by mean`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from growc.algebra.indexmap import Floats
from growc.algebra.space import Reason, Space, find
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Node
from growc.passes.axes.infer import Axes
from growc.passes.lowering.choose_factor import SINGLE
from growc.recipe import syntax_tree as ast


def means(count: int, parts: int) -> Floats:
    """The matrix that averages each `parts` consecutive units of `count`. Shape: (count // parts, count)."""
    return np.kron(np.eye(count // parts), np.full((1, parts), 1 / parts))


def parts_of(axes: Axes, statement: ast.Merge, spaces: Sequence[Space], before: int, after: int) -> int:
    """The number of units that become one.

    Raises GrowError (G303, G304, G305, G312) if an axis cannot be merged.
    """
    name, size = statement.axis.name, statement.size.span
    if after < 1:
        raise GrowError(Diagnostic("G312", f"`{name}` cannot be {after}", size))
    if after > before:
        remedy = f"`widen {name} to {after} with …` grows an axis"
        message = f"`merge {name}` cannot make it larger: it is {before} now"
        raise GrowError(Diagnostic("G303", message, size, f"{after} is more than {before}", help=remedy))
    if before % after:
        message = f"{before} `{name}` cannot become {after}: each new one is the mean of equally many"
        raise GrowError(Diagnostic("G305", message, size, help=f"use a divisor of {before}"))
    cause = _stands_against(axes, spaces)
    if cause:
        raise GrowError(Diagnostic("G304", f"`{name}` cannot be merged: {cause}", statement.axis.span))
    return before // after


def _stands_against(axes: Axes, spaces: Sequence[Space]) -> str:
    space = find(spaces[0])
    if len(spaces) > 1 or space.kind != "atom":
        return "they are no axis of one kind"
    if axes.taken_singly(space):
        return SINGLE
    reason: Reason | None = space.frozen
    if reason is None:
        return "" if space.addressed is None else space.addressed.cause
    node = reason.node
    return reason.cause + (f", at `{node.name or node.kind}`" if isinstance(node, Node) else "")
