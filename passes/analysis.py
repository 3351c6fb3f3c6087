"""The passes that say what a model is, whatever is asked of it.

Needs: a model. Gives: its graph, with sizes, norms, spaces, ties, names for spaces, and layers.
"""

from __future__ import annotations

from dataclasses import replace

from growc.compilation import Compilation
from growc.passes.assemble import count_parameters
from growc.passes.inner_heads import count_inner_heads
from growc.passes.layers import find_layers
from growc.passes.raising.norms import find_norms
from growc.passes.roles import find_roles
from growc.passes.runner import Pass
from growc.passes.single_heads import count_heads
from growc.passes.spaces import infer_spaces
from growc.passes.ties import find_ties
from growc.passes.units import count_units
from growc.passes.unseen import unseen_units


def capture_pass(c: Compilation) -> Compilation:
    """The neutral graph: one weight one use, canonical order."""
    return replace(c, graph=c.model.capture())


def simulate_pass(c: Compilation) -> Compilation:
    """Sizes and small values at a few sample points."""
    return replace(c, simulation=c.model.simulate(c.graph))


def norms_pass(c: Compilation) -> Compilation:
    """Norms that stand in pieces."""
    return replace(c, norms=find_norms(c.graph))


def spaces_pass(c: Compilation) -> Compilation:
    """Index spaces: which axes change together. Heads that no operator counts are made to be counted."""
    axes = infer_spaces(c.graph)
    unseen = unseen_units(axes)
    if unseen.unfolds or unseen.repeats:
        c.model.spread(unseen)
        c = norms_pass(simulate_pass(capture_pass(c)))
        axes = infer_spaces(c.graph)
    count_units(axes)
    count_heads(axes)
    if c.inside:
        count_inner_heads(axes)
    return replace(c, axes=axes)


def ties_pass(c: Compilation) -> Compilation:
    """Weights that are one."""
    return replace(c, ties=find_ties(c.axes, c.untied))


def roles_pass(c: Compilation) -> Compilation:
    """Names for spaces."""
    return replace(c, roles=find_roles(c.axes))


def layers_pass(c: Compilation) -> Compilation:
    """Equal parts of streams, one behind the other."""
    return replace(c, layers=find_layers(c.axes, c.roles.scopes.of_sum))


ANALYSIS: tuple[Pass, ...] = (
    Pass("capture", capture_pass, ("model",), ("graph",)),
    Pass("simulate", simulate_pass, ("model", "graph"), ("simulation",)),
    Pass("norms", norms_pass, ("graph",), ("norms",)),
    Pass("spaces", spaces_pass, ("model", "graph", "inside"), ("graph", "simulation", "norms", "axes")),
    Pass("ties", ties_pass, ("axes", "untied"), ("ties",)),
    Pass("roles", roles_pass, ("axes",), ("roles",)),
    Pass("layers", layers_pass, ("axes", "roles"), ("layers",)),
)


def parameters_of(c: Compilation) -> int:
    """How many parameters the source has."""
    return c.parameters or count_parameters(c.axes, c.ties)
