"""Residual streams, and the feed-forward networks on them.

Needs: the flow of an axis graph. Gives: the spaces of `hidden` and of `ffn`.

- hidden: what a sum adds, one operand being made from the other, or from what that scales or gates, through
  at least one weight. Where weights mix places too, both axes of the sum are that; one that no weight makes
  at the start of the stream counts places, and is not hidden.
- ffn: made from a stream and read into a stream, without heads in it; in a model without streams, made and
  read by weights that are no kernels. Where such a space is only ever worked
  on unit by unit, those in which positions meet (recurrences, convolutions, attention) have no name; what
  convolutions make of a stream and mix over places are channels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from growc.algebra.space import Space, atoms_of, factors, find, leaves, segments
from growc.ir.graph import Node, Value
from growc.ir.notation import FACTORS, Term, labels, names_of
from growc.ir.traits import SUM
from growc.ir.walk import walk
from growc.passes.axes.infer import Instance
from growc.passes.axes.queries import Flow, through_casts
from growc.passes.solving.treatments import REDUCTIONS


@dataclass(frozen=True)
class Residual:
    """The operand of a residual sum that goes around the branch, and the spaces of the stream.

    gated: whether activations weigh the operand.
    """

    base: Value
    streams: tuple[Space, ...]
    gated: bool = False


def residual_sums(flow: Flow) -> dict[Node, Residual]:
    """Every sum of two activations, one of which is made from the other, its base, through a weight.

    Where the base is scaled or gated unit by unit, the stream has to go on: it comes from such a sum, or goes
    to one. A recurrence with a way around it, weighted unit by unit, is no stream.
    """
    produced = {p for m in flow.maps for s in flow.made(m) for p in _ends(s)}
    contracted = {s for m in flow.maps for s in flow.read(m)}
    found: dict[Node, Residual] = {}
    before: dict[Node, Node | None] = {}
    for instance in flow.axes.instances:
        a, b = (instance.node.input(i) for i in (0, 1))
        if (
            not instance.node.has(SUM)
            or len(instance.node.inputs) > 2
            or a is None
            or b is None
            or a in flow.parameters
            or b in flow.parameters
        ):
            continue
        roots = [find(s) for s in flow.axes.of(instance.node.outputs[0])]
        own = tuple(s for s in roots if s in produced and s in contracted)
        if own:
            pairs = ((b, a), (a, b))
            ways = ((base, way) for base, branch in pairs for way in _ways(flow, base, branch))
            base, way = next(ways, (None, None))
            if base is not None and way is not None:
                found[instance.node] = Residual(base, own, gated=way is not _plain(flow, base))
                before[instance.node] = way.producer
    on_the_way = {n for pair in before.items() if pair[1] in found for n in pair}
    return {n: r for n, r in found.items() if n in on_the_way or not _by_units(flow, r.base)}


def _ends(space: Space) -> Iterator[Space]:
    """A space, and those that stand end to end in it, at any depth."""
    yield find(space)
    for part in find(space).parts if find(space).kind == "sum" else ():
        yield from _ends(part)


def _ways(flow: Flow, base: Value, branch: Value) -> Iterator[Value]:
    """What the branch was made from, which the base may have scaled, gated, or weighed against the branch."""

    def above(way: Value) -> Iterator[Value]:
        node = way.producer
        if node is not None and node.treatment == "multiply":
            yield from (_plain(flow, v) for v in node.operands if v not in flow.parameters)
        elif node is not None and node.treatment == "add" and not node.has(SUM) and node.input(1) is branch:
            yield _plain(flow, node.required(0))  # a difference

    yield from (way for way in walk([_plain(flow, base)], above) if flow.made_from(branch, way))


def _plain(flow: Flow, value: Value) -> Value:
    """A value before casts, and before it was scaled."""
    return through_casts(unscaled(flow, value))


def unscaled(flow: Flow, value: Value) -> Value:
    """A value before it was multiplied with numbers, or with parameters for each unit."""
    return [value, *(before for before, _ in _scales(flow, value))][-1]


def _by_units(flow: Flow, value: Value) -> bool:
    """Whether a value was multiplied with more than numbers: the gain of a norm is part of that."""
    scales = [s.sizes for before, s in _scales(flow, value) if through_casts(before) not in flow.normed]
    return any(sizes is None or any(set(size) != {1} for size in sizes) for sizes in scales)


def _scales(flow: Flow, value: Value) -> Iterator[tuple[Value, Value]]:
    """What a value was before it was multiplied, again and again, and with what."""
    while (node := through_casts(value).producer) is not None and node.treatment in FACTORS:
        scaled = [v for v in node.operands if v not in flow.parameters and v.known is None]
        if len(scaled) != 1 or (node.treatment == "divide" and scaled != [node.inputs[0]]):
            break
        [value] = scaled
        yield value, next(v for v in node.operands if v is not value)


def streams(flow: Flow, sums: Mapping[Node, Residual]) -> list[Space]:
    """The spaces of residual streams but for places, in topological order."""
    found = dict.fromkeys(s for r in sums.values() for s in r.streams)
    fixed = {s for s in found if all(x.frozen is not None for x in leaves(s))}
    places: set[Space] = set()
    known: dict[Space, dict[Value, bool]] = {s: {} for s in fixed}
    for residual in sums.values():
        given = {s for s in residual.streams if s in fixed and _given(flow, sums, residual.base, s, known[s])}
        if len(given) < len(residual.streams):
            places |= given
    return [s for s in found if s not in places]


def _given(
    flow: Flow, sums: Mapping[Node, Residual], start: Value, space: Space, known: dict[Value, bool]
) -> bool:
    """Whether an axis of a stream comes from the model's inputs: no weight makes it on the way to `start`.

    known: what was found so far of this axis, which this adds to.
    """
    atoms = set(leaves(space))

    def above(value: Value) -> Iterator[Value]:
        node = value.producer
        made_of = () if node is None else (sums[node].base,) if node in sums else node.operands
        yield from (v for v in made_of if not known.get(v) and v not in flow.static and atoms & flow.atoms(v))

    seen = []
    for value in walk([start], above):
        node = value.producer
        if known.get(value) is False or (node is not None and node not in sums and _makes(flow, node, atoms)):
            known[start] = False
            return False
        seen.append(value)
    known.update(dict.fromkeys(seen, True))
    return True


def _makes(flow: Flow, node: Node, atoms: Collection[Space]) -> bool:
    """Whether these atoms may come from a weight here: it makes them, or what is not a weight lacks them."""
    instance = flow.by_node.get(node)
    if instance is None or instance.line.treatment == "opaque":
        return True
    if instance.line.treatment == "contract" and flow.weight_of(instance) is not None:
        return any(x in atoms for x in atoms_of(flow.made(instance)))
    bearing = [v for v in node.operands if not flow.atoms(v).isdisjoint(atoms)]
    return bool(bearing) and all(v in flow.static for v in bearing)


def gated_branches(flow: Flow, sums: Mapping[Node, Residual]) -> set[Space]:
    """What weights read that make a branch which a gate weighs against its stream."""
    gated = [(node, r.base) for node, r in sums.items() if r.gated]
    branches = [v for node, base in gated for v in node.operands if v is not base]
    return {s for branch in branches for m in flow.projections(branch) for s in flow.read(m)}


def feed_forward(
    flow: Flow, hidden: Collection[Space], taken: Collection[Space], branches: Collection[Space]
) -> list[Space]:
    """The inner spaces between streams; where there are none, between a stream and what joins it by a gate
    (`branches`). `taken`: the atoms of heads and of what is in them.
    """
    found = _inner(flow, hidden, taken, ())
    return found if found or not branches else _inner(flow, hidden, taken, branches)


def _inner(
    flow: Flow, hidden: Collection[Space], taken: Collection[Space], branches: Collection[Space]
) -> list[Space]:
    """What is made from a stream, and read into one, or into a branch.

    What is worked on along another axis is none, nor what is made of that: the gates of a context.
    """
    on_stream = set(hidden)
    maps = flow.maps if hidden else [m for m in flow.maps if not m.line.slides]
    made: dict[Space, None] = {}
    read: set[Space] = set()
    convolved: set[Space] = set()
    for instance in maps:
        ins, outs = flow.read(instance), flow.made(instance)
        if not hidden or any(s in on_stream for s in ins):
            parts = [p for s in outs for x in segments(s) for p in {find(x): 0, **dict.fromkeys(factors(x))}]
            made.update(dict.fromkeys(parts))
            convolved |= {p for p in parts if instance.line.slides}
        if not hidden or any(s in on_stream or s in branches for s in outs):
            read |= {find(p) for s in ins for p in segments(s)}
    tables = set(_of_tables(flow))
    wanted = [s for s in made if s in read and s not in on_stream and s not in tables]
    inside = set(atoms_of(hidden))
    wanted = [s for s in wanted if not all(x in inside for x in leaves(s))]
    wanted = [s for s in wanted if not any(x in taken for x in leaves(s))]
    sources = list(_sources(flow, set(wanted), on_stream))
    mixed = set(_mixed(flow, set(atoms_of((*wanted, *(s for _, s in sources))))))
    gated = {made for made, source in sources if all(x in mixed for x in leaves(source))}
    plain = [s for s in wanted if s not in gated and not all(x in mixed for x in leaves(s))]
    return plain or [s for s in wanted if s not in convolved]


def _sources(
    flow: Flow, wanted: Collection[Space], streams: Collection[Space]
) -> Iterator[tuple[Space, Space]]:
    """(what is made, what it is made from) for products that read no stream."""
    for instance in flow.maps:
        ours = [s for s in flow.made(instance) if s in wanted]
        ins = flow.read(instance)
        if ours and not any(s in streams for s in ins):
            yield from ((made, source) for made in ours for source in ins)


def _of_tables(flow: Flow) -> Iterator[Space]:
    """The spaces of tables, of which a single row is taken; stacks of matrices are weights."""
    for instance in flow.axes.instances:
        table, row = instance.node.input(0), instance.node.outputs[0]
        if instance.line.treatment == "lookup" and row.floating and row not in flow.chosen:
            yield from map(find, flow.axes.of(table) if table is not None and table in flow.static else ())


def _mixed(flow: Flow, atoms: Collection[Space]) -> Iterator[Space]:
    """Which of these atoms stand on an axis of an activation whose other axes are worked on."""
    for instance in flow.axes.instances:
        node, line = instance.node, instance.line
        weight = flow.weight_of(instance) if line.treatment == "contract" else None
        if weight is not None and flow.is_pointwise(instance):
            continue
        kept = {n for terms in line.outputs for n in names_of(terms)}
        for value, terms in zip(node.inputs, line.inputs, strict=False):
            if value is None or terms is None or value in flow.static or value in flow.chosen:
                continue
            own = [[x for x in leaves(s) if x in atoms] for s in flow.axes.of(value)]
            for axis, found in enumerate(own):
                others = [t for i, t in enumerate(terms) if i != axis]
                if found and _worked_on(instance, others, kept, weight is None):
                    yield from found


def _worked_on(instance: Instance, others: list[Term], kept: set[str], alone: bool) -> bool:
    """Whether an operator cuts, reorders, reads as a whole or sums over any of these axes."""
    line = instance.line
    summed = any(set(labels(t)) - kept for t in others) and line.treatment in REDUCTIONS | {"contract"}
    cut = any(t in ("_", "#") or (isinstance(t, tuple) and t[0] == "+") for t in others)
    return line.treatment == "opaque" or summed or cut or (line.treatment == "contract" and alone)
