"""Residual streams, and the feed-forward networks on them.

Needs: the flow of an axis graph. Gives: the spaces of `hidden` and of `ffn`.

- hidden: the axis of a residual sum. One operand is made from the other, or from the value that the other
  scales or gates, through at least one weight. Where weights mix places too, both axes of the sum qualify.
  An axis that no weight makes at the start of the stream counts places, and is not hidden.
- ffn: an axis without heads that is made from a stream and read into a stream. In a model without streams,
  weights that are no kernels make and read it. Where operators work on some such spaces unit by unit only,
  those in which positions meet (recurrences, convolutions, attention) have no name. Spaces that convolutions
  make of a stream and mix over places are channels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from growc.algebra.space import Space, atoms_of, factors, find, leaves, segments
from growc.ir.graph import Node, Value
from growc.ir.notation import FACTORS, Term, labels, names_of
from growc.ir.traits import SUM
from growc.ir.walk import walk
from growc.passes.axes.infer import LineInstance
from growc.passes.axes.queries import AxisQueries, through_casts
from growc.passes.solving.treatments import REDUCTIONS


@dataclass(frozen=True)
class Residual:
    """The operand of a residual sum that bypasses the branch, and the spaces of the stream.

    gated: whether activations weigh the operand.
    """

    base: Value
    streams: tuple[Space, ...]
    gated: bool = False


def residual_sums(flow: AxisQueries) -> dict[Node, Residual]:
    """Every sum of two activations, one of which is made from the other, its base, through a weight.

    Where the base is scaled or gated unit by unit, the stream must continue: it comes from such a sum, or
    goes to one. A recurrence with a bypass that is weighted unit by unit is no stream.
    """
    produced = {p for m in flow.maps for s in flow.made(m) for p in _ends(s)}
    contracted = {s for m in flow.maps for s in flow.read(m)}
    residuals: dict[Node, Residual] = {}
    scaled_base_producers: dict[Node, Node | None] = {}
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
                residuals[instance.node] = Residual(base, own, gated=way is not _plain(flow, base))
                scaled_base_producers[instance.node] = way.producer
    on_the_way = {n for pair in scaled_base_producers.items() if pair[1] in residuals for n in pair}
    return {n: r for n, r in residuals.items() if n in on_the_way or not _by_units(flow, r.base)}


def _ends(space: Space) -> Iterator[Space]:
    """Yield a space and its segments, at any depth."""
    yield find(space)
    for part in find(space).parts if find(space).kind == "sum" else ():
        yield from _ends(part)


def _ways(flow: AxisQueries, base: Value, branch: Value) -> Iterator[Value]:
    """Yield the values above the base that the branch is made from.

    The base may scale them, gate them, or weigh them against the branch.
    """

    def above(way: Value) -> Iterator[Value]:
        node = way.producer
        if node is not None and node.treatment == "multiply":
            yield from (_plain(flow, v) for v in node.operands if v not in flow.parameters)
        elif node is not None and node.treatment == "add" and not node.has(SUM) and node.input(1) is branch:
            yield _plain(flow, node.required(0))  # a difference

    yield from (way for way in walk([_plain(flow, base)], above) if flow.made_from(branch, way))


def _plain(flow: AxisQueries, value: Value) -> Value:
    """The value that a value is before casts and scaling."""
    return through_casts(unscaled(flow, value))


def unscaled(flow: AxisQueries, value: Value) -> Value:
    """The value that a value is before it is multiplied with numbers, or with parameters for each unit."""
    return [value, *(before for before, _ in _scales(flow, value))][-1]


def _by_units(flow: AxisQueries, value: Value) -> bool:
    """Whether a value is multiplied with more than single numbers. The gain of a norm does not count."""
    scales = [s.sizes for before, s in _scales(flow, value) if through_casts(before) not in flow.normed]
    return any(sizes is None or any(set(size) != {1} for size in sizes) for sizes in scales)


def _scales(flow: AxisQueries, value: Value) -> Iterator[tuple[Value, Value]]:
    """Yield (the value before a multiplication, its factor), for all multiplications upwards of a value."""
    while (node := through_casts(value).producer) is not None and node.treatment in FACTORS:
        scaled = [v for v in node.operands if v not in flow.parameters and v.known is None]
        if len(scaled) != 1 or (node.treatment == "divide" and scaled != [node.inputs[0]]):
            break
        [value] = scaled
        yield value, next(v for v in node.operands if v is not value)


def streams(flow: AxisQueries, sums: Mapping[Node, Residual]) -> list[Space]:
    """The spaces of residual streams in topological order, without those that count places."""
    spaces = dict.fromkeys(s for r in sums.values() for s in r.streams)
    fixed = {s for s in spaces if all(x.frozen is not None for x in leaves(s))}
    places: set[Space] = set()
    known: dict[Space, dict[Value, bool]] = {s: {} for s in fixed}
    for residual in sums.values():
        from_inputs = {
            s for s in residual.streams if s in fixed and _given(flow, sums, residual.base, s, known[s])
        }
        if len(from_inputs) < len(residual.streams):
            places |= from_inputs
    return [s for s in spaces if s not in places]


def _given(
    flow: AxisQueries, sums: Mapping[Node, Residual], start: Value, space: Space, known: dict[Value, bool]
) -> bool:
    """Whether an axis of a stream comes from the model's inputs: no weight makes it on the way to `start`.

    known: the answers for this axis so far. This function adds to them.
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


def _makes(flow: AxisQueries, node: Node, atoms: Collection[Space]) -> bool:
    """Whether these atoms may come from a weight here: it makes them, or no operand but weights has them."""
    instance = flow.by_node.get(node)
    if instance is None or instance.line.treatment == "opaque":
        return True
    if instance.line.treatment == "contract" and flow.weight_of(instance) is not None:
        return any(x in atoms for x in atoms_of(flow.made(instance)))
    bearing = [v for v in node.operands if not flow.atoms(v).isdisjoint(atoms)]
    return bool(bearing) and all(v in flow.static for v in bearing)


def gated_branches(flow: AxisQueries, sums: Mapping[Node, Residual]) -> set[Space]:
    """The spaces that weights read to make a branch that a gate weighs against its stream."""
    gated = [(node, r.base) for node, r in sums.items() if r.gated]
    branches = [v for node, base in gated for v in node.operands if v is not base]
    return {s for branch in branches for m in flow.projections(branch) for s in flow.read(m)}


def feed_forward(
    flow: AxisQueries, hidden: Collection[Space], taken: Collection[Space], branches: Collection[Space]
) -> list[Space]:
    """The inner spaces between streams; if there are none, those between a stream and gated `branches`.

    `taken`: the atoms of heads and of the axes inside them.
    """
    between_streams = _inner(flow, hidden, taken, ())
    return between_streams if between_streams or not branches else _inner(flow, hidden, taken, branches)


def _inner(
    flow: AxisQueries, hidden: Collection[Space], taken: Collection[Space], branches: Collection[Space]
) -> list[Space]:
    """The spaces that are made from a stream, and read into a stream or a branch.

    Left out are spaces that operators mix along another axis, and spaces made of these (gates of a context).
    """
    on_stream = set(hidden)
    maps = flow.maps if hidden else [m for m in flow.maps if not m.line.slides]
    made_on_stream: dict[Space, None] = {}
    read_into_stream: set[Space] = set()
    convolved: set[Space] = set()
    for instance in maps:
        ins, outs = flow.read(instance), flow.made(instance)
        if not hidden or any(s in on_stream for s in ins):
            parts = [p for s in outs for x in segments(s) for p in {find(x): 0, **dict.fromkeys(factors(x))}]
            made_on_stream.update(dict.fromkeys(parts))
            convolved |= {p for p in parts if instance.line.slides}
        if not hidden or any(s in on_stream or s in branches for s in outs):
            read_into_stream |= {find(p) for s in ins for p in segments(s)}
    tables = set(_of_tables(flow))
    candidates = [
        s for s in made_on_stream if s in read_into_stream and s not in on_stream and s not in tables
    ]
    inside = set(atoms_of(hidden))
    candidates = [s for s in candidates if not all(x in inside for x in leaves(s))]
    candidates = [s for s in candidates if not any(x in taken for x in leaves(s))]
    sources = list(_sources(flow, set(candidates), on_stream))
    mixed = set(_mixed(flow, set(atoms_of((*candidates, *(s for _, s in sources))))))
    gated = {made_on_stream for made_on_stream, source in sources if all(x in mixed for x in leaves(source))}
    plain = [s for s in candidates if s not in gated and not all(x in mixed for x in leaves(s))]
    return plain or [s for s in candidates if s not in convolved]


def _sources(
    flow: AxisQueries, candidates: Collection[Space], streams: Collection[Space]
) -> Iterator[tuple[Space, Space]]:
    """Yield (made space, space that it is made from) for products that read no stream."""
    for instance in flow.maps:
        ours = [s for s in flow.made(instance) if s in candidates]
        ins = flow.read(instance)
        if ours and not any(s in streams for s in ins):
            yield from ((made_space, source) for made_space in ours for source in ins)


def _of_tables(flow: AxisQueries) -> Iterator[Space]:
    """Yield the spaces of tables of which a single row is taken.

    Stacks of matrices are weights, no tables.
    """
    for instance in flow.axes.instances:
        table, row = instance.node.input(0), instance.node.outputs[0]
        if instance.line.treatment == "lookup" and row.floating and row not in flow.chosen:
            yield from map(find, flow.axes.of(table) if table is not None and table in flow.static else ())


def _mixed(flow: AxisQueries, atoms: Collection[Space]) -> Iterator[Space]:
    """Yield those of the atoms that an activation has while an operator works on its other axes."""
    for instance in flow.axes.instances:
        node, line = instance.node, instance.line
        weight = flow.weight_of(instance) if line.treatment == "contract" else None
        if weight is not None and flow.is_pointwise(instance):
            continue
        kept_labels = {n for terms in line.outputs for n in names_of(terms)}
        for value, terms in zip(node.inputs, line.inputs, strict=False):
            if value is None or terms is None or value in flow.static or value in flow.chosen:
                continue
            atoms_by_axis = [[x for x in leaves(s) if x in atoms] for s in flow.axes.of(value)]
            for axis, bearing in enumerate(atoms_by_axis):
                others = [t for i, t in enumerate(terms) if i != axis]
                if bearing and _worked_on(instance, others, kept_labels, weight is None):
                    yield from bearing


def _worked_on(instance: LineInstance, others: list[Term], kept: set[str], alone: bool) -> bool:
    """Whether an operator cuts, reorders, sums over or reads as a whole any of these axes."""
    line = instance.line
    summed = any(set(labels(t)) - kept for t in others) and line.treatment in REDUCTIONS | {"contract"}
    cut = any(t in ("_", "#") or (isinstance(t, tuple) and t[0] == "+") for t in others)
    return line.treatment == "opaque" or summed or cut or (line.treatment == "contract" and alone)
