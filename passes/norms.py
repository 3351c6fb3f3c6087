"""Norms that stand in pieces, recognised by what they compute.

Needs: the graph. Gives: a `Norm` for every place where x/sqrt(mean(x²) + eps), (x − mean(x))/sqrt(var(x) +
eps) or x/max(‖x‖, eps) closes, whatever chain of operators it is spelt with.

A single forward pass gives each value a tag: what it is of which x. Casts and identities are transparent.
A gain and a bias are no part of a norm in pieces: they are ordinary products and sums. What only looks like a
norm (the variance without its mean, a mean over another axis, eps outside the root) gets no tag and is judged
operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from growc.graph import Graph, Node, Value


@dataclass(frozen=True, eq=False)
class Norm:
    """One norm over the last-named axis of `source`; `result` is the value that leaves, before any gain."""

    kind: str  # layer_norm, rms_norm or l2_norm
    source: Value
    axis: int
    result: Value
    close: Node
    eps: Value | None
    interior: frozenset[Node]

    def eps_weight(self) -> Value:
        """The weight use behind eps, through casts."""
        value = self.eps
        while value is not None and value.weight is None and value.producer is not None:
            value = value.producer.inputs[0]
        assert value is not None
        return value


@dataclass(frozen=True)
class Tag:
    """What a value is: `form` of `base` along `axis`; `centred` says that the mean was taken off before."""

    form: str  # self, mean, square, mean_square, shifted, deviation, inverse, sum_square, length, bounded
    base: Value
    axis: int = -1
    centred: bool = False
    eps: Value | None = None
    nodes: frozenset[Node] = frozenset()


def find_norms(graph: Graph) -> list[Norm]:
    """Every norm in pieces, in canonical order."""
    tags: dict[Value, Tag] = {}
    found: list[Norm] = []
    for node in graph.nodes:
        if (
            node.op in ("Cast", "Identity")
            and node.inputs[0] is not None
            and node.inputs[0].floating
            and node.outputs[0].floating
        ):
            tag = _tag(node.inputs[0], tags)
            tags[node.outputs[0]] = replace(tag, nodes=tag.nodes | {node})
            continue
        rule = _RULES.get(node.op)
        tag_or_norm = rule(node, tags) if rule else None
        if isinstance(tag_or_norm, Norm):
            found.append(tag_or_norm)
        elif tag_or_norm is not None:
            tags[node.outputs[0]] = replace(tag_or_norm, nodes=tag_or_norm.nodes | {node})
    return [replace(n, interior=_closed(n)) for n in found]


def _closed(norm: Norm) -> frozenset[Node]:
    """The nodes whose results nobody outside the norm uses: the norm's formula speaks for them."""
    inside = set(norm.interior)
    while True:
        leaving = {
            n
            for n in inside
            if not all(u is norm.close or u in inside for o in n.outputs for u, _ in o.users)
        }
        if not leaving:
            return frozenset(inside | {norm.close})
        inside -= leaving


def _tag(value: Value, tags: dict[Value, Tag]) -> Tag:
    return tags.get(value, Tag("self", value))


def _operands(node: Node, tags: dict[Value, Tag]) -> list[tuple[Value, Tag]]:
    return [(v, _tag(v, tags)) for v in node.inputs if v is not None]


def scalar(value: Value | None) -> float | None:
    """The number in a value that is one known number, else None."""
    if value is None or value.known is None or value.known[0].size != 1:
        return None
    numbers = {float(np.asarray(k).reshape(-1)[0]) for k in value.known}
    return numbers.pop() if len(numbers) == 1 else None


def _axis(node: Node) -> int | None:
    """The single axis of a reduction that keeps its dimension, counted from the end."""
    axes = node.attributes.get("axes")
    second = node.input(1)
    if axes is None and second is not None and second.known is not None:
        axes = second.known[0].reshape(-1).tolist()
    source = node.inputs[0]
    if source is None or axes is None or len(axes) != 1 or not node.attributes.get("keepdims", 1):
        return None
    return int(axes[0]) % source.rank - source.rank


def _mean(node: Node, tags: dict[Value, Tag]) -> Tag | None:
    (_, tag), axis = _operands(node, tags)[0], _axis(node)
    if axis is None:
        return None
    if tag.form == "self" and not tag.centred:
        return replace(tag, form="mean", axis=axis)
    if tag.form == "square" and (not tag.centred or tag.axis == axis):
        return replace(tag, form="mean_square", axis=axis)
    return None


def _sum(node: Node, tags: dict[Value, Tag]) -> Tag | None:
    (_, tag), axis = _operands(node, tags)[0], _axis(node)
    if axis is not None and tag.form == "square" and not tag.centred:
        return replace(tag, form="sum_square", axis=axis)
    return None


def _length(node: Node, tags: dict[Value, Tag]) -> Tag | None:
    (_, tag), axis = _operands(node, tags)[0], _axis(node)
    plain = tag.form == "self" and not tag.centred
    return replace(tag, form="length", axis=axis) if axis is not None and plain else None


def _subtract(node: Node, tags: dict[Value, Tag]) -> Tag | None:
    (_, x), (_, m) = _operands(node, tags)
    if x.form == "self" and not x.centred and m.form == "mean" and m.base is x.base:
        return replace(m, form="self", centred=True, nodes=x.nodes | m.nodes)
    return None


def _square(tag: Tag) -> Tag | None:
    return replace(tag, form="square") if tag.form == "self" else None


def _power(node: Node, tags: dict[Value, Tag]) -> Tag | None:
    (_, tag), (exponent, _) = _operands(node, tags)
    power = scalar(exponent)
    if power == 2:
        return _square(tag)
    if power == 0.5:
        return _root(node, tags)
    if power == -0.5 and tag.form == "shifted":
        return replace(tag, form="inverse")
    return None


def _add(node: Node, tags: dict[Value, Tag]) -> Tag | None:
    (a, x), (b, y) = _operands(node, tags)
    for tag, eps in ((x, b), (y, a)):
        if scalar(eps) is not None and tag.form == "mean_square":
            return replace(tag, form="shifted", eps=eps)
    return None


def _root(node: Node, tags: dict[Value, Tag]) -> Tag | None:
    _, tag = _operands(node, tags)[0]
    forms = {"shifted": "deviation", "sum_square": "length"}
    return replace(tag, form=forms[tag.form]) if tag.form in forms else None


def _bound(node: Node, tags: dict[Value, Tag]) -> Tag | None:
    """max(‖x‖, eps), written as Max or as a Clip from below."""
    if node.op == "Clip" and (node.input(1) is None or node.input(2) is not None):
        return None
    operands = _operands(node, tags)
    lengths = [t for _, t in operands if t.form == "length"]
    bounds = [v for v, t in operands if t.form == "self" and scalar(v) is not None]
    if len(lengths) == 1 and len(bounds) == 1 and len(operands) == 2:
        return replace(lengths[0], form="bounded", eps=bounds[0])
    return None


def _expand(node: Node, tags: dict[Value, Tag]) -> Tag | None:
    _, tag = _operands(node, tags)[0]
    return None if tag.form == "self" else tag


def _reciprocal(node: Node, tags: dict[Value, Tag]) -> Tag | None:
    _, tag = _operands(node, tags)[0]
    return replace(tag, form="inverse") if tag.form == "deviation" else None


def _multiply(node: Node, tags: dict[Value, Tag]) -> Tag | Norm | None:
    (a, x), (b, y) = _operands(node, tags)
    if a is b or (x.form == y.form == "self" and (x.base, x.centred, x.axis) == (y.base, y.centred, y.axis)):
        return _square(x)
    for tag, other in ((x, y), (y, x)):
        if other.form == "inverse" and tag.form == "self":
            return _close(node, tag, other)
    return None


def _divide(node: Node, tags: dict[Value, Tag]) -> Tag | Norm | None:
    (a, x), (_, y) = _operands(node, tags)
    if y.form == "deviation" and scalar(a) == 1:
        return replace(y, form="inverse")
    if y.form in ("deviation", "bounded", "length") and x.form == "self":
        return _close(node, x, y)
    return None


def _close(node: Node, x: Tag, scale: Tag) -> Norm | None:
    if x.base is not scale.base or x.centred != scale.centred or (x.centred and x.axis != scale.axis):
        return None
    kind = "l2_norm" if scale.form in ("bounded", "length") else "layer_norm" if x.centred else "rms_norm"
    return Norm(kind, x.base, scale.axis, node.outputs[0], node, scale.eps, x.nodes | scale.nodes)


_RULES: dict[str, Callable[[Node, dict[Value, Tag]], Tag | Norm | None]] = {
    "ReduceMean": _mean,
    "ReduceSum": _sum,
    "ReduceL2": _length,
    "Sub": _subtract,
    "Pow": _power,
    "Add": _add,
    "Sqrt": _root,
    "Max": _bound,
    "Clip": _bound,
    "Expand": _expand,
    "Reciprocal": _reciprocal,
    "Mul": _multiply,
    "Div": _divide,
}
