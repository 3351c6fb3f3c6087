"""Norms that stand in pieces become one `Norm`, recognised by what they compute.

Needs: the graph with sizes. Gives: a `Norm` for every place where v/root(statistic(v²)) closes, whatever
chain of operators it is spelt with: v is x or x − mean(x), the statistic a mean or a sum over one or more
axes, and eps is added to it, or bounds it, in front of the root or behind it. v/statistic(|v|) is one too.

A single forward pass gives each value tags: what it is of which x (a mean over places may be normed itself,
so it is an x as well). STEPS says what each operator makes of such values: another spelling is another row.
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
from growc.ir.graph import Graph, Node, Value, static_values
from growc.ir.rows import columns
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
"""What operators make of values with tags, one step a row. Operands beside `&` may stand in either order.

`plain`: an x that is not centred. `scalable`: a form that stays the same times a number. `number`: one known
number, `eps`: one that is not negative, and stored. `norm`: the quotient that closes a norm.
"""


@dataclass(frozen=True)
class Tag:
    """What a value is: `form` of `base` along `axes`; `centred` says that the mean was taken off before."""

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
"""Forms that a number may be multiplied with: whatever it is, it stays what it is."""

REDUCED = SCALABLE | {"mean", "square_of_mean"}

Way = Sequence[tuple[Value, Tag]]
"""The operands of a node, each as one of the things that it is."""


@dataclass(frozen=True)
class Step:
    """One row of the table."""

    operands: tuple[str, ...]
    form: str
    words: frozenset[str]
    either_order: bool = False
    """Whether its two operands may change places."""

    @property
    def reduces(self) -> bool:
        """Whether it makes one number of many."""
        return self.form in REDUCED and REDUCED.isdisjoint(self.operands)


def _steps(text: str) -> dict[str, list[Step]]:
    """The rows of a table, by operator."""
    found: dict[str, list[Step]] = {}
    for op, operands, form, *words in columns(text):
        laws = frozenset(word for group in words for word in group.split())
        terms = tuple(re.split(r"\s*[,&]\s*", operands))
        found.setdefault(op, []).append(Step(terms, form, laws, "&" in operands))
    return found


STEPS = _steps(TABLE)


def find_norms(graph: Graph) -> list[Norm]:
    """Every norm in pieces, in canonical order."""
    static = static_values(graph)
    tags: dict[Value, list[Tag]] = {}
    weighed: dict[Value, Tag] = {}
    found: list[Norm] = []
    for node in graph.nodes:
        if node.op not in STEPS and node.treatment != "rms_norm" and not node.has(SAME, VIEW, REPEAT):
            continue
        values = [v for v in node.inputs if v is not None]
        ways = [list(zip(values, way, strict=True)) for way in product(*(_tags_of(v, tags) for v in values))]
        made = [_made(node, way) for way in ways]
        if not any(made) and any(v in weighed for v in values):
            closed = _made(node, [(v, weighed.get(v, tag)) for v, tag in ways[0]])
            made = [closed] if isinstance(closed, Norm) else []
        norms = [m for m in made if isinstance(m, Norm)]
        forms = [m for m in made if isinstance(m, Tag) and _fits(m, node.outputs[0])]
        if norms:
            found.append(norms[0])
        elif forms:
            tags[node.outputs[0]] = [replace(m, nodes=m.nodes | {node}) for m in dict.fromkeys(forms)]
        elif node.treatment == "multiply" and (gained := _weighed(node, ways[0], static)) is not None:
            weighed[node.outputs[0]] = replace(gained, nodes=gained.nodes | {node})
    return _with_interiors(found)


def _tags_of(value: Value, tags: Mapping[Value, Sequence[Tag]]) -> list[Tag]:
    """What a value is of others, and of itself."""
    found = tags.get(value, ())
    alone = [] if any(tag.form == "x" for tag in found) else [Tag("x", value)]
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


# ------------------------------------------------------------------------------------ what one node makes


def _made(node: Node, way: Way) -> Tag | Norm | None:
    """What a node makes of its operands, if these are what a way says."""
    if node.has(SAME, VIEW, REPEAT):
        value, tag = way[0]
        return tag if value.floating and node.outputs[0].floating else None
    if node.treatment == "rms_norm":
        return _closed_by_operator(node, way)
    for step in STEPS[node.op]:
        for operands in (way, way[::-1]) if step.either_order else (way,):
            made = _stepped(step, node, operands[:1] if step.reduces else operands)
            if made is not None:
                return made
    return None


def _stepped(step: Step, node: Node, way: Way) -> Tag | Norm | None:
    """What one row says of a node; None where it is about others."""
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
    """Whether a term of the table is no number."""
    return term[-1].isalpha() and term not in ("number", "eps")


def _is(term: str, operand: tuple[Value, Tag]) -> bool:
    """Whether an operand is what a term of the table says."""
    value, tag = operand
    if _is_form(term):
        return tag.plain if term == "plain" else tag.form in (SCALABLE if term == "scalable" else (term,))
    number = scalar(value)
    if number is None or term == "number":
        return number is not None
    return number >= 0 and stored(value) is not None if term == "eps" else number == float(term)


def _of_one_value(operands: Way) -> bool:
    """Whether operands are made of one value in one way; an x that is whole goes with its mean."""
    (a, x), (b, y) = operands[0], operands[-1]
    alike = replace(x, form=y.form, axes=x.axes or y.axes, nodes=y.nodes)
    return x.base is y.base and a.rank == b.rank and alike == y


def _axes(node: Node) -> tuple[int, ...] | None:
    """The axes of a reduction, counted from the end."""
    source, second = node.inputs[0], node.input(1)
    if source is None or source.sizes is None or (second is not None and second.known is None):
        return None
    given = node.named_axes
    if not given:
        return None if node.attributes.get("noop_with_empty_axes") else tuple(range(-source.rank, 0))
    return tuple(sorted(a % source.rank - source.rank for a in given))


def _weighed(node: Node, way: Way, static: set[Value]) -> Tag | None:
    """A gain that meets x, or the inverse of the root, before these meet."""
    for (value, tag), (gain, _) in (way, way[::-1]):
        aligned = value.rank == tag.base.rank >= gain.rank
        if gain in static and aligned and tag.form in ("x", "inverse") and value not in static:
            return replace(tag, gain=gain, weigh=node)
    return None


def _closed(node: Node, x: Tag, scale: Tag) -> Norm | None:
    """A quotient of x and the root of its own statistic."""
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
    """An operator that divides by the root of the mean square: of a centred value it is a LayerNorm."""
    (value, tag), (gain, _) = way
    if not value.rank:  # the shape is not known
        return None
    axes = tuple(range(node.integer("axis", -1) % value.rank - value.rank, 0))
    if tag.form != "x" or not tag.centred or tag.axes != axes or value.rank != tag.base.rank:
        return None
    return Norm(Formula(True), tag.base, axes, node.outputs[0], node, None, tag.nodes, gain, node)
