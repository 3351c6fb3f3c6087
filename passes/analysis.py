"""The passes that analyse a model, independent of any statements.

Needs: a model. Gives: its graph, with sizes, norms, spaces, ties, names for spaces, and layers.
"""

from __future__ import annotations

from dataclasses import replace

from growc.passes.axes.expose_shared_head import unseen_units
from growc.passes.axes.infer import infer_spaces
from growc.passes.axes.single_heads import count_heads, count_inner_heads
from growc.passes.axes.ties import find_ties
from growc.passes.axes.units import count_units
from growc.passes.compilation import (
    Analysis,
    Captured,
    Named,
    Normed,
    Simulated,
    Source,
    Spaced,
    Tied,
)
from growc.passes.layers.find import find_layers
from growc.passes.layers.layer_nodes import kept_layers
from growc.passes.raising.norms import find_norms
from growc.passes.roles.name_axes import find_roles
from growc.passes.runner import Pass, run


def capture_pass(c: Source) -> Captured:
    """The neutral graph of the dialect: one weight one use, in an order that no name influences."""
    return Captured(**vars(c), graph=c.model.capture())


def simulate_pass(c: Captured) -> Simulated:
    """Sizes of all values, and small values, at a few sample points, by the dialect."""
    return Simulated(**vars(c), sampled=c.model.simulate(c.graph))


def norms_pass(c: Simulated) -> Normed:
    """Norms that stand in pieces, by what they compute (passes/raising/norms.py)."""
    return Normed(**vars(c), norms=find_norms(c.graph))


def spaces_pass(c: Normed) -> Spaced:
    """The index space of every axis, the line of every node (passes/axes/infer.py).

    If no operator counts some heads, the model is edited so that one does.
    """
    axes = infer_spaces(c.graph)
    unseen = unseen_units(axes)
    if unseen.unfolds or unseen.repeats:
        c = run(GRAPH, replace(c.part(Source), model=c.model.edit(unseen)))
        axes = infer_spaces(c.graph)
    count_units(axes)
    count_heads(axes)
    if c.inside:
        count_inner_heads(axes)
    return Spaced(**vars(c), axes=axes)


def ties_pass(c: Spaced) -> Tied:
    """Uses that must stay one tensor, their spaces unified (passes/axes/ties.py)."""
    return Tied(**vars(c), ties=find_ties(c.axes, c.untied))


def roles_pass(c: Tied) -> Named:
    """Which space is hidden, heads, ffn, vocab, … (passes/roles/name_axes.py)."""
    return Named(**vars(c), roles=find_roles(c.axes))


def layers_pass(c: Named) -> Analysis:
    """Runs of equal layers on each stream (passes/layers/find.py), or those that an edit kept."""
    kept = None if c.places is None else kept_layers(c.places, c.axes)
    return Analysis(**vars(c), layers=kept or find_layers(c.axes, c.roles.scopes.of_sum))


GRAPH = (
    Pass("capture", capture_pass, requires=("model",), ensures=("graph",))
    >> Pass("simulate", simulate_pass, requires=("model", "graph"), ensures=("graph", "sampled"))
    >> Pass("norms", norms_pass, requires=("graph",), ensures=("norms",))
)
"""The passes that run before spaces are known."""

AXES = (
    GRAPH
    >> Pass(
        "spaces",
        spaces_pass,
        requires=("model", "graph", "inside"),
        ensures=("axes",),
        remakes=("model", "graph", "sampled", "norms"),
    )
    >> Pass("ties", ties_pass, requires=("axes", "untied"), ensures=("axes", "ties"))
    >> Pass("roles", roles_pass, requires=("axes",), ensures=("roles",))
)
"""All passes of the analysis except the layers."""

ANALYSIS = AXES >> Pass("layers", layers_pass, requires=("axes", "roles", "places"), ensures=("layers",))
