"""Scores of units and layers from a user's file, whatever they were computed from (`by scores "FILE"`).

The file is a `.npz` with a vector for every index space, by the name that `growc measure` gives it. These are
`ffn.0`, `ffn.1`, … in the order of the model, `layers.0` for its first run of layers, and `axis 0 of NAME`
for that axis of a parameter. An array `ffn` has the vectors of all spaces, one behind the other in its first
axis, or the vector of the only one. A `.npy` is such an array for the axis of the statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from growc.algebra.indexmap import Array, Floats
from growc.algebra.space import atoms_of, find
from growc.errors.diagnostic import Diagnostic, GrowError, nearest
from growc.passes.lowering.resolve_axis import glob, targets_of
from growc.passes.ranking.unit_scores import Table, Tables
from growc.recipe.expression import TensorAxis
from growc.verification.feeds import read_arrays

if TYPE_CHECKING:
    from growc.algebra.space import Space
    from growc.passes.compilation import Analysis
    from growc.recipe.syntax_tree import AxisRef, Text


def given_tables(c: Analysis, axis: AxisRef, file: Text) -> tuple[Tables, list[str]]:
    """Return the scores of the units of an axis of the source, and the names of spaces without scores.

    Raises GrowError (G313) for data that are no scores.
    """
    spaces = _spaces(c, axis)
    sizes = {name: int(np.prod([s.size[0] for s in own], dtype=np.int64)) for name, own in spaces.items()}
    tables: dict[Space, list[Table]] = {}
    values_by_name = _given(file, axis.name, sizes)
    for name, values in values_by_name.items():
        own = [find(s) for s in spaces[name]]
        table = Table(own, values.reshape([s.size[0] for s in own]))
        for atom in dict.fromkeys(atoms_of(own)):
            tables.setdefault(atom, []).append(table)
    return tables, [name for name in spaces if name not in values_by_name]


def given_layers(c: Analysis, file: Text) -> list[list[float | None]]:
    """Return the scores of the layers of every run of the source. Raises GrowError (G313) if invalid."""
    counts = {f"layers.{k}": len(run.layers) for k, run in enumerate(c.layers.runs)}
    scores = _given(file, "layers", counts)
    return [[*scores[name].tolist()] if name in scores else [None] * count for name, count in counts.items()]


def _spaces(c: Analysis, axis: AxisRef) -> Mapping[str, Sequence[Space]]:
    """Return the index spaces that an axis means, each by its name in a file."""
    if not isinstance(axis, TensorAxis):
        targets = targets_of(axis, c.roles, c.axes)
        return {f"{axis.name}.{k}": target.spaces for k, target in enumerate(targets)}
    known = re.compile(glob(axis.glob))
    uses = [u for u in c.graph.uses() if u.weight is not None and known.fullmatch(u.weight.name)]
    return {
        f"axis {axis.number} of {u.weight.name}": (c.axes.of(u)[axis.number],)
        for u in uses
        if u.weight is not None and axis.number < u.rank
    }


def _given(file: Text, axis: str, sizes: Mapping[str, int]) -> Mapping[str, Floats]:
    """Return the vectors of a file by the names of spaces, which have these sizes; at least one."""
    shown = f"`{file.value}`"

    def wrong(message: str, note: str = "", remedy: str = "") -> GrowError:
        return GrowError(Diagnostic("G313", message, file.span, "", (note,) if note else (), remedy))

    try:
        arrays = read_arrays(file.path)
    except GrowError as error:
        raise GrowError(*(replace(d, span=d.span or file.span) for d in error.diagnostics)) from error
    if isinstance(arrays, np.ndarray):
        arrays = {axis: arrays}
    if axis in arrays:
        whole = arrays[axis]
        rows = [whole] if len(sizes) == 1 and whole.ndim == 1 else list(whole) if whole.ndim else []
        if len(rows) != len(sizes):
            raise wrong(
                f"`{axis}` of {shown} has {len(rows)} rows, and the model has {len(sizes)} spaces of it",
                f"a row for each of {few(list(sizes))}",
            )
        arrays = dict(zip(sizes, rows, strict=True))
    vectors = {name: arrays[name] for name in sizes if name in arrays}
    if not vectors:
        near = nearest(next(iter(sizes), axis), arrays)
        has = f"it has {few(sorted(arrays))}" if arrays else "it is empty"
        remedy = f"did you mean `{near}`?" if near else ""
        raise wrong(f"{shown} has no scores of `{axis}`: none of {few(list(sizes))}", has, remedy)
    for name, values in vectors.items():
        if problem := _problem(values, sizes[name]):
            raise wrong(f"`{name}` of {shown} {problem}")
    return {name: values.astype(np.float64) for name, values in vectors.items()}


def _problem(values: Array, size: int) -> str:
    """Return why an array is no vector of scores; an empty string if it is one."""
    if values.dtype.kind not in "biuf":
        return f"holds {values.dtype}, and scores are real numbers"
    if values.ndim != 1 or len(values) != size:
        shape = " x ".join(map(str, values.shape)) or "one"
        return f"has {shape} scores, and there are {size} units"
    places = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
    return f"has a score that is no finite number, of unit {places[0]}" if places.size else ""


def few(names: Sequence[str]) -> str:
    """Return the first of some names, as text."""
    shown = ", ".join(f"`{name}`" for name in names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
