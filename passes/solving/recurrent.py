"""The links of recurrent operators (LSTM, GRU, RNN).

Every unit has its own gates, which are nonlinear: copies pass, and zeros pass where the activations keep
them. All gates of a unit have one state, since each sums terms from the input and from the last step. The
columns of the recurrence read the results of the operator.
"""

from __future__ import annotations

from growc.passes.axes.infer import LineInstance
from growc.passes.solving.constraints import Link, Links, Occurrences

GATES, STATES = (1, 2, 3, 7), (5, 6)
"""Operands whose rows are gates (W, R, B, P), and initial states."""


def recurrent(links: Links, at: LineInstance, ins: Occurrences, outs: Occurrences) -> None:
    """Add the links. Labels: h the units, k the columns of the recurrence over them, i the inputs."""
    node, units, results_by_number = at.node, ins.get("h", {}), outs.get("h", {})
    for k in range(len(units.get(1, []))):
        gates = [units[i][k] for i in GATES if i in units]
        results = [v[k] for v in results_by_number.values()] + [units[i][k] for i in STATES if i in units]
        for one, others in ((gates[0], gates[1:]), (results[0], results[1:])):
            for other in others:
                links.join(one, other)
        zero = "activations" not in node.attributes
        links.links.append(Link("pointwise", node, (gates[0],), (results[0],), zero=zero))
        links.links.append(Link("pair", node, (results[0], ins["k"][2][k])))
    inputs = ins.get("i", {})
    for x, column in zip(inputs.get(0, []), inputs.get(1, []), strict=True):
        links.links.append(Link("pair", node, (x, column)))
