"""From lines to links: how the state of one tensor's axis determines another's.

Needs: the axis graph, the norms in pieces, the ties, and which spaces a statement maps. Gives: `Links`: a variable for
every factor or segment of every affected axis of every value, classes of variables that must have one state (through
sums, layout, producing weights), and links between classes (norms, products, contractions, nonlinearities).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from growc.axes import Space, find, leaves
from growc.graph import Node, Value
from growc.operators import Term, labels
from growc.passes.norms import Norm, scalar
from growc.passes.spaces import Axes, Instance
from growc.passes.ties import Tie

Var = int


@dataclass(frozen=True)
class Link:
    """`kind` says how `target` follows from `sources`; `node` is where.

    make: targets have no state of their own yet. pointwise, shift, product, quotient: as the methods of IndexMap.
    pair: both sources are contracted with each other. statistic: sources (a whole axis) are reduced. norm: sources (a
    whole axis) are normalised into targets. output: sources leave the model.
    """

    kind: str
    node: Node | None
    sources: tuple[Var, ...]
    targets: tuple[Var, ...] = ()
    zero: bool = False
    homogeneous: bool = False
    detail: str = ""
    space: Space | None = None
    norm: Norm | None = None
    axis: int = 0


@dataclass
class Links:
    """Variables, their classes (a union-find), and links in canonical order."""

    axes: Axes
    mapped: set[int]
    variables: dict[tuple[Value, int], list[Var]] = field(default_factory=dict)
    atoms: list[Space] = field(default_factory=list)
    owner: list[Value | None] = field(default_factory=list)
    parent: list[Var] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    visited: set[Var] = field(default_factory=set)
    """Variables that some operator spoke for; a weight's variable that none did is not accounted for."""

    def root(self, var: Var) -> Var:
        """The class of a variable."""
        while self.parent[var] != var:
            self.parent[var] = self.parent[self.parent[var]]
            var = self.parent[var]
        return var

    def join(self, a: Var, b: Var) -> None:
        """Both have one state."""
        a, b = self.root(a), self.root(b)
        if a != b:
            self.parent[max(a, b)] = min(a, b)

    def fresh(self, atom: Space, owner: Value | None) -> Var:
        """A new variable over an atom."""
        var = len(self.atoms)
        self.atoms.append(atom)
        self.owner.append(owner)
        self.parent.append(var)
        return var

    def of(self, value: Value, axis: int) -> list[Var]:
        """The variables of an axis, one for each leaf of its space; empty where nothing in it is mapped."""
        key = (value, axis)
        if key not in self.variables:
            atoms = list(leaves(self.axes.of(value)[axis]))
            affected = any(id(a) in self.mapped for a in atoms)
            self.variables[key] = [self.fresh(a, value) for a in atoms] if affected else []
        return self.variables[key]


Occurrences = dict[str, dict[int, list[Var]]]
"""label -> operand -> variables of the label's leaves."""


def build_links(axes: Axes, norms: Sequence[Norm], ties: Sequence[Tie], mapped: set[int]) -> Links:
    """All links that the mapped spaces (ids of their representatives) touch."""
    links = Links(axes, mapped)
    closing = {n.close: n for n in norms}
    closing = {close: n for close, n in closing.items() if links.of(n.source, n.axis % n.source.rank)}
    inside = {node for n in closing.values() for node in n.interior}
    for instance in axes.instances:
        norm = closing.get(instance.node)
        if norm is not None:
            _norm_in_pieces(links, norm)
        elif instance.node not in inside:
            _add(links, instance)
    for tie in ties:
        _tie(links, tie)
    for value in axes.graph.outputs:
        for axis, space in enumerate(axes.of(value)):
            found = links.of(value, axis)
            if found:
                links.links.append(Link("output", None, tuple(found), space=space, detail=value.name, axis=axis))
    return links


def carriers_of(axes: Axes) -> set[Value]:
    """Weights, and values that only move their elements: sliced, transposed, or looked up by run-time numbers."""
    found = {u for u in axes.graph.uses()}
    for instance in axes.instances:
        node, treatment = instance.node, instance.line.treatment
        moved = node.inputs[:1] if treatment == "lookup" else [v for v in node.inputs if v is not None and v.known is None]
        if treatment in ("layout", "lookup") and moved and all(v in found for v in moved):
            found.update(node.outputs)
    return found


def _tie(links: Links, tie: Tie) -> None:
    first = tie.uses[0]
    for use, turned in zip(tie.uses[1:], tie.turned[1:], strict=True):
        rank = first.rank
        for axis in range(rank):
            pairs = zip(links.of(first, axis), links.of(use, rank - 1 - axis if turned else axis), strict=True)
            for a, b in pairs:
                links.join(a, b)


def _norm_in_pieces(links: Links, norm: Norm) -> None:
    source = norm.source
    for axis in range(source.rank):
        a, b = links.of(source, axis), links.of(norm.result, axis)
        if axis - source.rank == norm.axis:
            space = links.axes.of(source)[axis]
            links.links.append(Link("norm", norm.close, tuple(a), tuple(b), detail=norm.kind, space=space, norm=norm))
        else:
            for x, y in zip(a, b, strict=True):
                links.links.append(Link("pointwise", norm.close, (x,), (y,), zero=True))


def bind(links: Links, value: Value, axis: int, term: Term, instance: Instance) -> Iterator[tuple[str, list[Var]]]:
    """(label, its variables) for every label of a term, at one axis of a value."""
    found = links.of(value, axis)
    if not found:
        return
    links.visited.update(found)
    atoms = [id(links.atoms[v]) for v in found]
    wanted = [(name, [id(x) for x in leaves(instance.spaces[name])]) for name in labels(term)]
    if [x for _, xs in wanted for x in xs] == atoms:
        at = 0
        for name, xs in wanted:
            yield name, found[at : at + len(xs)]
            at += len(xs)
    else:  # a leading factor that only counts equal segments: the segments share the variables
        for v, atom in zip(found, atoms, strict=True):
            links.join(found[atoms.index(atom)], v)
        for name, xs in wanted:
            yield name, [found[atoms.index(x)] for x in xs if x in atoms]


def _occurrences(links: Links, instance: Instance) -> tuple[Occurrences, Occurrences]:
    sides: tuple[Occurrences, Occurrences] = ({}, {})
    node, line = instance.node, instance.line
    for side, values, lines in ((0, node.inputs, line.inputs), (1, node.outputs, line.outputs)):
        for i, (value, terms) in enumerate(zip(values, lines, strict=False)):
            if value is None or terms is None or value.known is not None and value.weight is None:
                continue
            for axis, term in enumerate(terms):
                for name, found in bind(links, value, axis, term, instance):
                    sides[side].setdefault(name, {})[i] = found
    return sides


def _add(links: Links, instance: Instance) -> None:
    ins, outs = _occurrences(links, instance)
    if not ins and not outs:
        return
    node, treatment = instance.node, instance.line.treatment
    for name in dict.fromkeys([*ins, *outs]):
        sources, targets = ins.get(name, {}), outs.get(name, {})
        if not targets and treatment in ("mean", "sum", "extreme", "fold"):
            continue
        rule = _TREATMENTS[treatment]
        for k in range(len(next(iter([*sources.values(), *targets.values()])))):
            rule(links, instance, {i: v[k] for i, v in sources.items()}, [v[k] for v in targets.values()])
    if treatment in ("mean", "sum", "extreme", "fold"):
        value = node.inputs[0]
        assert value is not None
        made = {n for t in instance.line.outputs[0] or () for n in labels(t)}
        for axis, term in enumerate(instance.line.inputs[0] or ()):
            found = links.of(value, axis)
            if found and not set(labels(term)) & made:
                space = links.axes.of(value)[axis]
                links.links.append(Link("statistic", node, tuple(found), detail=treatment, space=space))
    if treatment in ("layer_norm", "rms_norm"):
        _norm_operator(links, instance)


def _join_all(links: Links, node: Node, variables: Sequence[Var], made: Sequence[Var]) -> None:
    for v in variables[1:]:
        links.join(variables[0], v)
    if made:
        links.links.append(Link("make", node, (), tuple(made)))


def _layout(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    if ins:
        _join_all(links, at.node, [*ins.values(), *outs], outs)
    else:  # an axis that the operator makes: all units are alike
        links.links.append(Link("broadcast", at.node, (), tuple(outs)))


def _stretched(at: Instance, ins: dict[int, Var]) -> list[Value]:
    """Real operands of an elementwise operator that have no element of their own for each unit."""
    return [v for i, v in enumerate(at.node.inputs) if v is not None and i not in ins and v.floating]


def _sum(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    operands = list(ins.values())
    if any(scalar(v) != 0 for v in _stretched(at, ins)):
        for v in operands[1:]:
            links.join(operands[0], v)
        links.links.append(Link("shift", at.node, (operands[0],), tuple(outs)))
    else:
        _join_all(links, at.node, [*operands, *outs], outs)


def _multiply(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    if len(ins) == 2:
        links.links.append(Link("product", at.node, tuple(ins.values()), tuple(outs)))
    else:
        _layout(links, at, ins, outs)


def _divide(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    if list(ins) == [0]:
        _layout(links, at, ins, outs)
    else:
        sources = tuple(ins[i] for i in sorted(ins))
        links.links.append(Link("quotient", at.node, sources, tuple(outs)))


def _pointwise(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    zero, homogeneous = "zero" in at.line.treatment, "homogeneous" in at.line.treatment
    for source in ins.values():
        links.links.append(Link("pointwise", at.node, (source,), tuple(outs), zero, homogeneous))
    if not ins:
        links.links.append(Link("make", at.node, (), tuple(outs)))


def _select(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    if 0 in ins:
        _pointwise(links, at, ins, outs)
    else:
        _sum(links, at, ins, outs)


def _contract(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    factors = [ins[i] for i in (0, 1) if i in ins]
    added = [v for i, v in ins.items() if i > 1]
    if len(factors) == 2 and not outs:
        links.links.append(Link("pair", at.node, tuple(factors)))
    elif len(factors) == 2:
        links.links.append(Link("product", at.node, tuple(factors), tuple(outs)))
        _join_all(links, at.node, [*outs, *added], [])
    else:
        _join_all(links, at.node, [*factors, *added, *outs], outs)


def _attention(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    """softmax(q·k)·v: scores are a product over heads, and nonlinear behind the softmax."""
    node, last = at.node, [v for i, v in ins.items() if i == 3]
    if 0 in ins and 1 in ins and not outs:
        links.links.append(Link("pair", node, (ins[0], ins[1])))
    elif 0 not in ins:
        _join_all(links, node, [ins[2], *outs], outs)
    else:
        scores, probabilities = (links.fresh(links.atoms[ins[0]], None) for _ in range(2))
        factors = tuple(ins[i] for i in (0, 1) if i in ins)
        links.links.append(Link("product", node, factors, (scores,)))
        _join_all(links, node, [scores, *last], [])
        links.links.append(Link("pointwise", node, (scores,), (probabilities,)))
        values = (probabilities, ins[2]) if 2 in ins else (probabilities,)
        links.links.append(Link("product", node, values, tuple(outs)))


def _statistic(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    if at.line.treatment in ("mean", "sum"):
        _layout(links, at, ins, outs)
    else:
        for source in ins.values():
            links.links.append(Link("pointwise", at.node, (source,), tuple(outs), zero=True, homogeneous=True))


def _norm_axis(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    """The axes that a norm operator leaves alone; the normalised one is done whole, in _norm_operator."""
    value = at.node.inputs[0]
    assert value is not None
    if ins.get(0) not in links.of(value, value.rank - 1):
        unbiased = at.node.input(2) is None
        links.links.append(Link("pointwise", at.node, (ins[0],), tuple(outs[:1]), zero=unbiased))


def _norm_operator(links: Links, at: Instance) -> None:
    node = at.node
    value, result = node.inputs[0], node.outputs[0]
    assert value is not None
    source, out = links.of(value, value.rank - 1), links.of(result, result.rank - 1)
    if not source:
        return
    links.visited.update(v for p in node.inputs if p is not None for v in links.of(p, p.rank - 1))
    core = [links.fresh(links.atoms[v], None) for v in source]
    space = links.axes.of(value)[-1]
    links.links.append(
        Link("norm", node, tuple(source), tuple(core), detail=at.line.treatment, space=space)
    )
    gain, bias = node.input(1), node.input(2)
    gains = [] if gain is None else links.of(gain, gain.rank - 1)
    biases = [] if bias is None else links.of(bias, bias.rank - 1)
    for k, (c, o) in enumerate(zip(core, out, strict=True)):
        if gains:
            links.links.append(Link("product", node, (c, gains[k]), (o,)))
        else:
            links.join(c, o)
        if biases:
            links.join(biases[k], o)


def _per_channel(links: Links, at: Instance, ins: dict[int, Var], outs: list[Var]) -> None:
    """BatchNormalization and InstanceNormalization: (x − mean)/sqrt(var) · gain + bias, each channel by itself."""
    if list(ins) == [0]:
        _layout(links, at, ins, outs)
        return
    core = links.fresh(links.atoms[outs[0]], None)
    links.links.append(Link("pointwise", at.node, (ins[0],), (core,), zero=True))
    links.links.append(Link("product", at.node, (core, ins[1]), tuple(outs)))
    links.join(ins[2], outs[0])
    for i in (3, 4):
        if i in ins:
            links.join(ins[i], core)


_TREATMENTS = {
    "layout": _layout,
    "lookup": _layout,
    "add": _sum,
    "multiply": _multiply,
    "divide": _divide,
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
    "layer_norm": _norm_axis,
    "rms_norm": _norm_axis,
    "per_channel": _per_channel,
    "opaque": _layout,
}
