"""The geometry of a page's drawings: maps of axes, columns of layers, histograms, curves."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from growc.render.text import many, short
from growc.reports.page.bands import MIXED, REGROUPED, Band
from growc.reports.page.network import AxisMap, Block, DrawnRun
from growc.verification.difference import DECADES, Spread

WIDTH, MARGIN = 640.0, 6.0
"""The width and the margin of a drawing."""
TOLD = 3
"""The most weights that a drawing names."""
ROOM = 16.0
"""The least width of a unit that shows its number."""
LOOSE = 3
"""A band is drawn lightly if its link is wider than this multiple of its own width."""
ROW, TALLEST = 20.0, 640.0
"""The height of a layer in its column, and the largest height of a column."""

WORDS = {
    "kept": "kept",
    "copy": "copied",
    "mean": "means of all units",
    "zero": "zero",
    "new": "new",
    REGROUPED: "put into other groups",
}
"""The kinds of units, in words."""


@dataclass(frozen=True)
class Shape:
    """A drawn shape with its description.

    points: the link to the source, empty if there is none. loose: whether that link spreads over many more
    units than the shape has.
    """

    kind: str
    text: str
    x: str
    width: str
    points: str = ""
    label: str = ""
    middle: str = ""
    loose: bool = False


@dataclass(frozen=True)
class AxisShape:
    """A map of an axis.

    weights: some weights that have it, with their shapes. bars: the widths of source and result. dropped: x
    and width of removed units. cells: x and the number of units of the source.
    """

    text: str
    weights: str
    bars: tuple[str, str]
    bands: tuple[Shape, ...]
    dropped: tuple[tuple[str, str], ...]
    cells: tuple[tuple[str, str], ...]


def number(x: float) -> str:
    """Return a coordinate, rounded to a tenth."""
    return f"{x:.1f}".removesuffix(".0")


def sizes(shape: tuple[int, ...]) -> str:
    """`768 × 2304`."""
    return " × ".join(map(str, shape)) or "one number"


def cut_short(text: str, most: int = 96) -> str:
    """Return a text without its middle, if it is longer than a line."""
    return text if len(text) <= most else f"{text[: most // 2 - 1]} … {text[-most // 2 + 2 :]}"


def tip_lines(text: str, most: int = 104) -> list[tuple[int, str]]:
    """Return a text in two lines below a drawing, each with its height."""
    lines = textwrap.wrap(text, most, max_lines=2, placeholder=" …")
    return [(124 + 15 * k, line) for k, line in enumerate(lines)]


def span(first: int, last: int) -> str:
    """`unit 3`, `units 3 to 5`, of a half-open range."""
    return f"unit {first}" if last - first == 1 else f"units {first} to {last - 1}"


def band_text(name: str, band: Band) -> str:
    """`heads: units 6 to 7 are copied from units 4 to 5 of the source`."""
    where = span(band.first, band.last)
    origin = span(band.low, band.high) + " of the source" if band.low >= 0 else ""
    if band.kind == MIXED:
        counted = ", ".join(f"{n} {WORDS[kind]}" for kind, n in band.counts)
        return f"{name}: {where}: {counted}" + (f", from {origin}" if origin else "")
    verb = "is" if band.last - band.first == 1 else "are"
    if band.kind in ("kept", "copy"):
        return f"{name}: {where} {verb} {WORDS[band.kind]} from {origin}"
    return f"{name}: {where} {verb} {WORDS[band.kind]}"


def axis_shape(axis: AxisMap) -> AxisShape:
    """Return the map of an axis: the source's bar above, the result's below, and links between them."""
    bands = axis.bands
    scale = (WIDTH - 2 * MARGIN) / max(bands.before, bands.after, 1)

    def at(unit: int) -> float:
        return MARGIN + unit * scale

    shapes = []
    for band in bands.bands:
        points = ""
        if band.low >= 0:
            corners = [(at(band.low), 36), (at(band.high), 36), (at(band.last), 74), (at(band.first), 74)]
            points = " ".join(f"{number(x)},{y}" for x, y in corners)
        width = (band.last - band.first) * scale
        single = band.last - band.first == 1 and scale >= ROOM
        label = str(band.low) if single and band.low >= 0 else ""
        shapes.append(
            Shape(
                band.kind,
                band_text(axis.name, band),
                number(at(band.first)),
                number(width),
                points,
                label,
                number(at(band.first) + width / 2),
                band.high - band.low > LOOSE * (band.last - band.first),
            )
        )
    dropped = tuple((number(at(a)), number((b - a) * scale)) for a, b in bands.dropped)
    unit_numbers = range(bands.before if scale >= ROOM else 0)
    cells = tuple((number(at(k) + scale / 2), str(k)) for k in unit_numbers)
    change = f"{bands.before}" if bands.before == bands.after else f"{bands.before} to {bands.after}"
    text = f"{axis.name}, {change} units"
    lines = [
        f"{cut_short(w.name)} {w.verb} it: {sizes(w.before)} to {sizes(w.after)}" for w in axis.weights[:TOLD]
    ]
    more = len(axis.weights) + axis.more - len(lines)
    lines += [f"{many(more, 'more weight')}"] if more else []
    bars = number(bands.before * scale), number(bands.after * scale)
    return AxisShape(text, "; ".join([text, *lines]), bars, tuple(shapes), dropped, cells)


@dataclass(frozen=True)
class LayerSpan:
    """Consecutive layers of the result that come from consecutive layers of the source."""

    kind: str
    text: str
    anchor: str
    y: str
    height: str
    middle: str
    label: str
    points: str
    gaps: int


@dataclass(frozen=True)
class Column:
    """Both columns of layers. ticks: y and the number of a layer of the source."""

    height: str
    before: str
    after: str
    ticks: tuple[tuple[str, str], ...]
    rows: tuple[LayerSpan, ...]


def numbers(first: int, last: int) -> str:
    """`layer 3`, `layers 3 to 5`, of a half-open range."""
    return f"layer {first}" if last - first == 1 else f"layers {first} to {last - 1}"


def ranges(layers: Sequence[int]) -> str:
    """`0 to 3, 7`."""
    runs: list[list[int]] = []
    for n in dict.fromkeys(layers):
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs)


def column(series: DrawnRun) -> Column:
    """Return the layers of a run, before and after."""
    count = max(series.layers.before, series.layers.after, 1)
    step = min(ROW, TALLEST / count)
    drawn = {
        k: (s, block) for block in series.blocks for k, s in zip(block.layers, block.sources, strict=True)
    }
    runs: list[tuple[int, int, int, Block]] = []
    for k, (source, block) in sorted(drawn.items(), key=lambda item: item[0]):
        if runs and runs[-1][3] is block and runs[-1][2] + k - runs[-1][0] == source:
            runs[-1] = (runs[-1][0], k + 1, runs[-1][2], block)
        else:
            runs.append((k, k + 1, source, block))
    rows = []
    for first, last, source, block in runs:
        y, height = 10 + first * step, (last - first) * step
        top, bottom = 10 + source * step, 10 + (source + last - first) * step
        corners = [(190, top), (190, bottom), (330, y + height), (330, y)]
        origins = {"kept": "from", "copy": "copied from", "zero": "copied, with zero outputs, from"}
        origin = origins.get(block.kind, "drawn anew, in the place of")
        text = f"{numbers(first, last)} of the result: {origin} {numbers(source, source + last - first)}"
        gaps = len(block.marks)
        rows.append(
            LayerSpan(
                block.kind,
                text + (f"; {many(gaps, 'gap')}" if gaps else ""),
                block.anchor,
                number(y + 1),
                number(max(height - 2, 1)),
                number(y + height / 2 + 4),
                str(first) if last - first == 1 else f"{first} to {last - 1}",
                " ".join(f"{x},{number(v)}" for x, v in corners),
                gaps,
            )
        )
    every = max(1, math.ceil(14 / step))
    ticks = tuple((number(14 + (k + 0.5) * step), str(k)) for k in range(0, series.layers.before, every))
    before, after = (number(n * step) for n in (series.layers.before, series.layers.after))
    return Column(number(20 + count * step), before, after, ticks, tuple(rows))


# ------------------------------------------------------------------------------------------------ charts


@dataclass(frozen=True)
class Bars:
    """A bar chart. bars: x, width, height, and the label below. text: all of it in words."""

    text: str
    bars: tuple[tuple[str, str, str, str], ...]
    top: str


HIGH = 100.0
"""The height of a chart."""


def bars_of(values: Sequence[float], labels: Sequence[str], text: str, top: str) -> Bars:
    """Return a chart of numbers that are not negative."""
    most = max((v for v in values if math.isfinite(v)), default=0.0) or 1.0
    step = (WIDTH - 2 * MARGIN) / max(len(values), 1)
    bars = []
    for k, (value, label) in enumerate(zip(values, labels, strict=True)):
        height = HIGH * min(value, most) / most if not math.isnan(value) else 0.0
        shown = max(height, 1.0) if value else 0.0
        bars.append((number(MARGIN + k * step + 1), number(max(step - 2, 0.8)), number(shown), label))
    return Bars(text, tuple(bars), top)


def histogram(spread: Spread) -> Bars:
    """Return a chart of how many elements differ by each power of ten.

    Heights are square roots of the numbers, so that small ones show too.
    """
    used = [k for k, n in enumerate(spread.decades) if n]
    powers = range(used[0], used[-1] + 1) if used else range(0)
    labels = ["0", *(f"1e{DECADES[k]}" for k in powers)]
    counts = [spread.zeros, *(spread.decades[k] for k in powers)]
    listed = ", ".join(f"{label}: {n}" for label, n in zip(labels, counts, strict=True))
    text = f"Elements by the power of ten of their difference (0: equal): {listed}"
    return bars_of([math.sqrt(n) for n in counts], labels, text, str(max(counts)))


PLACES = 64
"""The most bars of a chart by position."""


def by_place(spread: Spread) -> Bars:
    """Return a chart of the largest difference at each place of an axis, or in each group of places."""
    each = max(1, math.ceil(len(spread.places) / PLACES))
    groups = [spread.places[k : k + each] for k in range(0, len(spread.places), each)]
    largest = [max(group) for group in groups]
    every = max(1, math.ceil(len(groups) / 16))
    labels = [str(k * each) if k % every == 0 else "" for k in range(len(groups))]
    peak = max(spread.places, default=0.0)
    place = spread.places.index(peak) if spread.places else 0
    text = f"Largest difference at each place of axis {spread.axis}: at most {short(peak)}, at place {place}"
    return bars_of(largest, labels, text, short(peak))


@dataclass(frozen=True)
class Curve:
    """Sorted scores. cut: the x behind the last unit that stays."""

    text: str
    points: str
    cut: str


def curve(scores: Sequence[float], count: int, cut: int, text: str) -> Curve:
    """Return scores, highest first, and the cut."""
    most = max(scores, default=0.0) or 1.0
    inside = WIDTH - 2 * MARGIN
    last = max(len(scores) - 1, 1)
    points = (
        f"{number(MARGIN + inside * k / last)},{number(10 + HIGH - HIGH * max(s, 0.0) / most)}"
        for k, s in enumerate(scores)
    )
    return Curve(text, " ".join(points), number(MARGIN + inside * cut / max(count, 1)))


def shades(pattern: Sequence[Sequence[int]]) -> dict[int, str]:
    """Return, for each shade of a pattern, the path of all of its cells."""
    paths: dict[int, str] = {}
    for y, row in enumerate(pattern):
        for x, level in enumerate(row):
            if level:
                paths[level] = paths.get(level, "") + f"M{x} {y}h1v1h-1z"
    return dict(sorted(paths.items()))
