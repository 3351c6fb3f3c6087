"""Attention without groups: the places for operators that repeat key/value heads, which introduce groups.

Needs: the axis graph, its roles. Gives: the operands of products and attention operators that are keys and
values with a head for each query head, each with its axis of heads. Repeating a head once changes nothing:
with `growc::Repeat` in front of these operands (growc.dialects.onnx.heads.insert_repeats) query heads are
(keys 1), with a group of one. Averaging key/value heads (growc.passes.heads.move_heads) makes the group
larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from growc.algebra.space import atoms_of, leaves
from growc.ir.graph import Node, Value, backward
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.queries import AxisQueries
from growc.passes.axes.ties import Tie
from growc.passes.edits import HeadEdits
from growc.passes.raising.attention import Attention, OperandPlace
from growc.passes.roles.name_axes import Roles
from growc.recipe import syntax_tree as ast
from growc.recipe.ranking_rules import RANKINGS


def averages(statement: ast.Statement) -> bool:
    """Whether a statement averages units instead of choosing some."""
    return isinstance(statement, ast.Subclone) and RANKINGS[statement.ranking.name].averages


def groups_of_one(axes: Axes, roles: Roles, ties: Sequence[Tie]) -> HeadEdits:
    """The places where heads must be repeated before they can be averaged; none where groups exist."""
    finder = _Finder(axes, roles, ties)
    places = (place for attention in roles.attention for place in finder.shared(attention))
    return HeadEdits(repeats=list(dict.fromkeys(places)))


class _Finder(AxisQueries):
    def __init__(self, axes: Axes, roles: Roles, ties: Sequence[Tie]) -> None:
        super().__init__(axes)
        self.tied = {use: k for k, tie in enumerate(ties) for use in tie.uses}
        named = roles.axes.get("heads", [])
        without_groups = [
            a for a in named if all(s.kind == "atom" and s not in roles.expanded for s in a.spaces)
        ]
        self.heads = {x for a in without_groups for x in atoms_of(a.spaces)}

    def shared(self, attention: Attention) -> list[tuple[Node, int, int, int]]:
        """The keys and values of one attention, each with its axis of heads; empty unless all have one."""
        operands = [*attention.operands[1:], *self.beside(attention)]
        places = [self.place(*operand) for operand in operands]
        return [p for p in places if p is not None] if None not in places else []

    def beside(self, attention: Attention) -> Iterator[OperandPlace]:
        """Yield the operands made by weights of the keys, and not of the queries, in other products.

        The scores are a sum with these products (keys compared with positions, positions with key weights).
        """
        if not attention.operands or attention.node is attention.scores.node:
            return
        queries, keys = (self.makers(one.node.inputs[operand]) for one, operand in attention.operands[:2])
        for product in sorted(self.products_above(attention.node), key=lambda i: self.order[i.node]):
            for operand in (0, 1) if product is not attention.scores else ():
                if self.makers(product.node.inputs[operand]) & (keys - queries):
                    yield product, operand

    def makers(self, value: Value | None) -> set[object]:
        """The nearest weights above a value. Tied weights count as one."""
        factors = (one.node.required(self.weight_of(one) or 0) for one in self.projections(value))
        uses = {backward(use, lambda node: True) for use in factors}
        return {self.tied.get(use, use.weight) for use in uses}

    def place(self, instance: LineInstance, operand: int) -> tuple[Node, int, int, int] | None:
        """The axis of heads of an operand, or of the value above it before the heads were merged."""
        value = instance.node.input(operand)
        spaces = () if value is None else self.axes.of(value)
        atoms = [list(leaves(space)) for space in spaces]
        bearing = [k for k, atoms_of_axis in enumerate(atoms) if not self.heads.isdisjoint(atoms_of_axis)]
        if value is None or len(bearing) != 1 or atoms[bearing[0]][-1] not in self.heads:
            return None
        above = self.maker(value)
        place = instance.node, operand, bearing[0], 1
        if self.heads.issuperset(atoms[bearing[0]]) or above is None or above.line.treatment == "contract":
            return place
        inputs = [i for i, v in enumerate(above.node.inputs) if v and v.known is None and v.weight is None]
        moving = [i for i in inputs if above.node.inputs[i] not in self.static] or inputs
        return (self.place(above, moving[0]) if len(moving) == 1 else None) or place
