"""The links, made from the operators' lines: how the state of one tensor's axis determines another's.

Needs: the axis graph, the norms in pieces, the ties, and which spaces a statement maps. Gives: `Links`. They
have a variable for every factor or segment of every affected axis of every value. Variables that must have
one state form classes (through sums, layout, producing weights). Links lead between classes (norms, products,
contractions, nonlinearities).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from growc.algebra.space import Space, find, leaves
from growc.ir.graph import Value
from growc.ir.notation import Term, choosing, labels, names_of
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.norms import Norm, without_eps
from growc.passes.axes.ties import Tie
from growc.passes.solving.constraints import Flow, Link, Links, Occurrences, Var
from growc.passes.solving.norms import OPERATORS, norm_in_pieces, norm_operator
from growc.passes.solving.recurrent import recurrent
from growc.passes.solving.treatments import REDUCTIONS, TREATMENTS


def build_links(axes: Axes, norms: Sequence[Norm], ties: Sequence[Tie], mapped: set[Space]) -> Links:
    """The links of all axes that the mapped spaces touch."""
    links = Links(axes, mapped)
    closing = {n.close: n for n in norms}
    closing = {c: n for c, n in closing.items() if any(links.of(n.source, k) for k in range(n.source.rank))}
    inside = {node for n in closing.values() for node in n.interior}
    touched = {instance for atom in mapped for instance in axes.instances_by_atom.get(atom, ())}
    for instance in axes.instances:
        norm = closing.get(instance.node)
        if norm is not None:
            norm_in_pieces(links, norm)
        elif instance in touched and instance.node not in inside:
            _add(links, instance)
    for tie in ties:
        _tie(links, tie)
    _follow_sizes(links)
    states_by_place = {(s.present, axis): s for s in axes.states for axis in s.axes}
    for value in axes.graph.outputs:
        for axis, space in enumerate(axes.of(value)):
            variables = links.of(value, axis)
            state = states_by_place.get((value, axis))
            if state is not None:
                _join(links, (value, axis), (state.past, axis))
            if variables:
                kind = "output" if state is None else "state"
                links.links.append(
                    Link(kind, None, tuple(variables), space=space, detail=value.name, axis=axis)
                )
    return links


def carriers_of(axes: Axes) -> set[Value]:
    """The weights, and the values that only move elements of weights.

    Elements may be sliced or transposed, or looked up or chosen at run time.
    """
    carriers = set(axes.graph.uses())
    for instance in axes.instances:
        node, treatment = instance.node, instance.line.treatment
        for out in node.outputs if treatment in ("layout", "lookup") else ():
            operands = node.inputs[:1] if treatment == "lookup" else node.sources(out)
            moved = [v for v in operands if v is not None and (treatment == "lookup" or v.known is None)]
            if moved and all(v in carriers for v in moved):
                carriers.add(out)
    return carriers


def _tie(links: Links, tie: Tie) -> None:
    first = tie.uses[0]
    for use, turned in zip(tie.uses[1:], tie.turned[1:], strict=True):
        rank = first.rank
        for axis in range(rank):
            other = rank - 1 - axis if turned else axis
            _join(links, (first, axis), (use, other))


def _join(links: Links, one: tuple[Value, int], other: tuple[Value, int]) -> None:
    """Let two axes have one state."""
    for a, b in zip(_in_common(links, *one), _in_common(links, *other), strict=True):
        links.join(a, b)


def _in_common(links: Links, use: Value, axis: int) -> list[Var]:
    """The variables of an axis, without single units that are frozen: other uses need not have these."""
    atoms = ((v, find(links.atoms[v])) for v in links.of(use, axis))
    return [v for v, atom in atoms if not (atom.counts and atom.frozen is not None)]


def _follow_sizes(links: Links) -> None:
    """Join each use that the graph only reads the shape of to another use of its tensor, if there is one."""
    for use, other in links.axes.asked.items():
        for axis in range(use.rank):
            variables = links.of(use, axis)
            links.visited.update(variables)
            if other is not None and variables:
                _join(links, (other, axis), (use, axis))


def bind(
    links: Links, value: Value, axis: int, term: Term, instance: LineInstance
) -> Iterator[tuple[str, list[Var]]]:
    """Yield (label, its variables) for every label of a term, at one axis of a value."""
    variables = links.of(value, axis)
    if not variables:
        return
    links.visited.update(variables)
    atoms = [links.atoms[v] for v in variables]
    spaces_by_label = [(name, list(leaves(instance.spaces[name]))) for name in labels(term)]
    if [x for _, xs in spaces_by_label for x in xs] == atoms:
        start = 0
        for name, xs in spaces_by_label:
            yield name, variables[start : start + len(xs)]
            start += len(xs)
    else:  # a leading factor that only counts equal segments: the segments share the variables
        for v, atom in zip(variables, atoms, strict=True):
            links.join(variables[atoms.index(atom)], v)
        for name, xs in spaces_by_label:
            yield name, [variables[atoms.index(x)] for x in xs if x in atoms]


def _occurrences(links: Links, instance: LineInstance) -> tuple[Occurrences, Occurrences]:
    sides: tuple[Occurrences, Occurrences] = ({}, {})
    node, line = instance.node, instance.line
    for side, values, lines in ((0, node.inputs, line.inputs), (1, node.outputs, line.outputs)):
        for i, (value, terms) in enumerate(zip(values, lines, strict=False)):
            if value is None or terms is None or (value.known is not None and value.weight is None):
                continue
            for axis, term in enumerate(terms):
                for name, variables in bind(links, value, axis, term, instance):
                    sides[side].setdefault(name, {})[i] = variables
    return sides


def _aligned(
    links: Links, sources: dict[int, list[Var]], targets: dict[int, list[Var]]
) -> Iterator[tuple[dict[int, Var], list[Var]]]:
    """Yield the variables of a label, one atom at a time: (by operand, of results).

    Operands may lack some of the atoms, where spaces were in conflict.
    """
    by_atom: dict[tuple[Space, int], tuple[dict[int, Var], list[Var]]] = {}
    for side, occurrences in enumerate((sources, targets)):
        for i, variables in occurrences.items():
            seen: Counter[Space] = Counter()
            for var in variables:
                atom = links.atoms[var]
                ins, outs = by_atom.setdefault((atom, seen[atom]), ({}, []))
                seen[atom] += 1
                if side:
                    outs.append(var)
                else:
                    ins[i] = var
    yield from by_atom.values()


def _add(links: Links, instance: LineInstance) -> None:
    ins, outs = _occurrences(links, instance)
    numbered = (links.of(value, axis) for _, value, axis in instance.numbered())
    links.links += [Link("addressed", instance.node, tuple(several)) for several in numbered if several]
    if not ins and not outs:
        return
    node, treatment = instance.node, instance.line.treatment
    names = dict.fromkeys([*ins, *outs])
    aligned = {name: list(_aligned(links, ins.get(name, {}), outs.get(name, {}))) for name in names}
    for name, groups in aligned.items():
        bare = OPERATORS.get(treatment) if without_eps(node) and name not in instance.line.over else None
        for ins_of_atom, outs_of_atom in groups:
            links.flows.append(Flow(node, ins_of_atom, tuple(outs_of_atom), treatment, bare))
    whole_rule = norm_operator if treatment in OPERATORS else recurrent if treatment == "recurrent" else None
    if whole_rule is not None:
        whole_rule(links, instance, ins, outs)
        return
    for name, groups in aligned.items():
        for ins_of_atom, outs_of_atom in groups if name in outs or treatment not in REDUCTIONS else ():
            TREATMENTS[treatment](links, instance, ins_of_atom, outs_of_atom)
    for name in choosing(instance.line):
        for ins_of_atom, outs_of_atom in aligned.get(name, ()):
            links.links.append(Link("choice", node, (*ins_of_atom.values(), *outs_of_atom), detail=treatment))
    if treatment in REDUCTIONS:
        value = node.inputs[0]
        assert value is not None
        kept_labels = set(names_of(instance.line.outputs[0]))
        for axis, term in enumerate(instance.line.inputs[0] or ()):
            variables = links.of(value, axis)
            if variables and not set(labels(term)) & kept_labels:
                space = links.axes.of(value)[axis]
                links.links.append(Link("statistic", node, tuple(variables), detail=treatment, space=space))
