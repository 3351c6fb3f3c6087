"""The model before and after: its streams, layers and heads, the map of every axis, and the places of gaps.

Needs: a finished compilation. Gives: a `DrawnNetwork`. Layers of the result that look the same are one
`Block`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal

import numpy as np

from growc.algebra.indexmap import IndexMap
from growc.algebra.space import Space, atoms_of, find
from growc.ir.graph import Value
from growc.ir.lowered_statement import Stage
from growc.passes.compilation import Result
from growc.passes.heads.move_heads import averaged
from growc.passes.layers.layer_runs import LayerPlace
from growc.passes.roles.name_axes import RoleAxis
from growc.passes.solving.shrinking import dropped
from growc.plans.plan import Gap, WeightPlan
from growc.reports.page.bands import Bands, bands_of, regrouped

UNITS = 32
"""The most bands of one axis."""
ALL_BANDS = 6000
"""The most bands of all axes of all layers."""
WEIGHTS = 12
"""The most weights listed for one axis."""

AxisHome = LayerPlace | None
"""The layer of an axis; None for one in no layer, or in several."""

STREAMS: Literal["streams"] = "streams"
GapHome = AxisHome | int | Literal["streams"]
"""The place of a gap: that of an axis, a run of layers by its number, or the residual streams."""


@dataclass(frozen=True)
class Touched:
    """A weight that an axis changes: the verbs of its steps on the axis, and its shape before and after."""

    name: str
    verb: str
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class AxisMap:
    """One axis: its map, and the weights that have it.

    more: the number of weights that are not listed. times: the number of axes in one place that look like
    this.
    """

    name: str
    bands: Bands
    weights: tuple[Touched, ...] = ()
    more: int = 0
    times: int = 1


@dataclass(frozen=True)
class Mark:
    """Gaps of one cause at one kind of node in one place. nodes: their names."""

    anchor: str
    op: str
    cause: str
    help: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """Layers of the result that look the same.

    kind: `kept`, `copy`, `zero` or `new`. layers, sources: their numbers in the result and in the source.
    """

    anchor: str
    kind: str
    layers: tuple[int, ...]
    sources: tuple[int, ...]
    axes: tuple[AxisMap, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class DrawnRun:
    """One run of layers: the map of its layers, and its blocks in the order of the result.

    marks: gaps of no layer of the result, such as layers that are left out.
    """

    scope: str
    layers: Bands
    blocks: tuple[Block, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class DrawnNetwork:
    """The network that a report shows.

    streams, tables: axes that belong to no layer alone: the residual streams, and all others.
    """

    streams: tuple[AxisMap, ...]
    tables: tuple[AxisMap, ...]
    series: tuple[DrawnRun, ...]
    stream_marks: tuple[Mark, ...]
    marks: tuple[Mark, ...]

    @property
    def places(self) -> dict[str, Mark]:
        """All marks by their anchors, in the order of the page."""
        inside = (
            mark
            for series in self.series
            for mark in (*series.marks, *(mark for block in series.blocks for mark in block.marks))
        )
        return {mark.anchor: mark for mark in (*self.stream_marks, *inside, *self.marks)}


def network_of(c: Result) -> DrawnNetwork:
    """The network of a finished compilation."""
    return _Network(c).whole()


def composed(c: Result) -> dict[Space, IndexMap | None]:
    """The map of every resized atom, over all statements; None if heads change groups."""
    maps: dict[Space, IndexMap | None] = {}
    for stage in c.lowered.stages:
        for atom, request in stage.requests.items():
            first = maps.get(find(atom), IndexMap.identity(request.map.source))
            fits = first is not None and first.size == request.map.source
            maps[find(atom)] = request.map.after(first) if first is not None and fits else None
        maps |= {find(x): None for regroup in stage.regroups for x in (regroup.keys, regroup.group)}
    return maps


def map_of(spaces: Sequence[Space], atom_maps: Mapping[Space, IndexMap | None]) -> IndexMap | None:
    """The map of a row-major product of spaces; None if one of them has none."""
    maps = [space_map for space in spaces if (space_map := _of_space(find(space), atom_maps)) is not None]
    return reduce(IndexMap.kron, maps, IndexMap.identity(1)) if len(maps) == len(spaces) else None


def _of_space(space: Space, atom_maps: Mapping[Space, IndexMap | None]) -> IndexMap | None:
    if space.kind == "product":
        return map_of(space.parts, atom_maps)
    if space.kind == "atom":
        return atom_maps.get(space, IndexMap.identity(space.size[0]))
    maps = [part_map for part in space.parts if (part_map := _of_space(find(part), atom_maps)) is not None]
    return IndexMap.concat(maps) if len(maps) == len(space.parts) else None


class _Network:
    def __init__(self, c: Result) -> None:
        self.c, self.atom_maps = c, composed(c)
        self.plans = {w.name: w for w in c.plan.weights if w.changed}
        self.limit = UNITS
        self.marked = 0

    def whole(self) -> DrawnNetwork:
        by_home: dict[AxisHome, list[tuple[str, RoleAxis]]] = defaultdict(list)
        for name, axis in self.axes():
            by_home[self.home_of(axis)].append((name, axis))
        pictures = sum(map(len, by_home.values()))
        self.limit = max(4, min(UNITS, ALL_BANDS // max(pictures, 1)))
        gaps = self.gaps()
        outside = self.pictures(by_home[None])
        stream_marks = self.marks(gaps[STREAMS])
        return DrawnNetwork(
            tuple(one for one in outside if one.name == "hidden"),
            tuple(one for one in outside if one.name != "hidden"),
            tuple(self.series(run, by_home, gaps) for run in range(len(self.c.layers.runs))),
            stream_marks,
            self.marks(gaps[None]),
        )

    def axes(self) -> Iterator[tuple[str, RoleAxis]]:
        """Every axis with a name, once; then the axes that statements name by a weight."""
        seen: set[tuple[Space, ...]] = set()
        shown: set[Space] = set()
        for name, role_axes in self.c.roles.axes.items():
            for axis in role_axes:
                key = tuple(map(find, axis.spaces))
                if key not in seen:
                    seen.add(key)
                    shown.update(atoms_of(axis.spaces))
                    yield name, axis
        for stage in self.c.lowered.stages:
            for atom in stage.requests:
                if find(atom) not in shown:
                    shown.add(find(atom))
                    yield stage.axis, RoleAxis((find(atom),))

    @cached_property
    def uses(self) -> Mapping[Space, list[tuple[Value, int]]]:
        """For each atom, the axes of weights of which it is a part."""
        uses: dict[Space, list[tuple[Value, int]]] = defaultdict(list)
        for use in self.c.graph.uses():
            for number, space in enumerate(self.c.axes.of(use)):
                for atom in dict.fromkeys(atoms_of([space])):
                    uses[atom].append((use, number))
        return uses

    def home_of(self, axis: RoleAxis) -> AxisHome:
        """The layer of all nodes that use weights of an axis; None if there are several or none."""
        home = self.c.layers.home
        atoms = set(atoms_of(axis.spaces))
        nodes = {node for a in atoms for use, _ in self.uses.get(a, ()) for node, _ in use.users}
        nodes |= {axis.at} if axis.at is not None else set()
        homes = {home.get(node) for node in nodes}
        homes -= {None} if axis.at is not None else set()
        return next(iter(homes)) if len(homes) == 1 else None

    def pictures(self, axes: Sequence[tuple[str, RoleAxis]]) -> tuple[AxisMap, ...]:
        """The axes of one place. Axes that look the same are one, with the weights of all."""
        alike: dict[tuple[str, Bands], list[AxisMap]] = defaultdict(list)
        for name, axis in axes:
            picture = self.picture(name, axis)
            alike[picture.name, picture.bands].append(picture)
        pictures = []
        for (name, bands), equal in alike.items():
            weights = tuple(dict.fromkeys(w for picture in equal for w in picture.weights))
            more = sum(picture.more for picture in equal) + max(0, len(weights) - WEIGHTS)
            pictures.append(AxisMap(name, bands, weights[:WEIGHTS], more, len(equal)))
        return tuple(pictures)

    def picture(self, name: str, axis: RoleAxis) -> AxisMap:
        """One axis with its weights."""
        numbers: dict[str, set[int]] = defaultdict(set)
        for atom in atoms_of(axis.spaces):
            for use, number in self.uses.get(atom, ()):
                if use.weight is not None and use.weight.name in self.plans:
                    numbers[use.weight.name].add(number)
        listed = [_touched(self.plans[weight], axes) for weight, axes in sorted(numbers.items())]
        axis_map, after = map_of(axis.spaces, self.atom_maps), self.c.lowered.sizes.product(axis.spaces)
        maps_whole = axis_map is not None and (axis_map.source, axis_map.size) == (axis.size, after)
        bands = (
            bands_of(axis_map, self.limit)
            if axis_map is not None and maps_whole
            else regrouped(axis.size, after)
        )
        return AxisMap(name, bands, tuple(listed[:WEIGHTS]), max(0, len(listed) - WEIGHTS))

    def series(
        self,
        run: int,
        by_home: Mapping[AxisHome, list[tuple[str, RoleAxis]]],
        gaps: Mapping[GapHome, list[Gap]],
    ) -> DrawnRun:
        """One run, with equal layers joined."""
        layers = self.c.layers.runs[run]
        history = layers.history
        seen: set[int] = set()
        blocks: dict[object, tuple[tuple[AxisMap, ...], list[tuple[int, int]], list[Gap]]] = {}
        for k, source in enumerate(history.order):
            kind = "kept" if source not in seen else "copy"
            kind = "new" if history.drawn[k] is not None else "zero" if history.zeroed[k] else kind
            seen.add(source)
            axes = self.pictures(by_home.get((run, k), ()))
            own_gaps = gaps.get((run, k), [])
            causes = tuple(sorted({(g.op, g.cause) for g in own_gaps}))
            key = (kind, tuple((a.name, a.bands) for a in axes), causes)
            block = blocks.setdefault(key, (axes, [], []))
            block[1].append((k, source))
            block[2].extend(own_gaps)
        equal_layers = [
            Block(
                f"layers-{run}-{number}",
                key[0] if isinstance(key, tuple) else "",
                tuple(k for k, _ in pairs),
                tuple(s for _, s in pairs),
                axes,
                self.marks(own_gaps),
            )
            for number, (key, (axes, pairs, own_gaps)) in enumerate(blocks.items())
        ]
        depth = IndexMap.of(history.count, np.array(history.order, dtype=np.int64))
        return DrawnRun(
            layers.scope, bands_of(depth, UNITS), tuple(equal_layers), self.marks(gaps.get(run, []))
        )

    def gaps(self) -> dict[GapHome, list[Gap]]:
        """The certificate's gaps by their places: those of moved layers, of dropped units, of their nodes."""
        homes = {node.name: home for node, home in self.c.layers.home.items() if node.name}
        places: dict[Gap, set[GapHome]] = defaultdict(set)
        for run, layer_gaps in enumerate(self.c.depth.gaps_of_runs):
            for one in layer_gaps:
                places[one.gap].add(run if one.layer is None else (run, one.layer))
        for stage in self.c.lowered.stages:
            for gap in (*dropped(stage), *averaged(stage)):
                places[gap] |= self.homes_of(stage)
        by_home: dict[GapHome, list[Gap]] = defaultdict(list)
        for gap in self.c.plan.certificate.gaps:
            for home in places.get(gap) or {homes.get(gap.node)}:
                by_home[home].append(gap)
        return by_home

    def homes_of(self, stage: Stage) -> set[GapHome]:
        """The places of the axes of which a statement drops or averages units."""
        if stage.axis == "hidden":
            return {STREAMS}
        dropping = [atom for atom, request in stage.requests.items() if request.drops]
        averaging = [one.keys for one in stage.regroups if one.averages]
        return {self.home_of(RoleAxis((find(atom),))) for atom in (*dropping, *averaging)}

    def marks(self, gaps: Sequence[Gap]) -> tuple[Mark, ...]:
        """The gaps of one place, by cause and kind of node."""
        grouped: dict[tuple[str, str], list[Gap]] = defaultdict(list)
        for gap in gaps:
            grouped[gap.op, gap.cause].append(gap)
        marks = []
        for (op, cause), alike in grouped.items():
            self.marked += 1
            names = tuple(dict.fromkeys(g.node for g in alike if g.node))
            marks.append(Mark(f"gap-{self.marked}", op, cause, alike[0].help, names))
        return tuple(marks)


def _touched(plan: WeightPlan, numbers: Collection[int]) -> Touched:
    """A weight, and the verbs of its steps on some of its axes."""
    verbs = dict.fromkeys(step.verb for step in plan.steps if step.axis in numbers)
    return Touched(plan.name, ", ".join(verbs) or "has", plan.before, plan.after)
