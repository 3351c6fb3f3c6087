"""Plans and measurements as lines of text and as data."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from growc.errors.json_data import Json
from growc.errors.printable import size_of
from growc.plans.execute import leaf_steps
from growc.plans.plan import AxisStep, Plan, Summary, WeightPlan
from growc.render.budgets import budget_lines
from growc.render.certificate import certificate_lines
from growc.render.text import count, many, short, table

if TYPE_CHECKING:
    from growc.applied import Applied
    from growc.reports.calibration import Outcome
    from growc.verification.difference import Closeness, OutputReport
    from growc.verification.verify import Verification

SHOWN = 6
"""The most weights that a plan lists without `--all`, and the most outputs of a measurement."""


def plan_lines(plan: Plan, *, everything: bool = False) -> Iterator[str]:
    """Yield the plan: what changes, what is claimed, what it costs."""
    yield f"{plan.model} · {count(plan.parameters[0])} parameters"
    yield ""
    yield from budget_lines(plan.decided)
    changed = [w for w in plan.weights if w.worth_telling]
    if plan.summaries:
        yield from (f"  {line}" for line in table(statement_rows(plan.summaries, changed)))
    same_sizes = all(s.before == s.after for s in plan.summaries)
    if not changed and same_sizes and plan.certificate.exact and not plan.attributes:
        yield from ["  The recipe changes nothing: the result is the model as it is."]
    later = plan.later_copies
    rows = [weight_row(w, moved=w.name not in later) for w in changed]
    removed = [(f"- {g.name}", str(list(g.shape)), "goes") for g in plan.gone]
    shown = [*rows, *removed] if everything else [*rows[:SHOWN], *removed[: SHOWN // 2]]
    yield from [""] if shown else []
    yield from (f"  {line}" for line in table(shown))
    if hidden := len(rows) + len(removed) - len(shown):
        yield f"  … {hidden} more (--all)"
    if everything:
        yield from (f"  ~ {node}   {name} = {value:g}" for node, name, value in plan.attributes)
    yield ""
    yield from certificate_lines(plan.certificate)
    yield from (f"warning: {warning}" for warning in plan.warnings)
    yield from (f"note: {note}" for note in plan.notes)
    yield ""
    yield tally(plan)


def statement_rows(summaries: Sequence[Summary], changed: Sequence[WeightPlan]) -> list[tuple[str, ...]]:
    """`hidden`, `768 -> 1024`, `neighbor copy`, `58 weights, 25 norms`."""
    sides = [["/".join(map(str, side)) for side in (s.before, s.after)] for s in summaries]
    first, second = (max(map(len, side)) for side in zip(*sides, strict=True))
    return [
        (s.axis, f"{before:>{first}} -> {after:>{second}}" if s.before else "", s.note, touched(s, changed))
        for s, (before, after) in zip(summaries, sides, strict=True)
    ]


def touched(summary: Summary, changed: Sequence[WeightPlan]) -> str:
    """Return how much a statement changes."""
    if not summary.spaces or summary.axis == "layers":
        runs = [many(summary.spaces, "run")] if summary.spaces > 1 else []
        removed = list(dict.fromkeys(numbers_text(group) for group in summary.removed if group))
        return ", ".join([*runs, *([f"without {' / '.join(removed)}"] if removed else [])])
    verbs = [[s.verb for s in w.steps if s.name == summary.axis] for w in changed]
    norms = sum("scales" in group for group in verbs)
    text = many(sum(bool(group) for group in verbs) - norms, "weight")
    text += f", {many(norms, 'norm')}" if norms else ""
    return text + (f" in {summary.spaces} spaces" if summary.spaces > 1 else "")


def numbers_text(numbers: Sequence[int]) -> str:
    """Return `2, 5`; three and more consecutive numbers as a recipe has them: `2..5`."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{run[0]}..{run[-1] + 1}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def weight_row(weight: WeightPlan, *, moved: bool = False) -> tuple[str, str, str]:
    """Return `~ name`, `[768, 2304] -> [1024, 3072]`, `reads hidden, makes heads x 3`.

    moved: whether the weight is a renamed one rather than a copy of one that stays.
    """
    if weight.literal is not None:
        change = "continued by its rule"
    else:
        times = [f"times {weight.scale:.6g}"] if weight.scale != 1.0 else []
        zero = ["zero"] if weight.zero else []
        zero += [f"mean of {len(weight.mean_of)}"] if weight.mean_of else []
        change = ", ".join([*zero, *dict.fromkeys(map(step_text, weight.steps)), *times])
    source = weight.copy_of or weight.source
    if weight.new:
        return f"+ {weight.name}", f"{list(weight.after)}", f"new, {change}"
    sign = "~" if weight.name == source else ">" if moved else "+"
    origin = "" if weight.name == source else f" ({'was' if moved else 'from'} {source})"
    before = "" if sign == ">" and weight.before == weight.after else f"{list(weight.before)} -> "
    return f"{sign} {weight.name}{origin}", f"{before}{list(weight.after)}", change


def step_text(step: AxisStep) -> str:
    """Return `makes heads x 3`: the axis by its name, and how often it stands in a packed weight."""
    times = sum(not leaf.is_identity for leaf in leaf_steps(step.layout))
    return f"{step.verb} {step.name or f'axis {step.axis}'}" + (f" x {times}" if times > 1 else "")


def tally(plan: Plan) -> str:
    """Return the plan in one line."""
    changed = [w for w in plan.weights if w.worth_telling]
    learned = [w for w in plan.weights if w.worth_telling or not w.copy_of]
    new = len(learned) - len({w.copy_of or w.source for w in learned if not w.new})
    before, after = plan.parameters
    parameters = f"{count(before)} -> {count(after)} parameters"
    return (
        f"Plan: {many(len(changed), 'weight')} change{'s' if len(changed) == 1 else ''}, {new} new; "
        f"{parameters}; {size_of(plan.bytes_to_write)} to write."
    )


def applied_lines(applied: Applied) -> Iterator[str]:
    """Yield the measurements, and where the result is."""
    if applied.verification is not None:
        yield from verification_lines(applied.verification, distributions=applied.calibration is None)
    if applied.calibration is not None:
        yield from outcome_lines(applied.calibration)
    elif applied.uncalibrated:
        yield f"note: no loss before and after was measured: {applied.uncalibrated}"
    if applied.reason:
        yield f"Not verified: {applied.reason}."
    yield from (f"note: {remark}" for remark in applied.remarks)
    yield f"Written: {applied.written}"


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """Yield what surgery costs on calibration data."""
    yield f"Calibration: on {many(outcome.samples, 'sample')},"
    if not outcome.closeness:
        yield f"  {short(outcome.relative)} relative,"
    yield from (f"  {line}," for line in near_lines(outcome.closeness))
    if outcome.before is not None and outcome.after is not None:
        before, after = f"{outcome.before.mean:.4f}", f"{outcome.after.mean:.4f}"
        yield f"  loss {before} -> {after} nats a token, on {many(outcome.after.tokens, 'token')}."
    else:
        yield f"  no loss: {outcome.reason}."


def near_lines(closeness: Mapping[str, Closeness]) -> Iterator[str]:
    """Yield how near outputs are as distributions."""
    for name, near in closeness.items():
        yield (
            f"KL {short(near.kl)} nats, the same on top in {near.agreement:.1%} of "
            f"{many(near.rows, 'place')} (`{name}`)"
        )


def outcome_data(outcome: Outcome) -> dict[str, Json]:
    """Return the data that `--json` shows."""
    loss = None
    if outcome.before is not None and outcome.after is not None:
        loss = {"before": outcome.before.mean, "after": outcome.after.mean, "tokens": outcome.after.tokens}
    data: dict[str, Json] = {
        "samples": outcome.samples,
        "relative": finite(outcome.relative),
        "outputs": {name: near_data(near) for name, near in outcome.closeness.items()},
        "loss": loss,
    }
    return data | ({"reason": outcome.reason} if outcome.reason else {})


def near_data(near: Closeness) -> dict[str, Json]:
    """Return closeness as `--json` shows it."""
    return {"kl": near.kl, "top1": near.agreement, "places": near.rows}


def verification_lines(v: Verification, *, distributions: bool = True) -> Iterator[str]:
    """Yield the measured difference beside the model's own rounding."""
    yield (
        f"Measured: {short(v.relative)} relative, {short(v.max_abs)} absolute, on {many(v.cases, 'case')}; "
        f"the source's own rounding is {short(v.rounding)}."
    )
    if len(v.outputs) > 1:
        worst = sorted(v.outputs.items(), key=lambda item: -item[1].relative)
        yield from ("  " + line for line in table((n, short(r.relative)) for n, r in worst[:SHOWN]))
        if len(worst) > SHOWN:
            yield f"  … {len(worst) - SHOWN} more outputs, no worse"
    near = {name: r.closeness for name, r in v.outputs.items() if r.closeness is not None}
    yield from (f"As distributions: {line}." for line in (near_lines(near) if distributions else ()))
    yield from (f"note: {note}" for note in v.notes)
    for way, other in v.beside.items():
        first, *rest = verification_lines(other)
        yield from (f"{way}: {first[0].lower()}{first[1:]}", *rest)


def finite(x: float) -> float:
    """Return a number that JSON can hold: the largest float stands for infinity and for NaN."""
    return x if math.isfinite(x) else sys.float_info.max


def verification_data(v: Verification) -> dict[str, Json]:
    """Return a measurement as `--json` shows it."""
    data: dict[str, Json] = {
        "max_abs": finite(v.max_abs),
        "relative": finite(v.relative),
        "rounding": finite(v.rounding),
        "cases": v.cases,
        "outputs": {name: _report_data(r) for name, r in v.outputs.items()},
        "notes": list(v.notes),
    }
    if v.beside:
        data["beside"] = {way: verification_data(other) for way, other in v.beside.items()}
    return data


def _report_data(report: OutputReport) -> dict[str, Json]:
    data: dict[str, Json] = {"relative": finite(report.relative)}
    return data if report.closeness is None else data | near_data(report.closeness)
