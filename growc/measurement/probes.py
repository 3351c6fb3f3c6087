"""The probes of each statistic in a model, and the scores of units and layers that follow from their sums.

Needs: the analysis of a model. Gives: the probes of a statistic, for growc.measurement.importance to run; and
from the sums, scores of units and of layers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from growc.algebra.indexmap import Floats
from growc.algebra.space import Space, atoms_of, factors, find
from growc.dialects.onnx.files.probe_model import Mask, ProbedTensor, shown
from growc.dialects.onnx.files.signature import Role, read_signature
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.passes.ranking.activation_sites import Activations, ActivationSite
from growc.passes.ranking.layer_ratios import Ratio, find_blocks
from growc.passes.ranking.magnitude import placed
from growc.passes.ranking.routed_outputs import Routed, routed_outputs
from growc.passes.ranking.unit_scores import Table, Tables, scored
from growc.plans.scores import Scores
from growc.recipe.statistics import COSINE, IMPORTANCE, REAP, Statistic

if TYPE_CHECKING:
    from growc.ir.graph import Value
    from growc.passes.axes.infer import Axes
    from growc.passes.compilation import Analysis


@dataclass(frozen=True)
class LayerScore:
    """‖f(x)‖/‖x + f(x)‖ of a layer, and of its branches, each with its kind; None if no tensor shows it."""

    run: int
    layer: int
    ratio: float | None
    branches: tuple[tuple[str, float | None], ...]


def probes_of(c: Analysis, statistic: Statistic) -> list[ProbedTensor]:
    """Return the probes of a statistic: every reading, then every ratio, that the file shows."""
    masks, visible = masks_of(c), shown(c.model.file(c.path))
    if statistic == REAP:
        return [_routed(one, c.axes, masks, visible) for one in experts_of(c)]
    readings = [] if statistic == COSINE else activations(c, statistic).readings
    cosine = statistic == COSINE
    probes = [_probe(r, c.axes, masks, visible, statistic.using) for r in readings]
    blocks = find_blocks(c.axes, c.layers, c.roles) if cosine or statistic == IMPORTANCE else []
    every = (r for b in blocks for r in ([b.ratio] if cosine else b.ratios))
    ratios = [r for r in every if r is not None]
    return [*probes, *(_quotient(r, c.axes, masks, cosine) for r in ratios if _is_shown(r, visible))]


def activations(c: Analysis, statistic: Statistic) -> Activations:
    """Return the readings of a statistic."""
    heads = {x for axis in c.roles.axes.get("heads", ()) for x in atoms_of(axis.spaces)}
    return Activations(c.axes, statistic, heads)


def experts_of(c: Analysis) -> list[Routed]:
    """Return the places where the outputs of experts can be seen."""
    return routed_outputs(c.axes, [s for axis in c.roles.axes.get("experts", ()) for s in axis.spaces])


def tables_of(c: Analysis, scores: Scores, statistic: Statistic) -> Tables:
    """Return the measured scores of units."""
    if statistic == REAP:
        return _of_experts(experts_of(c), scores.values())
    return activations(c, statistic).tables(scores.values(statistic))


def layer_scores(c: Analysis, scores: Scores) -> list[LayerScore]:
    """Return the measured scores of the source's layers, run by run."""
    blocks = find_blocks(c.axes, c.layers, c.roles)
    first, visible = len(activations(c, IMPORTANCE).readings), shown(c.model.file(c.path))
    means = iter(scores.values()[first:])

    def of(ratio: Ratio | None) -> float | None:
        return None if ratio is None or not _is_shown(ratio, visible) else float(next(means))

    return [LayerScore(b.run, b.layer, of(b.ratio), tuple((k, of(r)) for k, r in b.branches)) for b in blocks]


def turns(c: Analysis, scores: Scores) -> list[list[float | None]]:
    """Return 1 − cos of each layer's input and output, run by run; None if no tensor shows them."""
    visible, means = shown(c.model.file(c.path)), iter(scores.values(COSINE))
    by_run: list[list[float | None]] = [[] for _ in c.layers.runs]
    for block in find_blocks(c.axes, c.layers, c.roles):
        is_known = block.ratio is not None and _is_shown(block.ratio, visible)
        by_run[block.run].append(float(next(means)) if is_known else None)
    return by_run


def named_scores(c: Analysis, scores: Scores) -> Iterator[tuple[str, Floats]]:
    """Yield (`ffn.0`, one number for each unit) of every measured axis that has a name.

    `layers.0` and so on have one number for each layer of a run.
    """
    tables = tables_of(c, scores, IMPORTANCE)
    for name, role_axes in c.roles.axes.items():
        for k, axis in enumerate(role_axes):
            atoms = [find(s) for s in axis.spaces]  # empty for a single head that all share
            if atoms and all(s.kind == "atom" and s in tables for s in atoms):
                yield f"{name}.{k}", scored(tables, axis.spaces)
    layers = layer_scores(c, scores)
    for k in range(len(c.layers.runs)):
        ratios = [score.ratio for score in layers if score.run == k]
        if None not in ratios:
            yield f"layers.{k}", np.array(ratios, dtype=np.float64)


# Where activations are


def masks_of(c: Analysis) -> list[Value]:
    """Return the model's inputs that tell which places count."""
    ports = read_signature(c.model.file(c.path))
    names = {port.name for port in ports if port.role is Role.MASK and len(port.dims) > 1}
    return [value for value in c.graph.inputs if value.name in names]


def _is_shown(ratio: Ratio, visible: Collection[str]) -> bool:
    return {ratio.whole.name, ratio.part.name} <= set(visible)


def _quotient(ratio: Ratio, axes: Axes, masks: Sequence[Value], cosine: bool) -> ProbedTensor:
    value = ratio.whole
    weights = _weights(value, axes, masks)
    return ProbedTensor(
        value.name, value.rank, ratio.units, weights, ratio.part.name, ratio.taken, cosine=cosine
    )


def _probe(
    reading: ActivationSite, axes: Axes, masks: Sequence[Value], visible: Collection[str], using: str
) -> ProbedTensor:
    value = reading.value
    require_shown(value, visible)
    less = "" if reading.less is None else reading.less.name
    units = 0 if reading.numbered is None else reading.numbered.size[0]
    rank = value.rank + (units > 0)
    weights = _weights(value, axes, masks)
    grouped = _grouped(reading, axes)
    return ProbedTensor(
        value.name, rank, reading.kept, weights, units=units, less=less, using=using, grouped=grouped
    )


def _routed(routed: Routed, axes: Axes, masks: Sequence[Value], visible: Collection[str]) -> ProbedTensor:
    for value in filter(None, (routed.value, routed.shares, routed.numbers)):
        require_shown(value, visible)
    return ProbedTensor(
        routed.value.name,
        routed.value.rank,
        routed.units,
        _weights(routed.value, axes, masks),
        units=routed.experts.size[0],
        routed=True,
        shares="" if routed.shares is None else routed.shares.name,
        numbers="" if routed.numbers is None else routed.numbers.name,
        along=routed.along,
    )


def _of_experts(routed: Sequence[Routed], means: Sequence[Floats]) -> Tables:
    """Return the measured scores of experts, whether they were seen together or one by one."""
    scores: dict[Space, Floats] = {}
    for one, values in zip(routed, means, strict=False):
        if one.unit is None:
            scores[one.experts] = values
        else:
            scores.setdefault(one.experts, np.zeros(one.experts.size[0]))[one.unit] = values
    return {space: [Table([space], values)] for space, values in scores.items()}


def require_shown(value: Value, visible: Collection[str]) -> None:
    """Raise GrowError (G309) for a tensor that a file cannot output."""
    if value.producer is not None and value.name not in visible:
        message = f"an activation inside of `{value.producer.name or value.producer.kind}` cannot be measured"
        raise GrowError(Diagnostic("G309", message, help="measure a model without fused operators"))


def _grouped(reading: ActivationSite, axes: Axes) -> tuple[int, ...]:
    """Return the unit of each element along the kept axes; nothing if each element is a unit."""
    if not reading.grouped:
        return ()
    spaces = [axes.of(reading.value)[k] for k in reading.kept]
    by_unit = placed(spaces, np.zeros([find(s).size[0] for s in spaces]), reading.grouped)
    assert by_unit is not None
    return tuple(by_unit[1].tolist())


def _weights(value: Value, axes: Axes, masks: Sequence[Value]) -> tuple[Mask, ...]:
    """Return the masks that tell which places of a tensor count."""
    aligned = (_aligned(mask, value, axes) for mask in masks)
    return tuple(m for m in aligned if m is not None)


def _aligned(mask: Value, value: Value, axes: Axes) -> Mask | None:
    """Return a mask with the places of its axes in a tensor; None if some axis has no place, or several."""
    mask_spaces = [find(s) for s in axes.of(mask)]
    spaces = [find(s) for s in axes.of(value)]
    for place, space in enumerate(spaces):
        parts = factors(space)
        if len(parts) == len(mask_spaces) > 1 and all(map(_same, parts, mask_spaces)):
            return Mask(mask.name, (place,), merged=True)
    places = [[i for i, s in enumerate(spaces) if _same(s, w)] for w in mask_spaces]
    if any(len(matches) != 1 for matches in places):
        return None
    return Mask(mask.name, tuple(matches[0] for matches in places))


def _same(a: Space, b: Space) -> bool:
    """Whether two axes count the same: one space, or one symbol (equal sizes at all sample points)."""
    return a is b or (not a.static and a.size == b.size)
