"""One statement, lowered: the map of every space that it resizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from growc.axes import Space
from growc.draws import Draws
from growc.indexmap import Bools, IndexMap
from growc.source import Span


@dataclass(frozen=True)
class NoiseOption:
    """`noise S`, `noise S on copies`, `noise S balanced`."""

    scale: float
    kind: Literal["new", "copies", "balanced"]


@dataclass(frozen=True)
class Options:
    """What a statement says besides its fill."""

    split_random: bool = False
    noise: NoiseOption | None = None
    zero_outputs: bool = False
    plain: bool = False


@dataclass(frozen=True, eq=False)
class Request:
    """One space takes one map. `map` is in units of the space; `unit` is how many of its elements a fill's unit has."""

    space: Space
    fill: str
    map: IndexMap
    new: Bools
    draws: Draws


@dataclass(eq=False)
class Stage:
    """All spaces that one statement maps, by id of their representative."""

    number: int
    text: str
    axis: str
    options: Options
    requests: dict[int, Request] = field(default_factory=dict)
    span: Span | None = None
