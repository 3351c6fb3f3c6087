"""Why no config of a class gives what was planned, and what to ask for too.

Needs: `Unsolved`, what a recipe calls an axis of a tensor, and which tensors are planned several times.
Gives: a diagnostic (G318).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from growc.dialects.transformers.config.near_misses import Tied, Unsolved
from growc.errors.diagnostic import Diagnostic

Called = Callable[[str, int], Sequence[tuple[str, int]]]
"""What a recipe calls an axis of a tensor, or factors of it, and their planned sizes: the outermost first."""
Axes = Sequence[tuple[str, int, int, int]]
"""(tensor, axis, planned, in the class)"""
STATEMENTS = 4
"""More statements than these are no help."""
TRIALS = 8
"""So many proposals are tried."""
WAYS = {"widen": ("with cyclic copy", "with zero fill"), "subclone": ("by magnitude", "by first")}
"""How an axis may grow or shrink: not every axis takes the first way."""


@dataclass(frozen=True)
class Asked:
    """What a recipe asks for, and what else it could.

    verbs: of its statements. before: the shapes of the source. works: whether the class holds what the recipe
    plans with these statements behind it.
    """

    verbs: frozenset[str]
    called: Called
    before: Mapping[str, tuple[int, ...]]
    works: Callable[[Sequence[str]], bool]


def refusal(kind: str, found: Unsolved, asked: Asked, repeated: Mapping[str, int]) -> Diagnostic:
    """That a class cannot hold the planned sizes. `repeated`: how often tensors are planned for which no
    number of a layer tells one from another.
    """
    message = f"no config of `{kind}` gives the planned sizes"
    if repeated:
        remedy = "`keep_class=False`, in Python, gives a module that has all of them"
        return Diagnostic("G318", message, notes=(_repetition(repeated, asked.before),), help=remedy)
    pairs = ((name, *values) for name, values in found.decided.items())
    notes = [f"the plan asks for `{name}` = {new}, and {decided} is decided" for name, decided, new in pairs]
    notes.append(_difference(found))
    if found.refused is not None:
        fields, why = found.refused
        values = " and ".join(f"`{field}` = {new}" for field, (_, new) in fields.items())
        notes.append(f"the class refuses {values}: {why}")
    works = ((tied, more) for tied, more in islice(_proposals(found, asked), TRIALS) if asked.works(more))
    tied, more = next(works, (next(iter(_least_first(found.tied, asked)), None), []))
    if tied is not None and found.refused is None:
        name, axis, size = tied.size
        then = (f", and then axis {k} of `{n}` is {new}, planned to be {old}" for n, k, old, new in tied.axes)
        with_it = f"with `{tied.field}` = {tied.value}{next(then, '')}"
        notes.append(f"axis {axis} of `{name}` is {size} {with_it}")
    statements = " and ".join(f"`{statement}`" for statement in more)
    remedy = f"the class ties these: {statements} too" if more else ""
    return Diagnostic("G318", message, notes=tuple(note for note in notes if note), help=remedy)


def computed_otherwise(kind: str, weight: str, stored: Sequence[str]) -> Diagnostic:
    """That a class computes a weight which is to change, and not by a weight norm. `stored`: from what."""
    message = f"`{kind}` computes `{weight}`, and nothing that it stores gives what is planned for it"
    notes = (f"it is computed from {' and '.join(f'`{name}`' for name in stored)}",) if stored else ()
    remedy = "`keep_class=False`, in Python, gives a module that stores it"
    return Diagnostic("G318", message, notes=notes, help=remedy)


def _difference(found: Unsolved) -> str:
    if found.failed:
        return found.failed
    if found.sizes:
        name, axis, planned, there = found.sizes[0]
        more = f", and {len(found.sizes) - 1} more" if len(found.sizes) > 1 else ""
        return f"axis {axis} of `{name}` is planned to be {planned}, and is {there} in the class{more}"
    if found.names:
        return f"only one of both has `{found.names[0]}`"
    return found.operators or "all shapes are as planned, and the operators are not"


def _repetition(repeated: Mapping[str, int], before: Mapping[str, tuple[int, ...]]) -> str:
    """That a class has a tensor once, since what repeats is a part of what it numbers."""
    name, times = next(iter(repeated.items()))
    said = f"`{name}` is planned {times} times, and the class has it once"
    numbered = re.match(r"(.*\.\d+)\.", name)
    if numbered is None or all(other in repeated for other in before if other.startswith(numbered[0])):
        return said
    return f"{said}: only a part of `{numbered[1]}` repeats, and the class adds whole layers"


def _least_first(tied: Sequence[Tied], asked: Asked) -> list[Tied]:
    """Fields, the one that draws the fewest axes along first."""
    return sorted(tied, key=lambda field: len(_statements(field.axes, asked, 0, 0)))


def _proposals(found: Unsolved, asked: Asked) -> Iterator[tuple[Tied | None, list[str]]]:
    """What to ask for too: with which field the class has a planned size then, or as the closest configs are.

    An axis is resized through any of its factors.
    """
    fields = [(tied, tied.axes) for tied in _least_first(found.tied, asked)]
    closest = [(None, one.sizes) for one in (found, *found.others)]
    seen: set[tuple[str, ...]] = set()
    for factor in (0, 1):
        for tied, axes in (*fields, *closest):
            for way in (0, 1):
                made = _statements(axes, asked, factor, way)
                if made and len(made) <= STATEMENTS and tuple(made) not in seen:
                    seen.add(tuple(made))
                    yield tied, made


def _statements(axes: Axes, asked: Asked, factor: int, way: int) -> list[str]:
    """What to ask for so that all these axes are as the class makes them. Nothing that is asked for is taken
    back, and nothing shrinks (or grows) where nothing is to.
    """
    named: dict[str, None] = {}
    plain: dict[str, None] = {}
    for name, axis, planned, size in axes:
        shape = asked.before.get(name, ())
        old = shape[axis] if axis < len(shape) else planned
        verb = "widen" if size > planned else "subclone"
        if verb not in asked.verbs or (size - planned) * (planned - old) < 0:
            continue
        roles = asked.called(name, axis)[factor:][:1]
        if not roles and not factor:
            plain[f'{verb} axis {axis} of "{name}" to {size} {WAYS[verb][way]}'] = None
        for role, now in roles:
            if now * size % planned == 0:
                named[f"{verb} {role} to {now * size // planned} {WAYS[verb][way]}"] = None
    return list(named or plain)
