"""What the expressions of budgets come to, by the model as it stands before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.passes.compilation import Result
from growc.passes.lowering.resolve_axis import named
from growc.passes.lowering.scopes import numbers, region_of, runs_in
from growc.recipe.expression import Expr, Named, fraction
from growc.resolve.bound import Bound


def value_in(
    expr: Expr, c: Result, bound: Bound, quantities: Mapping[str, Callable[[], Fraction]]
) -> Fraction:
    """The value, with sizes of axes, and quantities. Raises GrowError (G312) for a name of several sizes."""
    region = region_of(bound.scopes, c.roles.scopes, c.axes, c.layers, bound.number)

    def one(axis: Named) -> int | Fraction:
        name, span = axis.name, axis.span
        if name in quantities:
            return quantities[name]()
        sizes = c.lowered.sizes if axis.moment is None else c.lowered.before(axis.moment)
        if name == "layers":
            have = numbers(runs_in(c.layers, bound.scopes, span), sizes.moment)
        else:
            found = region.of(named(name, span, c.roles, c.axes), name, span)
            have = list(dict.fromkeys(sizes.product(a.spaces) for a in found))
        if len(have) > 1:
            listed = ", ".join(map(str, have))
            raise GrowError(Diagnostic("G312", f"`{name}` has several sizes here: {listed}", span))
        return have[0]

    return fraction(expr, one)
