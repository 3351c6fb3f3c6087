"""Measurements on inputs: the importance of units as text, layers as a chart, and both as data."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.table import Table

from growc.algebra.indexmap import Floats
from growc.errors.json_data import Json
from growc.render.terminal import outcome_data
from growc.render.text import many, short, table

if TYPE_CHECKING:
    from growc.measurement.probes import LayerScore
    from growc.reports.layer_profile import LayerTrial, Profile

BAR = 16
"""Characters of the longest bar."""

MISSING = "–"

SHOWN = 24
"""The most index spaces that are shown as text; `--json` has all."""


def profile_lines(profile: Profile, model: str) -> Iterator[str]:
    """Yield a row per layer and branch: what it adds, and the cost of removing or doubling the layer."""
    loss = "" if profile.loss is None else f"; its loss is {profile.loss.mean:.4f} nats a token"
    yield f"{model} on {many(profile.samples, 'sample')}{loss}"
    yield ""
    if not profile.layers:
        yield "No layers were found in the model."
        return
    yield from (f"  {line}".rstrip() for line in _rendered(_chart(profile)))
    yield ""
    yield from dict.fromkeys(_reasons(profile))


def profile_data(profile: Profile) -> dict[str, Json]:
    """Return the data that `--json` shows."""
    rows = [
        layer_data(row.score)
        | {"scope": row.scope, "removed": _trial_data(row.removed), "doubled": _trial_data(row.doubled)}
        for row in profile.layers
    ]
    return {
        "samples": profile.samples,
        "loss": None if profile.loss is None else profile.loss.mean,
        "layers": rows,
    }


def layer_data(score: LayerScore) -> dict[str, Json]:
    """Return the data that `--json` shows of a layer that was only measured."""
    branches = [{"kind": kind, "ratio": ratio} for kind, ratio in score.branches]
    return {"run": score.run, "layer": score.layer, "ratio": score.ratio, "branches": branches}


def _trial_data(trial: LayerTrial) -> dict[str, Json]:
    return {"reason": trial.reason} if trial.outcome is None else outcome_data(trial.outcome)


def _reasons(profile: Profile) -> Iterator[str]:
    for row, place in zip(profile.layers, places(profile), strict=True):
        for change, trial in (("removed", row.removed), ("doubled", row.doubled)):
            if trial.outcome is None:
                yield f"note: layer {place} cannot be {change}: {trial.reason}"


def places(profile: Profile) -> list[str]:
    """Return `2`; for several runs `decoder 2`, or `run 1: 2` if scopes do not tell them apart."""
    runs = {row.score.run: row.scope for row in profile.layers}
    if len(runs) == 1:
        return [str(row.score.layer) for row in profile.layers]
    by_scope = len(set(runs.values())) == len(runs)
    return [
        f"{row.scope} {row.score.layer}" if by_scope else f"run {row.score.run}: {row.score.layer}"
        for row in profile.layers
    ]


def cost_name(profile: Profile) -> str:
    """Return what bars of cost show: the loss, else the KL, else the relative difference."""
    outcomes = [t.outcome for row in profile.layers for t in (row.removed, row.doubled) if t.outcome]
    if profile.loss is not None:
        return "loss"
    return "KL" if any(o.kl is not None for o in outcomes) else "difference"


def cost_of(trial: LayerTrial, name: str) -> float | None:
    """Return what a trial costs, by that name."""
    outcome = trial.outcome
    if outcome is None:
        return None
    if name == "loss":
        return None if outcome.after is None else outcome.after.mean
    return outcome.kl if name == "KL" else outcome.relative


def _chart(profile: Profile) -> Table:
    name = cost_name(profile)
    costs = [cost_of(t, name) for row in profile.layers for t in (row.removed, row.doubled)]
    ratios = [r for row in profile.layers for r in (row.score.ratio, *(r for _, r in row.score.branches))]
    widest = [max((x for x in group if x is not None), default=0.0) for group in (ratios, costs)]
    chart = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("layer", "", "‖f(x)‖/‖x + f(x)‖", "", f"{name} without it", "", f"{name} with it twice"):
        chart.add_column(title, no_wrap=True)
    for row, place in zip(profile.layers, places(profile), strict=True):
        cells = [*_cells(row.score.ratio, widest[0])]
        for trial in (row.removed, row.doubled):
            cells += _cells(cost_of(trial, name), widest[1])
        chart.add_row(place, *cells)
        for kind, ratio in row.score.branches:
            chart.add_row(f"  {kind}", *_cells(ratio, widest[0]))
    return chart


def _cells(value: float | None, widest: float) -> tuple[RenderableType, RenderableType]:
    """A number and its bar."""
    if value is None:
        return MISSING, ""
    return f"{value:.3g}", Bar(widest or 1.0, 0, value, width=BAR)


def _rendered(chart: Table) -> list[str]:
    """Return the lines that a terminal without colours shows, whatever its width."""
    text = io.StringIO()
    Console(file=text, width=140, color_system=None, legacy_windows=False).print(chart)
    return text.getvalue().splitlines()


def score_lines(scores: Mapping[str, Floats]) -> Iterator[str]:
    """Yield a line for each index space: its units, least and largest score, the better half's share.

    Each run of layers has one line, with all scores in order.
    """
    rows = []
    layers = {name: values for name, values in scores.items() if name.startswith("layers.")}
    for name, values in scores.items():
        if name in layers:
            continue
        best = np.sort(values)[::-1][: -(-len(values) // 2)].sum() / (values.sum() or 1.0)
        spread = f"{short(float(values.min()))} to {short(float(values.max()))}"
        rows.append((name, many(len(values), "unit"), spread, f"the better half has {best:.0%}"))
    yield from (f"  {line}" for line in table(rows[:SHOWN]))
    if len(rows) > SHOWN:
        yield f"  … {len(rows) - SHOWN} more (--json)"
    if not rows:
        yield "No axis with a name is read by a weight."
    yield from (f"  {name}   {' '.join(f'{x:.2f}' for x in values)}" for name, values in layers.items())


def rate_line(samples: int, seconds: float) -> str:
    """Return the speed of the measurement, or that nothing had to be run."""
    if not samples:
        return "Nothing was run: these scores were kept from the same measurement."
    rate = f", {samples / seconds:.3g} a second" if seconds else ""
    return f"Measured: {many(samples, 'sample')} in {seconds:.1f} s{rate}."
