"""Tables of numbers that grow with the positions: position ids, zeros for token types, causal masks.

Needs: the graph, the roles, the new sizes. Gives: the weights of the plan for tables that `widen positions`
continues by their rule. They are shape arithmetic, which no space covers. A table counts if run-time bounds
cut it from the front and it is as long as the positions were.
"""

from __future__ import annotations

import math

import numpy as np

from growc.algebra.indexmap import Array
from growc.ir.graph import Graph, Value, Weight
from growc.ir.lowered_statement import Sizes
from growc.ir.traits import REPEAT, SAME, TAKE, VIEW
from growc.ir.walk import walk
from growc.passes.roles.name_axes import Roles
from growc.plans.memory_bound import OF_NUMBER, require
from growc.plans.plan import WeightPlan


def continue_tables(graph: Graph, roles: Roles, sizes: Sizes) -> dict[Weight, WeightPlan]:
    """The plans of integer and boolean tables that must become longer."""
    longer = {
        a.size: sizes.product(a.spaces)
        for a in roles.axes.get("positions", [])
        if sizes.product(a.spaces) > a.size
    }
    plans: dict[Weight, WeightPlan] = {}
    for use in graph.uses() if longer else ():
        weight = use.weight
        assert weight is not None
        if weight.floating or weight in plans or not _cut_at_run_time(use):
            continue
        shape = tuple(longer.get(d, d) for d in weight.shape)
        require(f"`{weight.name}` of {' x '.join(map(str, shape))}", OF_NUMBER * math.prod(shape), None)
        values = None if shape == weight.shape else continued(np.asarray(weight.read()), shape)
        if values is not None:
            literal = tuple(values.reshape(-1).tolist())
            plans[weight] = WeightPlan(
                weight.name, weight.name, weight.dtype, weight.shape, shape, (), 1.0, literal
            )
    return plans


def _cut_at_run_time(use: Value) -> bool:
    uses = walk(use.users, lambda at: at[0].outputs[0].users if at[0].has(SAME, VIEW, REPEAT) else ())
    return any(operand == 0 and node.has(TAKE) for node, operand in uses)


def continued(values: Array, shape: tuple[int, ...]) -> Array | None:
    """The table continued to `shape` by the rule that it follows; None where no rule is recognised.

    Rules: one number throughout; counting up from any start; a lower triangle over the last two axes.
    """
    first = values.reshape(-1)[0]
    if (values == first).all():
        return np.full(shape, first)
    grown = [a for a, (x, y) in enumerate(zip(values.shape, shape, strict=True)) if x != y]
    if len(grown) == 1:
        row = np.moveaxis(values, grown[0], -1)
        start = row[..., :1]
        if (row == start + np.arange(row.shape[-1])).all():
            return np.moveaxis(start + np.arange(shape[grown[0]]), -1, grown[0]).astype(values.dtype)
    if grown == [values.ndim - 2, values.ndim - 1] and (values == np.tril(np.ones_like(values))).all():
        return np.tril(np.ones(shape, dtype=values.dtype))
    return None
