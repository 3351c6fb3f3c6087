"""Output structure of forward after layers were removed, moved or repeated.

For every output of the model, the source's result and the layer must be known. From these follow the
structure and its content. Lists and tuples hold one entry per layer. A structure with a name for each part
cannot change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch.utils._pytree import TreeSpec

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.passes.layers.layer_runs import LayerPlace

OUTPUT = "growc.files.commit"
"""Key of a node's `meta`: the number of its result of forward."""


@dataclass(frozen=True)
class ForwardResult:
    """One result of forward.

    number: the number of the result in the source. output: the number of the model's output, or None for a
    result that is no tensor. layer: its layer in the result. source: the layer of the source that this layer
    comes from.
    """

    number: int
    output: int | None = None
    layer: LayerPlace | None = None
    source: LayerPlace | None = None


def arranged(spec: TreeSpec, results: Sequence[ForwardResult]) -> tuple[TreeSpec, list[ForwardResult]]:
    """Return the structure of the results, and the results in its order. Raises GrowError (G308)."""
    return _filled(spec, 0, results)


def _instances(
    spec: TreeSpec, first: int, results: Sequence[ForwardResult]
) -> Iterator[tuple[TreeSpec, list[ForwardResult]]]:
    """Yield a part of the structure once, or once per layer. Its results are numbered from `first` on."""
    sources = {one.source for one in results if one.output is not None}
    whole = {one.number for one in results} == set(range(first, first + spec.num_leaves))
    if whole and len(sources) == 1 and sources != {None} and spec.num_children != 1:
        for _, layer_results in groupby(results, lambda one: one.layer):
            yield _filled(spec, first, list(layer_results))
    else:
        yield _filled(spec, first, results)


def _filled(
    spec: TreeSpec, first: int, results: Sequence[ForwardResult]
) -> tuple[TreeSpec, list[ForwardResult]]:
    if spec.is_leaf():
        return spec, list(results)
    starts = [first]
    for child in spec.children():
        starts.append(starts[-1] + child.num_leaves)

    def child_of(result: ForwardResult) -> int:
        return next(k for k, end in enumerate(starts[1:]) if result.number < end)

    numbers: list[int] = []
    children: list[TreeSpec] = []
    order: list[ForwardResult] = []
    for number, members in groupby(results, child_of):
        for child_spec, child_results in _instances(spec.child(number), starts[number], list(members)):
            numbers.append(number)
            children.append(child_spec)
            order += child_results
    for number, child in enumerate(spec.children()):
        if not child.num_leaves:
            position = sum(n < number for n in numbers)
            numbers.insert(position, number)
            children.insert(position, child)
    if spec.type not in (list, tuple) and numbers != list(range(spec.num_children)):
        message = "the result of forward has a name for what each layer gives, and the layers are others now"
        raise GrowError(Diagnostic("G308", message, notes=(f"it is a `{spec.type.__name__}`",)))
    return TreeSpec(spec.type, spec.context, children), order


def with_constants(
    tensor_results: Sequence[ForwardResult], constants: Mapping[int, object]
) -> list[ForwardResult]:
    """Return the results together with the constant ones, which are no tensors, at their places."""
    results = list(tensor_results)
    for number in sorted(constants):
        later = (k for k, one in enumerate(results) if one.number > number)
        results.insert(next(later, len(results)), ForwardResult(number))
    return results
