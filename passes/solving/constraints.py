"""Variables, classes and links: how the states of tensors depend on each other.

`build_constraints` makes them.

A variable stands for one factor or segment of one axis of one value. Variables that must have one state
(through sums, layout, producing weights) form a class. Links say how the state of one class follows from
others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from growc.algebra.space import Space, leaves
from growc.ir.graph import Node, Value
from growc.passes.axes.infer import Axes
from growc.passes.axes.norms import Formula, Norm

Var = int

Occurrences = dict[str, dict[int, list[Var]]]
"""label -> operand -> variables of the label's leaves."""


@dataclass(frozen=True)
class Link:
    """The rule, named by `kind`, by which the states of `targets` follow from those of `sources` at `node`.

    - make: targets have no state of their own yet.
    - broadcast: all units of targets are alike.
    - pointwise, shift, product, quotient, remainder: as the methods of IndexMap.
    - pair: both sources are contracted with each other.
    - statistic: sources (a whole axis) are reduced.
    - norm: sources (a whole axis) are normalised into targets.
    - choice: the operator reads sources as a whole; all of them must have one reordering of their units.
    - addressed: the operator takes units by number; the source's units keep their numbers and values.
    - output: sources leave the model.
    - state: sources leave the model, and enter it unchanged at the next step.

    `formula` is that of a norm. `norm` says where the norm stands, if it is in pieces.
    """

    kind: str
    node: Node | None
    sources: tuple[Var, ...]
    targets: tuple[Var, ...] = ()
    zero: bool = False
    homogeneous: bool = False
    detail: str = ""
    space: Space | None = None
    formula: Formula | None = None
    norm: Norm | None = None
    axis: int = 0


@dataclass(frozen=True)
class Flow:
    """The path of one label's units through one node: from operands (by number) to results.

    treatment: that of the node's line. bare: the formula of the node, if it is a norm over other axes without
    eps.
    """

    node: Node
    sources: Mapping[int, Var]
    targets: tuple[Var, ...]
    treatment: str = ""
    bare: Formula | None = None


@dataclass
class Links:
    """Variables, their classes (a union-find), and links in canonical order."""

    axes: Axes
    mapped: set[Space]
    variables: dict[tuple[Value, int], list[Var]] = field(default_factory=dict)
    atoms: list[Space] = field(default_factory=list)
    owner: list[Value | None] = field(default_factory=list)
    parent: list[Var] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    """The paths of units through nodes, in the order of the nodes."""
    visited: set[Var] = field(default_factory=set)
    """Variables that the line of some operator covers. A weight's variable outside is not accounted for."""

    def root(self, var: Var) -> Var:
        """The variable that stands for the class of a variable."""
        while self.parent[var] != var:
            self.parent[var] = self.parent[self.parent[var]]
            var = self.parent[var]
        return var

    def join(self, a: Var, b: Var) -> None:
        """Let two variables have one state: merge their classes."""
        a, b = self.root(a), self.root(b)
        if a != b:
            self.parent[max(a, b)] = min(a, b)

    def fresh(self, atom: Space, owner: Value | None) -> Var:
        """Make a new variable over an atom."""
        var = len(self.atoms)
        self.atoms.append(atom)
        self.owner.append(owner)
        self.parent.append(var)
        return var

    def of(self, value: Value, axis: int) -> list[Var]:
        """The variables of an axis, one for each leaf of its space; empty where no leaf is mapped."""
        key = (value, axis)
        if key not in self.variables:
            atoms = list(leaves(self.axes.of(value)[axis]))
            affected = any(a in self.mapped for a in atoms)
            self.variables[key] = [self.fresh(a, value) for a in atoms] if affected else []
        return self.variables[key]
