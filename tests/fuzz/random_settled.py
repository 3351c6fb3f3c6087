"""Random stacks of layers whose stream is rounded and bounded on its way; new layers are to add nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from graphs import save

Write = Callable[[str, str], str]
"""Nodes that make one value of another; both are names."""

NUMBERS = {
    "low": np.float32(-0.5),
    "high": np.float32(6),
    "odd": np.float32(0.3),
    "zero": np.float32(0),
    "half": np.float32([0.5]),
    "flat": np.array([-1, 8], np.int64),
    "from_none": np.array([0], np.int64),
    "from_one": np.array([1], np.int64),
    "one_on": np.array([1], np.int64),
    "to_end": np.array([99], np.int64),
    "axis_one": np.array([1], np.int64),
    "deep": np.array([-1, 2, 4], np.int64),
    **{f"step{k}": np.float32(0.3 + 0.11 * k) for k in range(3)},
    **{f"steps{k}": np.linspace(0.2, 0.4 + k, 8, dtype=np.float32) for k in range(2)},
    **{f"middle{k}": np.uint8(z) for k, z in enumerate((0, 100, 128))},
    **{f"signed{k}": np.int8(z) for k, z in enumerate((0, -128, 5))},
    **{f"zeros{k}": np.full(8, 90 + k, np.uint8) for k in range(2)},
}


def _one(op: str, *operands: str, attributes: str = "") -> Write:
    return lambda x, y: f"{y} = {op} {attributes} ({', '.join([x, *operands])})"


def _chain(*parts: Write) -> Write:
    def write(x: str, y: str) -> str:
        names = [x, *(f"{y}_{k}_" for k in range(len(parts) - 1)), y]
        return "\n    ".join(part(a, b) for part, (a, b) in zip(parts, pairwise(names), strict=True))

    return write


def _cast(*types: int) -> Write:
    return _chain(*(_one("Cast", attributes=f"<to = {to}>") for to in (*types, 1)))


def _steps(scale: str, zero: str, axis: int = -1) -> Write:
    own = f"<axis = {axis}>"
    ends = (_one(op, scale, zero, attributes=own) for op in ("QuantizeLinear", "DequantizeLinear"))
    return _chain(*ends)


def _where(test: str, put: str, *, kept: bool = False) -> Write:
    """A number in the place of those for which a test holds, or does not."""
    return lambda x, y: (
        f"{test.format(x=x, y=y + '_t')}\n    {y} = Where({y}_t, {f'{x}, {put}' if kept else f'{put}, {x}'})"
    )


WRITES: dict[str, Write] = {
    "where less": _where("{y} = Less({x}, low)", "low"),
    "where less, odd": _where("{y} = Less({x}, low)", "odd"),
    "where more": _where("{y} = Greater({x}, half)", "zero", kept=True),
    "where less, kept": _where("{y} = LessOrEqual(low, {x})", "low", kept=True),
    "where more, bound": _where("{y} = Greater({x}, high)", "high"),
    "where more, of units": _where("{y} = Greater({x}, steps0)", "steps1"),
    "where far": _where("{y}_a = Abs({x})\n    {y} = GreaterOrEqual({y}_a, high)", "zero"),
    "where halved": _where(
        "{y}_a = Cast <to = 10> ({x})\n    {y}_b = Cast <to = 1> ({y}_a)\n    {y} = Equal({y}_b, {x})", "odd"
    ),
    "where a neighbour": _where(
        "{y}_a = Slice({x}, from_one, to_end, axis_one)\n    {y}_b = Slice({x}, from_none, one_on, axis_one)"
        "\n    {y}_c = Concat <axis = -1> ({y}_a, {y}_b)\n    {y} = Less({y}_c, zero)",
        "half",
    ),
    "where the mean": _where("{y}_a = ReduceMean <keepdims = 1> ({x})\n    {y} = Less({y}_a, {x})", "zero"),
    "mod": _one("Mod", "half", attributes="<fmod = 1>"),
    "mod of units": _one("Mod", "steps1", attributes="<fmod = 1>"),
    "max of units": _one("Max", "steps0"),
    "min of units": _one("Min", "steps1"),
    **{f"cast {n}": _cast(n) for n in (3, 5, 6, 7, 10, 11, 16)},
    "like": _chain(_one("CastLike", "flat"), _one("CastLike", "low")),
    "narrow, narrower": _cast(10, 1, 16),
    "narrower, narrow": _cast(16, 1, 10),
    **{f"steps {k} {z}": _steps(f"step{k}", f"middle{z}") for k in range(3) for z in range(3)},
    **{f"signed steps {k}": _steps(f"step{k}", f"signed{k}") for k in range(3)},
    **{f"steps for each {k}": _steps(f"steps{k}", f"zeros{k}") for k in range(2)},
    **{op: _one(op) for op in ("Relu", "Abs", "Round", "Floor", "Ceil", "Sign", "Tanh", "Neg")},
    "Relu6": _one("Clip", "zero", "high"),
    "Clip": _one("Clip", "low", "high"),
    "from below": _one("Clip", "odd"),
    "odd": _one("Max", "odd"),
    "Max": lambda x, y: f"{y} = Max(low, {x})",
    "Min": _one("Min", "half", "high"),
    "threshold": _one("ThresholdedRelu", attributes="<alpha = 0.25>"),
    "l2": _one("LpNormalization", attributes="<axis = -1>"),
    "l2 of rows": _one("LpNormalization", attributes="<axis = 0>"),
    "l1": _one("LpNormalization", attributes="<axis = -1, p = 1>"),
    "triangle": _one("Trilu", attributes="<upper = 0>"),
    "one": _one("Hardmax", attributes="<axis = -1>"),
    "turned": _chain(
        _one("Transpose", attributes="<perm = [1, 0]>"), _one("Transpose", attributes="<perm = [1, 0]>")
    ),
    "flat": _chain(_one("Reshape", "deep"), _one("Reshape", "flat")),
    "half": _one("Mul", "half"),
    "more": _one("Add", "half"),
}
"""By name: most round or bound a tensor, some do more."""

RECIPES = (
    "stack layers to 5 by last with zero outputs",
    "stack layers to 6 by each with zero outputs",
    "arrange layers as 0, 0, 1, 0, 1, 1 with zero outputs",
)

LAYER = """
    u{k} = MatMul({x}, up{k})
    r{k} = Relu(u{k})
    d{k} = MatMul(r{k}, down{k})
"""


def random_stack(seed: int, path: Path) -> tuple[Path, str]:
    """A stack of three layers and a recipe: each place of the stream has a few of all these functions."""
    draw = random.Random(seed)
    few = draw.sample(sorted(WRITES), draw.choice((1, 1, 2, 3)))
    text: list[str] = []

    def through(x: str, y: str, names: list[str]) -> None:
        for k, name in enumerate(names):
            text.append(WRITES[name](x, f"{y}_{k}"))
            x = f"{y}_{k}"
        text.append(f"{y} = Identity({x})")

    def some(chance: float) -> list[str]:
        return [name for name in few if draw.random() < chance]

    alike = draw.random() < 0.6
    before, within, behind = some(0.3), some(0.2), some(0.6)
    through("e", "x0", some(0.5))
    for k in range(3):
        if not alike:
            before, within, behind = some(0.3), some(0.2), some(0.6)
        through(f"x{k}", f"s{k}", before)
        text.append(LAYER.format(k=k, x=draw.choice((f"s{k}", f"x{k}"))))
        operands = [f"s{k}", f"d{k}"]
        text.append(f"a{k} = Add({', '.join(operands if draw.random() < 0.7 else operands[::-1])})")
        through(f"a{k}", f"b{k}", within)
        through(f"b{k}", f"x{k + 1}", behind)
    weights = ", ".join(f"float[8, 12] up{k}, float[12, 8] down{k}" for k in range(3))
    lines = "\n    ".join(text)
    graph = f"""
settled (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] rows, {weights}, float[8, 3] columns, float[3] bias>
{{
    e = MatMul(x, rows)
    {lines}
    z = MatMul(x3, columns)
    y = Add(z, bias)
}}
"""
    used = {name: value for name, value in NUMBERS.items() if re.search(rf"\b{name}\b", lines)}
    return save(path, graph, opset=19, **used), draw.choice(RECIPES)
