"""The quantities of budgets: the model's parts that each counts, with costs as functions of sizes.

A plan is counted as the model is, at its own sizes; parameters are counted as by `expect parameters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from growc.algebra.space import Space, find
from growc.budgets.costs import PartCosts, cost_of, counted, elements, home_of, parameters
from growc.budgets.polynomial import Polynomial, Shares
from growc.ir.graph import Value
from growc.passes.axes.queries import AxisQueries
from growc.passes.axes.routing import fewest
from growc.passes.compilation import Result
from growc.passes.finish.certify import nbytes, width
from growc.passes.heads.unpack_qkv import ancestors
from growc.passes.roles.indexed_axes import token_inputs
from growc.reports.flops import count, sizes_of_all, vocabulary
from growc.reports.products import terms_of

FLOAT = "float32"
"""Element type of computed values whose type is unknown."""


@dataclass(frozen=True)
class SequenceMemory:
    """The contents of memory beside weights: keys and values, or states, of a batch of sequences of one
    length.
    """

    batch: int = 1
    length: int = 1


def parts_of(quantity: str, c: Result, shares: Shares, memory: SequenceMemory) -> PartCosts:
    """The costs of the model's parts in a quantity, as functions of its sizes."""
    return QUANTITIES[quantity](c, shares, memory)


def amount_of(quantity: str, c: Result, memory: SequenceMemory) -> int:
    """The cost of a plan in a quantity."""
    if quantity == "parameters":
        return c.plan.parameters[1]
    if quantity == "flops":
        source = count(c.first)
        return round(count(c, sizes=source.inputs).forward)
    today = Shares(0, {}, c.lowered.sizes.current)
    return round(cost_of(parts_of(quantity, c, today, memory), (), 0).exact(0, ()))


def _parameters(c: Result, shares: Shares, memory: SequenceMemory) -> PartCosts:
    return parameters(c, shares)


# ------------------------------------------------------------------------------------------ active parameters


def _active(c: Result, shares: Shares, memory: SequenceMemory) -> PartCosts:
    """The parameters that one token uses: of experts, only as many as are chosen for it."""
    chosen = {find(space): fewest(ranking) for ranking, space in c.axes.ranked.items()}
    routing = {v for ranking in c.axes.ranked for v in ancestors(ranking.input(0))}
    unit_networks = dict(_alone(c, chosen))
    for use in counted(c):
        home, elements_used = home_of(c, use), elements(c, use, shares)
        stack = None if use in routing else next((s for s in map(find, c.axes.of(use)) if s in chosen), None)
        if use in unit_networks:
            elements_used = elements_used.times(unit_networks[use])
        elif stack is not None:
            elements_used = _of_chosen(shares.of(stack), chosen[stack], elements_used)
        yield home, elements_used


def _of_chosen(of_chosen: Polynomial, most: int, whole: Polynomial) -> Polynomial:
    """The part of a stack that is used: that of the chosen units, however many there are."""
    if len(of_chosen.terms) > 1:
        return whole
    (powers, value), *_ = of_chosen.terms.items()
    return Polynomial(
        {
            tuple(a - b for a, b in zip(term_powers, powers, strict=True)): amount * Fraction(most) / value
            for term_powers, amount in whole.terms.items()
        }
    )


def _alone(c: Result, chosen: dict[Space, int]) -> Iterator[tuple[Value, Fraction]]:
    """The weights of networks that each serve one unit, with the part of them that a token uses."""
    for experts in c.axes.experts:
        space = find(c.axes.of(experts.whole)[experts.axis])
        if space in chosen:
            part = Fraction(chosen[space], c.lowered.sizes.of(space)[0])
            yield from ((use, part) for uses in experts.networks.values() for use in uses)


# ------------------------------------------------------------------------------------------ FLOPs


def _flops(c: Result, shares: Shares, memory: SequenceMemory) -> PartCosts:
    """The FLOPs of a forward pass for one token or sample, as `inspect` counts them."""
    source = count(c.first)
    counted_at = count(c, sizes=source.inputs)
    ids = token_inputs(AxisQueries(c.axes), vocabulary(c))
    _, sizes = sizes_of_all(c, ids, source.inputs)
    for instance in c.axes.instances:
        for product, number in terms_of(c, instance, sizes) or ():
            flops = Polynomial.constant(Fraction(2 * number, counted_at.units), shares.count)
            for operand, axis, result in product.over:
                value = instance.node.outputs[operand] if result else instance.node.required(operand)
                flops = flops * _relative(shares, c.axes.of(value)[axis])
            yield c.layers.home.get(instance.node), flops


def _relative(shares: Shares, space: Space) -> Polynomial:
    """The size of a space relative to today's."""
    size = shares.of(space)
    today = size.at(shares.ones)
    return size.times(1 / today) if today else Polynomial.constant(1, shares.count)


# ------------------------------------------------------------------------------------------ memory


def _memory(c: Result, shares: Shares, memory: SequenceMemory) -> PartCosts:
    """The bytes of all stored tensors, and of what a batch of sequences keeps from one step to the next."""
    triples = zip(c.assembled.weights, c.assembled.uses, c.assembled.sources, strict=True)
    for plan, uses, source in triples:
        each = Fraction(nbytes(plan, source), max(plan.elements, 1))
        yield home_of(c, uses[0]), elements(c, uses[0], shares).times(each)
    yield from _keys_and_values(c, shares, memory)
    yield from _states(c, shares, memory)


def _keys_and_values(c: Result, shares: Shares, memory: SequenceMemory) -> PartCosts:
    """The memory of every attention for each token: the keys and values of its key/value heads."""
    for attention in c.roles.attention:
        heads = shares.product(map(shares.of, c.roles.without_groups(attention.heads)))
        key_and_value = [*attention.depths, *attention.depths][:2]
        depth = sum(
            (shares.product(map(shares.of, depth_spaces)) for depth_spaces in key_and_value), Polynomial()
        )
        values = [instance.node.required(k) for instance, k in attention.operands[1:]]
        bytes_each = width(next((v.dtype for v in values if v.dtype), FLOAT))
        home = c.layers.home.get(attention.node)
        yield home, (heads * depth).times(bytes_each * memory.batch * memory.length)


def _states(c: Result, shares: Shares, memory: SequenceMemory) -> PartCosts:
    """The states that recurrent operators keep of each sequence, and the states that the model is fed.

    Keys and values are left out; they have an axis of tokens.
    """
    for instance in c.axes.instances:
        if instance.line.treatment == "recurrent":
            node = instance.node
            spaces = c.axes.of(node.outputs[0])[-1:]
            number = max(1, len(node.outputs) - 1)
            unit = shares.product(map(shares.of, spaces))
            yield (
                c.layers.home.get(node),
                unit.times(number * memory.batch * width(node.outputs[0].dtype or FLOAT)),
            )
    for past, _ in c.graph.states:
        fixed = [space for space in c.axes.of(past) if find(space).static]
        if len(fixed) + 1 == len(c.axes.of(past)):  # all axes but the batch
            unit = shares.product(map(shares.of, fixed))
            yield None, unit.times(memory.batch * width(past.dtype or FLOAT))


Counting = Callable[[Result, Shares, SequenceMemory], PartCosts]

QUANTITIES: dict[str, Counting] = {
    "parameters": _parameters,
    "active_parameters": _active,
    "flops": _flops,
    "memory": _memory,
}
