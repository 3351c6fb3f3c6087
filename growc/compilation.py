"""Everything that is known of one compilation, filled in pass by pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from growc.axes import Space
    from growc.depth import Depth
    from growc.graph import Graph, Node, Value
    from growc.indexmap import Bools, Floats, IndexMap
    from growc.layers import Layers
    from growc.passes.assemble import Assembled
    from growc.passes.lower import Lowered
    from growc.passes.norms import Norm
    from growc.passes.roles import Roles
    from growc.passes.runner import Pass
    from growc.passes.spaces import Axes
    from growc.passes.ties import Tie
    from growc.plans import AxisStep, Gap, Plan
    from growc.resolve import Bound


@dataclass(frozen=True)
class Compilation:
    """All down to `inside` is given; the rest are results of passes, as comments say."""

    path: Path
    model: Any
    statements: Sequence[Bound] = ()
    progress: Callable[[str, int, int], None] = lambda phrase, done, total: None
    keeps: bool = False  # whether what is measured may be kept beside the model
    inside: bool = False  # whether one head in each part counts (passes/inner_heads.py), and not the parts
    after: Callable[[Pass, Compilation], None] = lambda one, made: None  # called after each pass
    graph: Graph = None  # type: ignore[assignment]  # capture
    simulation: Any = None  # simulate
    layers: Layers = None  # type: ignore[assignment]  # layers; of the result, from depth on
    depth: Depth = None  # type: ignore[assignment]  # depth
    renamed: Mapping[str, str | None] = field(default_factory=dict)  # depth: inputs and outputs
    norms: Sequence[Norm] = ()  # norms
    axes: Axes = None  # type: ignore[assignment]  # spaces
    ties: Sequence[Tie] = ()  # ties
    parameters: int = 0  # untie, depth: those of the source, where the model was analysed again
    untied: frozenset[int] = frozenset()  # untie: heads that are not tied any more
    roles: Roles = None  # type: ignore[assignment]  # roles
    lowered: Lowered = None  # type: ignore[assignment]  # lower
    steps: Mapping[Value, Sequence[AxisStep]] = field(default_factory=dict)  # solve
    scales: Mapping[Value, float] = field(default_factory=dict)  # solve: factors of eps, of rescaled weights
    attributes: Mapping[Node, Mapping[str, float]] = field(default_factory=dict)  # solve: changed eps
    gaps: Sequence[Gap] = ()  # solve
    outputs: Mapping[tuple[str, int], IndexMap] = field(default_factory=dict)  # solve: axes of model outputs
    blends: Mapping[tuple[str, int], Floats] = field(default_factory=dict)  # solve: those that hold means
    heard: Mapping[Space, Bools] = field(default_factory=dict)  # solve: units that readers get, by atom
    notes: Sequence[str] = ()  # solve: what a reader of the plan should know
    mended: Any = None  # mend
    assembled: Assembled = None  # type: ignore[assignment]  # assemble
    plan: Plan = None  # type: ignore[assignment]  # certify; hold: what a class changes of it
    held: Any = None  # hold: the class that stores the result, and its weights there

    def __repr__(self) -> str:
        """The model, and its axes where these are known by now."""
        axes = {} if self.roles is None else self.roles.axes
        sizes = [f"{name} {'/'.join(map(str, self.roles.sizes(name)[:9]))}" for name in axes]
        return f"<Compilation of {str(self.path)[-80:]}: {', '.join(sizes) or 'not analysed'}>"
