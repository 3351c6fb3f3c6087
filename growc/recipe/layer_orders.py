"""The order of layers after `stack`, `subclone layers`, `arrange`, `drop` and `merge layers`.

Needs: a statement, the number of layers, the values of its expressions. Gives: for every layer of the result,
the number of the layer that it comes from. This module knows no model. The orders are those of the table
"Depth orders" in docs/language.md, which names their sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.recipe.expression import Binary, Expr, spell
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.statistics import COSINE, IMPORTANCE, LOSS, Statistic
from growc.recipe.syntax_tree import (
    Arrange,
    Drop,
    LayerNumber,
    LayerOrder,
    LayerRange,
    MergeLayers,
    Ranking,
    Stack,
    StackFrom,
    SubcloneLayers,
)
from growc.recipe.words import FILE, Word
from growc.system.limits import require

Depth = Stack | StackFrom | SubcloneLayers | Arrange | Drop | MergeLayers
"""The statements on the list of layers."""

Evaluate = Callable[[Expr], int]


def arrangement(
    statement: Depth, count: int, evaluate: Evaluate, scores: Sequence[float] | None = None
) -> list[int]:
    """The source layer of every layer of the result, of `count` layers.

    `scores`: those of the layers, if the order needs them. Raises GrowError: G302 where the model lacks a
    named layer or would keep none, G303 for a size on the wrong side of the current one, G214 where scores
    are missing.
    """
    match statement:
        case Stack():
            size = evaluate(statement.size)
            if size < count:
                raise GrowError(_wrong_side(statement, count, size))
            require("layers", "the result has", size, statement.size.span)
            return _ordered(DEEPER[statement.order.name], statement.order, count, size, evaluate)
        case StackFrom():
            size = evaluate(statement.size)
            require("layers", "the result has", size, statement.size.span)
            return [layer % count for layer in range(size)]
        case SubcloneLayers():
            size = evaluate(statement.size)
            if size > count:
                raise GrowError(_wrong_side(statement, count, size))
            if size < 1:
                label = f"{size} would stay"
                raise GrowError(Diagnostic("G302", NO_LAYER_LEFT, statement.size.span, label))
            return _ordered(SHALLOWER[statement.order.name], statement.order, count, size, evaluate, scores)
        case Arrange():
            parts = [layers_of(part, count, evaluate) for part in statement.layers]
            require("layers", "the result has", sum(map(len, parts)), statement.span)
            return list(chain.from_iterable(parts))
        case Drop():
            dropped = layers_of(statement.layers, count, evaluate)
            if len(dropped) == count:
                span = statement.layers.span
                raise GrowError(Diagnostic("G302", NO_LAYER_LEFT, span, f"these are all {count}"))
            return [layer for layer in range(count) if layer not in dropped]
        case MergeLayers():
            merged = layers_of(statement.layers, count, evaluate)
            return [layer for layer in range(count) if layer not in merged[1:]]


def new_layers(layers: Sequence[int]) -> list[bool]:
    """Whether each layer of an arrangement is new: all are except the first that comes from its source.

    >>> new_layers([0, 1, 1, 2, 0])
    [False, False, True, False, True]
    """
    first = {layer: place for place, layer in reversed(list(enumerate(layers)))}
    return [first[layer] != place for place, layer in enumerate(layers)]


def layers_of(layers: LayerRange, count: int, evaluate: Evaluate) -> range:
    """The layers of a range or a number, of `count`. Negative numbers count from the end.

    Unlike in a slice of Python, a range that reaches beyond the layers is an error. Raises GrowError (G302).
    """
    if isinstance(layers, LayerNumber):
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
    """Yield a note on each difference that is negative, and so counts from the end."""
    ends = (layers.number,) if isinstance(layers, LayerNumber) else (layers.start, layers.stop)
    for number in ends:
        if isinstance(number, Binary) and (value := evaluate(number)) < 0:
            yield f"`{spell(number)}` comes to {value}: that is layer {value + count}, counted from the end"


# ------------------------------------------------------------------------------------------------- orders


@dataclass(frozen=True)
class OrderRule(Word):
    """One rule that makes a list of layers longer, or shorter.

    layers: the source of each layer of the result, from the numbers of layers before and after, the argument
    of the order, and the scores of the layers. meaning: the text of docs/language.md. scored: whether it
    needs scores. statistic: the statistic that `measure importance` must have measured.
    """

    layers: Callable[[int, int, int, Sequence[float]], list[int]]
    meaning: str
    scored: bool = False
    statistic: Statistic | None = None


def outwards(count: int) -> list[int]:
    """All layers, the middle first, then alternately the next one before it and after it.

    >>> outwards(5), outwards(4)
    ([2, 1, 3, 0, 4], [2, 1, 3, 0])
    """
    middle = count // 2
    return sorted(range(count), key=lambda layer: (abs(layer - middle), layer))


_DEEPER = (
    OrderRule(
        "whole",
        lambda count, size, top, scores: [
            *([*range(count)] * (size // count)),
            *range(count - size % count, count),
        ],
        "0..L, floor(N/L) times, then the top N mod L (Gong et al. 2019; Chen et al. 2022, Algorithm 1)",
    ),
    OrderRule(
        "last",
        lambda count, size, top, scores: [min(layer, count - 1) for layer in range(size)],
        "0..L, then L−1 again and again (NAI)",
    ),
    OrderRule(
        "each",
        lambda count, size, top, scores: [
            layer for layer in range(count) for _ in range(layer * size // count, (layer + 1) * size // count)
        ],
        "layer i stands floor((i+1)N/L) − floor(iN/L) times in a row (ELLE, LLaMA-Pro)",
    ),
    OrderRule(
        "top K",
        lambda count, size, top, scores: [
            *range(count),
            *(count - top + layer % top for layer in range(size - count)),
        ],
        "0..L, then L − K + (t mod K), t = 0, 1, … (MSLT)",
    ),
    OrderRule(
        "middle",
        lambda count, size, top, scores: sorted(
            [*range(count)] * (size // count) + outwards(count)[: size % count]
        ),
        "layers doubled outwards from floor(L/2) (weight subcloning, figure 2)",
    ),
)


def _scored(spelling: str, meaning: str, statistic: Statistic | None = None) -> OrderRule:
    """An order by which the layers with the highest scores stay, in their old order."""
    return OrderRule(
        spelling,
        lambda count, size, top, scores: sorted(
            sorted(range(count), key=lambda layer: (-scores[layer], layer))[:size]
        ),
        meaning,
        scored=True,
        statistic=statistic,
    )


_SHALLOWER = (
    OrderRule(
        "middle",
        lambda count, size, top, scores: [*range((size + 1) // 2), *range(count - size // 2, count)],
        "the first ceil(N/2) and the last floor(N/2) stay",
    ),
    OrderRule("first", lambda count, size, top, scores: [*range(size)], "the first N stay"),
    OrderRule("last", lambda count, size, top, scores: [*range(count - size, count)], "the last N stay"),
    OrderRule(
        "even",
        lambda count, size, top, scores: [
            (2 * i * (count - 1) + size - 1) // (2 * (size - 1)) if size > 1 else 0 for i in range(size)
        ],
        "floor(i·(L−1)/(N−1) + 1/2), i < N (N = 1: 0)",
    ),
    _scored(
        "importance",
        "the L − N least by ‖f(x)‖/‖x + f(x)‖ go, of equals the later (needs `measure importance`)",
        IMPORTANCE,
    ),
    _scored(
        "cosine",
        "the L − N least by block influence go (Men et al. 2024), the mean over samples and unmasked "
        "positions of 1 − cos(x, x + f(x)), of equals the later (needs `measure importance`)",
        COSINE,
    ),
    _scored(
        "loss",
        "the L − N go without which, one at a time, the loss of next tokens rises least, of equals the later "
        "(needs `measure importance`)",
        LOSS,
    ),
    _scored(
        f"scores {FILE}",
        "the L − N least by the scores that the file says of the source's layers go, of equals the later",
    ),
)

DEEPER = {rule.name: rule for rule in _DEEPER}
"""The orders of `stack layers`, by name."""

SHALLOWER = {rule.name: rule for rule in _SHALLOWER}
"""The orders of `subclone layers`, by name."""


def statistic_of(order: LayerOrder | Ranking) -> Statistic | None:
    """The statistic that an order or a ranking needs; None where it needs none."""
    if isinstance(order, Ranking):
        return RANKINGS[order.name].statistic
    rules = (rules[order.name] for rules in (SHALLOWER, DEEPER) if order.name in rules)
    return next((rule.statistic for rule in rules), None)


def _ordered(
    rule: OrderRule,
    order: LayerOrder,
    count: int,
    size: int,
    evaluate: Evaluate,
    scores: Sequence[float] | None = None,
) -> list[int]:
    """The `size` layers of a `stack` or `subclone layers`. Raises GrowError (G214, G302)."""
    assert (order.count is not None or order.file is not None) == bool(rule.takes)
    if rule.scored and (scores is None or len(scores) != count):
        raise GrowError(Diagnostic("G214", "the layers' importance was not measured", order.span))
    top = 0 if order.count is None else evaluate(order.count)
    if order.count is not None and not 1 <= top <= count:
        message = f"the {order.name} {top} layers cannot be repeated: the model has {count}"
        raise GrowError(Diagnostic("G302", message, order.count.span, f"1 to {count} here"))
    return rule.layers(count, size, top, scores if rule.scored and scores else ())


# ------------------------------------------------------------------------------------------------- errors

NO_LAYER_LEFT = "the model would have no layer left"


def _place(number: Expr, count: int, evaluate: Evaluate, beside: int = 0) -> int:
    """A layer's number from 0. `beside`: how far it may lie behind the last layer."""
    value = evaluate(number)
    place = value + count if value < 0 else value
    if not 0 <= place < count + beside:
        what = "layers up to" if beside else "layer"
        raise GrowError(
            Diagnostic("G302", f"the model has no {what} {value}", number.span, notes=_numbered(count))
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
