"""Laws of operators' values besides their traits (growc.ir.graph.Laws): one row each.

tests/operators/test_value_laws.py checks each row with onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from growc.algebra.indexmap import Array
from growc.dialects.onnx.operators import addresses
from growc.dialects.onnx.operators.unit_images import IMAGES, INCREASING
from growc.ir.graph import Clamp, Laws, Node, Value


def _given(node: Node, *places: int) -> list[Value]:
    """Return the operands at these places, without absent ones."""
    return [v for i in places if (v := node.input(i)) is not None]


def _relu(node: Node) -> Clamp:
    return Clamp((*_given(node, 0), 0.0))


def _clip(node: Node) -> Clamp:
    """Clip's bounds: attributes in old opsets, operands in new ones."""
    low, high = ([node.real(name)] if name in node.attributes else [] for name in ("min", "max"))
    return Clamp((*_given(node, 0), *(low or _given(node, 1))), high or _given(node, 2))


def _largest(node: Node) -> Clamp:
    return Clamp(list(node.operands))


def _smallest(node: Node) -> Clamp:
    first, *others = node.operands
    return Clamp([first], others)


def _filler(node: Node) -> Array:
    return np.asarray(node.attributes.get("value", np.float32(0)))


STATED: Mapping[str, Laws] = {
    # the nearest number between two
    "Relu": Laws(clamp=_relu),
    "Clip": Laws(clamp=_clip),
    "growc::Clip": Laws(clamp=_clip),
    "Max": Laws(clamp=_largest),
    "Min": Laws(clamp=_smallest),
    "Abs": Laws(keeps=(0.0, math.inf)),
    # the same a second time
    "Sign": Laws(again=True),
    "ThresholdedRelu": Laws(again=True, puts=(0.0,)),
    "Mod": Laws(again=True),
    "Hardmax": Laws(again=True),
    "LpNormalization": Laws(again=True),
    "Trilu": Laws(again=True, puts=(0.0,)),
    # conditions
    "Less": Laws(signs=frozenset({-1})),
    "LessOrEqual": Laws(signs=frozenset({-1, 0})),
    "Greater": Laws(signs=frozenset({1})),
    "GreaterOrEqual": Laws(signs=frozenset({0, 1})),
    "Equal": Laws(signs=frozenset({0})),
    "Not": Laws(implies={True: False, False: True}),
    "And": Laws(implies={True: True}),
    "Or": Laws(implies={False: False}),
    # numbers of units
    "Gather": Laws(addresses=addresses.along),
    "GatherElements": Laws(addresses=addresses.along),
    "GatherND": Laws(addresses=addresses.vectors),
    "ScatterElements": Laws(addresses=addresses.written_along),
    "ScatterND": Laws(addresses=addresses.written_vectors),
    "OneHot": Laws(addresses=addresses.one_hot),
    "Slice": Laws(addresses=addresses.bounds),
    # sizes
    "Reshape": Laws(shape=1),
    "Expand": Laws(shape=1),
    "Resize": Laws(shape=3, scales=2),
    "Tile": Laws(scales=1),
    "ConstantOfShape": Laws(shape=0, constant=_filler),
    # transforms
    "CumSum": Laws(mixes=True),
    "DFT": Laws(mixes=True),
    "aten::fft": Laws(mixes=True),
    # extremes along axes
    "ReduceMin": Laws(least=True),
    "growc::Largest": Laws(with_zero=True),
    "growc::Least": Laws(with_zero=True, least=True),
}

LAWS: Mapping[str, Laws] = {
    op: replace(STATED.get(op, Laws()), image=IMAGES.get(op), increasing=op in INCREASING)
    for op in (*STATED, *IMAGES)
}
"""The laws of each operator, including its images of unit ranges."""
