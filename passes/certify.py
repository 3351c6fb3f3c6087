"""The plan's last page: what is claimed, what it costs, what to look out for.

Needs: everything before. Gives: `Plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from growc.compilation import Compilation
from growc.depth import Depth
from growc.graph import Weight
from growc.passes.assemble import Assembled, count_parameters
from growc.plans import MEAN, AxisChange, Certificate, Gap, Plan, WeightPlan
from growc.stage import Stage
from growc.weights import leaf_steps

_WIDTHS = {"bfloat16": 2, "bool": 1, "string": 0, "int4": 1, "uint4": 1, "float8e4m3fn": 1, "float8e5m2": 1}


def certify(c: Compilation) -> Plan:
    """The plan of a compilation."""
    shapes = {
        use: plan.after
        for plan, uses in zip(c.assembled.weights, c.assembled.uses, strict=True)
        for use in uses
    }
    written = sum(w.elements * width(w.dtype) for w in c.assembled.weights)
    return Plan(
        c.path.name,
        Certificate((*c.depth.gaps, *c.gaps, *rounded(c.assembled))),
        c.lowered.axes | layer_counts(c.depth),
        tuple(c.lowered.summaries),
        tuple(c.assembled.weights),
        (c.parameters or count_parameters(c.axes, c.ties), count_parameters(c.axes, c.ties, shapes)),
        written,
        (*c.depth.warnings, *warnings_of(c.lowered.stages), *unnormed(c.assembled)),
        tuple((n.name or n.kind, k, v) for n, changed in c.attributes.items() for k, v in changed.items()),
        (*c.model.told, *c.notes),
    )


def layer_counts(depth: Depth) -> dict[str, AxisChange]:
    """How many layers the runs have, before and after."""
    before = tuple(dict.fromkeys(run.count for run in depth.runs))
    after = tuple(dict.fromkeys(run.count_before(None) for run in depth.runs))
    return {"layers": AxisChange(before, after)} if before else {}


def loss(plan: WeightPlan, blocks: Any) -> str:
    """Why integers cannot hold what they are to become; empty where they can."""
    if blocks is not None:
        return str(blocks.loss(plan))
    leaves = [leaf for step in plan.steps for leaf in leaf_steps(step.layout)]
    whole = all(bool(np.isin(leaf.weight[leaf.index >= 0], (0, 1)).all()) for leaf in leaves)
    filled = any(bool((leaf.filler[leaf.index < 0] == MEAN).any()) for leaf in leaves)
    return "" if whole and not filled else "integers cannot hold means or shares"


def rounded(made: Assembled) -> Iterator[Gap]:
    """Quantised weights whose steps cannot hold what they are to become."""
    for plan, uses, source in zip(made.weights, made.uses, made.sources, strict=True):
        if source.floating and source.stored is None:
            continue
        blocks = None if source.stored is None else source.stored.blocks
        cause = loss(plan, blocks) if plan.changed else ""
        if cause:
            node = uses[0].users[0][0] if uses[0].users else None
            remedy = "copies `with zero outputs`, or in blocks of as many units as share a scale, are exact"
            yield Gap("" if node is None else node.name, "" if node is None else node.kind, cause, remedy)


def width(dtype: str) -> int:
    """Bytes of one element."""
    return _WIDTHS[dtype] if dtype in _WIDTHS else np.dtype(dtype).itemsize


def warnings_of(stages: Sequence[Stage]) -> Iterator[str]:
    """What training cannot undo: copies that stay alike, units that never learn.

    Rows of a table that are looked up by number meet other data than their copies.
    """
    alike = [
        s.axis for s in stages if _copies(s) and not _told_apart(s) and s.axis not in ("vocab", "positions")
    ]
    if alike:
        yield (
            f"copies of one unit of {_listed(alike)} have equal shares and will get equal gradients "
            "for ever: `split random` or `noise S balanced` lets training tell them apart"
        )
    dead = [
        s.axis
        for s in stages
        if s.options.zero_outputs and any(r.fill == "zero fill" for r in s.requests.values())
    ]
    if dead:
        yield f"new units of {_listed(dead)} are zero behind zero readers and will never get a gradient"


def now_stored(made: Assembled) -> list[Weight]:
    """Weights that the source computes from stored tensors, and the result no longer."""
    pairs = zip(made.weights, made.sources, strict=True)
    return list(dict.fromkeys(source for plan, source in pairs if plan.changed and source.computed))


def unnormed(made: Assembled) -> Iterator[str]:
    """What training does to weights that are computed no longer."""
    for weight in now_stored(made):
        yield (
            f"`{weight.name}` is a norm over stored tensors times its gain, and becomes a stored tensor "
            "itself: training will not keep its norm"
        )


def _copies(stage: Stage) -> bool:
    return any((r.map.counts > 1).any() for r in stage.requests.values())


def _told_apart(stage: Stage) -> bool:
    options = stage.options
    return options.split_random or options.noise is not None or options.zero_outputs


def _listed(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in dict.fromkeys(names)]
    return " and ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
