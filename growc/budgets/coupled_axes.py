"""Axes that a class of transformers ties to each other: they change together, as its config demands.

Needs: the knobs of a budget, and plans of the model. Gives: the knobs that a class can hold. Each axis is
planned alone, once, at a size that suits all axes. Axes that the class changes along with it belong to it
from then on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from growc.algebra.space import Space, atoms_of, find
from growc.budgets.knobs import INSIDE, BudgetAxis, Lost, Said, size_said
from growc.budgets.planning import Planning
from growc.errors.diagnostic import GrowError
from growc.formats.compiler import fitted
from growc.passes.compilation import Result
from growc.recipe import syntax_tree as ast
from growc.resolve.bound import Bound, Resolved

OUTSIDE = ("vocab", "positions")
"""Axes whose size does not determine that of any other axis."""


@dataclass(frozen=True)
class Coupling:
    """Knobs that a class can hold, and notes on those that it cannot."""

    knobs: list[BudgetAxis]
    notes: tuple[str, ...] = ()


def coupled(
    planning: Planning,
    above: Resolved,
    bound: Bound,
    c: Result,
    knobs: Sequence[BudgetAxis],
    statement_of: Said,
    lost: Callable[[ast.AxisRef], Lost],
) -> Coupling:
    """The knobs as the class of the model ties them. A knob that the class cannot change alone follows
    another or stays.
    """
    share = _share(c)
    alone: list[BudgetAxis] = []
    refused: list[BudgetAxis] = []
    for knob in knobs:
        if knob.kept or len(knob.levels) < 2:
            alone.append(knob)
            continue
        trial = share if _has(knob, share) else knob.share(len(knob.levels) - 2)
        statement = statement_of(knob.axis, size_said(knob.axis, knob.before, trial))
        try:
            plan = fitted(planning.of((*above.statements, replace(bound, statement=statement))))
            alone.append(_following(c, plan, knob, trial, lost(knob.axis)))
        except GrowError:
            refused.append(knob)
    leading = [
        candidate
        for k, candidate in enumerate(alone)
        if candidate.kept or not _lies_in(candidate, alone[:k], alone[k + 1 :])
    ]
    followed = [*refused, *(candidate for candidate in alone if candidate not in leading)]
    return Coupling(leading, tuple(_told(knob, leading) for knob in followed))


def _told(knob: BudgetAxis, taken: Sequence[BudgetAxis]) -> str:
    leader = next((other.axis.name for other in taken if knob.atoms <= other.atoms), "")
    name = knob.axis.name
    return (
        f"`{name}` follows `{leader}` in the class"
        if leader
        else f"`{name}` stays: the class ties it to others"
    )


def _lies_in(axis: BudgetAxis, before: Sequence[BudgetAxis], behind: Sequence[BudgetAxis]) -> bool:
    """Whether another axis changes all atoms that one changes."""
    return any(axis.atoms <= other.atoms for other in before) or any(axis.atoms < o.atoms for o in behind)


def _share(c: Result) -> Fraction:
    """A share that all axes can have at once: the largest below one."""
    sizes = [size for name in c.roles.axes if name not in OUTSIDE for size in c.roles.sizes(name)]
    parts = math.gcd(*sizes)
    return Fraction(parts - 1, parts) if parts > 1 else Fraction(1, 2)


def _has(knob: BudgetAxis, share: Fraction) -> bool:
    return any(knob.share(level) == share for level in range(len(knob.levels)))


def _following(c: Result, plan: Result, knob: BudgetAxis, share: Fraction, lost: Lost) -> BudgetAxis:
    """The knob with all atoms that follow it in its proportion, at the sizes that suit all changed atoms."""
    before, after = c.lowered.sizes, plan.lowered.sizes
    atoms_known = dict.fromkeys(map(find, atoms_of(s for use in c.graph.uses() for s in c.axes.of(use))))
    changed = {atom: before.of(atom)[0] for atom in atoms_known if after.of(atom)[0] != before.of(atom)[0]}
    others = [atom for atom in changed if atom not in knob.atoms]
    fitting = [k for k in range(len(knob.levels)) if _whole(changed, knob.share(k))]
    shares = [knob.share(k) for k in fitting]
    squares = knob.lost[fitting] ** 2 + ((INSIDE * lost(others, shares)) ** 2 if others else 0.0)
    levels = tuple(knob.levels[k] for k in fitting)
    atoms = knob.atoms.union(atom for atom, size in changed.items() if after.of(atom)[0] == size * share)
    return replace(knob, levels=levels, lost=np.sqrt(squares), atoms=atoms)


def _whole(sizes: dict[Space, int], share: Fraction) -> bool:
    return all((size * share).denominator == 1 for size in sizes.values())
