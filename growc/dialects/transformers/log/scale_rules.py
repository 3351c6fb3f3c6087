"""Scale rules: the effect of factors on the inputs of an operator, one line per operator, in logarithms.

From an entry of the operator log, as planned and as in a class, follow `Balance`s. These are linear equations
in the logarithms of factors. A factor is the ratio of a value of the class to the planned one. Operators
outside the tables allow factors neither on their inputs nor on their results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from growc.dialects.onnx.operators.table import OPERATORS
from growc.dialects.torch.operators.table import STANDS_FOR
from growc.dialects.transformers.log.entry import CONSTANT, SCALED, LogEntry, Wire


def _standing(*treatments: str) -> set[str]:
    """Return the operators that have one of these treatments in the table of ONNX."""
    return {
        name for name, op in STANDS_FOR.items() if op in OPERATORS and OPERATORS[op].treatment in treatments
    }


COMPOSED = """
    view t transpose permute slice select expand _to_copy abs mean sum repeat split
    split_with_sizes unbind chunk flip roll gather index index_select im2col avg_pool2d _adaptive_avg_pool2d
    adaptive_avg_pool2d max_pool2d_with_indices upsample_bilinear2d upsample_nearest2d diagonal amax amin
    cumsum dropout native_dropout unfold as_strided view_as_complex view_as_real constant_pad_nd
    repeat_interleave
"""
"""Operators whose rows name no ONNX operator, because several replace them or their arguments decide."""
SAME = frozenset(COMPOSED.split()) | _standing("layout", "pointwise zero homogeneous")
"""f(c·x) = c·f(x) for c > 0, in the first operand. The others have no factor. So f(0) = 0."""
SUMS = "add sub cat stack maximum minimum where"
"""Operators whose operands have one factor. The first operand of `where` is a mask."""
BIAS = {"addmm": 0, "baddbmm": 0, "convolution": 2}
"""Products with an optional bias, and the position of that operand."""
FACTORS = frozenset({"mul", *BIAS}) | _standing("contract")
"""Products of all operands except the bias. Without a bias, they are zero if an operand is zero."""
PRODUCTS = (*sorted(FACTORS), "embedding", "div", "complex", "polar")
SPREAD = 1e-5
"""The largest difference of logarithms at which the elements of a constant have one factor."""
POWERS = {"rsqrt": -0.5, "sqrt": 0.5, "reciprocal": -1.0}
VARIANCES = {"var": 2.0, "var_mean": 2.0, "std": 1.0, "std_mean": 1.0}
"""The degrees of variances and standard deviations. Their literal is the factor on the mean square."""
REAL = ("float", "bfloat", "complex")
"""Prefixes of the names of floating-point and complex dtypes."""
LAYER_NORMS = frozenset({"native_layer_norm", "native_group_norm", "_fused_rms_norm"})


@dataclass(frozen=True)
class Balance:
    """A linear equation: the sum of logarithms of factors, times their coefficients, is `total`."""

    terms: dict[Wire, float] = field(hash=False)
    total: float = 0.0


class NoFactorError(Exception):
    """Two literals differ in a way that no factor on the results of their operator expresses."""


def balances(
    planned: LogEntry, class_entry: LogEntry, operands: Sequence[Wire], results: Sequence[Wire]
) -> list[Balance]:
    """Return the equations of one operator. Raises NoFactorError."""
    name, out = planned.operator, results[0]
    if not planned.kinds[0].startswith(REAL):
        _alike(planned, class_entry)
        return [Balance({wire: 1.0}) for wire in (*operands, *results)]
    if name in LAYER_NORMS:
        return _norm(operands, out, _shift(planned, class_entry))
    if name.startswith(SCALED):
        shift = _shift(planned, class_entry)
        return [
            Balance({operands[0]: 1.0, operands[1]: 1.0}, -shift),
            equal(operands[2], out),
            *none(operands[3:]),
        ]
    if name in RULES:
        return RULES[name](planned, class_entry, operands, results)
    _alike(planned, class_entry)
    return none((*operands, *results))


def scales(entry: LogEntry) -> bool:
    """Whether an operator is homogeneous in its first operand. Padding is if it pads with zeros."""
    pads = entry.operator == "constant_pad_nd" and (entry.exact or entry.whole)[-1] != 0
    return entry.operator in SAME and not pads


def parted(name: str, operands: Sequence[Wire]) -> tuple[list[Wire], list[Wire]]:
    """Return the bias of a product, if it has one, and its factors."""
    place = BIAS.get(name, len(operands))
    return list(operands[place : place + 1]), [*operands[:place], *operands[place + 1 :]]


def equal(a: Wire, b: Wire) -> Balance:
    """Return the equation that two values have one factor."""
    return Balance({a: 1.0, b: -1.0}) if a != b else Balance({})


def none(wires: Sequence[Wire]) -> list[Balance]:
    """Return the equations that values have no factor."""
    return [Balance({wire: 1.0}) for wire in wires]


def _alike(planned: LogEntry, class_entry: LogEntry) -> None:
    if planned.exact != class_entry.exact:
        raise NoFactorError


def _shift(planned: LogEntry, class_entry: LogEntry) -> float:
    """Return the logarithm of the single factor between the literals of a class and the planned ones.

    Raises NoFactorError if there is no such factor.
    """
    pairs = [(a, b) for a, b in zip(planned.exact, class_entry.exact, strict=True) if a or b]
    if any(a == 0 or b / a <= 0 or not math.isfinite(b / a) for a, b in pairs):
        if planned.exact == class_entry.exact:
            return 0.0
        raise NoFactorError
    shifts = [math.log(b / a) for a, b in pairs] or [0.0]
    if max(shifts) - min(shifts) > SPREAD:
        raise NoFactorError
    return shifts[0]


def _norm(operands: Sequence[Wire], out: Wire, shift: float) -> list[Balance]:
    """Return the equations of a norm. The norm of c·x with c²·eps is that of x with eps."""
    gains = [equal(gain, out) for gain in operands[1:]] or none([out])
    return [Balance({operands[0]: 1.0}, shift / 2), *gains]


def _same(
    planned: LogEntry, class_entry: LogEntry, operands: Sequence[Wire], results: Sequence[Wire]
) -> list[Balance]:
    _alike(planned, class_entry)
    if not scales(planned):
        return none((*operands, *results))
    return [equal(operands[0], wire) for wire in results] + none(operands[1:])


def _sum(
    planned: LogEntry, class_entry: LogEntry, operands: Sequence[Wire], results: Sequence[Wire]
) -> list[Balance]:
    """Return the equations of a sum. With a literal such as eps, the factor is that of the literals."""
    summands = operands[1:] if planned.operator == "where" else operands
    if len(summands) > 1:
        _alike(planned, class_entry)
        return [equal(wire, results[0]) for wire in summands] + none(
            operands[: len(operands) - len(summands)]
        )
    return [Balance({wire: 1.0}, _shift(planned, class_entry)) for wire in (*summands, *results)]


def _product(
    planned: LogEntry, class_entry: LogEntry, operands: Sequence[Wire], results: Sequence[Wire]
) -> list[Balance]:
    """Return the equations of a product.

    Factors multiply, a bias has that of the product, literals are factors.
    """
    name, out = planned.operator, results[0]
    shift = _shift(planned, class_entry)
    if name == "embedding":
        return [equal(operands[0], out), *none(operands[1:])]
    biases, factors = parted(name, operands)
    if name == "div":
        shift = -shift if len(operands) == 1 else shift
        terms = {factors[0]: 1.0} | ({factors[1]: -1.0} if len(factors) > 1 else {})
        if len(factors) > 1 and factors[0] == factors[1]:
            terms = {}
    else:
        terms = {}
        for wire in factors:
            terms[wire] = terms.get(wire, 0.0) + 1.0
    terms[out] = terms.get(out, 0.0) - 1.0
    return [Balance(terms, -shift), *(equal(bias, out) for bias in biases)]


def _power(
    planned: LogEntry, class_entry: LogEntry, operands: Sequence[Wire], results: Sequence[Wire]
) -> list[Balance]:
    _alike(planned, class_entry)
    literals = (*planned.whole, *planned.exact)
    degree = POWERS.get(planned.operator) or (float(literals[0]) if len(literals) == 1 else 0.0)
    if len(operands) != 1 or not degree:
        return none((*operands, *results))
    return [Balance({operands[0]: degree, results[0]: -1.0})]


def _variance(
    planned: LogEntry, class_entry: LogEntry, operands: Sequence[Wire], results: Sequence[Wire]
) -> list[Balance]:
    """Return the equations of a variance or standard deviation, and of the mean beside it."""
    degree = VARIANCES[planned.operator]
    factor = degree / 2 * _shift(planned, class_entry)
    return [
        Balance({operands[0]: degree, results[0]: -1.0}, -factor),
        *(equal(operands[0], wire) for wire in results[1:]),
    ]


def _filled(
    planned: LogEntry, class_entry: LogEntry, operands: Sequence[Wire], results: Sequence[Wire]
) -> list[Balance]:
    return [Balance({results[0]: 1.0}, _shift(planned, class_entry)), *none(operands)]


BalanceRule = Callable[[LogEntry, LogEntry, Sequence[Wire], Sequence[Wire]], list[Balance]]
RULES: dict[str, BalanceRule] = {
    name: rule
    for names, rule in (
        (" ".join(sorted(SAME)), _same),
        (SUMS, _sum),
        (" ".join(PRODUCTS), _product),
        (" ".join((*POWERS, "pow")), _power),
        (" ".join(VARIANCES), _variance),
        (f"{CONSTANT} full scalar_tensor full_like fill", _filled),
    )
    for name in names.split()
}
