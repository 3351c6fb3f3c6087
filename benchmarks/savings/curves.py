"""A picture of the losses of a table's rows against their operations, as SVG. Needs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.savings.reading import Line

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 900, 480, 60, 20, 50, 220
COLOURS = (
    "#000000", "#4477aa", "#ee6677", "#228833", "#ccbb44",
    "#66ccee", "#aa3377", "#888888", "#994400", "#0000aa",
)  # fmt: skip
DASHES = ("none", "6 3", "2 2")
START = 0.1
"""The picture begins, from above, with scratch's loss at this part of its operations."""


class Frame:
    """Operations and losses to places in the picture."""

    def __init__(self, lines: Sequence[Line]) -> None:
        scratch = lines[0]
        self.whole = scratch.cost
        self.right = max(line.cost for line in lines) / self.whole
        early = [loss for cost, loss in scratch.curve() if cost >= START * self.whole]
        lowest = min(min(loss for _, loss in (*line.mean(), *line.curve())) for line in lines)
        self.high = early[0] if early else scratch.curve()[0][1]
        self.low = lowest - 0.05 * (self.high - lowest)

    def x(self, cost: float) -> float:
        """From the left."""
        return LEFT + (WIDTH - LEFT - LEGEND) * cost / self.whole / self.right

    def y(self, loss: float) -> float:
        """From above."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - loss) / (self.high - self.low)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """The points of a polyline."""
        return " ".join(f"{self.x(cost):.1f},{self.y(loss):.1f}" for cost, loss in points)


def picture(title: str, lines: Sequence[Line]) -> str:
    """All rows, scratch first: stable runs faint, marks where branches end, scratch's last loss dashed."""
    frame = Frame(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<clipPath id="inside"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - LEGEND + 6}" '
        f'height="{HEIGHT - TOP - BOTTOM}"/></clipPath>',
        *_axes(frame),
    ]
    target = frame.y(lines[0].final)
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - LEGEND}" y1="{target:.1f}" y2="{target:.1f}" stroke="#888" '
        'stroke-dasharray="4 4"/>'
    )
    for number, line in enumerate(lines):
        parts += _drawn(frame, line, number)
    return "\n".join([*parts, "</svg>", ""])


def _axes(frame: Frame) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = [
        f'<path d="M{LEFT} {TOP}V{bottom}H{WIDTH - LEGEND}" fill="none" stroke="black"/>',
        f'<text x="{(LEFT + WIDTH - LEGEND) / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
        "operations, in percent of scratch's</text>",
        f'<text x="16" y="{(TOP + bottom) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 16 {(TOP + bottom) / 2})">held-out loss, nats</text>',
    ]
    for percent in range(0, int(100 * frame.right) + 1, 20):
        x = frame.x(percent / 100 * frame.whole)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{percent}</text>')
    for part in range(6):
        loss = frame.low + (frame.high - frame.low) * part / 5
        parts.append(f'<text x="{LEFT - 6}" y="{frame.y(loss) + 4:.1f}" text-anchor="end">{loss:.2f}</text>')
    return parts


def _drawn(frame: Frame, line: Line, number: int) -> list[str]:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    style = f'fill="none" stroke="{colour}" stroke-dasharray="{dash}"'
    marks = [
        f'<circle cx="{frame.x(cost):.1f}" cy="{frame.y(loss):.1f}" r="3" fill="{colour}"/>'
        for cost, loss in line.mean()
    ]
    x, y = WIDTH - LEGEND + 20, TOP + 10 + 17 * number
    return [
        '<g clip-path="url(#inside)">',
        f'<polyline points="{frame.path(line.curve())}" {style} stroke-opacity="0.35"/>',
        f'<polyline points="{frame.path(line.mean())}" {style} stroke-width="1.5"/>',
        *marks,
        "</g>",
        f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" {style} stroke-width="2"/>',
        f'<text x="{x + 28}" y="{y}">{escape(line.row.name)}</text>',
    ]
