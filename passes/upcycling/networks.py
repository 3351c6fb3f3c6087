"""The networks that statements turn into mixtures, and their numbers of experts.

Needs: the statements, the analysed model. Gives: a `Mixture` for every network that a statement names. Raises
GrowError (G302, G304, G307) where there is none, or one cannot become a stack of copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Node
from growc.passes.compilation import Analysis
from growc.passes.edits import Mixture
from growc.passes.lowering.scopes import region_of
from growc.passes.raising.feed_forward import Network, Networks, StaysError
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import evaluate
from growc.recipe.layer_orders import Depth
from growc.resolve.bound import Bound


def mixtures(c: Analysis, bounds: Sequence[Bound]) -> list[Mixture]:
    """The mixtures that statements make of networks. Raises GrowError (G302, G304, G307)."""
    if not bounds:
        return []
    experts = [space for axis in c.roles.axes.get("experts", ()) for space in axis.spaces]
    networks, mixtures_in_order, taken = Networks(c.axes, experts), list[Mixture](), dict[Node, Bound]()
    for bound in bounds:
        statement = bound.statement
        assert isinstance(statement, ast.Upcycle)
        in_order(bound, c.statements)
        targets = c.roles.axes.get("ffn", [])
        if not targets:
            message = "this model has no `ffn` that could become experts"
            raise GrowError(Diagnostic("G302", message, statement.axis.span))
        region = region_of(bound.scopes, c.roles.scopes, c.axes, c.layers, bound.number)
        inside = region.of(targets, "ffn", statement.axis.span)
        region.require(inside, "ffn", statement.axis.span)
        count, top = (evaluate(expr, lambda size: 0) for expr in (statement.count, statement.top))
        parts = parts_of(statement)
        for number, axis in enumerate(inside):
            try:
                network = networks.network(axis.spaces)
                if parts > 1 and not network.scales:
                    raise StaysError("no stored tensor scales the matrix that reads its units")
            except StaysError as error:
                message = f"`ffn` ({axis.size}) cannot become experts: {error}"
                remedy = "" if len(inside) == 1 else "`in layers …` around the statement names others alone"
                raise GrowError(Diagnostic("G304", message, statement.axis.span, help=remedy)) from error
            require_apart(network, bound, taken)
            taken |= dict.fromkeys(network.nodes, bound)
            mixtures_in_order.append(Mixture(bound.number, number, network, count, top, parts))
    return mixtures_in_order


def require_apart(network: Network, bound: Bound, taken: Mapping[Node, Bound]) -> None:
    """Raise GrowError (G304) if a network shares operators with one that becomes experts before.

    taken: the statements of operators that are in mixtures.
    """
    statement = bound.statement
    shared = next((node for node in network.nodes if node in taken), None)
    if shared is None:
        return
    if taken[shared] is bound:
        name = shared.name or shared.outputs[0].name
        message = f"{shared.kind} `{name}` is in two networks, which both would become experts"
        raise GrowError(Diagnostic("G304", message, statement.span))
    message = "this network becomes a mixture of experts in a statement above"
    related = ((taken[shared].statement.span, "the first one"),)
    raise GrowError(Diagnostic("G304", message, statement.span, related=related))


def parts_of(statement: ast.Upcycle) -> int:
    """How many experts are one copy of the network together."""
    return 1 if statement.parts is None else evaluate(statement.parts, lambda size: 0)


def in_order(bound: Bound, statements: Sequence[Bound]) -> None:
    """Raise GrowError (G304) where an earlier statement moves the layers of a scope, or resizes experts."""
    for other in statements:
        above = other.number < bound.number
        counts = any(isinstance(scope, ast.LayerScope) for scope in bound.scopes)
        if above and counts and isinstance(other.statement, Depth):
            message = "`upcycle` in some layers stands above every statement that moves layers"
        elif above and _resizes_experts(other.statement):
            message = "experts that `upcycle` makes can change behind it only"
        else:
            continue
        related = ((other.statement.span, "this stands above it"),)
        raise GrowError(Diagnostic("G304", message, bound.statement.span, related=related))


def _resizes_experts(statement: ast.Statement) -> bool:
    return isinstance(statement, ast.Widen | ast.Subclone | ast.Reorder) and statement.axis.name == "experts"
