"""Evaluate the expressions of budgets in the model as it is before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.passes.compilation import Result
from growc.passes.lowering.resolve_axis import named
from growc.passes.lowering.scopes import numbers, region_of, runs_in
from growc.recipe.expression import Expr, SizeName, fraction
from growc.resolve.bound import Bound


def value_in(
    expr: Expr, c: Result, bound: Bound, quantities: Mapping[str, Callable[[], Fraction]]
) -> Fraction:
    """The value of an expression with sizes of axes and quantities. Raises GrowError (G312) if a name has
    several sizes.
    """
    region = region_of(bound.scopes, c.roles.scopes, c.axes, c.layers, bound.number)

    def one(axis: SizeName) -> int | Fraction:
        name, span = axis.name, axis.span
        if name in quantities:
            return quantities[name]()
        sizes = c.lowered.sizes if axis.moment is None else c.lowered.before(axis.moment)
        if name == "layers":
            sizes_found = numbers(runs_in(c.layers, bound.scopes, span), sizes.moment)
        else:
            axes = region.of(named(name, span, c.roles, c.axes), name, span)
            sizes_found = list(dict.fromkeys(sizes.product(a.spaces) for a in axes))
        if len(sizes_found) > 1:
            listed = ", ".join(map(str, sizes_found))
            raise GrowError(Diagnostic("G312", f"`{name}` has several sizes here: {listed}", span))
        return sizes_found[0]

    return fraction(expr, one)
