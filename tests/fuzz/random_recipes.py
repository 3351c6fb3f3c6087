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
        if _free(net, taken):
            lines.append(_statement(c, net, taken))
    if c.chance(6):
        lines.insert(0, "untie head")
    return "\n".join(dict.fromkeys(lines))


def _free(net: Net, taken: set[str]) -> list[str]:
    """Names that no statement has yet, as often as they shall come; at last, a weight may be named once."""
    if "a weight" in taken:
        return []
    names = [n for n in _WEIGHTS if n in net.roles and n not in taken for _ in range(_WEIGHTS[n])]
    return names if taken else [*names, "a weight", "a weight"]


def _statement(c: Choices, net: Net, taken: set[str]) -> str:
    axis = c.pick(*_free(net, taken))
    taken.add(axis)
    if axis != "a weight":
        return f"widen {axis} to {_size(c, axis, net)} with {_fill(c, axis)}"
    matrices = [n for n, v in net.weights.items() if v.dtype.kind == "f" and max(v.shape, default=0) > 1]
    name = c.pick(*matrices)
    number = c.below(min(net.weights[name].ndim, 2))
    size = net.weights[name].shape[number]
    more = c.pick(2 * size, 3 * size, size + 1 + c.below(5))
    return f'widen axis {number} of "{name}" to {more} with {_fill(c, axis)}'


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


def _size(c: Choices, axis: str, net: Net) -> str:
    ways = ["2 * {}", "2 * {}", "3 * {}"]
    if "kv_heads" not in net.roles or "heads" not in axis:  # groups stay whole
        ways += [f"{{}} + {1 + c.below(5)}"]
        ways += ["3 * {} / 2"] if net.roles[axis] % 2 == 0 else []
    return c.pick(*ways).format(axis)


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
