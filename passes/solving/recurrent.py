"""How states pass recurrent operators (LSTM, GRU, RNN).

Every unit has its own gates, which are nonlinear: copies pass, and zeros where the activations keep them. All
gates of a unit are made alike, so that the sum of what the input and what the last step give them has one
state; the columns of the recurrence read what the operator gives.
"""

from __future__ import annotations

from growc.passes.axes.infer import Instance
from growc.passes.solving.constraints import Link, Links, Occurrences

GATES, STATES = (1, 2, 3, 7), (5, 6)
"""Operands whose rows are gates (W, R, B, P), and initial states."""


def recurrent(links: Links, at: Instance, ins: Occurrences, outs: Occurrences) -> None:
    """Labels: h the units, k the columns of the recurrence over them, i what is read from outside."""
    node, units, made = at.node, ins.get("h", {}), outs.get("h", {})
    for k in range(len(units.get(1, []))):
        gates = [units[i][k] for i in GATES if i in units]
        results = [v[k] for v in made.values()] + [units[i][k] for i in STATES if i in units]
        for one, others in ((gates[0], gates[1:]), (results[0], results[1:])):
            for other in others:
                links.join(one, other)
        zero = "activations" not in node.attributes
        links.links.append(Link("pointwise", node, (gates[0],), (results[0],), zero=zero))
        links.links.append(Link("pair", node, (results[0], ins["k"][2][k])))
    read = ins.get("i", {})
    for x, column in zip(read.get(0, []), read.get(1, []), strict=True):
        links.links.append(Link("pair", node, (x, column)))
