"""Which layers stand where: what `stack`, `subclone layers`, `arrange` and `drop` make of a list of layers.

Needs: a statement, how many layers there are, what its expressions come to. Gives: for every layer of the
result the number of the layer that it comes from. Nothing here knows a model; the orders are those of the
table "Depth orders" in docs/language.md, which names their sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from growc.diagnostic import Diagnostic, GrowError
from growc.expression import Binary, Expr, spell
from growc.recipe import Arrange, Drop, Layer, LayerRange, Order, Stack, SubcloneLayers

Depth = Stack | SubcloneLayers | Arrange | Drop
"""The statements on the list of layers."""

Evaluate = Callable[[Expr], int]


def arrangement(
    statement: Depth, count: int, evaluate: Evaluate, scores: Sequence[float] | None = None
) -> list[int]:
    """The source layer of every layer of the result, of `count` layers.

    `scores` are the layers' importance, which only `by importance` asks for. Raises GrowError: G302 where
    the model lacks a layer that is meant or would keep none, G303 for a size on the wrong side of today's.
    """
    match statement:
        case Stack():
            size = evaluate(statement.size)
            if size < count:
                raise GrowError(_wrong_side(statement, count, size))
            return deeper(statement.order, count, size, evaluate)
        case SubcloneLayers():
            size = evaluate(statement.size)
            if size > count:
                raise GrowError(_wrong_side(statement, count, size))
            if size < 1:
                label = f"{size} would stay"
                raise GrowError(Diagnostic("G302", NO_LAYER_LEFT, statement.size.span, label))
            return shallower(statement.order, count, size, scores)
        case Arrange():
            return [layer for part in statement.layers for layer in layers_of(part, count, evaluate)]
        case Drop():
            gone = layers_of(statement.layers, count, evaluate)
            if len(gone) == count:
                span = statement.layers.span
                raise GrowError(Diagnostic("G302", NO_LAYER_LEFT, span, f"these are all {count}"))
            return [layer for layer in range(count) if layer not in gone]


def new_layers(layers: Sequence[int]) -> list[bool]:
    """Which layers of an arrangement are new: every one but the first that comes from its source.

    >>> new_layers([0, 1, 1, 2, 0])
    [False, False, True, False, True]
    """
    return [layer in layers[:place] for place, layer in enumerate(layers)]


def layers_of(layers: LayerRange, count: int, evaluate: Evaluate) -> range:
    """The layers that a range or a number means, of `count`. Negative numbers count from the end.

    Unlike a slice of Python's, a range that reaches beyond the layers is an error (G302).
    """
    if isinstance(layers, Layer):
        first = _place(layers.number, count, evaluate)
        return range(first, first + 1)
    start = _place(layers.start, count, evaluate)
    stop = count if layers.stop is None else _place(layers.stop, count, evaluate, beside=1)
    if stop <= start:
        label = f"{start} up to, but not including, {stop}"
        note = _numbered(count)
        raise GrowError(
            Diagnostic("G302", "this range holds no layer of the model", layers.span, label, note)
        )
    return range(start, stop)


def counted_back(layers: LayerRange, count: int, evaluate: Evaluate) -> Iterator[str]:
    """What is to be known of numbers that come out negative, and so count from the end."""
    ends = (layers.number,) if isinstance(layers, Layer) else (layers.start, layers.stop)
    for number in ends:
        if isinstance(number, Binary) and (given := evaluate(number)) < 0:
            yield f"`{spell(number)}` comes to {given}: that is layer {given + count}, counted from the end"


# ------------------------------------------------------------------------------------------------- orders


def deeper(order: Order, count: int, size: int, evaluate: Evaluate) -> list[int]:
    """The layers of a `stack`: `size` of them, no fewer than `count`."""
    match order.name:
        case "whole":
            rest = size % count
            return [*range(count)] * (size // count) + [*range(count - rest, count)]
        case "last":
            return [min(layer, count - 1) for layer in range(size)]
        case "each":
            times = [(i + 1) * size // count - i * size // count for i in range(count)]
        case "top":
            return _top(order, count, size, evaluate)
        case _:
            extra = set(outwards(count)[: size % count])
            times = [size // count + (i in extra) for i in range(count)]
    return [i for i, n in enumerate(times) for _ in range(n)]


def outwards(count: int) -> list[int]:
    """All layers, the middle first, then by turns the next one before it and after it.

    >>> outwards(5), outwards(4)
    ([2, 1, 3, 0, 4], [2, 1, 3, 0])
    """
    middle = count // 2
    return sorted(range(count), key=lambda layer: (abs(layer - middle), layer))


def shallower(order: Order, count: int, size: int, scores: Sequence[float] | None = None) -> list[int]:
    """The layers that stay of a `subclone layers`: `size` of them, from 1 to `count`.

    Of layers with equal scores the later ones go first.
    """
    match order.name:
        case "middle":
            front = (size + 1) // 2
            return [*range(front), *range(count - size + front, count)]
        case "first":
            return [*range(size)]
        case "last":
            return [*range(count - size, count)]
        case "even":
            gaps = max(size - 1, 1)
            return [(2 * i * (count - 1) + gaps) // (2 * gaps) for i in range(size)]
        case _:
            if scores is None or len(scores) != count:
                raise GrowError(Diagnostic("G214", "the layers' importance was not measured", order.span))
            best = sorted(range(count), key=lambda layer: (-scores[layer], layer))
            return sorted(best[:size])


def _top(order: Order, count: int, size: int, evaluate: Evaluate) -> list[int]:
    assert order.count is not None
    repeated = evaluate(order.count)
    if not 1 <= repeated <= count:
        message = f"the top {repeated} layers cannot be repeated: the model has {count}"
        raise GrowError(Diagnostic("G302", message, order.count.span, f"1 to {count} here"))
    return [*range(count), *(count - repeated + t % repeated for t in range(size - count))]


# ------------------------------------------------------------------------------------------------- errors

NO_LAYER_LEFT = "the model would have no layer left"


def _place(number: Expr, count: int, evaluate: Evaluate, beside: int = 0) -> int:
    """A layer's number from 0; `beside` is how far behind the last layer it may lie."""
    given = evaluate(number)
    place = given + count if given < 0 else given
    if not 0 <= place < count + beside:
        what = "layers up to" if beside else "layer"
        raise GrowError(
            Diagnostic("G302", f"the model has no {what} {given}", number.span, notes=_numbered(count))
        )
    return place


def _numbered(count: int) -> tuple[str]:
    return (f"its layers are 0 to {count - 1}, or {-count} to -1 from the end",)


def _wrong_side(statement: Stack | SubcloneLayers, count: int, size: int) -> Diagnostic:
    stacks = isinstance(statement, Stack)
    message = f"`{'stack' if stacks else 'subclone'} layers` cannot make it {'fewer' if stacks else 'more'}"
    label = f"{size} is {'less' if stacks else 'more'} than {count}"
    other = "`subclone layers to N by ORDER` shortens" if stacks else "`stack layers to N by ORDER` deepens"
    return Diagnostic("G303", f"{message}: there are {count} now", statement.size.span, label, (), other)
