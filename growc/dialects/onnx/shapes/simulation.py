"""Sizes, element types and known values of a graph at the sample points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from growc.algebra.indexmap import Array
from growc.algebra.space import Size
from growc.ir.graph import Value


@dataclass
class Simulation:
    """Sizes, element types (onnx's numbers) and known values by `Value`."""

    points: int
    types: dict[Value, int] = field(default_factory=dict)
    sizes: dict[Value, tuple[Size, ...] | None] = field(default_factory=dict)
    known: dict[Value, tuple[Array, ...]] = field(default_factory=dict)
    symbols: dict[str, Size] = field(default_factory=dict)
    """The sizes of the named dims of the inputs."""
    counts: Mapping[Value, Size] = field(default_factory=dict)
    """The lengths that depend on data, by the first result of the node that counts."""
    most: float = math.inf
    """The most elements of values that are followed since they are known at the sample points."""
