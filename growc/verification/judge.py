"""The judgement of every `expect`, on the plan and on measurements."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.lowered_statement import Sizes
from growc.passes.lowering.resolve_axis import named
from growc.passes.lowering.scopes import numbers, region_of, runs_in
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import SizeName, evaluate
from growc.resolve.bound import Bound

if TYPE_CHECKING:
    from growc.passes.compilation import Result
    from growc.plans.plan import Gap, Plan
    from growc.verification.verify import Verification

RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}

SHOWN = 3
"""The most gaps in the notes of a diagnostic."""

SATURATING = "products of 8-bit integers saturate in onnxruntime on x86 processors without VNNI"


def judge_plan(statements: Sequence[Bound], c: Result) -> None:
    """Judge the expectations that need no measurement. Raises GrowError (G401) with every one that fails."""
    failures: list[Diagnostic] = []
    for bound in statements:
        statement = bound.statement
        if not isinstance(statement, ast.Expect):
            continue
        condition = statement.condition
        if isinstance(condition, ast.Exact) and not c.plan.certificate.exact:
            failures.append(_missed("the result is not exact", condition, c.plan))
        elif isinstance(condition, ast.SizeCondition):
            failures += _compare(condition, bound.scopes, c)
    if failures:
        raise GrowError(*failures)


def by_cause(gaps: Sequence[Gap]) -> list[tuple[str, str]]:
    """Return the gaps by cause, each with the number of nodes and the first of them."""
    groups: dict[str, list[Gap]] = {}
    for gap in gaps:
        groups.setdefault(gap.cause, []).append(gap)
    return [(cause, _nodes(group)) for cause, group in groups.items()]


def _nodes(gaps: Sequence[Gap]) -> str:
    first = gaps[0].node or gaps[0].op or "the model"
    return first if len(gaps) == 1 else f"{len(gaps)} nodes, first: {first}"


def gap_notes(gaps: Sequence[Gap]) -> tuple[str, ...]:
    """Return the gaps as notes of a diagnostic."""
    lines = [f"{cause} ({where})" for cause, where in by_cause(gaps)]
    more = (f"and {len(lines) - SHOWN} more causes",) if len(lines) > SHOWN else ()
    return (*lines[:SHOWN], *more)


def _missed(message: str, condition: ast.Condition, plan: Plan) -> Diagnostic:
    """The error for a condition that does not hold, with the gaps that explain it."""
    gaps = plan.certificate.gaps
    remedy = next((g.help for g in gaps if g.help), "")
    return Diagnostic("G401", message, condition.span, "expected here", gap_notes(gaps), remedy)


def _compare(condition: ast.SizeCondition, scopes: Sequence[ast.Scope], c: Result) -> list[Diagnostic]:
    final = c.lowered.sizes
    region = region_of(scopes, c.roles.scopes, c.axes, c.layers, len(c.statements) + 1)

    def values(axis: SizeName | ast.NamedAxis, sizes: Sizes) -> list[int]:
        name, span = axis.name, axis.span
        if name == "layers":
            return numbers(runs_in(c.layers, scopes, span), sizes.moment)
        resolved = region.of(named(name, span, c.roles, c.axes), name, span)
        return list(dict.fromkeys(sizes.product(a.spaces) for a in resolved))

    def one(axis: SizeName) -> int:
        have = values(axis, final if axis.moment is None else c.lowered.before(axis.moment))
        if len(have) > 1:
            listed = ", ".join(map(str, have))
            raise GrowError(Diagnostic("G312", f"`{axis.name}` has several sizes here: {listed}", axis.span))
        return have[0]

    if isinstance(condition.subject, ast.Parameters):
        subject, have = "parameters", [c.plan.parameters[1]]
    else:
        subject, have = condition.subject.name, values(condition.subject, final)
    wanted = evaluate(condition.value, one)
    wrong = [h for h in have if not RELATIONS[condition.relation](h, wanted)]
    message = f"`{subject}` is {', '.join(map(str, wrong))}, expected {condition.relation} {wanted}"
    return [Diagnostic("G401", message, condition.span)] if wrong else []


def preserved_conditions(statements: Sequence[Bound]) -> list[ast.Preserved]:
    """Return the condition of every `expect preserved`, which is judged on a measurement."""
    expected = (b.statement.condition for b in statements if isinstance(b.statement, ast.Expect))
    return [condition for condition in expected if isinstance(condition, ast.Preserved)]


def doubts(c: Result) -> tuple[str, ...]:
    """Return sources of difference that the certificate does not cover, and a measurement may show."""
    quantised = any(s.stored is not None or s.dtype in ("int8", "uint8") for s in c.assembled.sources)
    return (SATURATING,) if quantised else ()


def judge_measured(
    statements: Sequence[Bound],
    plan: Plan,
    verification: Verification,
    *,
    refute: bool,
    notes: Sequence[str] = (),
) -> None:
    """Judge the measurements.

    Raises GrowError: G402 for a refuted certificate, with `notes`, and G401 for an `expect` that
    fails.
    """
    refuting = verification.refuting() if refute and plan.certificate.exact else None
    if refuting is not None:
        way, seen = refuting
        raise GrowError(
            Diagnostic(
                "G402",
                f"the certificate says exact, but the outputs differ by {seen.relative:.1e}",
                notes=(*refutation(way, seen), *notes),
                help="this is a bug in growc: please report it",
            )
        )
    failures = []
    for condition in preserved_conditions(statements):
        if not verification.relative <= condition.within:
            message = f"the outputs differ by {verification.relative:.1e}, which is more than "
            failures.append(_missed(f"{message}{condition.within:g}", condition, plan))
    if failures:
        raise GrowError(*failures)


def refutation(way: str, seen: Verification) -> tuple[str, ...]:
    """Return notes on the measurement that refutes. `way`: its name, "" for that of the two models."""
    named = (f"the comparison that shows it: {way}",) if way else ()
    return (*named, f"the model's own rounding is {seen.rounding:.1e}", *seen.notes)
