"""Sizes for a model's symbolic dimensions, most plausible first: files do not say which must agree.

The place of a symbol decides its `SymbolKind`, and a `Scale` gives every kind a size. A relation tells which
symbols are equal, or that a mask is as long as cached and new entries together. Callers try the assignments
in turn until the model runs. Nothing is assumed about names, except that the same symbol has the same size
everywhere and that "past + seq" is a sum.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import combinations
from typing import NamedTuple

from growc.dialects.onnx.files.signature import Input, Role

SymbolSizes = dict[str, int]


class SymbolKind(Enum):
    """The kind of a symbol, by its place."""

    BATCH = "batch"  # the first axis
    LENGTH = "length"  # any other axis
    PAST = "past"  # the axis along which a state grows
    SPAN = "span"  # the last axis of masks, and nowhere else
    PICTURE = "picture"  # the axes of real inputs of rank four and more
    WAVE = "wave"  # the other axes of real inputs


class Scale(NamedTuple):
    """A size for every kind."""

    batch: int
    length: int
    past: int
    picture: int
    wave: int


FIRST = tuple(
    Scale(2, length, min(5, length), picture, wave)
    for length, picture, wave in zip(
        (7, 5, 3, 16, 8, 32, 64, 128, 256, 1),
        (64, 32, 224, 256, 128, 384, 16, 512, 96, 8),
        (7, 64, 1600, 3200, 16, 400, 32, 128, 3000, 3),
        strict=True,
    )
)
"""The sizes of the first case. The later ones are for models with short tables, fixed sizes, deep strides."""

SECOND = tuple(
    Scale(3, length, 3, picture, wave)
    for length, picture, wave in zip(
        (12, 4, 2, 24, 6, 48), (96, 64, 256, 448, 32, 160), (12, 96, 2000, 3600, 24, 48), strict=True
    )
)
"""The sizes of the second case."""

PICTURES = range(4, 300)
"""Heights and widths that are tried last: a network that flattens its pixels takes few of them."""

_MERGES = 60
"""The number of assignments tried that set single symbols equal to others, or to sums."""


def symbols(inputs: Sequence[Input]) -> dict[str, SymbolKind]:
    """Return every free symbol of the inputs with its kind. Unnamed axes have their own symbols."""
    seen: dict[str, set[SymbolKind]] = {}
    for port in inputs:
        for axis in range(len(port.dims)):
            for symbol in names(dimension(port, axis)):
                seen.setdefault(symbol, set()).add(_kind(port, axis))
    order = (
        SymbolKind.LENGTH,
        SymbolKind.PAST,
        SymbolKind.BATCH,
        SymbolKind.PICTURE,
        SymbolKind.WAVE,
        SymbolKind.SPAN,
    )
    return {symbol: next(kind for kind in order if kind in kinds) for symbol, kinds in seen.items()}


def _kind(port: Input, axis: int) -> SymbolKind:
    if axis == 0:
        return SymbolKind.BATCH
    if port.role is Role.STATE:
        return SymbolKind.PAST if axis == port.time else SymbolKind.LENGTH
    if port.role is Role.DATA and port.real:
        return SymbolKind.PICTURE if len(port.dims) >= 4 else SymbolKind.WAVE
    if port.role in (Role.MASK, Role.BIAS) and axis == len(port.dims) - 1:
        return SymbolKind.SPAN
    return SymbolKind.LENGTH


def dimension(port: Input, axis: int) -> int | str:
    """Return the size of an axis, or its symbolic expression. Unnamed axes have symbols that are no names."""
    dim = port.dims[axis]
    return f"?{port.name}?{axis}" if dim is None or dim in (0, "") else dim


def names(dim: int | str) -> tuple[str, ...]:
    """Return the symbols in a dimension: "past + seq" has two. Text that is no arithmetic is one symbol."""
    if isinstance(dim, int):
        return ()
    tree = _parsed(dim)
    if tree is None:
        return (dim,)
    return tuple(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))


def shape(port: Input, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the sizes of all axes of an input. Raises KeyError for a symbol without a size."""
    return tuple(evaluate(dimension(port, axis), sizes) for axis in range(len(port.dims)))


def evaluate(dim: int | str, sizes: Mapping[str, int]) -> int:
    """Return the size of a dimension. Raises KeyError for a symbol without a size."""
    if isinstance(dim, int):
        return dim
    tree = _parsed(dim)
    return sizes[dim] if tree is None else _value(tree.body, sizes)


def _parsed(dim: str) -> ast.Expression | None:
    try:
        tree = ast.parse(dim, mode="eval")
    except SyntaxError:
        return None
    return tree if _is_arithmetic(tree.body) else None


def _is_arithmetic(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        literal = isinstance(node.right, ast.Constant)  # "batch-size" is one symbol, "seq - 1" is not
        shrinking = literal and isinstance(node.op, ast.Sub | ast.FloorDiv)
        fits = shrinking or isinstance(node.op, ast.Add | ast.Mult)
        return fits and _is_arithmetic(node.left) and _is_arithmetic(node.right)
    return isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and isinstance(node.value, int))


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.Constant):
        return int(str(node.value))
    assert isinstance(node, ast.BinOp)
    left, right = _value(node.left, sizes), _value(node.right, sizes)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    return left * right if isinstance(node.op, ast.Mult) else left // right


def assignments(kinds: Mapping[str, SymbolKind], scales: Sequence[Scale]) -> Iterator[SymbolSizes]:
    """Yield distinct assignments: each relation at each scale, then merges, batches of one, and pictures."""
    tried: set[tuple[int, ...]] = set()
    for sizes in _candidates(kinds, scales):
        key = tuple(sizes.values())
        if key not in tried:
            tried.add(key)
            yield sizes


def _candidates(kinds: Mapping[str, SymbolKind], scales: Sequence[Scale]) -> Iterator[SymbolSizes]:
    for scale in scales:
        yield from _related(kinds, scale)
    yield from _merged(kinds, scales[0])
    for scale in scales:
        yield from _related(kinds, scale._replace(batch=1))
    if SymbolKind.PICTURE in kinds.values():
        for size in PICTURES:
            yield next(_related(kinds, scales[0]._replace(picture=size)))


def _related(kinds: Mapping[str, SymbolKind], scale: Scale) -> Iterator[SymbolSizes]:
    """Yield the relations that exported models have, the one with the fewest assumptions first."""
    stateful = SymbolKind.PAST in kinds.values()
    span = scale.past + scale.length if stateful else scale.length
    base = {
        SymbolKind.BATCH: scale.batch,
        SymbolKind.LENGTH: scale.length,
        SymbolKind.PAST: scale.past,
        SymbolKind.SPAN: span,
        SymbolKind.PICTURE: scale.picture,
        SymbolKind.WAVE: scale.wave,
    }
    equal = {symbol: base[kind] for symbol, kind in kinds.items()}
    apart, extra = dict(equal), 0
    for symbol, kind in kinds.items():
        if kind is SymbolKind.LENGTH and not symbol.startswith("?"):
            apart[symbol] += extra
            extra += 2
    yield apart
    yield equal
    if stateful:
        yield _with(equal, kinds, {SymbolKind.SPAN: scale.length})
        yield _with(equal, kinds, {SymbolKind.SPAN: scale.past})
        yield _with(equal, kinds, {SymbolKind.LENGTH: 1, SymbolKind.SPAN: scale.past + 1})
        yield _with(equal, kinds, {SymbolKind.PAST: 0, SymbolKind.SPAN: scale.length})
    yield _with(
        equal, kinds, dict.fromkeys((SymbolKind.PAST, SymbolKind.SPAN, SymbolKind.WAVE), scale.length)
    )


def _with(
    sizes: SymbolSizes, kinds: Mapping[str, SymbolKind], changed: Mapping[SymbolKind, int]
) -> SymbolSizes:
    return {symbol: changed.get(kinds[symbol], size) for symbol, size in sizes.items()}


def _merged(kinds: Mapping[str, SymbolKind], scale: Scale) -> Iterator[SymbolSizes]:
    """Yield assignments with one symbol, then two, set to the size of another or to the sum of two others."""
    start = next(_related(kinds, scale))
    sizes = sorted(set(start.values()))
    values = sizes + [a + b for a, b in combinations(sizes, 2)]
    moves = [(symbol, value) for symbol in start for value in values if start[symbol] != value]
    pairs = [pair for pair in combinations(moves, 2) if pair[0][0] != pair[1][0]]
    for number, changes in enumerate([*((move,) for move in moves), *pairs]):
        if number == _MERGES:
            return
        yield start | dict(changes)
