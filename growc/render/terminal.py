"""What a person reads: plans, certificates, measurements, inspections, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from growc.expectations import gap_lines
from growc.plan import Plan, WeightPlan

if TYPE_CHECKING:
    from growc.api import Applied
    from growc.compilation import Compilation
    from growc.recipe import Statement
    from growc.verify import Verification

SHOWN = 6
"""Weights that a plan lists without `--all`."""


def count(n: int) -> str:
    """A number of parameters, decimal: 124.4M."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return str(n)


def size_of(n: int) -> str:
    """A number of bytes, decimal: 1.42 GB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} bytes"


def statement_text(statement: Statement) -> str:
    """One statement in canonical form."""
    from growc.grammar import format
    from growc.recipe import Recipe

    return format(Recipe((statement,))).strip()


def plan_lines(plan: Plan, *, everything: bool = False) -> Iterator[str]:
    """The plan: what changes, what is claimed, what it costs."""
    yield f"{plan.model} · {count(plan.parameters[0])} parameters"
    yield ""
    if not plan.summaries:
        yield "  The recipe changes nothing."
    widths = [max((len(s.text) for s in plan.summaries), default=0)]
    for summary in plan.summaries:
        yield f"  {summary.text:<{widths[0]}}   {summary.note}"
    changed = [w for w in plan.weights if w.changed]
    new = [w for w in changed if w.name != w.source]
    if changed:
        yield ""
    shown = changed if everything else changed[:SHOWN]
    for weight in shown:
        yield "  " + weight_line(weight)
    if len(changed) > len(shown):
        yield f"  … {len(changed) - len(shown)} more (--all)"
    if everything:
        for node, name, value in plan.attributes:
            yield f"  ~ {node}   {name} = {value:g}"
    yield ""
    yield from certificate_lines(plan)
    for warning in plan.warnings:
        yield f"warning: {warning}"
    for note in plan.notes:
        yield f"note: {note}"
    yield ""
    before, after = plan.parameters
    parameters = f"{count(before)} -> {count(after)} parameters"
    yield (
        f"Plan: {len(changed) - len(new)} weights change, {len(new)} new; {parameters}; "
        f"{size_of(plan.bytes_to_write)} to write."
    )


def weight_line(weight: WeightPlan) -> str:
    """`~ name   [768, 2304] -> [1024, 3072]   reads axis 0, makes axis 1`."""
    sign = "~" if weight.name == weight.source else "+"
    if weight.literal is not None:
        what = "continued by its rule"
    elif weight.scale != 1.0 and not weight.steps:
        what = f"times {weight.scale:.6g}"
    else:
        what = ", ".join(dict.fromkeys(f"{s.verb} axis {s.axis}" for s in weight.steps))
    origin = "" if weight.name == weight.source else f" (from {weight.source})"
    return f"{sign} {weight.name}{origin}   {list(weight.before)} -> {list(weight.after)}   {what}"


def certificate_lines(plan: Plan) -> Iterator[str]:
    """Exact, or every gap by cause."""
    certificate = plan.certificate
    if certificate.exact:
        yield "Certificate: exact. The result computes what the source computes."
        return
    yield "Certificate: not exact."
    for line in gap_lines(certificate.gaps, 10):
        yield f"  gap  {line}"
    for help in dict.fromkeys(g.help for g in certificate.gaps if g.help):
        yield f"  help: {help}"


def applied_lines(applied: Applied) -> Iterator[str]:
    """What was measured, and where the result is."""
    if applied.verification is None:
        yield f"Not verified: {applied.reason}."
    else:
        yield from verification_lines(applied.verification)
    yield f"Written: {applied.written}"


def verification_lines(v: Verification) -> Iterator[str]:
    """The measured difference beside the model's own rounding."""
    cases = f"{v.cases} input{'s' if v.cases != 1 else ''}"
    yield (
        f"Measured: the outputs differ by {v.relative:.1e} relative ({v.max_abs:.1e} at most) on {cases}; "
        f"the source's own rounding is {v.rounding:.1e}."
    )
    if len(v.outputs) > 1:
        for name, report in v.outputs.items():
            yield f"  {name}   {report.relative:.1e}"
    for note in v.notes:
        yield f"note: {note}"


def inspect_lines(c: Compilation) -> Iterator[str]:
    """Roles, sizes, and what is frozen."""
    data = inspect_data(c)
    yield f"{c.path.name} · {count(data['parameters'])} parameters · {len(c.graph.nodes)} nodes"
    yield ""
    axes = {n: a for n, a in c.roles.axes.items()}
    if not axes:
        yield "  No axis of this model has a name; `axis N of \"PARAMETER\"` names any."
    if "heads" not in axes:
        yield "  No attention was found." if axes else "  No attention and no residual stream were found."
    width = max(map(len, axes), default=0)
    for name, found in axes.items():
        sizes = " / ".join(map(str, c.roles.sizes(name)))
        places = Counter(a.size for a in found)
        spaces = f"{sum(places.values())} space{'s' if len(found) != 1 else ''}"
        yield f"  {name:<{width}}  {sizes:>6}   {spaces}"
    if data["frozen"]:
        yield ""
        yield "Frozen:"
        for entry in data["frozen"][:12]:
            yield f"  {entry['op']} {entry['node']}: {entry['reason']}"
        if len(data["frozen"]) > 12:
            yield f"  … {len(data['frozen']) - 12} more (--json)"


def inspect_data(c: Compilation) -> dict[str, Any]:
    """What `growc inspect --json` prints."""
    from growc.passes.assemble import count_parameters
    from growc.plan_json import one

    frozen: dict[tuple[str, str, str], None] = {}
    for _, _, reason in c.axes.frozen():
        node = reason.node
        if node is not None:
            frozen.setdefault((getattr(node, "name", ""), getattr(node, "op", ""), reason.cause))
    return {
        "axes": {n: one(tuple(c.roles.sizes(n))) for n in c.roles.axes},
        "scopes": {},
        "parameters": count_parameters(c.axes, c.ties),
        "frozen": [{"node": n, "op": o, "reason": r} for n, o, r in frozen],
    }


def verification_data(v: Verification | None) -> dict[str, Any] | None:
    """The `verification` of `growc apply --json`."""
    if v is None:
        return None
    return {"max_abs": v.max_abs, "relative": v.relative, "rounding": v.rounding, "cases": v.cases}


def explain_lines(c: Compilation, axis: str, paths: Sequence[tuple[str, list[str]]]) -> Iterator[str]:
    """Every weight axis of a space, and the operators on the way to it."""
    yield f"`{axis}` of {c.path.name}: {len(paths)} weight axes change together"
    for place, way in paths:
        yield f"  {place}"
        if way:
            yield f"      by {' - '.join(way)}"
