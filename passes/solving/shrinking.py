"""The effect of a shrinking axis on the certificate, and on the weights that read it.

Needs: a solved statement that drops units. Gives: the gap that says what was dropped, and the factors
sqrt(d/d') of `rescaled` (weight subcloning, section 4.2). Every weight that contracts the axis takes the
factor; d and d' count contracted elements. Routers take none. For a table that is also a head, the gain and
the bias of the norm in front of the head take it, where that norm feeds nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from growc.ir.graph import Node, Value, backward, readers
from growc.ir.lowered_statement import Sizes, Stage
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes
from growc.passes.axes.norms import Norm
from growc.passes.axes.queries import THROUGH
from growc.passes.axes.ties import Tie, looked_up
from growc.passes.solving.solution import READS, Solution
from growc.plans.plan import Gap


def dropped(stage: Stage) -> Iterator[Gap]:
    """Yield one gap for a statement that drops units. Units of other parts of a copy are not dropped."""
    if stage.in_parts:
        return
    counts = {(r.map.source - r.map.size, r.map.source) for r in stage.requests.values() if r.drops}
    if counts:
        drops = [r for r in stage.requests.values() if r.drops]
        some = " or ".join(f"{count} of {total}" for count, total in sorted(counts))
        each = f" in each of {len(drops)} spaces" if len(drops) > 1 else ""
        shares = [r.share for r in drops if r.share is not None]
        share = f", with {max(shares):.1%} of the importance" if shares else ""
        share += " at most" if len(shares) > 1 else ""
        yield Gap("", "subclone", f"{some} units of {stage.axis} are dropped{each}{share}")


@dataclass
class Rescaling:
    """Factors by use of a weight, and notes on what could not be rescaled."""

    axes: Axes
    ties: Sequence[Tie]
    norms: Sequence[Norm]
    routers: frozenset[Value]
    factors: dict[Value, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by_node = {i.node: i for i in self.axes.instances}
        self.closing = {n.close: n for n in self.norms}
        self.static = self.axes.graph.static

    def apply(self, solution: Solution, sizes: Sizes) -> None:
        """Collect the factors of one statement; `sizes` as they stand before it."""
        stage = solution.stage
        if stage.options.rescale != "readers" or not any(r.drops for r in stage.requests.values()):
            return
        after = sizes.copy()
        after.apply(stage)
        heads = {u for t in self.ties if t.is_head for u in t.uses if not looked_up(u)}
        for use in self.axes.graph.uses():
            for axis, space in enumerate(self.axes.of(use)):
                mapped = solution.links.of(use, axis)
                variables = [v for v in mapped if (r := solution.request(v)) is not None and r.drops]
                if not variables:
                    continue
                factor = (sizes.of(space)[0] / after.of(space)[0]) ** 0.5
                verbs = {solution.verbs[solution.links.root(v)] for v in variables}
                if READS in verbs and use not in self.routers:
                    self.times(use, factor)
                elif use in heads:
                    self.tied(use, factor, stage.axis)

    def tied(self, use: Value, factor: float, axis: str) -> None:
        """Give the factor of a table that is also a head to the norm in front of the head."""
        value = self.activation(use)
        affine = None if value is None else self.affine(value)
        if affine is None:
            self.notes.append(
                f"the tied head is not rescaled for {axis}: no norm stands before it that feeds nothing else"
            )
        for weight in affine or ():
            self.times(weight, factor)

    def activation(self, use: Value) -> Value | None:
        """The activation that a weight is multiplied with."""

        def behind(place: tuple[Node, int]) -> Iterator[tuple[Node, int]]:
            node, _ = place
            layout = node in self.by_node and self.by_node[node].line.treatment == "layout"
            if node.chain or node.has(*THROUGH) or layout:
                yield from node.outputs[0].users

        for node, operand in walk(use.users, behind):
            if node in self.by_node and self.by_node[node].line.treatment == "contract":
                return node.inputs[1 - operand]
        return None

    def affine(self, value: Value) -> list[Value] | None:
        """The gain and bias of the norm that makes a value; None where its result has other readers."""
        weights: list[Value] = []
        while (
            len(readers(value)) == 1 and value.producer is not None and value not in self.axes.graph.outputs
        ):
            node = value.producer
            instance = self.by_node.get(node)
            treatment = "" if instance is None else instance.line.treatment
            if node in self.closing:
                gain = self.closing[node].gain
                return [*weights, *filter(None, [stored(gain)])]
            if treatment in ("layer_norm", "rms_norm"):
                return [*weights, *filter(None, map(stored, node.inputs[1:3]))]
            data = [v for v in node.inputs if v is not None and v not in self.static and v.known is None]
            if len(data) != 1 or treatment not in ("add", "multiply", "layout"):
                return None
            weights += [w for v in node.inputs if v not in data and (w := stored(v))]
            value = data[0]
        return None

    def times(self, use: Value, factor: float) -> None:
        """Multiply the factor of a weight by one more."""
        self.factors[use] = self.factors.get(use, 1.0) * factor


def stored(value: Value | None) -> Value | None:
    """The use of a weight that a value is, apart from its layout; None for a single number."""
    use = None if value is None else backward(value, lambda node: True)
    return use if use is not None and use.weight and use.sizes and max(use.sizes)[0] > 1 else None
