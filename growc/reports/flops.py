"""FLOPs of a model, for each token or sample, forward and backward.

Needs: an analysis, or a finished compilation for its result. Gives: `Flops`. growc.reports.products defines
which operations count.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from growc.algebra.space import Size, Space, find, plus
from growc.errors.arguments import checked_arguments
from growc.errors.diagnostic import wrong
from growc.errors.display import Shown
from growc.errors.short_repr import brief
from growc.formats.compiler import compiled
from growc.ir.graph import Value
from growc.passes.axes.queries import AxisQueries
from growc.passes.compilation import Analysis, Result
from growc.passes.roles.indexed_axes import token_inputs
from growc.reports.products import ValueSizes, costs, with_gradients
from growc.resolve.bound import Resolved

if TYPE_CHECKING:
    from torch import nn

LONGEST = 1024
"""Number of tokens in a row, if the model takes as many."""


@dataclass(frozen=True)
class Flops(Shown):
    """FLOPs of one run, with the number of its tokens or samples.

    unit: `token` if the inputs are numbers of a vocabulary and tensors that go with them, else `sample`.
    units: the number of tokens or samples. inputs: the sizes of the inputs. each: the sizes of one sample,
    without the batch axis, of each input that holds tokens or real numbers. uncounted: the nodes whose cost
    is unknown. cached: the numbers of tokens that caches hold beforehand.
    """

    __repr__ = brief

    unit: str
    units: int
    total_forward: int
    total_backward: int
    inputs: Mapping[str, tuple[int, ...]]
    each: tuple[tuple[int, ...], ...]
    uncounted: tuple[str, ...] = ()
    cached: tuple[int, ...] = ()

    @property
    def forward(self) -> float:
        """FLOPs of the forward pass for one token or sample."""
        return self.total_forward / self.units

    @property
    def backward(self) -> float:
        """FLOPs of the backward pass for one token or sample."""
        return self.total_backward / self.units


@checked_arguments
def flops(
    model: str | Path | nn.Module | Analysis,
    *,
    sizes: Mapping[str, Sequence[int]] | None = None,
    trained: Collection[str] | None = None,
    example_inputs: object = None,
) -> Flops:
    """FLOPs of a model for each token or sample, forward and backward.

    model: a path, a module, or what `growc.inspect` gave. sizes: of inputs, by name; without them, as many
    tokens stand in a row as the largest power of two that the table of positions has, at most 1024, and other
    open sizes are as growc samples them. trained: the names of the tensors that are trained; without them,
    those of a module that require gradients, and of anything else all stored tensors of real numbers.
    example_inputs: for the forward of a module. Raises GrowError: G200 where the model takes no inputs of
    these sizes, G3xx where it cannot be read.

    >>> flops("gpt2.onnx", sizes={"input_ids": (8, 512)}).forward  # doctest: +SKIP
    """
    if isinstance(model, Analysis):
        return count(model, sizes=sizes, trained=trained)
    if trained is None and not isinstance(model, str | Path):
        named_parameters = model.named_parameters(remove_duplicate=False)
        trained = {name for name, parameter in named_parameters if parameter.requires_grad}
    analysis = compiled(Resolved(()), model, analysis_only=True, example_inputs=example_inputs)
    return count(analysis, sizes=sizes, trained=trained)


def before_and_after(c: Result) -> tuple[Flops, Flops]:
    """The FLOPs of a source and of its result, on the same number of tokens."""
    before = count(c.first)
    return before, count(c, sizes=before.inputs)


def count(
    c: Analysis,
    *,
    sizes: Mapping[str, Sequence[int]] | None = None,
    trained: Collection[str] | None = None,
) -> Flops:
    """The FLOPs of a model, or of the result of a finished compilation; as `flops`."""
    ids = token_inputs(AxisQueries(c.axes), vocabulary(c))
    inputs, sizes_at_points = sizes_of_all(c, ids, sizes or {})
    forward, backward, uncounted = costs(c, sizes_at_points, with_gradients(c, trained))
    shapes = {v: tuple(s[0] for s in rows) for v, rows in inputs.items() if rows is not None}
    named = {v.name: shape for v, shape in shapes.items()}
    caches = [cache for cache, _ in c.graph.states if cache in shapes]
    if ids and not {v for v in shapes if v.floating}.difference(caches):
        sample_shapes = tuple(shapes[v][-1:] for v in ids)
        units = sum(math.prod(shapes[v]) for v in ids)
        cached = cached_tokens(c.sampled.inputs, ids, {v: shapes[v] for v in caches})
        return Flops("token", units, forward, backward, named, sample_shapes, uncounted, cached)
    batched = samples_first(c)
    sample_inputs = [shape for v, shape in shapes.items() if v.floating or v in ids] or [*shapes.values()]
    sample_shapes = tuple(shape[1:] if batched else shape for shape in sample_inputs)
    units = shapes[c.graph.inputs[0]][0] if batched else 1
    return Flops("sample", units, forward, backward, named, sample_shapes, uncounted)


# ---------------------------------------------------------------------------------------------- sizes


def vocabulary(c: Analysis) -> set[Space]:
    """The spaces of axes with the role `vocab`."""
    return {find(space) for axis in c.roles.axes.get("vocab", ()) for space in axis.spaces}


def samples_first(c: Analysis) -> bool:
    """Whether the first axis of the first input counts samples: some output has as many units there."""
    first = [v.sizes[0] for v in c.graph.inputs[:1] if v.sizes]
    return any(v.sizes and v.sizes[0] in first for v in c.graph.outputs)


def cached_tokens(
    sampled: ValueSizes, ids: Sequence[Value], caches: Mapping[Value, tuple[int, ...]]
) -> tuple[int, ...]:
    """The numbers of tokens that caches hold: the open sizes that only caches have."""
    token_sizes = {s for v in ids for s in sampled.get(v) or ()}
    cache_sizes = (pair for v, shape in caches.items() for pair in zip(sampled[v] or (), shape, strict=True))
    return tuple(dict.fromkeys(n for s, n in cache_sizes if len(set(s)) > 1 and s not in token_sizes))


def sizes_of_all(
    c: Analysis, ids: Sequence[Value], input_sizes: Mapping[str, Sequence[int]]
) -> tuple[ValueSizes, ValueSizes]:
    """The sizes of the inputs, one number at all sample points, and the sizes of all values there.

    Sizes that data decides still differ between the points. If sizes contradict each other, the number of
    tokens in a row is halved until they fit. Sizes of a result follow from those of the source, which has the
    same graph. Raises GrowError (G200) if requested sizes do not fit.
    """
    length = 2 ** (min([LONGEST, *c.roles.sizes("positions")]).bit_length() - 1)
    while True:
        token_lengths = dict.fromkeys((rows[-1] for v in ids if (rows := c.sampled.inputs.get(v))), length)
        inputs = inputs_at(c.sampled.inputs, token_lengths, input_sizes)
        sizes = c.model.sizes_at(c.graph, inputs, c.sampled.counts)
        tried = {v.name: tuple(s[0] for s in rows or ()) for v, rows in inputs.items()}
        if input_sizes and (
            not sizes or any(tried.get(name) != tuple(sizes) for name, sizes in input_sizes.items())
        ):
            takes = ", ".join(f"{name} {list(shape)}" for name, shape in tried.items())
            raise wrong("the model takes no inputs of these sizes", f"it was tried with {takes}")
        if sizes or length == 1:
            break
        length //= 2
    if isinstance(c, Result):
        after = c.repairs.sizes
        sizes = {v: grown(rows, v.sizes, after.get(v)) for v, rows in sizes.items()}
    return inputs, sizes


def inputs_at(
    sampled: ValueSizes, token_lengths: Mapping[Size, int], input_sizes: Mapping[str, Sequence[int]]
) -> ValueSizes:
    """The sizes of the inputs.

    token_lengths: numbers for open sizes of tokens. input_sizes: the sizes of inputs, by name. Other open
    sizes are as at the first sample point. A size that is the sum of two others stays their sum (that of a
    mask over cached tokens and others).
    """
    rows_of = {v.name: rows or () for v, rows in sampled.items()}
    numbers = dict(token_lengths)
    for name, sizes in input_sizes.items():
        numbers |= dict(zip(rows_of.get(name, ()), sizes, strict=False))
    is_open = {s for rows in rows_of.values() for s in rows if len(set(s)) > 1}
    for total in is_open - numbers.keys():
        for term, other in product(numbers.keys() & is_open, is_open):
            if total == plus(term, other):
                numbers[total] = numbers[term] + numbers.get(other, other[0])
    return {
        v: None
        if rows is None
        else tuple((numbers.get(s, s[0]) if s in is_open else s[0],) * len(s) for s in rows)
        for v, rows in sampled.items()
    }


def grown(
    now: tuple[Size, ...] | None, before: tuple[Size, ...] | None, after: tuple[Size, ...] | None
) -> tuple[Size, ...] | None:
    """The sizes of a value of a result away from the sample points.

    now: the source's sizes there. before, after: those of source and result at the sample points. If the
    sample points show a constant sum or factor, it is applied to `now`; otherwise the result is None.
    """
    if now is None or before is None or after is None or not len(now) == len(before) == len(after):
        return None
    sizes = [_grown(*sizes) for sizes in zip(now, before, after, strict=True)]
    return None if None in sizes else tuple(size for size in sizes if size is not None)


@lru_cache(maxsize=4096)  # few sizes are in many values
def _grown(now: Size, before: Size, after: Size) -> Size | None:
    added = {b - a for a, b in zip(before, after, strict=True)}
    if len(added) == 1:
        return tuple(size + next(iter(added)) for size in now)
    factors = {Fraction(b, a) for a, b in zip(before, after, strict=True) if a}
    scaled = [size * factor for size in now for factor in factors]
    whole = len(factors) == 1 and all(n.denominator == 1 for n in scaled)
    return tuple(map(int, scaled)) if whole else None
