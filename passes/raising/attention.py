"""Attention becomes one `Attention`, for every spelling and every packing of its weights.

Needs: the axis graph. Gives: for every attention its queries, keys and values, each as an operand of the
product that reads it, with the axes of its heads and those inside a head. Of the score function between the
products, only the axes that it passes on are known.

Spellings, by number (tests/plan/test_raised_attention.py has a model for each, and one that must not match):

    A1  an operator that attends             its operands are queries, keys and values
    A2  w = Softmax(… MatMul(q, k) …)        the nearest product of two activations above a softmax
        y = MatMul(… w …, v)                 has queries and keys, the nearest below it values
    A3  w = Softmax(… MatMul(x, weight) …)   no two activations meet above it: it stays plain operators
        y = MatMul(… w …, v)

    H1  a batch axis of both q and k         heads
    H2  a batch axis that one of them has    heads that share what the other one has
    H3  no batch axis                        one head (passes/axes/single_heads.py counts it)
    H4  a weight makes other heads of heads, between the products: heads as well

    P1  weights of their own                 apart
    P2  one weight, (q + k + v)              in a row
    P3  one weight, heads (q + k + v)        head by head; with a factor of heads alone, group by group
    P4  one weight, heads channels (3)       channel by channel
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from growc.algebra.space import Space, atoms_of, factors, find, leaves
from growc.ir.graph import Node, Value
from growc.ir.notation import labels, names_of
from growc.ir.walk import walk
from growc.passes.axes.infer import LineInstance
from growc.passes.axes.queries import AxisQueries

UNFOLD_OP, REPEAT_OP = "growc::Unfold", "growc::Repeat"
"""Operators that count heads where the model has none that does (growc.passes.axes.expose_shared_head)."""

PARTS = ("queries", "keys", "values")

OperandPlace = tuple[LineInstance, int]
"""A product, or an operator that attends, and the number of one of its operands."""


@dataclass(frozen=True, eq=False)
class Attention:
    """One attention.

    `node`: the softmax, or the operator. `operands`: queries, keys and values, or nothing where they cannot
    be told apart. `heads`: row-major factors. `own`: those atoms of `heads` that keys or values have without
    a broadcast. `depths`: the axes inside a head of the keys, and inside a head of the values. `mixed`: heads
    that weights make of `heads` between the products (H4); the values have the last of them.
    """

    node: Node
    scores: LineInstance
    operands: tuple[OperandPlace, ...]
    heads: tuple[Space, ...]
    own: frozenset[Space]
    depths: tuple[tuple[Space, ...], ...]
    mixed: tuple[Space, ...] = ()


def weighs(node: Node) -> bool:
    """Whether an operator may turn the scores of an attention into weights."""
    return node.op == "Softmax"


def attends(instance: LineInstance) -> bool:
    """Whether an operator is a whole attention (A1)."""
    return instance.line.treatment == "attention"


def scores_of(flow: AxisQueries, instance: LineInstance) -> LineInstance | None:
    """The product of queries and keys, for an operator that weighs scores or attends; None for any other."""
    if attends(instance):
        return instance
    return flow.product_above(instance.node) if weighs(instance.node) else None


def find_attention(flow: AxisQueries) -> list[Attention]:
    """Every attention, in canonical order."""
    raised = (_raised(flow, instance) for instance in flow.axes.instances)
    return [one for one in raised if one is not None]


def left_plain(flow: AxisQueries, raised: Sequence[Attention]) -> list[Node]:
    """Every softmax that weighs activations and belongs to no attention (A3)."""
    raised_nodes = {one.node for one in raised}
    softmaxes = [i.node for i in flow.axes.instances if weighs(i.node) and i.node not in raised_nodes]
    return [node for node in softmaxes if flow.product_below(node) is not None]


def _raised(flow: AxisQueries, instance: LineInstance) -> Attention | None:
    scores = scores_of(flow, instance)
    if scores is instance:
        return _of_operator(flow, instance)
    return None if scores is None else _of_products(flow, instance.node, scores)


def _of_operator(flow: AxisQueries, instance: LineInstance) -> Attention | None:
    """The attention of spelling A1."""
    terms = instance.line.inputs[0] or ()
    heads = [x for n in labels(terms[1]) for x in _on_weights(flow, factors(instance.spaces[n]))]
    depths = tuple(_on_weights(flow, [instance.spaces[name]]) for name in "de")
    if not heads and not depths[0]:
        return None
    operands = tuple((instance, place) for place in range(len(PARTS)))
    return Attention(instance.node, instance, operands, tuple(heads), _own(flow, heads, operands), depths)


def _of_products(flow: AxisQueries, softmax: Node, scores: LineInstance) -> Attention | None:
    """The attention of spelling A2."""
    below, line = flow.product_below(softmax), scores.line
    last_label = (line.outputs[0] or ("_",))[-1]
    keys = [place for place in (0, 1) if last_label in (line.inputs[place] or ())]
    operands: tuple[OperandPlace, ...] = ()
    if below is not None and len(keys) == 1:
        operands = (scores, 1 - keys[0]), (scores, keys[0]), below
    shared = set(names_of(line.inputs[0])) & set(names_of(line.inputs[1]))
    batch = [n for n in names_of(line.outputs[0]) if n in shared or n in stretched(scores)]
    heads = _not_given(flow, (x for n in batch for x in _on_weights(flow, factors(scores.spaces[n]))))
    depth = _on_weights(flow, (scores.spaces[n] for n in sorted(shared - set(batch))))
    if not heads and not depth:
        return None
    depths = depth, _depth_of_values(flow, below)
    mixed = (
        tuple(x for one in flow.mixings(softmax) for x in _on_weights(flow, flow.made(one))) if below else ()
    )
    return Attention(softmax, scores, operands, heads, _own(flow, heads, operands), depths, mixed)


def _not_given(flow: AxisQueries, heads: Iterable[Space]) -> tuple[Space, ...]:
    """The factors of heads without those that an input fixes: rows of a batch, which a weight may have too.

    Where inputs fix all factors, all are kept: they are heads that cannot change.
    """
    factors_of_heads = tuple(heads)
    input_atoms = {x for value in flow.axes.graph.inputs for x in flow.atoms(value) if x.frozen is not None}
    return tuple(s for s in factors_of_heads if not input_atoms.issuperset(leaves(s))) or factors_of_heads


def _own(flow: AxisQueries, heads: Collection[Space], operands: Sequence[OperandPlace]) -> frozenset[Space]:
    """The atoms of heads that keys or values have; all atoms, where these cannot be told apart."""
    values = [instance.node.required(place) for instance, place in operands[1:]]
    brought = {x for value in values for x in _brought(flow, value)}
    return frozenset(x for x in heads if not values or not brought.isdisjoint(leaves(x)))


def _brought(flow: AxisQueries, value: Value) -> Iterator[Space]:
    """Yield the atoms of a value that its sources have: weights, inputs, and values made by weights alone."""

    def above(place: tuple[Value, frozenset[Space]]) -> Iterator[tuple[Value, frozenset[Space]]]:
        value, atoms = place
        for source in _made_of(flow, value):
            yield source, atoms & flow.atoms(source)

    for end, atoms in walk([(value, frozenset(flow.atoms(value)))], above):
        if end.producer in flow.weighted:
            yield from atoms.intersection(atoms_of(flow.made(flow.weighted[end.producer])))
        elif not _made_of(flow, end):
            yield from atoms


def _made_of(flow: AxisQueries, value: Value) -> list[Value]:
    """The activations that a value is made of, up to products. For a static value: all its operands."""
    instance = flow.maker(value)
    if instance is None or instance.line.treatment == "contract":
        return []
    operands = instance.node.operands
    return [v for v in operands if v not in flow.static or value in flow.static]


def _depth_of_values(flow: AxisQueries, below: OperandPlace | None) -> tuple[Space, ...]:
    """The axes inside a head of the values; empty where no product with the probabilities is found."""
    if below is None:
        return ()
    product, place = below
    result_labels, weight_labels = names_of(product.line.outputs[0]), names_of(product.line.inputs[1 - place])
    value_labels = [
        n for n in names_of(product.line.inputs[place]) if n in result_labels and n not in weight_labels
    ]
    return _on_weights(flow, (product.spaces[n] for n in value_labels))


def _on_weights(flow: AxisQueries, spaces: Iterable[Space]) -> tuple[Space, ...]:
    """The spaces that have an atom on a weight."""
    roots = map(find, spaces)
    return tuple(s for s in roots if any(x in flow.on_weights for x in leaves(s)))


def stretched(product: LineInstance) -> set[str]:
    """The batch labels of a product that only one operand has. The other is broadcast along them (H2)."""
    out = product.line.outputs[0] or ()
    broadcast_labels: set[str] = set()
    for k in (0, 1):
        own_terms, other_terms = product.line.inputs[k] or (), product.line.inputs[1 - k] or ()
        for i in range(3, len(out) + 1):
            if (
                i <= len(own_terms)
                and (i > len(other_terms) or other_terms[-i] == "1")
                and own_terms[-i] == out[-i]
            ):
                broadcast_labels.update(labels(out[-i]))
        alone = [n for n in names_of(out) if n in names_of(own_terms) and n not in names_of(other_terms)]
        broadcast_labels.update(alone[:-1])  # the last label is that of rows, or of columns
    return broadcast_labels


# ---------------------------------------------------------------------------------------- packed weights


@dataclass(frozen=True)
class Packing:
    """The parts (queries, keys, values) that one projection makes, and the order of their units in it."""

    parts: tuple[str, ...]
    order: str

    def __str__(self) -> str:
        return f"{_listed(self.parts)} packed {self.order}" if self.order else f"{_listed(self.parts)} apart"


def packing(flow: AxisQueries, attention: Attention) -> Packing:
    """The packing of an attention's weights. Without an order, each part has a weight of its own."""
    places, projection = shared_projection(flow, attention)
    if projection is None:
        return Packing(PARTS, "")
    return Packing(tuple(PARTS[k] for k in places), _order(flow.made(projection), attention))


def shared_projection(flow: AxisQueries, attention: Attention) -> tuple[tuple[int, ...], LineInstance | None]:
    """The operands that one product with a weight makes (three, two or none), and this product."""
    above = [_projections(flow, attention, operand) for operand in attention.operands]
    for size in (3, 2):
        for places in combinations(range(len(above)), size):
            for projection in above[places[0]]:
                if all(projection in above[place] for place in places):
                    return places, projection
    return (), None


def _projections(flow: AxisQueries, attention: Attention, operand: OperandPlace) -> list[LineInstance]:
    """The nearest products with weights above an operand that make its units."""
    value = operand[0].node.inputs[operand[1]]
    attention_atoms = {*atoms_of(attention.heads)} or {
        *atoms_of(s for depth in attention.depths for s in depth)
    }
    projections = flow.projections(value)
    return [one for one in projections if not attention_atoms.isdisjoint(atoms_of(flow.made(one)))]


def _order(spaces: Sequence[Space], attention: Attention) -> str:
    """The place of the axis of parts in a projection's result: in front of heads, behind them, or last."""
    heads = {*atoms_of(attention.heads)}
    depths = {*atoms_of(s for depth in attention.depths for s in depth)}
    bearing = next((s for s in spaces if not (heads | depths).isdisjoint(leaves(s))), None)
    leading: set[Space] = set()
    for factor in [] if bearing is None else factors(bearing):
        if factor not in heads | depths:
            break
        leading.add(factor)
    if not leading:
        return "in a row"
    if depths <= leading:
        return "channel by channel"
    return "head by head" if heads <= leading else "group by group"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
