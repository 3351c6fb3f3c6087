"""Norms in pieces become one `Norm`, recognised by their formula.

Needs: the graph with sizes. Gives: a `Norm` for every v/root(statistic(v²)), with any chain of operators: v
is x or x − mean(x), and the statistic is a mean or a sum over one or more axes. eps is added to it, or bounds
it, in front of the root or behind it. v/statistic(|v|) is a norm too.

One forward pass gives each value tags: which form of which x it is. A mean over places may be normed itself,
so it is an x as well. STEPS says what each operator makes of such values: another spelling is another row.
Operators that hand elements on, dropped axes that come back, and factors of the statistic are transparent.
A gain and a bias behind a norm are no part of it: they are ordinary products and sums. A gain in front of the
quotient is kept with it. A look-alike (the variance without its mean, a mean over other axes, another x) gets
no tag and is judged operator by operator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from growc.algebra.space import Size
from growc.ir.graph import Graph, Node, Value
from growc.ir.operator_rows import columns
from growc.ir.traits import REPEAT, SAME, VIEW
from growc.passes.axes.norms import Formula, Norm, readers, scalar, stored

TABLE = """
    # operator         operands                      result

    ReduceMean         plain                         mean
    Sub                plain, mean                   x               centred
    Mul                x & x                         square
    Pow                x, 2                          square
    Abs                x                             magnitude
    Mul                mean & mean                   square_of_mean
    Pow                mean, 2                       square_of_mean

    ReduceMean         square                        statistic
    ReduceSum          square                        statistic       total
    ReduceSumSquare    x                             statistic       total
    Sub                statistic, square_of_mean     statistic       centred
    Add                statistic & eps               statistic
    Max                statistic & eps               statistic
    Clip               statistic, eps                statistic

    Sqrt               statistic                     root
    Pow                statistic, 0.5                root
    ReduceL2           x                             root            total
    ReduceL1           x                             root            total p=1
    ReduceSum          magnitude                     root            total p=1
    ReduceMean         magnitude                     root            p=1
    Add                root & eps                    root            outside
    Max                root & eps                    root            outside
    Clip               root, eps                     root            outside

    Reciprocal         root                          inverse
    Pow                root, -1                      inverse
    Div                number, root                  inverse
    Pow                statistic, -0.5               inverse
    Reciprocal         statistic                     over_statistic
    Pow                statistic, -1                 over_statistic
    Div                number, statistic             over_statistic
    Sqrt               over_statistic                inverse
    Pow                over_statistic, 0.5           inverse

    Mul                scalable & number             scalable        scaled
    Div                scalable, number              scalable        scaled
    Div                x, root                       norm
    Mul                x & inverse                   norm
"""
"""The results of operators on tagged values, one step a row. Operands beside `&` may stand in either order.

`plain`: an x that is not centred. `scalable`: a form that stays the same times a number. `number`: one known
number. `eps`: a known number that is not negative, and stored. `norm`: the quotient that closes a norm.
"""


@dataclass(frozen=True)
class Tag:
    """One reading of a value: it is `form` of `base` along `axes`.

    `centred`: the mean is subtracted before.
    """

    form: str  # x, mean, square_of_mean, square, magnitude, statistic, over_statistic, root, inverse
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
        return self.form == "x" and not self.centred


SCALABLE = frozenset({"statistic", "over_statistic", "root", "inverse"})
"""Forms that stay the same form when they are multiplied with any number."""

REDUCED = SCALABLE | {"mean", "square_of_mean"}

Way = Sequence[tuple[Value, Tag]]
"""The operands of a node, each with one of its tags."""


@dataclass(frozen=True)
class NormRow:
    """One row of the table."""

    operands: tuple[str, ...]
    form: str
    words: frozenset[str]
    either_order: bool = False
    """Whether the two operands may change places."""

    @property
    def reduces(self) -> bool:
        """Whether the step makes one number of many."""
        return self.form in REDUCED and REDUCED.isdisjoint(self.operands)


def _steps(text: str) -> dict[str, list[NormRow]]:
    """The rows of a table, by operator."""
    steps_of_operator: dict[str, list[NormRow]] = {}
    for op, operands, form, *words in columns(text):
        laws = frozenset(word for group in words for word in group.split())
        terms = tuple(re.split(r"\s*[,&]\s*", operands))
        steps_of_operator.setdefault(op, []).append(NormRow(terms, form, laws, "&" in operands))
    return steps_of_operator


STEPS = _steps(TABLE)


def find_norms(graph: Graph) -> list[Norm]:
    """Every norm in pieces, in canonical order."""
    static = graph.static
    tags: dict[Value, list[Tag]] = {}
    with_gain: dict[Value, Tag] = {}
    norms_in_order: list[Norm] = []
    for node in graph.nodes:
        if node.op not in STEPS and node.treatment != "rms_norm" and not node.has(SAME, VIEW, REPEAT):
            continue
        values = [v for v in node.inputs if v is not None]
        ways = [list(zip(values, way, strict=True)) for way in product(*(_tags_of(v, tags) for v in values))]
        results = [_made(node, way) for way in ways]
        if not any(results) and any(v in with_gain for v in values):
            closed = _made(node, [(v, with_gain.get(v, tag)) for v, tag in ways[0]])
            results = [closed] if isinstance(closed, Norm) else []
        closed_norms = [m for m in results if isinstance(m, Norm)]
        forms = [m for m in results if isinstance(m, Tag) and _fits(m, node.outputs[0])]
        if closed_norms:
            norms_in_order.append(closed_norms[0])
        elif forms:
            tags[node.outputs[0]] = [replace(m, nodes=m.nodes | {node}) for m in dict.fromkeys(forms)]
        elif node.treatment == "multiply" and (gained := _weighed(node, ways[0], static)) is not None:
            with_gain[node.outputs[0]] = replace(gained, nodes=gained.nodes | {node})
    return _with_interiors(norms_in_order)


def _tags_of(value: Value, tags: Mapping[Value, Sequence[Tag]]) -> list[Tag]:
    """The tags of a value, and the tag of a plain x unless it has one of that form."""
    tags_of_value = tags.get(value, ())
    as_itself = [] if any(tag.form == "x" for tag in tags_of_value) else [Tag("x", value)]
    return [*tags_of_value, *as_itself]


def _fits(tag: Tag, value: Value) -> bool:
    """Whether a value has a shape that fits its tag.

    That is the shape of x, where reduced axes may have one element or be dropped.
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
    """The norms, each with the nodes whose results only norms use: its formula stands for these."""
    closing = {n.close for n in norms}
    inside = {node for n in norms for node in n.interior}
    sources_and_gains = {v for n in norms for v in (n.source, n.gain)}
    while True:
        leaving = {
            n
            for n in inside
            if any(o in sources_and_gains or not readers(o) <= inside | closing for o in n.outputs)
        }
        if not leaving:
            return [replace(n, interior=n.interior & inside | {n.close}) for n in norms]
        inside -= leaving


# ------------------------------------------------------------------------------------ what one node makes


def _made(node: Node, way: Way) -> Tag | Norm | None:
    """The tag of a node's result, or the norm that it closes, if its operands have the tags of `way`."""
    if node.has(SAME, VIEW, REPEAT):
        value, tag = way[0]
        return tag if value.floating and node.outputs[0].floating else None
    if node.treatment == "rms_norm":
        return _closed_by_operator(node, way)
    for step in STEPS[node.op]:
        for operands in (way, way[::-1]) if step.either_order else (way,):
            result = _stepped(step, node, operands[:1] if step.reduces else operands)
            if result is not None:
                return result
    return None


def _stepped(step: NormRow, node: Node, way: Way) -> Tag | Norm | None:
    """The result of a node by one row of the table; None where the row does not fit."""
    complete = len(way) == len(step.operands) and None not in node.inputs[: len(way)]
    if not complete or not all(map(_is, step.operands, way)):
        return None
    formed = [one for term, one in zip(step.operands, way, strict=True) if _is_form(term)]
    tags = [tag for _, tag in formed]
    if step.form == "norm":
        return _closed(node, *tags)
    tag, axes = tags[-1], _axes(node) if step.reduces else tags[-1].axes
    if axes is None or (tag.centred and tag.axes != axes) or not _of_one_value(formed):
        return None
    eps = [value for term, (value, _) in zip(step.operands, way, strict=True) if term == "eps"]
    if eps and tag.eps is not None:
        return None
    return replace(
        tag,
        form=tag.form if step.form == "scalable" else step.form,
        axes=axes,
        centred=tag.centred or "centred" in step.words,
        total=tag.total or "total" in step.words,
        outside=tag.outside or "outside" in step.words,
        scaled=tag.scaled or "scaled" in step.words,
        power=1 if "p=1" in step.words else tag.power,
        eps=eps[0] if eps else tag.eps,
        nodes=frozenset().union(*(one.nodes for one in tags)),
    )


def _is_form(term: str) -> bool:
    """Whether a term of the table names a form, and not a number."""
    return term[-1].isalpha() and term not in ("number", "eps")


def _is(term: str, operand: tuple[Value, Tag]) -> bool:
    """Whether an operand fits a term of the table."""
    value, tag = operand
    if _is_form(term):
        return tag.plain if term == "plain" else tag.form in (SCALABLE if term == "scalable" else (term,))
    number = scalar(value)
    if number is None or term == "number":
        return number is not None
    return number >= 0 and stored(value) is not None if term == "eps" else number == float(term)


def _of_one_value(operands: Way) -> bool:
    """Whether two operands are made of one value in one way. x itself goes with its mean."""
    (a, x), (b, y) = operands[0], operands[-1]
    alike = replace(x, form=y.form, axes=x.axes or y.axes, nodes=y.nodes)
    return x.base is y.base and a.rank == b.rank and alike == y


def _axes(node: Node) -> tuple[int, ...] | None:
    """The axes of a reduction, counted from the end; None where they are not known."""
    source, second = node.inputs[0], node.input(1)
    if source is None or source.sizes is None or (second is not None and second.known is None):
        return None
    named_axes = node.named_axes
    if not named_axes:
        return None if node.attributes.get("noop_with_empty_axes") else tuple(range(-source.rank, 0))
    return tuple(sorted(a % source.rank - source.rank for a in named_axes))


def _weighed(node: Node, way: Way, static: frozenset[Value]) -> Tag | None:
    """The tag of a product with a gain: x, or the inverse of the root, before these two meet; else None."""
    for (value, tag), (gain, _) in (way, way[::-1]):
        aligned = value.rank == tag.base.rank >= gain.rank
        if gain in static and aligned and tag.form in ("x", "inverse") and value not in static:
            return replace(tag, gain=gain, weigh=node)
    return None


def _closed(node: Node, x: Tag, scale: Tag) -> Norm | None:
    """The norm of a quotient of x and the root of its own statistic; None where it is no norm."""
    if x.base is not scale.base or x.centred != scale.centred or (x.centred and x.axes != scale.axes):
        return None
    aligned = all(v is not None and v.rank == x.base.rank for v in node.inputs)
    if None not in (x.gain, scale.gain) or not aligned or node.outputs[0].sizes != x.base.sizes:
        return None
    formula = Formula(x.centred, scale.total, scale.outside, scale.power)
    gain, weigh = (x.gain, x.weigh) if x.gain is not None else (scale.gain, scale.weigh)
    interior = x.nodes | scale.nodes
    return Norm(formula, x.base, scale.axes, node.outputs[0], node, scale.eps, interior, gain, weigh)


def _closed_by_operator(node: Node, way: Way) -> Norm | None:
    """The LayerNorm of an RMS norm operator that reads a centred value; None for any other operand."""
    (value, tag), (gain, _) = way
    if not value.rank:  # the shape is not known
        return None
    axes = tuple(range(node.integer("axis", -1) % value.rank - value.rank, 0))
    if tag.form != "x" or not tag.centred or tag.axes != axes or value.rank != tag.base.rank:
        return None
    return Norm(Formula(True), tag.base, axes, node.outputs[0], node, None, tag.nodes, gain, node)
