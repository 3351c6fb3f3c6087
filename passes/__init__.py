"""The compiler, in order. Reading PIPELINE is reading how growc works; each pass is a module of this folder.

Every pass takes a `Compilation` and returns it with the fields that it ensures.
"""

from __future__ import annotations

from dataclasses import fields

from growc.compilation import Compilation
from growc.passes.analysis import ANALYSIS
from growc.passes.assemble import assemble_pass, mend_pass
from growc.passes.certify import certify_pass, hold_pass
from growc.passes.depth import depth_pass
from growc.passes.lower import lower_pass
from growc.passes.match import match_pass
from growc.passes.packing import groups_pass
from growc.passes.runner import Pass, run
from growc.passes.solve_statements import solve_pass
from growc.passes.untie import untie_pass

__all__ = ("AFTER_DEPTH", "ANALYSIS", "PIPELINE", "PLANNING", "Pass", "run")

ANALYSED = ("graph", "simulation", "norms", "axes", "ties", "roles", "layers")
"""What the analysis makes: a pass that edits the model makes it again."""

EVERYTHING = tuple(field.name for field in fields(Compilation))
"""What a plan is made of: of a class whose axes follow others, all of it is made again."""

AFTER_DEPTH: tuple[Pass, ...] = (
    Pass(
        "lower",
        lower_pass,
        requires=("model", "statements", "roles", "axes", "ties", "layers", "depth"),
        ensures=("lowered",),
    ),
    Pass(
        "solve",
        solve_pass,
        requires=("graph", "axes", "norms", "ties", "roles", "layers", "lowered"),
        ensures=("steps", "scales", "attributes", "gaps", "outputs", "blends", "heard", "notes"),
    ),
    Pass(
        "mend",
        mend_pass,
        requires=("model", "simulation", "axes", "lowered"),
        ensures=("mended",),
    ),
    Pass(
        "assemble",
        assemble_pass,
        requires=("model", "graph", "axes", "roles", "untied", "lowered", "steps", "scales", "mended"),
        ensures=("assembled",),
    ),
    Pass(
        "certify",
        certify_pass,
        requires=("path", "model", *ANALYSED, "parameters", "depth", "lowered", "steps", "assembled"),
        ensures=("plan",),
    ),
)

PLANNING: tuple[Pass, ...] = (
    *ANALYSIS,
    Pass(
        "untie",
        untie_pass,
        requires=("statements", *ANALYSED),
        ensures=(*ANALYSED, "untied", "parameters"),
    ),
    Pass("groups", groups_pass, requires=("statements", "model", *ANALYSED), ensures=ANALYSED),
    Pass("match", match_pass, requires=("statements", "model", *ANALYSED), ensures=("statements",)),
    Pass(
        "depth",
        depth_pass,
        requires=("statements", "model", *ANALYSED),
        ensures=(*ANALYSED, "depth", "renamed", "parameters"),
    ),
    *AFTER_DEPTH,
)
"""All but the class that stores the result."""

PIPELINE: tuple[Pass, ...] = (
    *PLANNING,
    Pass("hold", hold_pass, requires=EVERYTHING, ensures=EVERYTHING),
)
