"""Why no config of a class gives what was planned, and what to ask for too.

Needs: `Unsolved`, what a recipe calls an axis of a tensor, and which tensors are planned several times.
Gives: a diagnostic (G318).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from growc.diagnostic import Diagnostic
from growc.dialects.torch.unsolved import Tied, Unsolved

Called = Callable[[str, int], tuple[str, int] | None]
"""What a recipe calls an axis of a tensor, or a factor of it, and its planned size; None without a role."""
Axes = Sequence[tuple[str, int, int, int]]
"""(tensor, axis, planned, in the class)"""
STATEMENTS = 4
"""More statements than these are no help."""


def refusal(
    kind: str,
    found: Unsolved,
    called: Called,
    before: Mapping[str, tuple[int, ...]],
    repeated: Mapping[str, int],
) -> Diagnostic:
    """That a class cannot hold the planned sizes. `before`: the shapes of the source. `repeated`: how often
    tensors are planned for which no number of a layer tells one from another.
    """
    message = f"no config of `{kind}` gives the planned sizes"
    if repeated:
        remedy = "`keep_class=False`, in Python, gives a module that has all of them"
        return Diagnostic("G318", message, notes=(_repetition(repeated, before),), help=remedy)
    notes = [_difference(found)]
    if found.refused is not None:
        fields, why = found.refused
        values = " and ".join(f"`{field}` = {new}" for field, (_, new) in fields.items())
        return Diagnostic("G318", message, notes=(*notes, f"the class refuses {values}: {why}"))
    tied = _least(found.tied, called)
    if tied is not None:
        name, axis, size = tied.size
        notes.append(f"axis {axis} of `{name}` is {size} with `{tied.field}` = {tied.value}")
    remedy = _remedy(found.sizes if tied is None else tied.axes, called, before)
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


def _least(tied: tuple[Tied, ...], called: Called) -> Tied | None:
    """The field that draws the fewest axes along."""
    return min(tied, key=lambda field: len(_statements(field.axes, called, {})), default=None)


def _remedy(axes: Axes, called: Called, before: Mapping[str, tuple[int, ...]]) -> str:
    statements = _statements(axes, called, before)
    if not statements or len(statements) > STATEMENTS:
        return ""
    return "the class ties these: " + " and ".join(f"`{statement}`" for statement in statements) + " too"


def _statements(axes: Axes, called: Called, before: Mapping[str, tuple[int, ...]]) -> list[str]:
    """What to ask for so that all these axes are as the class makes them."""
    named: dict[str, None] = {}
    plain: dict[str, None] = {}
    for name, axis, planned, size in axes:
        shape = before.get(name, ())
        old = shape[axis] if axis < len(shape) else planned
        verb, way = ("widen", "with cyclic copy") if size > old else ("subclone", "by magnitude")
        if size == old:
            continue  # the class leaves it as it is, whatever is asked for
        role = called(name, axis)
        if role is None:
            plain[f'{verb} axis {axis} of "{name}" to {size} {way}'] = None
        elif role[1] * size % planned == 0:
            named[f"{verb} {role[0]} to {role[1] * size // planned} {way}"] = None
    return list(named or plain)
