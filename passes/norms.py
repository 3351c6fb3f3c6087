"""Norms that stand in pieces, recognised by what they compute.

Needs: the graph with sizes. Gives: a `Norm` for every place where v/root(statistic(v²)) closes, whatever
chain of operators it is spelt with: v is x or x − mean(x), the statistic a mean or a sum over one or more
axes, and eps is added to it, or bounds it, in front of the root or behind it. v/statistic(|v|) is one too.

A single forward pass gives each value tags: what it is of which x (a mean over places may be normed itself,
so it is an x as well). Casts, Expand, dropped axes that come
back, and factors of the statistic are transparent. A gain and a bias behind a norm are no part of it: they
are ordinary products and sums; a gain in front of the quotient is kept with it. What only looks like a norm
(the variance without its mean, a mean over other axes, another x) gets no tag and is judged operator by
operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from growc.graph import Graph, Node, Size, Value, static_values
from growc.indexmap import IndexMap
from growc.traits import SIZES


@dataclass(frozen=True)
class Formula:
    """v / (mean(|v|ᵖ) + eps)^(1/p), v = x. `centred`: v = x − mean(x). `total`: a sum, no mean.
    `outside`: eps is added to the root, or bounds it. `power`: p, two or one.
    """

    centred: bool = False
    total: bool = False
    outside: bool = False
    power: int = 2

    @property
    def name(self) -> str:
        """The name that it goes by."""
        if self.total or self.power != 2:
            return f"L{self.power} norm"
        return "LayerNorm" if self.centred else "RMSNorm"

    def behind(self, state: IndexMap) -> tuple[IndexMap, float] | None:
        """The state behind the norm, and the factor of its eps; None where it is not exact."""
        found = (state.layer_norm if self.centred else state.rms_norm)(self.power)
        if found is None:
            return None
        after, factor = found
        if self.total:
            growth = state.size / state.source
            after, factor = after.scaled(growth ** (-1 / self.power)), factor * growth
        return after, self.rooted(factor) if self.outside else factor

    def rooted(self, factor: float) -> float:
        """The factor of the root where the mean has this one."""
        return float(factor ** (1 / self.power))


@dataclass(frozen=True, eq=False)
class Norm:
    """One norm over the last-named axes of `source` (counted from the end, in order); `result` is the value
    that leaves, before any gain but `gain`, which `weigh` puts in front of the quotient.
    """

    formula: Formula
    source: Value
    axes: tuple[int, ...]
    result: Value
    close: Node
    eps: Value | None
    interior: frozenset[Node]
    gain: Value | None = None
    weigh: Node | None = None

    @property
    def by_operator(self) -> bool:
        """Whether one operator closes it that has a gain and an eps of its own."""
        return self.weigh is self.close

    @property
    def bare(self) -> bool:
        """Whether no eps keeps it from dividing zero by zero."""
        return without_eps(self.close) if self.by_operator else self.eps is None or scalar(self.eps) == 0

    def eps_weight(self) -> Value:
        """The weight use behind eps, through casts."""
        found = None if self.eps is None else _stored(self.eps)
        assert found is not None
        return found


@dataclass(frozen=True)
class Tag:
    """What a value is: `form` of `base` along `axes`; `centred` says that the mean was taken off before."""

    form: str  # self, mean, square_of_mean, square, magnitude, statistic, over_statistic, root, inverse
    base: Value
    axes: tuple[int, ...] = ()
    centred: bool = False
    total: bool = False
    outside: bool = False
    power: int = 2
    scaled: bool = False
    eps: Value | None = None
    gain: Value | None = None
    weigh: Node | None = None
    nodes: frozenset[Node] = frozenset()

    @property
    def plain(self) -> bool:
        """Whether it is x itself."""
        return self.form == "self" and not self.centred


SCALABLE = frozenset({"statistic", "over_statistic", "root", "inverse"})
"""Forms that a number may be multiplied with: whatever it is, it stays what it is."""

ROOTS = {"ReduceL2": 2, "ReduceL1": 1}
"""Reductions that give the root of a sum of powers, with the power."""

REDUCED = SCALABLE | {"mean", "square_of_mean"}


def find_norms(graph: Graph) -> list[Norm]:
    """Every norm in pieces, in canonical order."""
    static = static_values(graph)
    tags: dict[Value, list[Tag]] = {}
    weighed: dict[Value, Tag] = {}
    found: list[Norm] = []
    for node in graph.nodes:
        rule = _RULES.get(node.op)
        if rule is None:
            continue
        values = [v for v in node.inputs if v is not None]
        ways = [list(zip(values, way, strict=True)) for way in product(*(_tags_of(v, tags) for v in values))]
        made = [rule(node, way) for way in ways]
        if not any(made) and any(v in weighed for v in values):
            closed = rule(node, [(v, weighed.get(v, tag)) for v, tag in ways[0]])
            made = [closed] if isinstance(closed, Norm) else []
        norms = [m for m in made if isinstance(m, Norm)]
        forms = [m for m in made if isinstance(m, Tag) and _fits(m, node.outputs[0])]
        if norms:
            found.append(norms[0])
        elif forms:
            tags[node.outputs[0]] = [replace(m, nodes=m.nodes | {node}) for m in dict.fromkeys(forms)]
        elif node.op == "Mul" and (with_gain := _weighed(node, ways[0], static)) is not None:
            weighed[node.outputs[0]] = replace(with_gain, nodes=with_gain.nodes | {node})
    return _with_interiors(found)


def _tags_of(value: Value, tags: Mapping[Value, Sequence[Tag]]) -> list[Tag]:
    """What a value is of others, and of itself."""
    found = tags.get(value, ())
    alone = [] if any(tag.form == "self" for tag in found) else [Tag("self", value)]
    return [*found, *alone]


def _fits(tag: Tag, value: Value) -> bool:
    """Whether a value has the shape of its tag: that of x, with one element along the reduced axes or as many
    as x; or with these axes dropped.
    """
    sizes, base = value.sizes, tag.base.sizes
    if sizes is None or base is None:
        return False
    return sizes == base or (tag.form in REDUCED and sizes in (_kept(tag, base), _dropped(tag, base)))


def _kept(tag: Tag, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    return tuple((1,) * len(s) if k - len(sizes) in tag.axes else s for k, s in enumerate(sizes))


def _dropped(tag: Tag, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    return tuple(s for k, s in enumerate(sizes) if k - len(sizes) not in tag.axes)


def _with_interiors(norms: list[Norm]) -> list[Norm]:
    """Of each norm the nodes whose results nobody outside of norms uses: its formula speaks for them."""
    closing = {n.close for n in norms}
    inside = {node for n in norms for node in n.interior}
    apart = {v for n in norms for v in (n.source, n.gain)}
    while True:
        leaving = {
            n for n in inside if any(o in apart or not readers(o) <= inside | closing for o in n.outputs)
        }
        if not leaving:
            return [replace(n, interior=n.interior & inside | {n.close}) for n in norms]
        inside -= leaving


def readers(value: Value) -> set[Node]:
    """The nodes that use a value as more than a shape."""
    return {n for n, _ in value.users if not n.has(SIZES)}


def without_eps(node: Node) -> bool:
    """Whether an operator that norms has an eps of zero."""
    return float(node.attributes.get("epsilon", 1.0)) == 0


def scalar(value: Value | None) -> float | None:
    """The number in a value that is one known number, else None."""
    if value is None or value.known is None or value.known[0].size != 1:
        return None
    numbers = {float(np.asarray(k).reshape(-1)[0]) for k in value.known}
    return numbers.pop() if len(numbers) == 1 else None


def _stored(value: Value) -> Value | None:
    """The use of a weight that a number comes from, through casts; None where it serves others too."""
    while value.weight is None:
        if value.producer is None or len(value.producer.inputs) != 1 or len(value.users) > 1:
            return None
        value = value.producer.inputs[0]  # type: ignore[assignment]
    return value


# -------------------------------------------------------------------- one rule for each operator

Operands = list[tuple[Value, Tag]]


def _axes(node: Node) -> tuple[int, ...] | None:
    """The axes of a reduction, counted from the end."""
    source, second = node.inputs[0], node.input(1)
    if source is None or source.sizes is None or (second is not None and second.known is None):
        return None
    given = node.named_axes
    if not given:
        return None if node.attributes.get("noop_with_empty_axes") else tuple(range(-source.rank, 0))
    return tuple(sorted(a % source.rank - source.rank for a in given))


def _reduce(node: Node, operands: Operands) -> Tag | None:
    (_, tag), axes = operands[0], _axes(node)
    if axes is None or (tag.centred and tag.axes != axes):
        return None
    if node.op == "ReduceMean" and tag.plain:
        return replace(tag, form="mean", axes=axes)
    if node.op in ("ReduceMean", "ReduceSum") and tag.form == "square":
        return replace(tag, form="statistic", axes=axes, total=node.op == "ReduceSum")
    if node.op in ("ReduceMean", "ReduceSum") and tag.form == "magnitude":
        return replace(tag, form="root", axes=axes, total=node.op == "ReduceSum", power=1)
    if node.op in ROOTS and tag.form == "self":
        return replace(tag, form="root", axes=axes, total=True, power=ROOTS[node.op])
    if node.op == "ReduceSumSquare" and tag.form == "self":
        return replace(tag, form="statistic", axes=axes, total=True)
    return None


def _magnitude(node: Node, operands: Operands) -> Tag | None:
    tag = operands[0][1]
    return replace(tag, form="magnitude") if tag.form == "self" else None


def _subtract(node: Node, operands: Operands) -> Tag | None:
    """x − mean(x); and the variance as mean(x²) − mean(x)²."""
    (a, x), (b, m) = operands
    if m.base is not x.base or a.rank != b.rank:
        return None
    nodes = x.nodes | m.nodes
    if x.plain and m.form == "mean" and b.rank == m.base.rank:
        return replace(m, form="self", centred=True, nodes=nodes)
    if m.form == "square_of_mean" and x == Tag("statistic", x.base, m.axes, nodes=x.nodes):
        return replace(x, centred=True, nodes=nodes)
    return None


def _power(node: Node, operands: Operands) -> Tag | None:
    (_, tag), (exponent, _) = operands
    power = scalar(exponent)
    if power == 2:
        return _square(tag)
    if power == 0.5:
        return _root(node, operands)
    if power == -0.5:
        found = _root(node, operands)
        return None if found is None else _inverted(found)
    return _inverted(tag) if power == -1 else None


def _square(tag: Tag) -> Tag | None:
    if tag.form == "self":
        return replace(tag, form="square")
    return replace(tag, form="square_of_mean") if tag.form == "mean" else None


def _root(node: Node, operands: Operands) -> Tag | None:
    forms = {"statistic": "root", "over_statistic": "inverse"}
    tag = operands[0][1]
    return replace(tag, form=forms[tag.form]) if tag.form in forms else None


def _inverted(tag: Tag) -> Tag | None:
    forms = {"statistic": "over_statistic", "root": "inverse"}
    return replace(tag, form=forms[tag.form]) if tag.form in forms else None


def _add_eps(node: Node, operands: Operands) -> Tag | None:
    """eps, added or as a lower bound (Max, or Clip from below)."""
    if node.op == "Clip" and (node.input(1) is None or node.input(2) is not None):
        return None
    if len(operands) != 2:
        return None
    for (_, tag), (eps, _) in (operands, operands[::-1]):
        number = scalar(eps)
        usable = tag.form in ("statistic", "root") and tag.eps is None
        if usable and number is not None and number >= 0 and _stored(eps) is not None:
            return replace(tag, eps=eps, outside=tag.form == "root")
    return None


def _same(node: Node, operands: Operands) -> Tag | None:
    """Operators that pass every element on."""
    value, tag = operands[0]
    return tag if value.floating and node.outputs[0].floating else None


def _reciprocal(node: Node, operands: Operands) -> Tag | None:
    return _inverted(operands[0][1])


def _multiply(node: Node, operands: Operands) -> Tag | Norm | None:
    (a, x), (b, y) = operands
    if a is b or (x.form == y.form and replace(x, nodes=y.nodes) == y):
        return _square(replace(x, nodes=x.nodes | y.nodes))
    for tag, other, factor in ((x, y, a), (y, x, b)):
        if other.form in SCALABLE and scalar(factor) is not None:
            return replace(other, scaled=True)
        if other.form == "inverse" and tag.form == "self":
            return _close(node, tag, other)
    return None


def _divide(node: Node, operands: Operands) -> Tag | Norm | None:
    (a, x), (b, y) = operands
    if scalar(b) is not None:
        return replace(x, scaled=True) if x.form in SCALABLE else None
    if scalar(a) is not None:
        return _inverted(y)
    return _close(node, x, y) if y.form == "root" and x.form == "self" else None


def _weighed(node: Node, operands: Operands, static: set[Value]) -> Tag | None:
    """A gain that meets x, or the inverse of the root, before these meet."""
    for (value, tag), (gain, _) in (operands, operands[::-1]):
        aligned = value.rank == tag.base.rank >= gain.rank
        if gain in static and aligned and tag.form in ("self", "inverse") and value not in static:
            return replace(tag, gain=gain, weigh=node)
    return None


def _close(node: Node, x: Tag, scale: Tag) -> Norm | None:
    if x.base is not scale.base or x.centred != scale.centred or (x.centred and x.axes != scale.axes):
        return None
    aligned = all(v is not None and v.rank == x.base.rank for v in node.inputs)
    if None not in (x.gain, scale.gain) or not aligned or node.outputs[0].sizes != x.base.sizes:
        return None
    formula = Formula(x.centred, scale.total, scale.outside, scale.power)
    gain, weigh = (x.gain, x.weigh) if x.gain is not None else (scale.gain, scale.weigh)
    interior = x.nodes | scale.nodes
    return Norm(formula, x.base, scale.axes, node.outputs[0], node, scale.eps, interior, gain, weigh)


def _root_mean_square(node: Node, operands: Operands) -> Norm | None:
    """An operator that divides by the root of the mean square: of a centred value it is a LayerNorm."""
    (value, tag), (gain, _) = operands
    if not value.rank:  # the shape is not known
        return None
    axes = tuple(range(int(node.attributes.get("axis", -1)) % value.rank - value.rank, 0))
    if tag.form != "self" or not tag.centred or tag.axes != axes or value.rank != tag.base.rank:
        return None
    return Norm(Formula(True), tag.base, axes, node.outputs[0], node, None, tag.nodes, gain, node)


_RULES: dict[str, Callable[[Node, Operands], Tag | Norm | None]] = {
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "ReduceL1": _reduce,
    "ReduceL2": _reduce,
    "ReduceSumSquare": _reduce,
    "Abs": _magnitude,
    "Sub": _subtract,
    "Pow": _power,
    "Sqrt": _root,
    "Add": _add_eps,
    "Max": _add_eps,
    "Clip": _add_eps,
    "Cast": _same,
    "Identity": _same,
    "Expand": _same,
    "Unsqueeze": _same,
    "Reshape": _same,
    "Reciprocal": _reciprocal,
    "Mul": _multiply,
    "Div": _divide,
    "RMSNormalization": _root_mean_square,
    "SimplifiedLayerNormalization": _root_mean_square,
}
