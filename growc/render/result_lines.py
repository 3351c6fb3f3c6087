"""The lines of each kind of result, as the command line prints them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from growc.applied import Applied
from growc.errors.display import all_lines_of, lines_of
from growc.passes.compilation import Analysis
from growc.plans.plan import Certificate, Plan
from growc.render.certificate import certificate_lines
from growc.render.difference import difference_lines
from growc.render.flops import flops_line
from growc.render.inspection import inspect_lines
from growc.render.profile import profile_lines, rate_line, score_lines
from growc.render.terminal import (
    applied_lines,
    outcome_lines,
    plan_lines,
    verification_lines,
)
from growc.reports.calibration import Outcome
from growc.reports.difference import Difference
from growc.reports.flops import Flops, count
from growc.reports.layer_profile import Profile
from growc.reports.measure import Measurement
from growc.verification.verify import Verification

lines_of.register(Plan)(plan_lines)
lines_of.register(Certificate)(certificate_lines)
lines_of.register(Verification)(verification_lines)
lines_of.register(Outcome)(outcome_lines)
lines_of.register(Difference)(difference_lines)
all_lines_of.register(Plan)(partial(plan_lines, everything=True))
all_lines_of.register(Difference)(partial(difference_lines, everything=True))


@lines_of.register
def lines_of_applied(applied: Applied) -> Iterator[str]:
    """Yield the plan, the measurements, and where the result is."""
    yield from plan_lines(applied.plan)
    yield ""
    yield from applied_lines(applied)


@all_lines_of.register
def all_lines_of_applied(applied: Applied) -> Iterator[str]:
    """Yield the whole plan, the measurements, and where the result is."""
    yield from plan_lines(applied.plan, everything=True)
    yield ""
    yield from applied_lines(applied)


@lines_of.register
def lines_of_analysis(analysis: Analysis) -> Iterator[str]:
    """Yield the axes of a model, and what a token costs."""
    header, *lines = inspect_lines(analysis)
    yield from [header, flops_line(count(analysis)), *lines]


@lines_of.register
def lines_of_flops(flops: Flops) -> Iterator[str]:
    """Yield what a pass costs."""
    yield flops_line(flops)


@lines_of.register
def lines_of_profile(profile: Profile) -> Iterator[str]:
    """Yield what each layer is worth."""
    yield from profile_lines(profile, "the model")


@lines_of.register
def lines_of_measurement(measurement: Measurement) -> Iterator[str]:
    """Yield the scores of units and layers."""
    yield from score_lines(measurement.scores)
    yield rate_line(measurement.samples, measurement.seconds)
