"""Casts to fewer digits: they round a scaled number at another digit than the original.

Needs: solved states. Gives: gaps where units that are not copies times a power of two are rounded to fewer
digits than any factor on their axis has. If a factor has as few digits itself, the rounding is no worse than
the model's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from growc.algebra.indexmap import IndexMap
from growc.algebra.space import Space, find
from growc.ir.graph import Node, Value
from growc.ir.traits import SAME
from growc.passes.axes.queries import through_casts
from growc.passes.new_layers.element_facts import FORMATS, REAL
from growc.passes.new_layers.propagate_facts import widens
from growc.passes.solving.constraints import Link, Links, Var
from growc.passes.solving.solution import Solution
from growc.plans.plan import Gap

EXACT = 99
"""A number of binary digits above that of any type."""


def gaps_of_casts(solution: Solution) -> Iterator[Gap]:
    """Yield the gaps, one for each cast."""
    casts = list(_casts(solution.links))
    if not casts:
        return
    digits, with_means = _digits(solution.links), means_are_met(solution)
    for node, variables in casts:
        dtype = node.outputs[0].dtype
        rounded = (v for v in variables if FORMATS[dtype].bits < digits.get(_atom(solution.links, v), 0))
        if any(_rounds_otherwise(solution.of(v), with_means) for v in rounded):
            cause = f"it rounds to {dtype} units that are means, or multiples other than by powers of two"
            yield Gap.at(node, cause)


def _casts(links: Links) -> Iterator[tuple[Node, Sequence[Var]]]:
    """Yield the casts to fewer digits, each with the variables whose states it rounds."""
    norms = (link for link in links.links if link.kind == "norm")
    within = {node: link for link in norms for node in _interior(link) if _narrows(node)}
    for node in links.axes.graph.nodes if within else ():
        if node in within:
            yield node, _rounded(within[node], node)
    for flow in links.flows:
        if _narrows(flow.node) and 0 in flow.sources:
            yield flow.node, (flow.sources[0],)


def _interior(link: Link) -> Collection[Node]:
    """The nodes of a norm in pieces; none for a norm that is one operator, or any other link."""
    return () if link.norm is None else link.norm.interior


def _rounded(link: Link, cast: Node) -> Sequence[Var]:
    """The variables that a cast inside a norm rounds.

    It rounds multiples of the norm's input or result, or a factor between the two.
    """
    operand = cast.inputs[0]
    rounds_input = (
        operand is not None and link.norm is not None and through_casts(operand) is link.norm.source
    )
    return link.sources if rounds_input else (*link.sources, *link.targets)


def _narrows(node: Node) -> bool:
    operand = node.inputs[0] if node.has(SAME) else None
    is_real = operand is not None and {operand.dtype, node.outputs[0].dtype} <= REAL
    return is_real and not widens(node)


def _digits(links: Links) -> Mapping[Space, int]:
    """For each atom, the binary digits of the coarsest real factor on it.

    EXACT where all stored tensors on it are summands.
    """
    treatments = {i.node: i.line.treatment for i in links.axes.instances}
    bits_of_atom: dict[Space, int] = {}
    for (value, _), variables in links.variables.items():
        weight = value.weight
        if weight is None or weight.elements <= 1 or weight.dtype not in REAL:
            continue
        bits = FORMATS[weight.dtype].bits if _multiplies(value, treatments) else EXACT
        for atom in (_atom(links, v) for v in variables):
            bits_of_atom[atom] = min(bits_of_atom.get(atom, EXACT), bits)
    return bits_of_atom


def _multiplies(value: Value, treatments: Mapping[Node, str]) -> bool:
    """Whether a weight is a factor or a table, and not a summand.

    A summand may be far smaller than the rounded number, so its last digit says nothing about that.
    """
    for node, place in value.users:
        treatment = treatments.get(node, "")
        if treatment == "layout":
            if any(_multiplies(out, treatments) for out in node.outputs):
                return True
        elif treatment != "add" and place < 2:
            return True
    return False


def _atom(links: Links, var: Var) -> Space:
    return find(links.atoms[var])


def means_are_met(solution: Solution) -> bool:
    """Whether a norm or a reduction runs over mean units, or an output has some. Nothing else reads them."""
    links = [link for link in solution.links.links if link.kind in ("norm", "statistic", "output", "state")]
    return any(solution.of(var).mean.any() for link in links for var in link.sources)


def _rounds_otherwise(state: IndexMap, means_are_met: bool) -> bool:
    powers = np.frexp(np.abs(state.weight))[0] == 0.5
    return bool((state.copies & ~powers).any() or (means_are_met and state.mean.any()))
