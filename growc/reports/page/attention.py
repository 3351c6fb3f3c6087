"""Attention before and after: the patterns of source heads and their copies on one input (bert2BERT, figures
9-12).

Needs: a finished compilation of an ONNX file, and the file of the result. Gives: `Patterns` of some heads of
a few layers, or the reason why there are none. The output of each softmax is exposed in copies of both files
in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from growc.algebra.indexmap import Array, Floats, IndexMap
from growc.algebra.space import atoms_of, find
from growc.dialects.onnx.files.probe_model import exposing, shown
from growc.dialects.onnx.files.signature import read_signature
from growc.errors.diagnostic import GrowError
from growc.formats.compiler import analysed
from growc.passes.compilation import Analysis, Result
from growc.passes.finish.interface import ports_of
from growc.passes.raising.attention import Attention, weighs
from growc.reports.page.network import composed, map_of
from growc.verification.feeds import draw_cases, read_inputs
from growc.verification.ort_session import Feeds, Session
from growc.verification.verify import grown_feeds

LAYERS, HEADS, COPIES, TOKENS = 3, 4, 3, 24
"""The most layers, source heads of a layer, copies of a head, and tokens of a pattern that are shown."""
LEVELS = 8
"""Number of shades in a pattern."""

AttentionPlace = tuple[tuple[int, int] | None, int]
"""The layer of an attention, and its number within the layer."""


@dataclass(frozen=True)
class Copy:
    """A head of the result. apart: its largest difference from the source's head."""

    head: int
    pattern: tuple[tuple[int, ...], ...]
    apart: float


@dataclass(frozen=True)
class Head:
    """A head of the source with its copies in the result.

    pattern: for each query (a row) the shade of every key.
    """

    head: int
    pattern: tuple[tuple[int, ...], ...]
    copies: tuple[Copy, ...]


@dataclass(frozen=True)
class LayerPatterns:
    """The patterns of one layer.

    layer, source: the numbers of the layer in the result and in the source; -1 outside of layers.
    """

    run: int
    layer: int
    source: int
    heads: tuple[Head, ...]
    before: int
    after: int


@dataclass(frozen=True)
class Patterns:
    """The patterns that are shown, or the reason why there are none."""

    layers: tuple[LayerPatterns, ...] = ()
    reason: str = ""


def patterns_of(c: Result, result: Path, inputs: Path | None) -> Patterns:
    """The patterns of a compilation and the file made of it."""
    if not c.roles.attention:
        return Patterns(reason="no attention was recognised in the graph")
    if c.path.suffix != ".onnx":
        return Patterns(reason="patterns are taken from ONNX files, and the model is none")
    try:
        return _measured(c, result, inputs)
    except GrowError as error:
        return Patterns(reason=f"the model cannot be run for them: {error.diagnostics[0].message}")


def _measured(c: Result, result: Path, inputs: Path | None) -> Patterns:
    grown = analysed(result)
    result_places, source_places, grown_places = _places(c), _places(c.first), _places(grown)
    chosen = [
        place for place in result_places if _source_of(c, place) in source_places and place in grown_places
    ]
    chosen = _spread_out([p for p in chosen if _head_axes(c, result_places[p]) is not None])
    sources = {place: source_places[_source_of(c, place)] for place in chosen}
    names = [sources[p].node.outputs[0].name for p in chosen]
    results = [grown_places[p].node.outputs[0].name for p in chosen]
    visible = shown(c.path)
    if not chosen or any(name not in visible for name in names):
        return Patterns(reason="the weights of attention stay inside of operators, or share an axis")
    case = (read_inputs(inputs, c.path) if inputs is not None else draw_cases(c.path))[0]
    ports = ports_of(c)
    feeds = grown_feeds(case, read_signature(result), ports.input_maps(), ports.renamed)
    first, second = _run(c.path, names, case), _run(result, results, feeds)
    maps, layers = composed(c), []
    for place, name, result_name in zip(chosen, names, results, strict=True):
        source_heads = _by_head(c.first, sources[place], first[name])
        result_heads = _by_head(grown, grown_places[place], second[result_name])
        heads = map_of(result_places[place].heads, maps)
        if (
            source_heads is None
            or result_heads is None
            or heads is None
            or (heads.source, heads.size) != (len(source_heads), len(result_heads))
        ):
            continue
        home, source = place[0] or (0, -1), _source_of(c, place)[0] or (0, -1)
        shown_heads = _heads(heads, source_heads, result_heads)
        layers.append(
            LayerPatterns(home[0], home[1], source[1], shown_heads, len(source_heads), len(result_heads))
        )
    reason = "" if layers else "the heads of the result do not follow from the source's one by one"
    return Patterns(tuple(layers), reason)


def _places(c: Analysis) -> dict[AttentionPlace, Attention]:
    """Every attention with a softmax of its own, by its place."""
    counts: dict[tuple[int, int] | None, int] = defaultdict(int)
    places: dict[AttentionPlace, Attention] = {}
    for attention in c.roles.attention:
        home = c.layers.home.get(attention.node)
        if weighs(attention.node):
            places[home, counts[home]] = attention
        counts[home] += 1
    return places


def _source_of(c: Result, place: AttentionPlace) -> AttentionPlace:
    """The place in the source of the attention of a layer of the result."""
    home, number = place
    if home is None:
        return place
    run, layer = home
    return (run, c.layers.runs[run].history.order[layer]), number


def _spread_out(places: Sequence[AttentionPlace]) -> list[AttentionPlace]:
    """The first and the last place, and some between them at equal distances."""
    steps = np.unique(np.linspace(0, max(len(places) - 1, 0), LAYERS).round().astype(np.int64))
    return [places[k] for k in steps.tolist()] if places else []


def _head_axes(c: Analysis, one: Attention) -> list[int] | None:
    """The axes of the softmax's output that count its heads; None if one counts other units, too."""
    heads = set(map(find, atoms_of(one.heads)))
    axes = []
    for number, space in enumerate(c.axes.of(one.node.outputs[0])):
        counts_heads = [atom in heads for atom in map(find, atoms_of([space]))]
        if any(counts_heads) and not all(counts_heads):
            return None
        axes += [number] if counts_heads and all(counts_heads) else []
    return axes


def _by_head(c: Analysis, one: Attention, weights: Array) -> Floats | None:
    """The weights of the first sample, of shape (heads, queries, keys)."""
    axes = _head_axes(c, one)
    if axes is None or weights.ndim - len(axes) < 2:
        return None
    front = np.moveaxis(np.asarray(weights, dtype=np.float64), axes, range(len(axes)))
    size = int(np.prod(front.shape[: len(axes)], dtype=np.int64))
    whole = front.reshape(size, -1, *front.shape[-2:])
    return np.asarray(whole[:, 0])


def _run(model: Path, names: Sequence[str], feeds: Mapping[str, Array]) -> Feeds:
    """The values of tensors of a file."""
    with Session(model, graph=exposing(model, list(dict.fromkeys(names)))) as session:
        return session.run(feeds)


def _heads(heads: IndexMap, old: Floats, new: Floats) -> tuple[Head, ...]:
    """Some heads of the source with their copies. Heads with the most copies are chosen, and ordered by
    number.
    """
    copies: dict[int, list[int]] = defaultdict(list)
    for head, source in enumerate(heads.index.tolist()):
        if source >= 0:
            copies[source].append(head)
    chosen = sorted(sorted(copies, key=lambda h: (-len(copies[h]), h))[:HEADS])
    return tuple(_head(h, copies[h][:COPIES], old[h], new) for h in chosen)


def _head(head: int, copies: Sequence[int], old: Floats, new: Floats) -> Head:
    peak = float(np.nan_to_num(old[:TOKENS, :TOKENS]).max(initial=0.0)) or 1.0
    return Head(head, _shades(old, peak), tuple(_copy(k, old, new[k], peak) for k in copies))


def _copy(head: int, old: Floats, new: Floats, peak: float) -> Copy:
    rows, columns = min(old.shape[0], new.shape[0]), min(old.shape[1], new.shape[1])
    apart = float(np.abs(old[:rows, :columns] - new[:rows, :columns]).max(initial=0.0))
    return Copy(head, _shades(new, peak), apart)


def _shades(weights: Floats, peak: float) -> tuple[tuple[int, ...], ...]:
    """The first tokens of a pattern in LEVELS shades: 0 stands for nothing, the last one for `peak` and
    more.
    """
    part = np.nan_to_num(weights[:TOKENS, :TOKENS])
    levels = np.rint(np.clip(part / peak, 0.0, 1.0) * LEVELS).astype(np.int64)
    return tuple(tuple(row) for row in levels.tolist())
