"""Recipes at random, for the axes that a random model has."""

from __future__ import annotations

from choices import Choices
from random_builder import Net

FILLS = (
    "neighbor copy",
    "cyclic copy",
    "uniform copy",
    "average fill",
    "zero fill",
    "random fill",
    "last copy",
    "tail copy",
)
COPIES = frozenset(f for f in FILLS if f.endswith("copy"))


def random_recipe(c: Choices, net: Net) -> str:
    """One to three statements."""
    count = c.pick(1, 1, 2, 3)
    lines: list[str] = []
    taken: set[str] = set()
    for _ in range(count):
        lines.append(_statement(c, net, taken))
    if c.chance(6):
        lines.insert(0, "untie head")
    return "\n".join(dict.fromkeys(lines))


def _statement(c: Choices, net: Net, taken: set[str]) -> str:
    names = [n for n in _WEIGHTS if n in net.roles and n not in taken]
    weighed = [n for n in names for _ in range(_WEIGHTS[n])]
    matrices = [
        (n, v.shape) for n, v in net.weights.items() if v.dtype.kind == "f" and max(v.shape, default=0) > 1
    ]
    if matrices and (not weighed or c.chance(15)):
        name, shape = c.pick(*matrices)
        number = c.below(len(shape))
        axis, size = f'axis {number} of "{name}"', shape[number]
    else:
        axis = c.pick(*weighed)
        taken.add(axis)
        size = net.roles[axis]
    return f"widen {axis} to {_size(c, axis, size)} with {_fill(c, axis)}"


_WEIGHTS = {
    "ffn": 4,
    "heads": 4,
    "hidden": 4,
    "channels": 4,
    "kv_heads": 2,
    "vocab": 1,
    "positions": 1,
    "head_dim": 1,
}


def _size(c: Choices, axis: str, size: int) -> str:
    quoted = axis if axis.isidentifier() else str(size)
    how = c.pick("double", "double", "double", "more", "half more", "triple")
    if how == "double":
        return f"2 * {quoted}"
    if how == "triple":
        return f"3 * {quoted}"
    if how == "half more" and size % 2 == 0:
        return f"3 * {quoted} / 2"
    return f"{quoted} + {1 + c.below(5)}"


def _fill(c: Choices, axis: str) -> str:
    options = FILLS
    if axis == "hidden":
        options = (
            "cyclic copy",
            "cyclic copy",
            "neighbor copy",
            "average fill",
            "zero fill",
            "uniform copy",
            "random fill",
        )
    fill = c.pick(*options)
    words = [fill]
    if fill in COPIES:
        if c.chance(25):
            words.append("split random")
        if c.chance(20):
            words.append(
                c.pick("noise 0.1 balanced", "noise 0.1 balanced", "noise 0.1", "noise 0.1 on copies")
            )
        if c.chance(5):
            words.append("plain")
    if axis in ("ffn", "heads") and c.chance(15) and len(words) == 1:
        words.append("with zero outputs")
    if c.chance(10):
        words.append("seed 3")
    return " ".join(words)
