"""How much layers and their branches change the stream: the tensors that tell ‖f(x)‖/‖x + f(x)‖.

Needs: the axis graph, the layers, the roles. Gives: a `Block` for every layer of every run (weight
subcloning, figure 2). Of a layer, f is what changes the stream from its start to its end, whatever stands
there (the norm of a post-norm model); of a branch, the term of its sum. Norms run over units of the stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from growc.algebra.space import atoms_of, find, leaves
from growc.ir.graph import Graph, Node, Value, makers
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes, Instance
from growc.passes.axes.queries import Flow
from growc.passes.layers.layer_runs import Branch, Layer, Layers, Obstacle
from growc.passes.new_layers.zero_branches import Branches
from growc.passes.roles.name_axes import Roles
from growc.passes.roles.residual_streams import residual_sums, streams


@dataclass(frozen=True, eq=False)
class Ratio:
    """`whole`: x + f(x), and which of its axes hold units; `part`: f(x), or where `taken`, x itself."""

    whole: Value
    units: tuple[int, ...]
    part: Value
    taken: bool = False


@dataclass(frozen=True, eq=False)
class Block:
    """A layer by its run and number: its ratio, and those of its branches, each with its kind.

    A ratio is None where no tensor of the file shows it. Kinds: `attention`, `cross-attention`, `ffn`,
    `attention + ffn` where both are one term, and `branch` for any other.
    """

    run: int
    layer: int
    ratio: Ratio | None
    branches: tuple[tuple[str, Ratio | None], ...]

    @property
    def ratios(self) -> list[Ratio]:
        """Those that there are: its own, then those of its branches."""
        return [r for r in (self.ratio, *(r for _, r in self.branches)) if r is not None]


def find_blocks(axes: Axes, layers: Layers, roles: Roles) -> list[Block]:
    """All layers of a model, run by run."""
    finder = _Finder(axes, layers, roles)
    return [
        finder.block(number, place, layer)
        for number, run in enumerate(layers.runs)
        for place, layer in enumerate(run.layers)
    ]


class _Finder:
    def __init__(self, axes: Axes, layers: Layers, roles: Roles) -> None:
        self.flow, self.fed = Flow(axes), fed_values(axes.graph, layers.data)
        self.branches = Branches(axes, layers)
        self.streams = set(streams(self.flow, residual_sums(self.flow)))
        self.maps = {m.node: m for m in self.flow.maps}
        self.names = {
            x: name
            for name in ("ffn", "head_dim", "kv_heads", "heads")
            for axis in roles.axes.get(name, [])
            for s in axis.spaces
            for x in leaves(s)
        }

    def block(self, run: int, place: int, layer: Layer) -> Block:
        """One layer."""
        found = self.branches.of(layer)
        terms = found.branches if isinstance(found, Obstacle) else found
        parts = tuple(
            (self.kind(branch, layer), self.ratio(branch.add.outputs[0], branch.value)) for branch in terms
        )
        return Block(run, place, self.ratio(layer.end, layer.start, taken=True), parts)

    def ratio(self, whole: Value, part: Value, *, taken: bool = False) -> Ratio | None:
        """What tells how large a part is; None where no tensor does."""
        spaces = self.flow.axes.of(whole)
        units = tuple(k for k, s in enumerate(spaces) if find(s) in self.streams)
        if not units or whole.sizes != part.sizes:
            return None
        return Ratio(whole, units, part, taken)

    def kind(self, branch: Branch, layer: Layer) -> str:
        """What a branch is, by what the weights that write it read."""
        atoms = {x for m in self.writers(branch, layer) for x in atoms_of(self.flow.read(m))}
        names = {self.names[a] for a in atoms if a in self.names}
        parts = ["ffn"] if "ffn" in names else []
        if names - {"ffn"}:
            parts.insert(0, "cross-attention" if self.crosses(branch.value, layer) else "attention")
        return " + ".join(parts) or "branch"

    def writers(self, branch: Branch, layer: Layer) -> Iterator[Instance]:
        """The products with weights that a branch ends in."""
        inside = set(layer.nodes)

        def above(node: Node) -> Iterator[Node]:
            yield from (n for n in makers(node.operands) if n in inside and node not in self.maps)

        ends = (n for n in makers([branch.value]) if n in inside)
        yield from (self.maps[node] for node in walk(ends, above) if node in self.maps)

    def crosses(self, value: Value, layer: Layer) -> bool:
        """Whether weights on the way to a value read what is fed to the model and did not go through the
        stream.
        """
        made, inside = {layer.start}, set(layer.nodes)
        for node in layer.nodes:
            if any(v in made for v in node.operands):
                made.update(node.outputs)
        ends = (n for n in makers([value]) if n in inside)
        maps = (n for n in walk(ends, lambda n: inside.intersection(makers(n.operands))) if n in self.maps)
        return any(v in self.fed and v not in made for node in maps for v in node.operands)


def fed_values(graph: Graph, data: Collection[Value]) -> set[Value]:
    """What is computed from the values of inputs: what is learned in place of one is not."""
    found = {v for v in graph.inputs if v in data}
    for node in graph.nodes:
        if any(v in found for v in node.operands):
            found.update(v for v in node.outputs if v in data)
    return found
