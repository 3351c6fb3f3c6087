"""The plan with its certificate, its counts of parameters and bytes, and its warnings.

Needs: everything before. Gives: `Plan`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from growc.ir.graph import Weight
from growc.passes.compilation import Result, Stored
from growc.passes.finish.assemble import count_parameters
from growc.passes.finish.assembled import Assembled
from growc.passes.finish.symmetry import Symmetry
from growc.passes.layers.layer_runs import DepthChange
from growc.plans.execute import leaf_steps
from growc.plans.plan import MEAN, Alike, AxisChange, Certificate, DroppedWeight, Gap, Plan, WeightPlan
from growc.plans.quantised import Quantised, quantised

_WIDTHS = {"bfloat16": 2, "bool": 1, "string": 0, "int4": 1, "uint4": 1, "float8e4m3fn": 1, "float8e5m2": 1}


def fit_config_pass(c: Result) -> Result:
    """For a class with a config, make the config of the plan, and name the weights as the class does."""
    return c.model.fit_config(c)


def certify_pass(c: Stored) -> Result:
    """Make the plan, with its certificate and warnings."""
    shapes = {
        use: plan.after
        for plan, uses in zip(c.assembled.weights, c.assembled.uses, strict=True)
        for use in uses
    }
    alike = tuple(Symmetry(c).found())
    warnings = (*c.model.warnings, *c.depth.warnings, *c.lowered.warnings)
    written = sum(map(nbytes, c.assembled.weights, c.assembled.sources))
    plan = Plan(
        c.path.name,
        Certificate((*c.depth.gaps, *c.gaps, *rounded(c.assembled))),
        c.lowered.axes | layer_counts(c.depth),
        tuple(c.lowered.summaries),
        tuple(map(_made_of, c.assembled.weights, c.assembled.sources)),
        (count_parameters(c.first.axes, c.first.ties), count_parameters(c.axes, c.ties, shapes)),
        written,
        (*warnings, *warnings_of(alike), *unnormed(c.assembled)),
        tuple((n.name or n.kind, k, v) for n, changed in c.attributes.items() for k, v in changed.items()),
        (*c.model.capture_notes, *c.depth.notes, *c.lowered.notes, *c.notes),
        alike,
        tuple(dropped_weights(c)),
    )
    return Result(**vars(c), plan=plan)


def dropped_weights(c: Stored) -> Iterator[DroppedWeight]:
    """Yield the weights of the source that the result lacks: those of dropped layers, heads and parts."""
    kept_names = {w.copy_of or w.source for w in c.assembled.weights}
    kept_names |= {name for weight in c.assembled.weights for name in weight.mean_of}
    for weight in c.first.graph.weights:
        if weight.floating and weight.elements > 1 and weight.name not in kept_names:
            yield DroppedWeight(weight.name, weight.stored_shape)


def layer_counts(depth: DepthChange) -> dict[str, AxisChange]:
    """The numbers of layers of the runs, before and after."""
    before = tuple(dict.fromkeys(run.count for run in depth.runs))
    after = tuple(dict.fromkeys(run.count_before(None) for run in depth.runs))
    return {"layers": AxisChange(before, after)} if before else {}


def loss(plan: WeightPlan, kept: Quantised | None) -> str:
    """The cause why integers cannot hold the values of a plan; empty where they can."""
    if kept is not None:
        return kept.blocks.loss(plan)
    leaves = [leaf for step in plan.steps for leaf in leaf_steps(step.layout)]
    is_copies = all(bool(np.isin(leaf.weight[leaf.index >= 0], (0, 1)).all()) for leaf in leaves)
    has_means = any(bool((leaf.filler[leaf.index < 0] == MEAN).any()) for leaf in leaves if not leaf.free)
    return "" if is_copies and not has_means else "integers cannot hold means or shares"


def rounded(assembled: Assembled) -> Iterator[Gap]:
    """Yield a gap for each quantised weight whose integers cannot hold the values of its plan."""
    for plan, uses, source in zip(assembled.weights, assembled.uses, assembled.sources, strict=True):
        if source.floating and source.stored is None:
            continue
        cause = loss(plan, quantised(source)) if plan.changed else ""
        if cause:
            node = uses[0].users[0][0] if uses[0].users else None
            remedy = "copies `with zero outputs`, or in blocks of as many units as share a scale, are exact"
            yield Gap.at(node, cause, remedy)


def nbytes(plan: WeightPlan, source: Weight) -> int:
    """The bytes that the result stores of a weight; of a quantised one integers, scales and zero points."""
    storage = quantised(source)
    return plan.elements * width(plan.dtype) if storage is None else storage.nbytes(plan)


def width(dtype: str) -> int:
    """The bytes of one element. Types of four bits count as one byte."""
    return _WIDTHS[dtype] if dtype in _WIDTHS else np.dtype(dtype).itemsize


def warnings_of(alike: Sequence[Alike]) -> Iterator[str]:
    """Yield warnings on units that training cannot tell apart, and on units that never learn."""
    for remedy in dict.fromkeys(a.remedy for a in alike if a.different < a.units):
        entries = [a for a in alike if a.remedy == remedy and a.different < a.units]
        yield (
            f"only {_listed(entries, 'different')} differ: those that are made and read alike get equal "
            f"gradients for ever, dropout aside{remedy and f'; {remedy}'}"
        )
    dead = [a for a in alike if a.dead]
    if dead:
        yield f"{_listed(dead, 'dead')} are zero behind zero readers and will never get a gradient"


def _made_of(plan: WeightPlan, source: Weight) -> WeightPlan:
    """The plan of a weight, with the tensors that the source computes it from and the result does not."""
    return replace(plan, made_of=source.computed) if plan.changed else plan


def now_stored(assembled: Assembled) -> list[Weight]:
    """The weights that the source computes from stored tensors, and the result stores."""
    pairs = zip(assembled.weights, assembled.sources, strict=True)
    return list(dict.fromkeys(source for plan, source in pairs if _made_of(plan, source).made_of))


def unnormed(assembled: Assembled) -> Iterator[str]:
    """Yield a warning for each weight that was a norm and is stored: training will not keep its norm."""
    for weight in now_stored(assembled):
        yield (
            f"`{weight.name}` is a norm over stored tensors times its gain, and becomes a stored tensor "
            "itself: training will not keep its norm"
        )


def _listed(alike: Sequence[Alike], which: str) -> str:
    """`12 of 24 units of `hidden` and 96 to 99 of 192 of `ffn` (layers 0 to 3)`."""
    places: dict[tuple[str, int, str], list[Alike]] = defaultdict(list)
    for a in alike:
        places[a.axis, a.units, a.scope].append(a)
    texts: list[str] = []
    for (axis, units, scope), entries in places.items():
        counts = sorted({int(getattr(a, which)) for a in entries})
        number = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        layers = sorted({a.layer for a in entries if a.layer is not None})
        layers_text = f" ({' '.join(filter(None, [scope, _numbers(layers)]))})" if layers else ""
        texts.append(f"{number} of {units}{'' if texts else ' units'} of `{axis}`{layers_text}")
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _numbers(layers: Sequence[int]) -> str:
    """`layer 3`, `layers 0 to 2, 5`."""
    ends = [n for n in layers if n + 1 not in layers]
    starts = [n for n in layers if n - 1 not in layers]
    runs = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(runs)}"
