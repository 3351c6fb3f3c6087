"""Let axes that only a class ties to others follow these, with the same fill.

Needs: a compilation, and the config that comes closest to its plan. Gives: statements with which the plan is
made again. For example, the inner width of a pooler is a space of its own in the program, but its class makes
it as wide as the stream. In some classes heads times their width equal the stream's width; in others they do
not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from growc.algebra.space import Space, segments
from growc.checkpoint.classes.stored_axes import StoredAxes, StoredAxis
from growc.dialects.transformers.config.near_misses import Unsolved
from growc.recipe.expression import Binary, Expr, Int, Name, TensorAxis
from growc.recipe.syntax_tree import NamedAxis, Subclone, Widen
from growc.resolve.bound import Bound

Led = tuple[Bound, Bound]
"""A new statement, and the statement that it follows."""


def following(unsolved: Unsolved, axes: StoredAxes) -> list[Led]:
    """Statements for axes that the plan leaves unchanged and the class changes.

    If such axes have a role, only one role is resized at first, since others may follow it. Otherwise all
    axes that are spaces of their own are resized.
    """
    if not unsolved.follows:
        return []
    number = max((bound.number for bound in axes.c.statements), default=0)
    roles: dict[str, Led] = {}
    plain: dict[Space, Led] = {}
    parts: dict[Space, set[Space]] = {}
    alike: dict[Space, tuple[int, Fraction]] = {}
    for name, axis, planned, class_size in unsolved.sizes:
        leader = _leader(unsolved, axes, (name, axis), class_size > planned)
        space = axes.at((name, axis))
        if leader is None or space is None or space in plain:
            continue
        role_part = axes.called(name, axis)
        if role_part is None or space in _whole(axes, role_part[0]):
            tensor_axis = TensorAxis(axis, axes.first(name))
            bound = _resized(leader, number + len(plain) + 1, tensor_axis, Int(class_size))
            plain[space] = replace(bound, scopes=()), leader
            parts[space] = {part for part in segments(space) if part is not space}
            alike[space] = leader.number, Fraction(class_size, planned or 1)
        elif role_part[1] * class_size % planned == 0:
            size = _size(axes, role_part[0], role_part[1], role_part[1] * class_size // planned)
            roles.setdefault(
                role_part[0], (_resized(leader, number + 1, NamedAxis(role_part[0]), size), leader)
            )
    order = [role for role in axes.c.roles.axes if role in roles]
    return [roles[order[0]]] if order else _once(plain, parts, alike)


def _once(
    plain: Mapping[Space, Led], parts: Mapping[Space, set[Space]], alike: Mapping[Space, object]
) -> list[Led]:
    """Resize each axis once.

    A sum of segments is resized as a whole if all its segments grow alike, so that the axes over it see them
    grow together. Otherwise its segments are resized.
    """
    sums, covered = set[Space](), set[Space]()
    for key, own_parts in parts.items():
        all_resized = len(own_parts) > 1 and own_parts <= plain.keys()
        if all_resized and len({alike[part] for part in own_parts}) == 1 and own_parts.isdisjoint(covered):
            sums.add(key)
            covered |= own_parts
    alone = {key for key in plain.keys() - covered if parts[key].isdisjoint(plain)}
    return [led for key, led in plain.items() if key in sums | alone]


def _leader(unsolved: Unsolved, axes: StoredAxes, place: StoredAxis, grows: bool) -> Bound | None:
    """The statement that resizes most of the axes that the same fields of the config resize."""
    kind = Widen if grows else Subclone
    resizing = (axes.resized(lead) for lead in unsolved.leads.get(place, ()))
    counts = Counter(b.number for b in resizing if b is not None and isinstance(b.statement, kind))
    if not counts:
        return None
    busiest = max(counts, key=lambda number: (counts[number], number))
    return next(b for b in axes.c.statements if b.number == busiest)


def _whole(axes: StoredAxes, role: str) -> Iterator[object]:
    """The spaces that are by themselves axes of a role."""
    return (axis.spaces[0] for axis in axes.c.roles.axes[role] if len(axis.spaces) == 1)


def _resized(leader: Bound, number: int, axis: NamedAxis | TensorAxis, size: Expr) -> Bound:
    statement = leader.statement
    assert isinstance(statement, Widen | Subclone), "only what changes a size leads"
    axis = replace(axis, span=statement.axis.span)
    return replace(leader, number=number, statement=replace(statement, axis=axis, size=size))


def _size(axes: StoredAxes, role: str, before: int, after: int) -> Expr:
    """The new size of a role: a number, or relative to the role if its axes have several sizes."""
    sizes = {axes.c.lowered.sizes.product(axis.spaces) for axis in axes.c.roles.axes[role]}
    if sizes <= {before, after}:
        return Int(after)
    return Binary("/", Binary("*", Int(after), Name(role)), Int(before))
