"""Layers that become one: the matching stored tensors of equal layers, and their means.

Needs: `Layered`, the nodes of the layers that do the same. Gives: for a stored tensor of the first layer, the
tensors whose mean the merged layer has. Raises GrowError (G314) for layers that are not built alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.dialects.onnx.capture.stored_values import constant_of, read_tensor, shape_of, stored_tensor
from growc.dialects.onnx.layers.layer_map import Layered
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import wide
from growc.passes.layers.layer_runs import LayerPlace


def counterparts(source: Layered, place: LayerPlace, layer: int) -> dict[ir.Value, ir.Value]:
    """Return, for each constant that one layer reads, the constant that another layer reads there.

    Raises GrowError (G314) if the layers have different nodes.
    """
    pairs: dict[ir.Value, ir.Value] = {}
    matching = source.matching(place, layer)
    if len(matching) != len(source.own[place]) or len(matching) != len(source.own[place[0], layer]):
        raise unlike(place, layer, "they have other nodes")
    for node, twin in matching.items():
        _pair(source, node, twin, pairs)
    return pairs


def _pair(source: Layered, node: ir.Node, twin: ir.Node, twins: dict[ir.Value, ir.Value]) -> None:
    for value, other in zip(node.inputs, twin.inputs, strict=False):
        if value is None or other is None or not source.owners.is_static(value):
            continue
        twins.setdefault(value, other)
        makers = value.producer(), other.producer()
        if makers[0] is not None and makers[1] is not None:
            _pair(source, makers[0], makers[1], twins)


def mean_tensor(
    place: LayerPlace, values_by_layer: Sequence[tuple[int, ir.Value | None]]
) -> ir.LazyTensor | None:
    """Return the mean of the layers' tensors, given by layer, the first one's first; None for integers.

    Raises GrowError (G314) if a layer has no such tensor, or other integers.
    """
    value = values_by_layer[0][1]
    assert value is not None
    first, tensors = stored_tensor(value), []
    shape, dtype = shape_of(first), first.dtype
    for layer, other in values_by_layer:
        tensor = None if other is None else constant_of(other)
        if not dtype.is_floating_point():
            if tensor is not None and not np.array_equal(read_tensor(first), read_tensor(tensor)):
                raise unlike(place, layer, f"`{value.name}` has other whole numbers there")
            continue
        if tensor is None or shape_of(tensor) != shape or tensor.dtype != dtype:
            raise unlike(place, layer, f"there is nothing like `{value.name}` in both")
        tensors.append(tensor)
    if not tensors:
        return None
    return ir.LazyTensor(
        lambda: ir.tensor(mean_of([read_tensor(one) for one in tensors]), dtype=dtype),
        dtype=dtype,
        shape=ir.Shape(shape),
        name=value.name,
    )


def mean_of(arrays: Sequence[Array]) -> Array:
    """Return the mean in the type of the first, accumulated in double precision and rounded once."""
    total = wide(arrays[0]).copy()
    for array in arrays[1:]:
        total += wide(array)
    return np.asarray((total / len(arrays)).astype(arrays[0].dtype))


def unlike(place: LayerPlace, layer: int, why: str) -> GrowError:
    """The error that two layers are not built alike."""
    message = f"layers {place[1]} and {layer} cannot become one: {why}"
    return GrowError(Diagnostic("G314", message, help="merge layers of one kind"))
