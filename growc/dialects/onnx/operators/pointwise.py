"""Elementwise rows whose treatment depends on the values of other operands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from growc.dialects.onnx.operators.site import REAL, first, line, names, number, rest, unit
from growc.ir.notation import Line, Operand, Term
from growc.ir.operator_rows import Site, broadcast_label, opaque


def cast(site: Site) -> Line:
    """Casts between real types pass every map; casts to integers and booleans only maps without factors."""
    terms = names("a", first(site).rank)
    linear = site.attribute("to") in REAL
    return replace(line([terms], [terms]), treatment="layout" if linear else "pointwise zero")


def cast_like(site: Site) -> Line:
    """As Cast, to the type of the second operand, which the row does not know."""
    terms = names("a", first(site).rank)
    return replace(line([terms, *rest(site)], [terms]), treatment="pointwise zero")


def quantise(site: Site) -> Line:
    """Rounding with one scale for all. If the zero point is zero, zeros stay. Other scales freeze."""
    terms = names("a", first(site).rank)
    if not all(o is None or all(map(unit, o.shape)) for o in site.inputs[1:]):
        return opaque(site)
    place = 1 if site.node.op == "growc::Shift" else 2
    zero = np.zeros(1) if site.input(place) is None else site.static(place)
    keeps = zero is not None and not zero.any()
    treatment = "layout" if keeps and _stored_integers(site) else "pointwise zero" if keeps else "pointwise"
    return replace(line([terms, *rest(site)], [terms]), treatment=treatment)


def _stored_integers(site: Site) -> bool:
    """Whether the operand is an integer weight, perhaps moved: it holds only copies and zeros."""
    value = site.node.inputs[0]
    weight = None if value is None else value.unmoved.weight
    return weight is not None and not weight.floating and site.node.op == "DequantizeLinear"


def shift(site: Site) -> Line:
    """A tensor minus one zero point for all."""
    return quantise(site)


def rounded(site: Site) -> Line:
    """Rounding to steps that extremes decide; the extremes have no axes."""
    terms = names("a", first(site).rank)
    return line([terms, *rest(site)], [terms])


def dropout(site: Site) -> Line:
    """Dropout does nothing outside of training."""
    training = np.zeros(1) if site.input(2) is None else site.static(2)
    if training is None or training.any() or len(site.outputs) > 1:
        return opaque(site)
    terms = names("a", first(site).rank)
    return line([terms, *rest(site)], [terms])


def power(site: Site) -> Line:
    """A positive exponent keeps zeros."""
    exponent = number(site, 1)
    return _elementwise(site, zero=exponent is not None and exponent > 0)


def clip(site: Site) -> Line:
    """Bounds around zero keep zeros. If each is zero or infinite, they keep factors too."""
    bounds = [
        _bound(site, i, name, default) for i, name, default in ((1, "min", -np.inf), (2, "max", np.inf))
    ]
    if any(b is None for b in bounds):
        return _elementwise(site, zero=False)
    low, high = (float(b) for b in bounds if b is not None)
    return _elementwise(site, zero=low <= 0 <= high, homogeneous={low, high} <= {0.0, -np.inf, np.inf})


def extreme(site: Site) -> Line:
    """Max and Min keep zeros if all operands have them, or a number on the other side of zero."""
    result, sign = site.outputs[0].sizes, 1 if site.node.op == "Max" else -1
    numbers = [number(site, i) for i in range(len(site.inputs))]
    whole = all(
        n is not None or o is None or o.sizes == result for n, o in zip(numbers, site.inputs, strict=True)
    )
    constant = [sign * n for n in numbers if n is not None]
    return _elementwise(site, zero=whole and all(c <= 0 for c in constant), homogeneous=not any(constant))


def _elementwise(site: Site, *, zero: bool, homogeneous: bool = False) -> Line:
    """Operands broadcast from the right. `homogeneous` counts only if zeros are kept."""
    result = site.outputs[0].shape
    terms = names("e", len(result))[::-1]

    def axes(operand: Operand | None) -> list[Term] | None:
        if operand is None:
            return None
        lead = len(result) - operand.rank
        pairs = enumerate(operand.shape, lead)
        return [broadcast_label(str(terms[i]), s, result[i]) for i, s in pairs]

    treatment = (
        "pointwise zero homogeneous" if zero and homogeneous else "pointwise zero" if zero else "pointwise"
    )
    return replace(line([axes(o) for o in site.inputs], [terms]), treatment=treatment)


def _bound(site: Site, i: int, name: str, default: float) -> float | None:
    """Return a bound of Clip: an attribute in old opsets, an operand in new ones; None if not known."""
    return site.node.real(name, default) if site.input(i) is None else number(site, i)
