"""What forward returns, after layers have gone, changed places or come again.

Needs: for every output of the model which result of the source it is, and the layer that it is of. Gives: the
structure of the results, and what stands in it. Lists and tuples hold what layers there are; what has a
name for each of its parts cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch.utils._pytree import TreeSpec

from growc.errors.diagnostic import Diagnostic, GrowError

OUTPUT = "growc.files.commit"
"""Key of a node's `meta`: the number of the result of forward that it gives."""

Layer = tuple[int, int]
"""A layer by run and position."""


@dataclass(frozen=True)
class Result:
    """One thing that forward returns.

    number: which result of the source. output: which output of the model; None for what is no tensor. layer:
    the layer of the result that it is of. source: the layer of the source that this one comes from.
    """

    number: int
    output: int | None = None
    layer: Layer | None = None
    source: Layer | None = None


def arranged(spec: TreeSpec, found: Sequence[Result]) -> tuple[TreeSpec, list[Result]]:
    """The structure of the results, and all of them in its order. Raises GrowError (G308)."""
    return _filled(spec, 0, found)


def _instances(
    spec: TreeSpec, first: int, found: Sequence[Result]
) -> Iterator[tuple[TreeSpec, list[Result]]]:
    """A part of the structure, whose results are numbered from `first` on: once, or once for each layer."""
    sources = {one.source for one in found if one.output is not None}
    whole = {one.number for one in found} == set(range(first, first + spec.num_leaves))
    if whole and len(sources) == 1 and sources != {None} and spec.num_children != 1:
        for _, own in groupby(found, lambda one: one.layer):
            yield _filled(spec, first, list(own))
    else:
        yield _filled(spec, first, found)


def _filled(spec: TreeSpec, first: int, found: Sequence[Result]) -> tuple[TreeSpec, list[Result]]:
    if spec.is_leaf():
        return spec, list(found)
    starts = [first]
    for child in spec.children():
        starts.append(starts[-1] + child.num_leaves)

    def child_of(one: Result) -> int:
        return next(k for k, end in enumerate(starts[1:]) if one.number < end)

    numbers: list[int] = []
    children: list[TreeSpec] = []
    order: list[Result] = []
    for number, own in groupby(found, child_of):
        for made, results in _instances(spec.child(number), starts[number], list(own)):
            numbers.append(number)
            children.append(made)
            order += results
    for number, child in enumerate(spec.children()):
        if not child.num_leaves:
            at = sum(n < number for n in numbers)
            numbers.insert(at, number)
            children.insert(at, child)
    if spec.type not in (list, tuple) and numbers != list(range(spec.num_children)):
        message = "the result of forward has a name for what each layer gives, and the layers are others now"
        raise GrowError(Diagnostic("G308", message, notes=(f"it is a `{spec.type.__name__}`",)))
    return TreeSpec(spec.type, spec.context, children), order


def with_constants(found: Sequence[Result], constants: Mapping[int, object]) -> list[Result]:
    """The results with those among them that are no tensors, by their numbers."""
    made = list(found)
    for number in sorted(constants):
        behind = (k for k, one in enumerate(made) if one.number > number)
        made.insert(next(behind, len(made)), Result(number))
    return made
