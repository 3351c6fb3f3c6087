"""The links of each treatment of the operator table: one function for each, which adds them for a label.

A function gets the variables of one label of one node: `ins` by operand, `outs` by result. To add a
treatment, add its function here and its name in growc.ir.notation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from growc.ir.graph import Node, Value
from growc.passes.axes.infer import LineInstance
from growc.passes.axes.norms import scalar
from growc.passes.solving.constraints import Link, Links, Var

REDUCTIONS = frozenset({"mean", "sum", "extreme", "fold", "fold squares"})
"""Treatments that reduce a whole axis. They also act on the axes that stay."""


def _join_all(links: Links, node: Node, variables: Sequence[Var], made_variables: Sequence[Var]) -> None:
    for v in variables[1:]:
        links.join(variables[0], v)
    if made_variables:
        links.links.append(Link("make", node, (), tuple(made_variables)))


def _layout(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    if ins:
        _join_all(links, at.node, [*ins.values(), *outs], outs)
    else:  # the operator makes the axis, and all its units are alike
        links.links.append(Link("broadcast", at.node, (), tuple(outs)))


def _stretched(at: LineInstance, ins: dict[int, Var]) -> list[Value]:
    """Operands of a sum or a choice that have one element for all units.

    Conditions do not count, nor operands of another type than the result: they say where the others go.
    """
    first, result_type = int(at.line.treatment == "select"), at.node.outputs[0].dtype
    others = [v for i, v in enumerate(at.node.inputs) if v is not None and i not in ins and i >= first]
    return [v for v in others if v.dtype == result_type or "" in (v.dtype, result_type)]


def _sum(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    operands = list(ins.values())
    if all(scalar(v) == 0 for v in _stretched(at, ins)):
        _join_all(links, at.node, [*operands, *outs], outs)
    elif not operands:
        _layout(links, at, ins, outs)
    else:
        for v in operands[1:]:
            links.join(operands[0], v)
        links.links.append(Link("shift", at.node, (operands[0],), tuple(outs)))


def _multiply(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    if len(ins) == 2:
        links.links.append(Link("product", at.node, tuple(ins.values()), tuple(outs)))
    else:
        _layout(links, at, ins, outs)


def _divide(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    if list(ins) == [0]:
        _layout(links, at, ins, outs)
    else:
        sources = tuple(ins[i] for i in sorted(ins))
        links.links.append(Link("quotient", at.node, sources, tuple(outs)))


def _remainder(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    """The remainder by one number is a pointwise function that is zero at zero."""
    if len(ins) == 2:
        links.links.append(Link("remainder", at.node, (ins[0], ins[1]), tuple(outs)))
    else:
        pointwise_links = [Link("pointwise", at.node, (v,), tuple(outs), zero=not i) for i, v in ins.items()]
        links.links += pointwise_links or [Link("make", at.node, (), tuple(outs))]


def _pointwise(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    zero, homogeneous = "zero" in at.line.treatment, "homogeneous" in at.line.treatment
    for source in ins.values():
        links.links.append(Link("pointwise", at.node, (source,), tuple(outs), zero, homogeneous))
    if not ins:
        links.links.append(Link("make", at.node, (), tuple(outs)))


def _select(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    if 0 in ins:
        _pointwise(links, at, ins, outs)
    else:
        _sum(links, at, ins, outs)


def _contract(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    factors = [ins[i] for i in (0, 1) if i in ins]
    added = [v for i, v in ins.items() if i > 1]
    if len(factors) == 2 and not outs:
        links.links.append(Link("pair", at.node, tuple(factors)))
    elif len(factors) == 2:
        links.links.append(Link("product", at.node, tuple(factors), tuple(outs)))
        _join_all(links, at.node, [*outs, *added], [])
    elif any(v is not None and v.floating for i, v in enumerate(at.node.inputs) if i > 1 and i not in ins):
        links.links.append(
            Link("shift", at.node, tuple(factors or added)[:1], tuple(outs))
        )  # one bias for all units
    else:
        _join_all(links, at.node, [*factors, *added, *outs], outs)


def _lookup(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    """A look-up moves rows of a table.

    As a function of its index it is not zero at zero: it takes row zero.
    """
    if list(ins) == [1]:
        _pointwise(links, at, ins, outs)
    else:
        _layout(links, at, ins, outs)


def _attention(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    """softmax(q·k)·v: scores are a product over heads, and the softmax is a nonlinear function of them."""
    node, biases = at.node, [v for i, v in ins.items() if i == 3]
    result, score_outputs = outs[:1], outs[1:]
    if 0 in ins and 1 in ins and not outs:
        links.links.append(Link("pair", node, (ins[0], ins[1])))
    elif 0 not in ins:
        _join_all(links, node, [ins[2], *result], result)
    else:
        scores, probabilities = (links.fresh(links.atoms[ins[0]], None) for _ in range(2))
        factors = tuple(ins[i] for i in (0, 1) if i in ins)
        links.links.append(Link("product", node, factors, (scores,)))
        _join_all(links, node, [scores, *biases], [])
        links.links.append(Link("pointwise", node, (scores,), (probabilities, *score_outputs)))
        values = (probabilities, ins[2]) if 2 in ins else (probabilities,)
        links.links.append(Link("product", node, values, tuple(result)))


def _statistic(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    if at.line.treatment in ("mean", "sum"):
        _layout(links, at, ins, outs)
    else:
        linear = at.line.treatment != "fold squares"
        for source in ins.values():
            links.links.append(
                Link("pointwise", at.node, (source,), tuple(outs), zero=True, homogeneous=linear)
            )


def _per_channel(links: Links, at: LineInstance, ins: dict[int, Var], outs: list[Var]) -> None:
    """BatchNormalization: (x − mean)/sqrt(var) · gain + bias, for each channel alone."""
    if list(ins) == [0]:
        _pointwise(links, at, ins, outs)
        return
    core = links.fresh(links.atoms[outs[0]], None)
    links.links.append(Link("pointwise", at.node, (ins[0],), (core,), zero=True))
    links.links.append(Link("product", at.node, (core, ins[1]), tuple(outs)))
    links.join(ins[2], outs[0])
    for i in (3, 4):
        links.join(ins[i], core)


TREATMENTS: dict[str, Callable[[Links, LineInstance, dict[int, Var], list[Var]], None]] = {
    "layout": _layout,
    "lookup": _lookup,
    "add": _sum,
    "multiply": _multiply,
    "divide": _divide,
    "remainder": _remainder,
    "pointwise": _pointwise,
    "pointwise zero": _pointwise,
    "pointwise zero homogeneous": _pointwise,
    "select": _select,
    "contract": _contract,
    "attention": _attention,
    "mean": _statistic,
    "sum": _statistic,
    "extreme": _statistic,
    "fold": _statistic,
    "fold squares": _statistic,
    "per_channel": _per_channel,
    "opaque": _layout,
}
