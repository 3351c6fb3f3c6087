"""The compiler as a sequence of passes: PIPELINE lists them in order. Each pass is a module of this folder.

A pass takes a record of a compilation and gives the next kind of it: `a >> b` is b after a.
"""

from __future__ import annotations

from growc.passes.analysis import ANALYSIS
from growc.passes.finish.assemble import assemble_pass, repair_shapes_pass
from growc.passes.finish.certify import certify_pass, fit_config_pass
from growc.passes.lowering.edit_model import edit_pass
from growc.passes.lowering.expand_match import match_pass
from growc.passes.lowering.lower_depth import depth_pass
from growc.passes.lowering.lower_recipe import lower_pass
from growc.passes.runner import Pass, run
from growc.passes.solving.statements import solve_pass

__all__ = (
    "AFTER_ANALYSIS",
    "AFTER_DEPTH",
    "AFTER_EDIT",
    "ANALYSIS",
    "EDIT",
    "FIT_CONFIG",
    "PIPELINE",
    "PLANNING",
    "Pass",
    "run",
)

ANALYSED = ("model", *dict.fromkeys(name for one in ANALYSIS for name in one.ensures))
"""The model and the fields of its analysis, all of which a pass that edits the model makes again."""

EDIT = Pass(
    "edit",
    edit_pass,
    requires=("statements", *ANALYSED),
    ensures=("first", "edited"),
    remakes=("untied", "places", *ANALYSED),
)

MATCH = Pass(
    "match",
    match_pass,
    requires=("outside", "statements", "kept", *ANALYSED, "first"),
    ensures=("statements",),
)

DEPTH = Pass(
    "depth",
    depth_pass,
    requires=("outside", "statements", "kept", *ANALYSED, "first", "edited"),
    ensures=("depth", "renamed"),
    remakes=ANALYSED,
)

AFTER_DEPTH = (
    Pass(
        "lower",
        lower_pass,
        requires=("outside", "statements", "kept", "graph", "roles", "axes", "ties", "layers", "depth"),
        ensures=("lowered",),
    )
    >> Pass(
        "solve",
        solve_pass,
        requires=("model", "graph", "axes", "norms", "ties", "roles", "layers", "lowered", "statements"),
        ensures=("steps", "scales", "attributes", "gaps", "outputs", "blends", "heard", "notes"),
    )
    >> Pass(
        "repair_shapes",
        repair_shapes_pass,
        requires=("model", "graph", "sampled", "axes", "lowered"),
        ensures=("repairs",),
    )
    >> Pass(
        "assemble",
        assemble_pass,
        requires=("model", "graph", "axes", "roles", "untied", "lowered", "steps", "scales", "repairs"),
        ensures=("assembled",),
    )
    >> Pass(
        "certify",
        certify_pass,
        requires=(
            *("path", *ANALYSED, "first", "depth", "lowered"),
            *("steps", "attributes", "gaps", "heard", "notes", "assembled"),
        ),
        ensures=("plan",),
    )
)

AFTER_EDIT = MATCH >> DEPTH >> AFTER_DEPTH
"""The passes that run again if an edited model gets further statements."""

AFTER_ANALYSIS = EDIT >> AFTER_EDIT
"""The passes that run for each recipe on an analysed model."""

PLANNING = ANALYSIS >> AFTER_ANALYSIS
"""All passes except the one for the class that stores the result."""

PLANNED = tuple(dict.fromkeys(name for one in PLANNING for name in one.ensures))
"""The fields that planning fills in. For a class with axes that follow others, all of them are made again."""

FIT_CONFIG = Pass(
    "fit_config",
    fit_config_pass,
    requires=(
        *("path", "model", "outside", "statements", "progress", "keeps", "inside", "kept", "after"),
        *("first", "edited"),
        *("graph", "axes", "roles", "layers", "renamed", "lowered", "attributes", "outputs", "blends"),
        *("repairs", "assembled", "plan"),
    ),
    ensures=(),
    remakes=("model", "inside", "kept", *PLANNED, "grown"),
)

PIPELINE = PLANNING >> FIT_CONFIG
