"""Places where a model rounds its values, and how far its weights must move for that to show.

A last bit decides which of two steps a number is rounded to. One step of a narrow type is far more than a
last bit of a wider one. If weights move too little to change any of these decisions, they show nothing of the
effect of rounding on the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.algebra.last_place import nudged
from growc.dialects.onnx.capture.quantised_decompositions import rounds
from growc.dialects.onnx.capture.state_pairs import moving_values
from growc.dialects.onnx.files.element_types import Change, places_of
from growc.dialects.onnx.files.probe_model import with_shapes
from growc.ir.walk import walk
from growc.verification.float_copies import inferred
from growc.verification.ort_session import Feeds, Session

TURNED = 8
"""The least number of rounded numbers that should take another step."""

SAMPLES = 3
"""The number of ways in which weights move if they must move further than by their last place for that."""

SINGLE_PLACES = places_of(ir.DataType.FLOAT)

_QUANTISED = 7
"""Binary places of values that are rounded to whole numbers, mostly after a scale to eight bits."""


@dataclass(frozen=True)
class Moves:
    """The ways to move a model's weights: several if the effect depends on chance.

    narrow: whether the model rounds its results, or stores weights, in fewer places than float32 has.
    """

    changes: Sequence[Change]
    narrow: bool


def moves(source: Path, path: Path, case: Feeds) -> Moves:
    """Return how to move each weight and real input of `source`; onnxruntime runs `path` in its place.

    A weight moves by half a unit of the last place that it is stored with, or cast to before it meets an
    input. If the model rounds results to fewer places, weights move as far as it takes for some of these
    numbers to take another step. Chance decides which ones, so there is more than one way.

    Raises GrowError: G310 for a file that is no ONNX model, G403 if onnxruntime does not run it.
    """
    model = inferred(source)
    moving = moving_values(model.graph)
    weights = [value for graph in model.graphs() for value in graph.initializers.values()]
    weights = [value for value in weights if places_of(value.dtype) and _size(value) > 1]
    stored = {str(value.name): _stored_places(value, moving) for value in weights}
    own, rounded = min(stored.values(), default=SINGLE_PLACES), dict(_rounded(model, moving))
    coarse = {name: places for name, places in rounded.items() if places < own}
    reach = _reach(coarse, _counts(path, coarse, case)) if coarse else 0.0

    def moved(seed: int, name: str, array: Array) -> Array:
        places = places_of(ir.DataType.from_numpy(array.dtype))
        if not places:
            return array
        units = max(1, int(reach * 2.0 ** (places + 1)), 2 ** (places - stored.get(name, places)))
        return nudged(array, units, seed)

    ways = SAMPLES if reach > 2.0 ** -(own + 1) else 1
    return Moves([partial(moved, seed) for seed in range(ways)], bool(rounded) or own < SINGLE_PLACES)


def _size(value: ir.Value) -> int:
    return 0 if value.const_value is None else int(value.const_value.size)


def _stored_places(weight: ir.Value, moving: set[ir.Value]) -> int:
    """Return the fewest places that a weight is rounded to before it meets any input."""

    def behind(value: ir.Value) -> Iterator[ir.Value]:
        for node, _ in value.uses():
            yield from (output for output in node.outputs if output not in moving and places_of(output.dtype))

    return min(places_of(value.dtype) for value in walk([weight], behind))


def _rounded(model: ir.Model, moving: set[ir.Value]) -> Iterator[tuple[str, int]]:
    """Yield the values of the outer graph that are rounded, and their places."""
    for node in model.graph:
        for value in [value for value in node.outputs if value in moving and value.name]:
            if rounds(node):
                yield str(value.name), _QUANTISED
            elif 0 < places_of(value.dtype) < SINGLE_PLACES:
                yield str(value.name), places_of(value.dtype)


def _reach(places: Mapping[str, int], counts: Mapping[str, int]) -> float:
    """Return how far numbers must move, relative to their size, to take another step.

    TURNED of the numbers of each step should do so.
    """
    sums: dict[int, int] = {}
    for name, width in places.items():
        sums[width] = sums.get(width, 0) + counts.get(name, 0)
    return max(
        (2.0**-width * min(TURNED / count, 0.5) for width, count in sums.items() if count), default=0.0
    )


def _counts(path: Path, names: Mapping[str, int], case: Feeds) -> dict[str, int]:
    """Return the number of elements of these values in a case."""
    graph, shapes = with_shapes(path, names)
    with Session(path, optimised=False, lean=True, graph=graph) as session:
        outputs = session.run(case)
    return {name: int(np.prod(outputs[shape])) for name, shape in shapes.items()}
