"""Refusal of a plan that no config of a class gives, with statements that would make it possible.

The diagnostic (G318) is made from an `Unsolved`, the recipe's names of axes, and the tensors that are planned
several times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from growc.dialects.transformers.config.near_misses import TiedField, Unsolved
from growc.errors.diagnostic import Diagnostic

Called = Callable[[str, int], Sequence[tuple[str, int]]]
"""Function that returns the recipe's names for an axis of a tensor, or for its factors, outermost first.

Each name comes with its planned size.
"""
MismatchedAxes = Sequence[tuple[str, int, int, int]]
"""(tensor, axis, planned, in the class)"""
STATEMENTS = 4
"""The most statements that a remedy may have."""
TRIALS = 8
"""The number of proposals that are tried."""
WAYS = {"widen": ("with cyclic copy", "with zero fill"), "subclone": ("by magnitude", "by first")}
"""Fills and rankings to propose, by verb. Not every axis allows the first."""


@dataclass(frozen=True)
class PlannedSizes:
    """The requests of a recipe, and means to extend them.

    verbs: of its statements. called: names of axes. before: the shapes of the source. works: whether the
    class can hold the plan of the recipe with further statements.
    """

    verbs: frozenset[str]
    called: Called
    before: Mapping[str, tuple[int, ...]]
    works: Callable[[Sequence[str]], bool]


def refusal(
    kind: str, unsolved: Unsolved, planned_sizes: PlannedSizes, repeated: Mapping[str, int]
) -> Diagnostic:
    """Return the diagnostic that a class cannot hold the planned sizes.

    repeated: how often tensors are planned that no layer number tells apart.
    """
    message = f"no config of `{kind}` gives the planned sizes"
    if repeated:
        remedy = "`keep_class=False`, in Python, gives a module that has all of them"
        return Diagnostic("G318", message, notes=(_repetition(repeated, planned_sizes.before),), help=remedy)
    pairs = ((name, *values) for name, values in unsolved.decided.items())
    notes = [f"the plan asks for `{name}` = {new}, and {decided} is decided" for name, decided, new in pairs]
    notes.append(_difference(unsolved))
    if unsolved.refused is not None:
        fields, why = unsolved.refused
        values = " and ".join(f"`{field}` = {new}" for field, (_, new) in fields.items())
        notes.append(f"the class refuses {values}: {why}")
    works = (
        (tied, more)
        for tied, more in islice(_proposals(unsolved, planned_sizes), TRIALS)
        if planned_sizes.works(more)
    )
    tied, more = next(works, (next(iter(_least_first(unsolved.tied, planned_sizes)), None), []))
    if tied is not None and unsolved.refused is None:
        name, axis, size = tied.size
        then = (f", and then axis {k} of `{n}` is {new}, planned to be {old}" for n, k, old, new in tied.axes)
        with_it = f"with `{tied.field}` = {tied.value}{next(then, '')}"
        notes.append(f"axis {axis} of `{name}` is {size} {with_it}")
    statements = " and ".join(f"`{statement}`" for statement in more)
    remedy = f"the class ties these: {statements} too" if more else ""
    return Diagnostic("G318", message, notes=tuple(note for note in notes if note), help=remedy)


def computed_otherwise(kind: str, weight: str, stored: Sequence[str]) -> Diagnostic:
    """Return the diagnostic (G318) that a class computes a weight to be changed, and not by a weight norm.

    stored: the tensors that the weight is computed from.
    """
    message = f"`{kind}` computes `{weight}`, and nothing that it stores gives what is planned for it"
    notes = (f"it is computed from {' and '.join(f'`{name}`' for name in stored)}",) if stored else ()
    remedy = "`keep_class=False`, in Python, gives a module that stores it"
    return Diagnostic("G318", message, notes=notes, help=remedy)


def _difference(unsolved: Unsolved) -> str:
    if unsolved.failed:
        return unsolved.failed
    if unsolved.sizes:
        name, axis, planned, there = unsolved.sizes[0]
        more = f", and {len(unsolved.sizes) - 1} more" if len(unsolved.sizes) > 1 else ""
        return f"axis {axis} of `{name}` is planned to be {planned}, and is {there} in the class{more}"
    if unsolved.names:
        return f"only one of both has `{unsolved.names[0]}`"
    return unsolved.operators or "all shapes are as planned, and the operators are not"


def _repetition(repeated: Mapping[str, int], before: Mapping[str, tuple[int, ...]]) -> str:
    """Return the note that a class has a tensor once, because only part of a numbered layer repeats."""
    name, times = next(iter(repeated.items()))
    note = f"`{name}` is planned {times} times, and the class has it once"
    numbered = re.match(r"(.*\.\d+)\.", name)
    if numbered is None or all(other in repeated for other in before if other.startswith(numbered[0])):
        return note
    return f"{note}: only a part of `{numbered[1]}` repeats, and the class adds whole layers"


def _least_first(tied: Sequence[TiedField], planned_sizes: PlannedSizes) -> list[TiedField]:
    """Return fields, the one that changes the fewest other axes first."""
    return sorted(tied, key=lambda field: len(_statements(field.axes, planned_sizes, 0, 0)))


def _proposals(
    unsolved: Unsolved, planned_sizes: PlannedSizes
) -> Iterator[tuple[TiedField | None, list[str]]]:
    """Yield statements to add, each with the field that then gives a planned size.

    The field is None for statements that lead to the closest configs. An axis is resized through any of its
    factors.
    """
    fields = [(tied, tied.axes) for tied in _least_first(unsolved.tied, planned_sizes)]
    closest = [(None, near_miss.sizes) for near_miss in (unsolved, *unsolved.others)]
    seen: set[tuple[str, ...]] = set()
    for factor in (0, 1):
        for tied, axes in (*fields, *closest):
            for alternative in (0, 1):
                statements = _statements(axes, planned_sizes, factor, alternative)
                if statements and len(statements) <= STATEMENTS and tuple(statements) not in seen:
                    seen.add(tuple(statements))
                    yield tied, statements


def _statements(axes: MismatchedAxes, planned_sizes: PlannedSizes, factor: int, way: int) -> list[str]:
    """Return statements that make all these axes as the class has them.

    Nothing that was asked for is taken back. Nothing shrinks (or grows) unless the recipe shrinks (or grows)
    axes.
    """
    named: dict[str, None] = {}
    plain: dict[str, None] = {}
    for name, axis, planned, size in axes:
        shape = planned_sizes.before.get(name, ())
        old = shape[axis] if axis < len(shape) else planned
        verb = "widen" if size > planned else "subclone"
        if verb not in planned_sizes.verbs or (size - planned) * (planned - old) < 0:
            continue
        roles = planned_sizes.called(name, axis)[factor:][:1]
        if not roles and not factor:
            plain[f'{verb} axis {axis} of "{name}" to {size} {WAYS[verb][way]}'] = None
        for role, current in roles:
            if current * size % planned == 0:
                named[f"{verb} {role} to {current * size // planned} {WAYS[verb][way]}"] = None
    return list(named or plain)
