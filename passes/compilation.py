"""The records of a compilation, one kind for each pass, and the model as passes see it.

A pass takes a record and gives the next kind of it. Every kind has the fields of the kind before, and those
that a pass adds. So no field is empty because its pass has not run yet, and a pass may read exactly the
fields of its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from growc.algebra.space import Size, Space
from growc.errors.display import Shown
from growc.errors.progress import Progress, quiet
from growc.passes.edits import HeadEdits, Mixture, Repairs, Sampled
from growc.passes.layers.layer_runs import ResultLayer

if TYPE_CHECKING:
    from growc.algebra.indexmap import Bools, Floats, IndexMap
    from growc.errors.source import Span
    from growc.ir.graph import Graph, Node, Origin, Value
    from growc.passes.axes.infer import Axes
    from growc.passes.axes.norms import Norm
    from growc.passes.axes.ties import Tie
    from growc.passes.axes.unstacked_experts import ExpertRemoval
    from growc.passes.dataflow.ranges import RangeRule
    from growc.passes.finish.assembled import Assembled
    from growc.passes.layers.layer_runs import DepthChange, KeptPlaces, Layers, Run
    from growc.passes.lowering.lowered import Lowered
    from growc.passes.ranking.rankings import By
    from growc.passes.ranking.unit_scores import MeasuredScores
    from growc.passes.roles.name_axes import Roles
    from growc.plans.plan import AxisStep, Gap, Plan
    from growc.plans.scores import Scores
    from growc.recipe.statistics import Statistic
    from growc.recipe.syntax_tree import LayerOrder, Measure
    from growc.resolve.bound import Bound

Kind = TypeVar("Kind", bound="Source")

After = Callable[[str, "Source", Sequence[str]], None]
"""Called with the name of each pass, its result, and the fields that it filled in."""


@dataclass(frozen=True)
class Providers:
    """Sources of data that passes need besides the graph.

    scores: the scores of units for a statement; without a statement, their importance.
    layer_scores: the scores of the layers of each run of the source, for an order. Both kinds come from the
        last `measure importance` or a file (raise GrowError: G309, G313, G403).
    inspect: the analysis of another model.
    """

    scores: Callable[[Request, Measure | None, By | None], MeasuredScores | None]
    layer_scores: Callable[[Request, Measure | None, LayerOrder], list[list[float | None]]]
    inspect: Callable[[Path], Analysis]


@dataclass(frozen=True)
class Kept:
    """Axes and runs that stay as they are unless a statement's scope singles them out.

    axes: by the name of a stored tensor and the number of an axis.
    runs: runs of layers, by number.
    cause: why they stay.
    """

    axes: frozenset[tuple[str, int]] = frozenset()
    runs: frozenset[int] = frozenset()
    cause: str = ""


@dataclass(frozen=True, repr=False, eq=False)
class Source:
    """A model and the statements to apply to it.

    keeps: whether measurements may be stored beside the model.
    inside: whether heads are counted inside each part (passes/axes/single_heads.py), and not by the parts.
    untied: the numbers of heads that are no longer tied.
    places: the layers of a model that was edited inside of them; None if they are not known.
    after: called with each pass, its result and the fields that it filled in.
    """

    path: Path
    model: Model
    outside: Providers
    statements: Sequence[Bound] = ()
    progress: Progress = quiet
    keeps: bool = False
    inside: bool = False
    untied: frozenset[int] = frozenset()
    kept: Kept = Kept()
    places: KeptPlaces | None = None
    after: After = lambda name, result, filled: None

    def part(self, kind: type[Kind]) -> Kind:
        """The record as an earlier kind."""
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
class Analysis(Shown, Named):
    """A model with all results of the analysis, which depend on no statement.

    layers: those of the result, once they have moved.
    """

    layers: Layers


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Request(Analysis):
    """A model after the edits that statements need.

    first: the analysis of the model as it was opened.
    edited: the analysis of the edited model; the same as `first` if there were no edits.
    """

    first: Analysis
    edited: Analysis


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Arranged(Request):
    """A model with the layers of the result.

    renamed: inputs and outputs with a new name; None for those that are dropped.
    """

    depth: DepthChange
    renamed: Mapping[str, str | None]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Mapped(Arranged):
    """Statements as index maps."""

    lowered: Lowered


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Solved(Mapped):
    """The changes of each use of a weight.

    scales: factors of eps, and of rescaled weights.
    attributes: changed eps.
    outputs: maps of axes of model outputs.
    blends: for model outputs whose units are means of several, the whole map as a matrix.
    heard: the units that readers get.
    notes: notes for a reader of the plan.
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
    """The changes of the graph besides weights."""

    repairs: Repairs


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Stored(Repaired):
    """The stored tensors of the result."""

    assembled: Assembled


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Result(Stored):
    """A finished compilation."""

    plan: Plan


M = TypeVar("M", bound="Model", covariant=True)


@dataclass(frozen=True)
class ModelWithMixtures(Generic[M]):
    """A model with mixtures of experts in place of networks.

    counterpart: the origin in the model of a value that had some origin before.
    """

    model: M
    counterpart: Callable[[Origin | None], Origin | None]


@dataclass(frozen=True)
class Rearranged(Generic[M]):
    """A model with other layers.

    renamed: inputs and outputs with a new name; None for those that are dropped.
    layers: the layers of the model, on its graph (raises GrowError, G314, if nothing is left of one).
    """

    model: M
    renamed: Mapping[str, str | None]
    layers: Callable[[Graph, DepthChange], Layers]


class Model(Protocol):
    """An opened model.

    capture_notes: notes for every plan on how the model was captured.
    warnings: warnings of every plan.
    looped: the numbers of units of loops whose bodies are captured once for each unit.
    ranges: the rules for the ranges of operators' results.
    scores: the measurements of the model.
    """

    capture_notes: tuple[str, ...]
    warnings: tuple[str, ...]
    looped: frozenset[int]
    scores: dict[tuple[Path, int | None, Statistic], Scores]

    @property
    def open_masks(self) -> bool:
        """Whether masks that are not given count as open."""

    @property
    def ranges(self) -> Mapping[str, RangeRule]:
        """The rules for ranges of values, by operator."""

    def capture(self) -> Graph:
        """The neutral graph."""

    def simulate(self, graph: Graph) -> Sampled:
        """Fill in sizes and known values of a graph. Raises GrowError (G311)."""

    def sizes_at(
        self, graph: Graph, inputs: Mapping[Value, tuple[Size, ...] | None], counts: Mapping[Value, Size]
    ) -> Mapping[Value, tuple[Size, ...] | None]:
        """The sizes of all values at other sizes of the inputs; empty if these contradict each other."""

    def edit(self, edit: HeadEdits) -> Self:
        """The model with an edited graph, which must be captured again."""

    def upcycle(self, mixtures: Sequence[Mixture]) -> ModelWithMixtures[Self]:
        """The model with mixtures in place of networks. Raises GrowError (G304) if it can hold none."""

    def graft(self, template: Model, run: Run, span: Span) -> Model:
        """The model around the layers of a template.

        Raises GrowError: G309 for models of another form, G314 if the template is another model.
        """

    def rearrange(
        self, graph: Graph, layers: Layers, orders: Mapping[int, Sequence[ResultLayer]]
    ) -> Rearranged[Self]:
        """The model with other layers. Raises GrowError (G314) if a dropped layer is needed."""

    def repair(
        self,
        axes: Axes,
        sampled: Sampled,
        resize: Callable[[Space], Size],
        taken: ExpertRemoval,
    ) -> Repairs:
        """Account for every size of the result. Raises GrowError (G308) if one cannot be accounted for."""

    def put_back(self, assembled: Assembled) -> Assembled:
        """The stored tensors of a plan, with changed computed weights replaced by those they are made of."""

    def fit_config(self, c: Result) -> Result:
        """The compilation with the object that stores its result, if that is more than the graph."""

    def file(self, path: Path) -> Path:
        """The file that ONNX Runtime runs."""

    def files(self, path: Path) -> list[Path]:
        """The files that determine what the model computes."""

    def fault(self, path: Path) -> str:
        """The error in the file itself; empty if none can be found."""
