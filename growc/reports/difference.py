"""The comparison of two models: axes, layers, operators, and every stored tensor, read by chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from growc.errors.arguments import checked_arguments
from growc.errors.diagnostic import GrowError
from growc.errors.display import Shown
from growc.errors.json_data import Json, texts
from growc.errors.progress import Progress, quiet
from growc.errors.short_repr import brief
from growc.formats.compiler import compiled
from growc.formats.protocol import form_of
from growc.formats.provenance import recipe_of, replayable
from growc.formats.stored_tensors import StoredTensor, form_name, of_other_shape, stored_tensors
from growc.passes.finish.assemble import count_parameters
from growc.reports.tensor_changes import TensorChange, tensor_changes
from growc.resolve.bound import Resolved

if TYPE_CHECKING:
    from growc.ir.graph import Value, Weight
    from growc.passes.compilation import Analysis

Key = TypeVar("Key")
Of = TypeVar("Of")


@dataclass(frozen=True)
class Side:
    """One of the two models.

    axes: the sizes of each axis, and of `layers`. problem: the reason why axes and operators are unknown.
    """

    __repr__ = brief

    path: Path
    form: str
    parameters: int | None
    nbytes: int
    axes: Mapping[str, tuple[int, ...]]
    operators: Counter[str] = field(repr=False)
    attributes: Counter[tuple[str, str, str]] = field(repr=False)
    wiring: bytes = field(repr=False)
    problem: str = ""


@dataclass(frozen=True)
class Growth:
    """The growth that led to the second model, by the records in it.

    recipes: the first one first. from_first: whether the plan turns the first model into the second; None if
    that cannot be determined.
    """

    recipes: tuple[tuple[str, ...], ...]
    from_first: bool | None


@dataclass(frozen=True)
class Difference(Shown):
    """The differences between two models.

    equal: the number of tensors that are equal in every byte. uncompared: the parts that could not be
    compared, with the reasons.
    """

    __repr__ = brief

    before: Side
    after: Side
    weights: tuple[TensorChange, ...]
    equal: int
    growth: Growth | None
    uncompared: tuple[str, ...]

    @property
    def axes(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """The axes with different sizes; no size if a model lacks the axis."""
        return dict(_changed(self.before.axes, self.after.axes, ()))

    @property
    def operators(self) -> dict[str, tuple[int, int]]:
        """The operators that occur more often in one model, if both have the same form."""
        return dict(_changed(self.before.operators, self.after.operators, 0)) if self.one_form else {}

    @property
    def attributes(self) -> dict[tuple[str, str, str], tuple[int, int]]:
        """Occurrences of each attribute value of an operator, of operators that both have equally often."""
        counted = _changed(self.before.attributes, self.after.attributes, 0) if self.one_form else ()
        return {key: counts for key, counts in counted if key[0] not in self.operators}

    @property
    def rewired(self) -> bool:
        """Whether the same operators are connected differently."""
        comparable = self.one_form and not self.before.problem and not self.after.problem
        alike = comparable and not self.operators and not self.attributes
        return alike and self.before.wiring != self.after.wiring

    @property
    def one_form(self) -> bool:
        """Whether both models are stored in the same form."""
        return self.before.form == self.after.form

    @property
    def same(self) -> bool:
        """Whether all parts were compared and nothing differs."""
        differences = self.axes or self.operators or self.attributes or self.weights or self.uncompared
        return self.one_form and not differences and not self.rewired


@checked_arguments
def diff(before: str | Path, after: str | Path, *, progress: Progress = quiet) -> Difference:
    """The differences of two models on disk: ONNX files, `.pt2` programs, checkpoint directories, configs.

    Tensors are compared by name, and those that one model alone has by their bytes. Raises GrowError (G309,
    G310) where one of the models cannot be read.

    >>> diff("gpt2.onnx", "gpt2.grown.onnx").axes  # doctest: +SKIP
    {'ffn': ((3072,), (6144,))}
    """
    paths = Path(before), Path(after)
    progress("reading both models", 0, 0)
    analyses = [_analysed(path) for path in paths]
    weight_names = [[w.name for w in a.graph.weights] if a is not None else [] for a, _ in analyses]
    tensors, other_tensors = (
        stored_tensors(path, names) for path, names in zip(paths, weight_names, strict=True)
    )
    sides = [
        _side(path, *analysis, stored)
        for path, analysis, stored in zip(paths, analyses, (tensors, other_tensors), strict=True)
    ]
    comparable = bool(tensors and other_tensors)
    changes = list(tensor_changes(tensors, other_tensors, progress)) if comparable else []
    both = len(tensors.keys() & other_tensors.keys())
    equal = both - sum(change.kind not in ("new", "gone", "renamed") for change in changes)
    growth = _growth(sides, other_tensors)
    uncompared = tuple(_uncompared(sides, tensors, other_tensors))
    return Difference(sides[0], sides[1], tuple(changes), equal, growth, uncompared)


def _analysed(path: Path) -> tuple[Analysis | None, str]:
    """The analysis of a model; if it can be read but not analysed, None and the reason."""
    try:
        return compiled(Resolved(()), path, analysis_only=True), ""
    except GrowError as error:
        first = error.diagnostics[0]
        if first.code in ("G309", "G310") and not path.is_dir():
            raise
        return None, f"{first.message} ({first.code})"


def _side(path: Path, c: Analysis | None, problem: str, tensors: Mapping[str, StoredTensor]) -> Side:
    nbytes = sum(tensor.nbytes for tensor in tensors.values())
    if c is None:
        return Side(path, form_name(path), None, nbytes, {}, Counter(), Counter(), b"", problem)
    axes = {name: tuple(c.roles.sizes(name)) for name in c.roles.axes}
    axes |= {"layers": tuple(len(run.layers) for run in c.layers.runs)} if c.layers.runs else {}
    nodes = c.graph.nodes
    plain = Counter(
        (node.kind, key, _spelt(value)) for node in nodes for key, value in node.attributes.items()
    )
    operators = Counter(node.kind for node in nodes)
    parameters = count_parameters(c.axes, c.ties)
    return Side(path, form_name(path), parameters, nbytes, axes, operators, plain, _wiring(c))


def _spelt(value: object) -> str:
    """An attribute as text: of a tensor its digest; of objects only the type, since their text is no
    value.
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {blake2b(value.tobytes(), digest_size=8).hexdigest()}"
    if isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    return repr([_spelt(one) for one in value]) if isinstance(value, list | tuple) else type(value).__name__


def _wiring(c: Analysis) -> bytes:
    """A digest of how operators are connected, independent of their order.

    The digest of each result covers its operator and the digests of its operands. Tensors and inputs count by
    their names.
    """
    digests: dict[Value, bytes] = {}

    def of(value: Value | None) -> bytes:
        if value is None:
            return b"-"
        name = value.name if value.weight is None else _stored(value.weight)
        return digests.get(value, name.encode(errors="replace"))

    for node in c.graph.nodes:
        node_parts = [node.kind.encode(), *map(of, node.inputs)]
        for number, result in enumerate(node.outputs):
            digests[result] = blake2b(repr((number, node_parts)).encode(), digest_size=16).digest()
    parts = [*sorted(digests.values()), *map(of, c.graph.outputs)]
    return blake2b(b"".join(parts), digest_size=16).digest()


def _stored(weight: Weight) -> str:
    """A tensor's name; for single numbers a common name, since exporters name and share them arbitrarily."""
    return weight.name if weight.floating and weight.elements > 1 else "a number"


def _changed(
    before: Mapping[Key, Of], after: Mapping[Key, Of], none: Of
) -> Iterator[tuple[Key, tuple[Of, Of]]]:
    for key in dict.fromkeys((*before, *after)):
        pair = before.get(key, none), after.get(key, none)
        if pair[0] != pair[1]:
            yield key, pair


def _uncompared(
    sides: Sequence[Side], before: Mapping[str, StoredTensor], after: Mapping[str, StoredTensor]
) -> Iterator[str]:
    for side, tensors in zip(sides, (before, after), strict=True):
        if side.problem:
            yield f"axes and operators: of `{side.path.name}` they are not known: {side.problem}"
        if not tensors:
            yield f"weights: `{side.path.name}` has none"
    if sides[0].form != sides[1].form:
        forms = " and ".join(f"a{'n' * (side.form[0] in 'AO')} {side.form}" for side in sides)
        yield f"operators: {forms} spell them in ways of their own"
        if before and after and not before.keys() & after.keys():
            yield "weights: no tensor has the same name in both"


def _growth(sides: Sequence[Side], tensors: Mapping[str, StoredTensor]) -> Growth | None:
    """The growth of the second model, counted from the first if the records show it; None without new
    records.
    """
    first_history, second_history = (_history(side.path) for side in sides)
    if len(second_history) <= len(first_history) or second_history[: len(first_history)] != first_history:
        return None
    records = second_history[len(first_history) :]
    recipes = tuple(tuple(texts(record["recipe"])) for record in records)
    if len(records) > 1 or sides[0].form != sides[1].form:
        return Growth(recipes, None)
    try:
        plan = compiled(replayable(recipe_of(records[0])), sides[0].path).plan
    except GrowError:
        return Growth(recipes, None)
    complete = all(w.name in tensors for w in plan.weights if w.worth_telling)
    return Growth(recipes, complete and of_other_shape(plan, tensors) is None)


def _history(path: Path) -> list[dict[str, Json]]:
    return form_of(path).history(path) if path.is_dir() or path.suffix != ".json" else []
