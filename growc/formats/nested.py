"""Recipes that cut prefixes out of models whose units `nest` sorted.

A prefix keeps the first units of each axis unchanged. Training has fitted them as a smaller model, so no
weight is rescaled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from growc.errors.diagnostic import wrong
from growc.errors.json_data import Json
from growc.errors.regular_files import require_path
from growc.files.hub import local
from growc.formats.protocol import form_of
from growc.formats.provenance import recipe_of
from growc.recipe.expression import Binary, Expr, Int, Name, TensorAxis
from growc.recipe.layer_orders import Depth
from growc.recipe.syntax_tree import (
    AxisShare,
    Item,
    LayerNumber,
    LayerScope,
    LayerSlice,
    Match,
    Merge,
    MergeLayers,
    NamedAxis,
    Option,
    Ranking,
    Reorder,
    RoleScope,
    Scoped,
    Subclone,
    Upcycle,
    Widen,
)
from growc.resolve.bound import Bound
from growc.resolve.builder import Recipe

SHARE = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*")
SIZES = re.compile(r"\s*\w+\s*=\s*\d{1,18}\s*(,\s*\w+\s*=\s*\d{1,18}\s*)*")
ChangesUnits = Match | MergeLayers | Merge | Reorder | Subclone | Upcycle | Widen
"""Statements behind which units may be other ones than those that `nest` sorted."""

WITHOUT = "`subclone AXIS to SIZE by first unscaled` cuts an axis of any model"


def prefix(model: str | Path, of: str) -> Recipe:
    """The recipe that cuts a prefix out of a model which `nest` sorted: the first units of every axis.

    `of` is a share that the recipe names (`1/2`), for all axes that it sorts, or sizes of some of them
    (`ffn=96,heads=3`). Raises GrowError (G200).

    >>> growc.apply(growc.prefix("nested.onnx", "1/2"), "nested.onnx", "half.onnx")  # doctest: +SKIP
    """
    require_path(model, "the model")
    place = local(model)
    bounds = _nested(form_of(place).history(place), str(model))
    if match := SHARE.fullmatch(of):
        return _by_share(bounds, AxisShare(int(match[1]), int(match[2])), str(model))
    if SIZES.fullmatch(of):
        return _by_sizes(bounds, [part.split("=") for part in of.replace(" ", "").split(",")], str(model))
    raise wrong(f"`{of}` is no prefix", "write a share, as `1/2`, or sizes, as `ffn=96,heads=3`")


def _nested(records: Sequence[Mapping[str, Json]], model: str) -> list[tuple[Bound, Reorder]]:
    """The axes that `nest` sorted and no later statement changed. Raises GrowError (G200) if there are
    none.
    """
    sorted_axes: list[tuple[Bound, Reorder]] = []
    for bound in (bound for record in records for bound in recipe_of(record).statements):
        match bound.statement:
            case Reorder(at=shares) as statement if shares is not None:
                sorted_axes = [one for one in sorted_axes if not _again(bound, statement, *one)]
                sorted_axes.append((bound, statement))
            case statement if isinstance(statement, Depth) and any(map(_in_some_layers, sorted_axes)):
                sorted_axes.clear()
            case statement if isinstance(statement, ChangesUnits) and _touches(statement, sorted_axes):
                sorted_axes.clear()
    if not sorted_axes:
        raise wrong(f"`{model}` has no record of a `nest`, or was changed behind it", WITHOUT)
    return sorted_axes


def _again(bound: Bound, statement: Reorder, earlier: Bound, sort: Reorder) -> bool:
    """Whether a `nest` may sort what an earlier one sorted: the same axis, where their layers may meet."""
    layers, others = map(_layers_of, (bound, earlier))
    apart = layers is not None and others is not None and layers.isdisjoint(others)
    return statement.axis == sort.axis and bound.number != earlier.number and not apart


def _layers_of(bound: Bound) -> set[int] | None:
    """The layers of the one scope of a statement; None where they are not stated by numbers from zero."""
    match bound.scopes:
        case (LayerScope(layers=LayerNumber(number=Int(value=value))),):
            return {value}
        case (LayerScope(layers=LayerSlice(start=Int(value=start), stop=Int(value=stop))),):
            return set(range(start, stop))
        case _:
            return None


def _in_some_layers(one: tuple[Bound, Reorder]) -> bool:
    """Whether an axis was sorted in some layers only, whose numbers change if layers move."""
    return not all(isinstance(scope, RoleScope) for scope in one[0].scopes)


def _touches(statement: ChangesUnits, sorts: Sequence[tuple[Bound, Reorder]]) -> bool:
    """Whether a statement may change a sorted axis. The role of a tensor's axis is unknown, so it may
    be any; and means of layers are means of units that each layer sorted for itself.
    """
    if isinstance(statement, Match | MergeLayers):
        return True
    axes = [sorted_axis.axis for _, sorted_axis in sorts]
    unknown = any(isinstance(axis, TensorAxis) for axis in (statement.axis, *axes))
    return unknown or statement.axis.name in {axis.name for axis in axes}


def _by_share(bounds: Sequence[tuple[Bound, Reorder]], share: AxisShare, model: str) -> Recipe:
    """The recipe for all axes of the statements that name the share. Raises GrowError (G200) if none does."""
    fraction = Fraction(str(share)) if share.denominator else None
    matching = [
        (b, s) for b, s in bounds if fraction in {Fraction(str(named_share)) for named_share in s.at or ()}
    ]
    if not matching:
        shares = dict.fromkeys(f"`{named_share}`" for _, s in bounds for named_share in s.at or ())
        known_shares = f"its shares are {', '.join(shares)}" if shares else "it names no shares"
        raise wrong(
            f"the `nest` of `{model}` has no prefix at {share}", f"{known_shares}; write sizes, as `ffn=96`"
        )
    return Recipe(tuple(_cut(bound, sort, _part(sort.axis, share)) for bound, sort in matching))


def _by_sizes(bounds: Sequence[tuple[Bound, Reorder]], pairs: Sequence[list[str]], model: str) -> Recipe:
    """The recipe for the axes with given sizes. Raises GrowError (G200) if `nest` did not sort one of
    them.
    """
    sizes = {name: Int(int(size)) for name, size in pairs}
    if len(sizes) < len(pairs):
        raise wrong("a prefix has one size for an axis")
    sorted_names = dict.fromkeys(sort.axis.name for _, sort in bounds)
    for name in sizes.keys() - sorted_names:
        sorted_list = ", ".join(f"`{axis}`" for axis in sorted_names)
        raise wrong(f"the `nest` of `{model}` did not sort `{name}`", f"it sorted {sorted_list}")
    cuts = (_cut(bound, sort, sizes[sort.axis.name]) for bound, sort in bounds if sort.axis.name in sizes)
    return Recipe(tuple(cuts))


def _part(axis: NamedAxis | TensorAxis, share: AxisShare) -> Expr:
    """A share of an axis, as an expression."""
    named: Expr = Name(axis.name) if isinstance(axis, NamedAxis) else axis
    times = named if share.numerator == 1 else Binary("*", Int(share.numerator), named)
    return Binary("/", times, Int(share.denominator))


def _cut(bound: Bound, sort: Reorder, size: Expr) -> Item:
    """The statement that keeps the first units of an axis, in the scopes in which they were sorted."""
    item: Item = Subclone(sort.axis, size, Ranking("first"), (Option("unscaled"),))
    for scope in reversed(bound.scopes):
        item = Scoped(scope, (item,))
    return item
