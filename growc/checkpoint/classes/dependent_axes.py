"""Axes that only a class ties to others follow these, with the same fill.

Needs: a compilation, and the config that comes closest to its plan. Gives: statements with which the plan is
made once more. A pooler's inner width is a space of its own in the program, and its class makes it as wide as
the stream; heads times their width are as many as the stream in some classes, and not in others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from growc.algebra.space import Space, segments
from growc.checkpoint.classes.stored_axes import Place, StoredAxes
from growc.dialects.transformers.config.near_misses import Unsolved
from growc.recipe.expression import Binary, Expr, Int, Name, TensorAxis
from growc.recipe.syntax_tree import NamedAxis, Subclone, Widen
from growc.resolve.bound import Bound

Led = tuple[Bound, Bound]
"""A new statement, and the one that it says the same as."""


def following(found: Unsolved, axes: StoredAxes) -> list[Led]:
    """Statements for axes that the plan leaves as they are and the class does not: for those of one role
    first, since others may follow these; else for all that are spaces of their own.
    """
    if not found.follows:
        return []
    number = max((bound.number for bound in axes.c.statements), default=0)
    roles: dict[str, Led] = {}
    plain: dict[Space, Led] = {}
    parts: dict[Space, set[Space]] = {}
    alike: dict[Space, tuple[int, Fraction]] = {}
    for name, axis, planned, there in found.sizes:
        leader = _leader(found, axes, (name, axis), there > planned)
        space = axes.at((name, axis))
        if leader is None or space is None or space in plain:
            continue
        called = axes.called(name, axis)
        if called is None or space in _whole(axes, called[0]):
            one = TensorAxis(axis, axes.first(name))
            bound = _resized(leader, number + len(plain) + 1, one, Int(there))
            plain[space] = replace(bound, scopes=()), leader
            parts[space] = {part for part in segments(space) if part is not space}
            alike[space] = leader.number, Fraction(there, planned or 1)
        elif called[1] * there % planned == 0:
            size = _size(axes, called[0], called[1], called[1] * there // planned)
            roles.setdefault(called[0], (_resized(leader, number + 1, NamedAxis(called[0]), size), leader))
    order = [role for role in axes.c.roles.axes if role in roles]
    return [roles[order[0]]] if order else _once(plain, parts, alike)


def _once(
    plain: Mapping[Space, Led], parts: Mapping[Space, set[Space]], alike: Mapping[Space, object]
) -> list[Led]:
    """Each axis once: by a sum where all its segments grow alike, so that what runs over it sees them grow
    together; else by the segments.
    """
    sums, said = set[Space](), set[Space]()
    for key, own in parts.items():
        known = len(own) > 1 and own <= plain.keys()
        if known and len({alike[part] for part in own}) == 1 and own.isdisjoint(said):
            sums.add(key)
            said |= own
    alone = {key for key in plain.keys() - said if parts[key].isdisjoint(plain)}
    return [led for key, led in plain.items() if key in sums | alone]


def _leader(found: Unsolved, axes: StoredAxes, place: Place, grows: bool) -> Bound | None:
    """The statement that resizes most of what the same fields of the config resize."""
    kind = Widen if grows else Subclone
    asked = (axes.resized(lead) for lead in found.leads.get(place, ()))
    counts = Counter(b.number for b in asked if b is not None and isinstance(b.statement, kind))
    if not counts:
        return None
    most = max(counts, key=lambda number: (counts[number], number))
    return next(b for b in axes.c.statements if b.number == most)


def _whole(axes: StoredAxes, role: str) -> Iterator[object]:
    """The spaces that are axes of a role by themselves."""
    return (axis.spaces[0] for axis in axes.c.roles.axes[role] if len(axis.spaces) == 1)


def _resized(leader: Bound, number: int, axis: NamedAxis | TensorAxis, size: Expr) -> Bound:
    said = leader.statement
    assert isinstance(said, Widen | Subclone), "only what changes a size leads"
    axis = replace(axis, span=said.axis.span)
    return replace(leader, number=number, statement=replace(said, axis=axis, size=size))


def _size(axes: StoredAxes, role: str, before: int, after: int) -> Expr:
    """A size of a role: as a number, or, where axes of several sizes have it, in relation to theirs."""
    sizes = {axes.c.lowered.sizes.product(axis.spaces) for axis in axes.c.roles.axes[role]}
    if sizes <= {before, after}:
        return Int(after)
    return Binary("/", Binary("*", Int(after), Name(role)), Int(before))
