"""The tensors from which ‖f(x)‖/‖x + f(x)‖ follows: how much layers and their branches change the stream.

Needs: the axis graph, the layers, the roles. Gives: a `LayerRatio` for every layer of every run (weight
subcloning, figure 2). For a layer, f is the change of the stream from its start to its end, whatever
operators are between (the norm of a post-norm model). For a branch, f is the term of its sum. Norms are taken
over the units of the stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from growc.algebra.space import atoms_of, find, leaves
from growc.ir.graph import Graph, Node, Value, makers
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.queries import AxisQueries
from growc.passes.layers.layer_runs import Branch, Layer, Layers, Obstacle
from growc.passes.new_layers.zero_branches import Branches
from growc.passes.roles.name_axes import Roles
from growc.passes.roles.residual_streams import residual_sums, streams


@dataclass(frozen=True, eq=False)
class Ratio:
    """The tensors of one ratio.

    whole: x + f(x).
    units: the axes of `whole` that hold units.
    part: f(x), or x itself if `taken`.
    """

    whole: Value
    units: tuple[int, ...]
    part: Value
    taken: bool = False


@dataclass(frozen=True, eq=False)
class LayerRatio:
    """A layer by its run and number, with its ratio and those of its branches, each with its kind.

    A ratio is None if no tensor of the file shows it. Kinds are `attention`, `cross-attention`, `ffn`,
    `attention + ffn` if both are one term, and `branch` for any other.
    """

    run: int
    layer: int
    ratio: Ratio | None
    branches: tuple[tuple[str, Ratio | None], ...]

    @property
    def ratios(self) -> list[Ratio]:
        """The ratios that exist: the layer's own, then those of its branches."""
        return [r for r in (self.ratio, *(r for _, r in self.branches)) if r is not None]


def find_blocks(axes: Axes, layers: Layers, roles: Roles) -> list[LayerRatio]:
    """All layers of a model, run by run."""
    finder = _RatioFinder(axes, layers, roles)
    return [
        finder.block(number, place, layer)
        for number, run in enumerate(layers.runs)
        for place, layer in enumerate(run.layers)
    ]


class _RatioFinder:
    def __init__(self, axes: Axes, layers: Layers, roles: Roles) -> None:
        self.flow, self.fed = AxisQueries(axes), fed_values(axes.graph, layers.data)
        self.branches = Branches(axes, layers)
        self.streams = set(streams(self.flow, residual_sums(self.flow)))
        self.maps = {m.node: m for m in self.flow.maps}
        self.names = {
            leaf: name
            for name in ("ffn", "head_dim", "kv_heads", "heads")
            for axis in roles.axes.get(name, [])
            for s in axis.spaces
            for leaf in leaves(s)
        }

    def block(self, run: int, place: int, layer: Layer) -> LayerRatio:
        """The block of one layer."""
        branches_or_obstacle = self.branches.of(layer)
        terms = (
            branches_or_obstacle.branches
            if isinstance(branches_or_obstacle, Obstacle)
            else branches_or_obstacle
        )
        parts = tuple(
            (self.kind(branch, layer), self.ratio(branch.add.outputs[0], branch.value)) for branch in terms
        )
        return LayerRatio(run, place, self.ratio(layer.end, layer.start, taken=True), parts)

    def ratio(self, whole: Value, part: Value, *, taken: bool = False) -> Ratio | None:
        """The ratio of a part to a whole; None if no tensor shows it."""
        spaces = self.flow.axes.of(whole)
        units = tuple(k for k, s in enumerate(spaces) if find(s) in self.streams)
        if not units or whole.sizes != part.sizes:
            return None
        return Ratio(whole, units, part, taken)

    def kind(self, branch: Branch, layer: Layer) -> str:
        """The kind of a branch, from the axes that its last weights read."""
        atoms = {atom for m in self.writers(branch, layer) for atom in atoms_of(self.flow.read(m))}
        names = {self.names[a] for a in atoms if a in self.names}
        parts = ["ffn"] if "ffn" in names else []
        if names - {"ffn"}:
            parts.insert(0, "cross-attention" if self.crosses(branch.value, layer) else "attention")
        return " + ".join(parts) or "branch"

    def writers(self, branch: Branch, layer: Layer) -> Iterator[LineInstance]:
        """The products with weights in which a branch ends."""
        inside = set(layer.nodes)

        def above(node: Node) -> Iterator[Node]:
            yield from (n for n in makers(node.operands) if n in inside and node not in self.maps)

        ends = (n for n in makers([branch.value]) if n in inside)
        yield from (self.maps[node] for node in walk(ends, above) if node in self.maps)

    def crosses(self, value: Value, layer: Layer) -> bool:
        """Whether weights on the way to a value read an input that did not pass through the stream."""
        from_stream, inside = {layer.start}, set(layer.nodes)
        for node in layer.nodes:
            if any(v in from_stream for v in node.operands):
                from_stream.update(node.outputs)
        ends = (n for n in makers([value]) if n in inside)
        maps = (n for n in walk(ends, lambda n: inside.intersection(makers(n.operands))) if n in self.maps)
        return any(v in self.fed and v not in from_stream for node in maps for v in node.operands)


def fed_values(graph: Graph, data: Collection[Value]) -> set[Value]:
    """Values computed from inputs; values learned in place of an input are none."""
    fed = {v for v in graph.inputs if v in data}
    for node in graph.nodes:
        if any(v in fed for v in node.operands):
            fed.update(v for v in node.outputs if v in data)
    return fed
