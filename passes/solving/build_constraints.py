"""From lines to links: how the state of one tensor's axis determines another's.

Needs: the axis graph, the norms in pieces, the ties, and which spaces a statement maps. Gives: `Links`: a
variable for every factor or segment of every affected axis of every value, classes of variables that must
have one state (through sums, layout, producing weights), and links between classes (norms, products,
contractions, nonlinearities).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from growc.algebra.space import Space, find, leaves
from growc.ir.graph import Value
from growc.ir.notation import Term, choosing, labels, names_of
from growc.passes.axes.infer import Axes, Instance
from growc.passes.axes.norms import Norm, without_eps
from growc.passes.axes.ties import Tie
from growc.passes.solving.constraints import Flow, Link, Links, Occurrences, Var
from growc.passes.solving.norms import OPERATORS, norm_in_pieces, norm_operator
from growc.passes.solving.recurrent import recurrent
from growc.passes.solving.treatments import REDUCTIONS, TREATMENTS


def build_links(axes: Axes, norms: Sequence[Norm], ties: Sequence[Tie], mapped: set[Space]) -> Links:
    """All links that the mapped spaces touch."""
    links = Links(axes, mapped)
    closing = {n.close: n for n in norms}
    closing = {c: n for c, n in closing.items() if any(links.of(n.source, k) for k in range(n.source.rank))}
    inside = {node for n in closing.values() for node in n.interior}
    for instance in axes.instances:
        norm = closing.get(instance.node)
        if norm is not None:
            norm_in_pieces(links, norm)
        elif instance.node not in inside:
            _add(links, instance)
    for tie in ties:
        _tie(links, tie)
    _follow_sizes(links)
    carried = {(s.present, axis): s for s in axes.states for axis in s.axes}
    for value in axes.graph.outputs:
        for axis, space in enumerate(axes.of(value)):
            found = links.of(value, axis)
            state = carried.get((value, axis))
            if state is not None:
                _join(links, (value, axis), (state.past, axis))
            if found:
                kind = "output" if state is None else "state"
                links.links.append(Link(kind, None, tuple(found), space=space, detail=value.name, axis=axis))
    return links


def carriers_of(axes: Axes) -> set[Value]:
    """Weights, and values that only move their elements: sliced, transposed, or looked up or chosen at run
    time.
    """
    found = set(axes.graph.uses())
    for instance in axes.instances:
        node, treatment = instance.node, instance.line.treatment
        for out in node.outputs if treatment in ("layout", "lookup") else ():
            given = node.inputs[:1] if treatment == "lookup" else node.sources(out)
            moved = [v for v in given if v is not None and (treatment == "lookup" or v.known is None)]
            if moved and all(v in found for v in moved):
                found.add(out)
    return found


def _tie(links: Links, tie: Tie) -> None:
    first = tie.uses[0]
    for use, turned in zip(tie.uses[1:], tie.turned[1:], strict=True):
        rank = first.rank
        for axis in range(rank):
            other = rank - 1 - axis if turned else axis
            _join(links, (first, axis), (use, other))


def _join(links: Links, one: tuple[Value, int], other: tuple[Value, int]) -> None:
    """Two axes have one state."""
    for a, b in zip(_in_common(links, *one), _in_common(links, *other), strict=True):
        links.join(a, b)


def _in_common(links: Links, use: Value, axis: int) -> list[Var]:
    """The variables of an axis, without single units that stay single: other uses need not count these."""
    atoms = ((v, find(links.atoms[v])) for v in links.of(use, axis))
    return [v for v, atom in atoms if not (atom.counts and atom.frozen is not None)]


def _follow_sizes(links: Links) -> None:
    """A use of which only the shape is asked has the state of another use of its tensor, if there is one."""
    for use, other in links.axes.asked.items():
        for axis in range(use.rank):
            found = links.of(use, axis)
            links.visited.update(found)
            if other is not None and found:
                _join(links, (other, axis), (use, axis))


def bind(
    links: Links, value: Value, axis: int, term: Term, instance: Instance
) -> Iterator[tuple[str, list[Var]]]:
    """(label, its variables) for every label of a term, at one axis of a value."""
    found = links.of(value, axis)
    if not found:
        return
    links.visited.update(found)
    atoms = [links.atoms[v] for v in found]
    wanted = [(name, list(leaves(instance.spaces[name]))) for name in labels(term)]
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
            if value is None or terms is None or (value.known is not None and value.weight is None):
                continue
            for axis, term in enumerate(terms):
                for name, found in bind(links, value, axis, term, instance):
                    sides[side].setdefault(name, {})[i] = found
    return sides


def _aligned(
    links: Links, sources: dict[int, list[Var]], targets: dict[int, list[Var]]
) -> Iterator[tuple[dict[int, Var], list[Var]]]:
    """A label's variables, atom by atom: where its spaces were in conflict, not all have the same atoms."""
    found: dict[tuple[Space, int], tuple[dict[int, Var], list[Var]]] = {}
    for side, occurrences in enumerate((sources, targets)):
        for i, variables in occurrences.items():
            seen: Counter[Space] = Counter()
            for var in variables:
                atom = links.atoms[var]
                ins, outs = found.setdefault((atom, seen[atom]), ({}, []))
                seen[atom] += 1
                if side:
                    outs.append(var)
                else:
                    ins[i] = var
    yield from found.values()


def _add(links: Links, instance: Instance) -> None:
    ins, outs = _occurrences(links, instance)
    numbered = (links.of(value, axis) for _, value, axis in instance.numbered())
    links.links += [Link("addressed", instance.node, tuple(met)) for met in numbered if met]
    if not ins and not outs:
        return
    node, treatment = instance.node, instance.line.treatment
    names = dict.fromkeys([*ins, *outs])
    aligned = {name: list(_aligned(links, ins.get(name, {}), outs.get(name, {}))) for name in names}
    for name, met in aligned.items():
        bare = OPERATORS.get(treatment) if without_eps(node) and name not in instance.line.over else None
        for one, other in met:
            links.flows.append(Flow(node, one, tuple(other), treatment, bare))
    whole = norm_operator if treatment in OPERATORS else recurrent if treatment == "recurrent" else None
    if whole is not None:
        whole(links, instance, ins, outs)
        return
    for name, met in aligned.items():
        for one, other in met if name in outs or treatment not in REDUCTIONS else ():
            TREATMENTS[treatment](links, instance, one, other)
    for name in choosing(instance.line):
        for one, other in aligned.get(name, ()):
            links.links.append(Link("choice", node, (*one.values(), *other), detail=treatment))
    if treatment in REDUCTIONS:
        value = node.inputs[0]
        assert value is not None
        made = set(names_of(instance.line.outputs[0]))
        for axis, term in enumerate(instance.line.inputs[0] or ()):
            found = links.of(value, axis)
            if found and not set(labels(term)) & made:
                space = links.axes.of(value)[axis]
                links.links.append(Link("statistic", node, tuple(found), detail=treatment, space=space))
