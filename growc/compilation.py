"""What is known of one compilation: each pass takes a record and gives the next kind of it.

Every kind has the fields of the kind before, and those that a pass adds. So no field is empty because its
pass has not run yet, and what a pass may read is what its argument has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Never, TypeVar

if TYPE_CHECKING:
    from growc.axes import Space
    from growc.depth import Depth
    from growc.graph import Graph, Node, Value
    from growc.indexmap import Bools, Floats, IndexMap
    from growc.layers import Layers
    from growc.model import Model, Repairs, Sampled
    from growc.passes.assemble import Assembled
    from growc.passes.lower import Lowered
    from growc.passes.norms import Norm
    from growc.passes.roles import Roles
    from growc.passes.runner import Pass
    from growc.passes.spaces import Axes
    from growc.passes.ties import Tie
    from growc.plans import AxisStep, Gap, Plan
    from growc.resolve import Bound

Kind = TypeVar("Kind", bound="Source")

After = Callable[["Pass[Never, Source]", "Source"], None]
"""What is called with each pass and what it made."""


@dataclass(frozen=True, repr=False, eq=False)
class Source:
    """What is asked of which model. keeps: whether what is measured may be kept beside the model. inside:
    whether one head in each part counts (passes/inner_heads.py), and not the parts. untied: heads that are
    not tied any more. after: called with each pass and what it made.
    """

    path: Path
    model: Model
    statements: Sequence[Bound] = ()
    progress: Callable[[str, int, int], None] = lambda phrase, done, total: None
    keeps: bool = False
    inside: bool = False
    untied: frozenset[int] = frozenset()
    after: After = lambda one, made: None

    def part(self, kind: type[Kind]) -> Kind:
        """What an earlier kind of it has."""
        return kind(**{field.name: vars(self)[field.name] for field in fields(kind)})

    def __repr__(self) -> str:
        return f"<Compilation of {str(self.path)[-80:]}: not analysed>"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Captured(Source):
    """A model as a graph."""

    graph: Graph


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Simulated(Captured):
    """A graph with sizes."""

    sampled: Sampled


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Normed(Simulated):
    """A graph with its norms."""

    norms: Sequence[Norm]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Spaced(Normed):
    """A graph with its index spaces."""

    axes: Axes


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Tied(Spaced):
    """Index spaces after ties."""

    ties: Sequence[Tie]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Named(Tied):
    """Index spaces with names."""

    roles: Roles

    def __repr__(self) -> str:
        """The model, and its axes."""
        axes = (f"{name} {'/'.join(map(str, self.roles.sizes(name)[:9]))}" for name in self.roles.axes)
        return f"<Compilation of {str(self.path)[-80:]}: {', '.join(axes) or 'not analysed'}>"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Analysis(Named):
    """All that is known of a model, whatever is asked of it. layers: those of the result, once they moved."""

    layers: Layers


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Request(Analysis):
    """A model that was edited as the statements ask. first: the analysis of the model as it was opened."""

    first: Analysis


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Arranged(Request):
    """A model with the layers of the result. renamed: inputs and outputs with another name now, or none."""

    depth: Depth
    renamed: Mapping[str, str | None]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Mapped(Arranged):
    """Statements as maps."""

    lowered: Lowered


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Solved(Mapped):
    """What is done to each use of a weight. scales: factors of eps, and of rescaled weights. attributes:
    changed eps. outputs: maps of axes of model outputs; blends: of those that hold means. heard: the units
    that readers get. notes: what a reader of the plan should know.
    """

    steps: Mapping[Value, Sequence[AxisStep]]
    scales: Mapping[Value, float]
    attributes: Mapping[Node, Mapping[str, float]]
    gaps: Sequence[Gap]
    outputs: Mapping[tuple[str, int], IndexMap]
    blends: Mapping[tuple[str, int], Floats]
    heard: Mapping[Space, Bools]
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Repaired(Solved):
    """What changes in the graph."""

    repairs: Repairs


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Stored(Repaired):
    """The stored tensors of the result."""

    assembled: Assembled


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Result(Stored):
    """A finished compilation."""

    plan: Plan
