"""Gradient times weight: how far the loss would move without a unit, to first order (`by taylor on "FILE"`).

Needs: the analysis of a model that torch runs, and inputs. Gives: for every unit the mean over samples of the
sum, over the weights that make or read it, of (Σ ∂L/∂w · w)². The inner sum runs over the weight's elements
of the unit (Molchanov et al. 2019, equation 8, added up over weights as for coupled layers). L is the loss of
next tokens. Sums are kept as other scores are: an interrupted measurement continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from growc.algebra.indexmap import Floats
from growc.algebra.space import Space, atoms_of, find, leaves
from growc.dialects.onnx.files.signature import read_signature
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.progress import Progress
from growc.measurement.importance import mark
from growc.measurement.prediction import Prediction, find_prediction
from growc.passes.finish.interface import logits
from growc.passes.ranking.magnitude import placed
from growc.passes.ranking.unit_scores import Table, Tables
from growc.plans.scores import Scores, cache_path, read_scores, write_scores
from growc.recipe.statistics import TAYLOR
from growc.system.ranks import ALONE, Ranks
from growc.verification.feeds import cases_in, rows_of
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Feeds, measuring

if TYPE_CHECKING:
    from torch import Tensor

    from growc.ir.graph import Value
    from growc.passes.compilation import Analysis

ScoredAtoms = tuple[Space, ...]
"""The atoms whose units are scored together."""


def taylor_tables(
    c: Analysis,
    data: Path,
    *,
    keeps: bool,
    progress: Progress,
    ranks: Ranks = ALONE,
    analysed: Callable[[Path], Analysis] | None = None,
) -> Tables:
    """Return the scores of all units of a model.

    ranks: the processes that run the samples. analysed: analyses the model in them; needed if they are
    several. Raises GrowError: G309 if there are no gradients, G313 if there is no loss, G403 if inputs do not
    fit.
    """
    from growc.dialects.onnx.model import OnnxModel

    if isinstance(c.model, OnnxModel):
        message = "an ONNX file has no gradients, by which `by taylor` ranks"
        remedy = "give the module, its `.pt2` program or its checkpoint directory, or write another ranking"
        raise GrowError(Diagnostic("G309", message, help=remedy))
    graded = Graded.of(c, data)
    scores = Scores(mark(c, data, None, TAYLOR), len(graded.samples))
    path = cache_path(c.path, TAYLOR) if c.path.exists() else None
    cached = None if path is None else read_scores(path)
    if cached is not None and cached.fingerprint == scores.fingerprint:
        scores = cached
    if scores.done < len(graded.samples):
        _run(graded, data, scores, path if keeps else None, progress, ranks, analysed)
    values = zip(graded.bearers, scores.values(TAYLOR), strict=True)
    tables = [Table(units, own) for units, own in values]
    by_atom: dict[Space, list[Table]] = {}
    for table in tables:
        for atom in table.spaces:
            by_atom.setdefault(atom, []).append(table)
    return by_atom


def _samples(c: Analysis, data: Path) -> Iterator[Feeds]:
    """Yield the inputs, one row at a time if the model takes that."""
    signature = read_signature(c.model.file(c.path))
    fixed = any(isinstance(port.dims[0], int) and port.dims[0] > 0 for port in signature if port.dims)
    for case in cases_in(data, signature, open_masks=c.model.open_masks):
        rows = rows_of(case)
        if fixed or any(not a.ndim or len(a) != rows for a in case.values()):
            yield case
        else:
            yield from ({name: a[k : k + 1] for name, a in case.items()} for k in range(rows))


def _bearers(c: Analysis) -> dict[ScoredAtoms, list[tuple[Value, Sequence[int]]]]:
    """Return all units that a statement may rank, with the weights that bear them, and their axes.

    These are each atom, and the product that each name means.
    """
    uses = _uses(c)
    named = (tuple(map(find, axis.spaces)) for bearers in c.roles.axes.values() for axis in bearers)
    products = [tuple(a for a in units if a.size[0] > 1) for units in named]
    atoms = [(a,) for u in uses for a in atoms_of(c.axes.of(u)) if a.static and a.size[0] > 1]
    bearers: dict[ScoredAtoms, list[tuple[Value, Sequence[int]]]] = {}
    for units in dict.fromkeys([*products, *atoms]):
        for use in uses if units else ():
            spaces = c.axes.of(use)
            bearing = [k for k, s in enumerate(spaces) if any(x in units for x in leaves(s))]
            own = set(atoms_of(spaces[k] for k in bearing))
            if own.issuperset(units):
                bearers.setdefault(units, []).append((use, bearing))
    return bearers


def _uses(c: Analysis) -> list[Value]:
    """Return the uses of weights that have gradients; of tied ones the first.

    Raises GrowError (G309) for weights that the model computes, or stores in another order, or as integers.
    """
    from growc.dialects.torch.model import torch_model

    left_out = {use for tie in c.ties for use in tie.uses[1:]}
    program = torch_model(c).captured
    stored = {program.names.get(name, name) for name in program.reads if name not in program.constants}
    uses = [u for u in c.graph.uses() if u.weight is not None and u.weight.name in stored]
    uses = [u for u in uses if u not in left_out]
    for use in uses:
        weight = use.weight
        if weight is not None and (weight.computed or weight.order is not None or weight.stored is not None):
            message = f"`{weight.name}` is no tensor that the model stores, so that it has no gradient here"
            raise GrowError(Diagnostic("G309", message, help="write another ranking, such as `by magnitude`"))
    return [u for u in uses if u.weight is not None and u.weight.floating and not u.weight.assumed]


def _loss(prediction: Prediction, feeds: Feeds, logits: Tensor) -> Tensor | None:
    """Return the mean over the tokens that count; None if none does."""
    import torch

    ids = torch.from_numpy(feeds[prediction.tokens])
    counts = torch.ones_like(ids, dtype=torch.bool)
    for name in prediction.masks:
        counts &= torch.from_numpy(feeds[name])[..., -ids.shape[-1] :] > 0
    counts = counts[..., 1:] & counts[..., :-1]
    rows = logits[..., :-1, :][counts]
    targets = ids[..., 1:][counts].long()
    return torch.nn.functional.cross_entropy(rows.float(), targets) if len(rows) else None


@dataclass(frozen=True)
class Graded:
    """A model whose gradients are taken on samples.

    bearers: the units that are scored together, with the weights that bear them, and their axes.
    """

    c: Analysis
    bearers: Mapping[ScoredAtoms, Sequence[tuple[Value, Sequence[int]]]]
    samples: Sequence[Feeds]

    @staticmethod
    def of(c: Analysis, data: Path) -> Graded:
        """Return a model with data. Raises GrowError: G309 for weights without gradients, G403 if inputs do
        not fit.
        """
        return Graded(c, _bearers(c), list(_samples(c, data)))

    def prediction(self) -> Prediction:
        """Return which output predicts the next token of which input. Raises GrowError (G313) if none
        does.
        """
        file = self.c.model.file(self.c.path)
        with runnable(file) as copy, measuring(copy) as session:
            found = find_prediction(read_signature(file), session, self.samples[0], logits(self.c))
        if found is None:
            message = "there is no loss to take gradients of: no output predicts the next token of an input"
            raise GrowError(
                Diagnostic("G313", message, help="write another ranking, such as `by importance`")
            )
        return found

    @property
    def order(self) -> tuple[object, ...]:
        """The scored units and their weights, in order, by the names that all processes have for them."""
        return tuple(
            (
                tuple(a.size[0] for a in units),
                tuple((use.weight.name, *axes) for use, axes in uses if use.weight is not None),
            )
            for units, uses in self.bearers.items()
        )

    def scores(self, number: int, prediction: Prediction) -> list[Floats]:
        """Return the scores of a sample; none if it has no token to predict.

        Each gradient is reduced when it is complete, and then dropped.
        """
        import torch

        from growc.dialects.torch.capture.export import run_named
        from growc.dialects.torch.model import torch_model

        model, feeds = torch_model(self.c), self.samples[number]
        squares: dict[tuple[ScoredAtoms, int], Floats] = {}
        leaves_of = self._leaves(squares)

        def tensor(name: str) -> Tensor:
            return leaves_of[name] if name in leaves_of else model.read(name).detach()

        inputs = {name: torch.from_numpy(array) for name, array in feeds.items()}
        outputs = run_named(model.captured, tensor, inputs)
        predicting = outputs[list(model.output_names).index(prediction.output)]
        if (loss := _loss(prediction, feeds, predicting)) is None:
            return []
        loss.backward()
        return [self._total(units, squares) for units in self.bearers]

    def _leaves(self, squares: dict[tuple[ScoredAtoms, int], Floats]) -> dict[str, Tensor]:
        """Return the weights by name; with each gradient (Σ g·w)² is put into `squares`.

        Their values stay in the file that onnxruntime runs, which holds them in single precision.
        """
        from growc.dialects.torch.model import torch_model
        from growc.dialects.torch.operators.arrays import to_numpy

        borne: dict[str, list[tuple[ScoredAtoms, int]]] = {}
        for units, uses in self.bearers.items():
            for k, (use, _) in enumerate(uses):
                assert use.weight is not None
                borne.setdefault(use.weight.name, []).append((units, k))

        leaves_of = {name: torch_model(self.c).lowered.weight(name) for name in sorted(borne)}
        # One array for all products: freed ones of many sizes would leave holes between gradients.
        room = np.empty(max((w.numel() for w in leaves_of.values()), default=0))

        def reduced(name: str, weight: Tensor) -> None:
            assert weight.grad is not None
            moved = room[: weight.numel()].reshape(weight.shape)
            np.multiply(to_numpy(weight.grad), to_numpy(weight.detach()), out=moved, dtype=np.float64)
            weight.grad = None
            for units, k in borne[name]:
                squares[units, k] = _squared(self.c, units, *self.bearers[units][k], moved)

        for name, weight in leaves_of.items():
            weight.requires_grad_().register_post_accumulate_grad_hook(partial(reduced, name))
        return leaves_of

    def _total(self, units: ScoredAtoms, squares: Mapping[tuple[ScoredAtoms, int], Floats]) -> Floats:
        """Return the sum over the weights that bear units, in their order."""
        sizes = [a.size[0] for a in units]
        total = np.zeros(int(np.prod(sizes, dtype=np.int64)))
        for k in range(len(self.bearers[units])):
            total += squares.get((units, k), 0.0)
        return total.reshape(sizes)


@dataclass(frozen=True)
class GradeSample:
    """The job of each process: the sample with its own number, counted from `first`; None behind the last."""

    model: Path
    data: Path
    prediction: Prediction
    analysed: Callable[[Path], Analysis] | None
    order: tuple[object, ...]
    first: int

    def __call__(self, rank: int, size: int) -> list[Floats] | None:
        """Return the scores of one sample."""
        assert self.analysed is not None, "other processes know how to analyse the model"
        graded = _graded(self.model, self.data, self.analysed)
        assert graded.order == self.order, "all processes see the same units, in the same order"
        return self.own(graded, rank, size)

    def own(self, graded: Graded, rank: int, size: int) -> list[Floats] | None:
        """Return the scores of one sample, with a model that is analysed."""
        number = self.first + rank
        return graded.scores(number, self.prediction) if number < len(graded.samples) else None


@lru_cache(maxsize=1)
def _graded(model: Path, data: Path, analysed: Callable[[Path], Analysis]) -> Graded:
    return Graded.of(analysed(model), data)


def _run(
    graded: Graded,
    data: Path,
    scores: Scores,
    path: Path | None,
    progress: Progress,
    ranks: Ranks,
    analysed: Callable[[Path], Analysis] | None,
) -> None:
    """Run all samples that are not done yet, one in each process at a time; sums are added in their order."""
    c, count, prediction = graded.c, len(graded.samples), graded.prediction()
    try:
        while scores.done < count:
            progress("taking gradients", scores.done, count)
            job = GradeSample(c.path, data, prediction, analysed, graded.order, scores.done)
            for sample in ranks.each(job, partial(job.own, graded)):
                if sample:
                    _add(scores, sample)
                scores.done += sample is not None
    finally:
        if path is not None:
            write_scores(path, scores)


def _squared(c: Analysis, units: ScoredAtoms, use: Value, bearing: Sequence[int], moved: Floats) -> Floats:
    """Return (Σ g·w)² of each unit over the elements of one weight; `moved` is g·w."""
    count = int(np.prod([a.size[0] for a in units], dtype=np.int64))
    summed = tuple(k for k in range(moved.ndim) if k not in bearing)
    by_unit = placed([c.axes.of(use)[k] for k in bearing], moved.sum(axis=summed), units)
    if by_unit is None:
        return np.zeros(count)
    values, unit = by_unit
    total = np.zeros(count)
    total += np.bincount(unit[unit >= 0], values[unit >= 0], count)
    return total**2


def _add(scores: Scores, sample_scores: Sequence[Floats]) -> None:
    """Add the scores of one sample."""
    sums = (
        [np.add(a, b) for a, b in zip(scores.sums, sample_scores, strict=True)]
        if scores.sums
        else sample_scores
    )
    scores.sums = list(sums)
    scores.counts = [n + 1 for n in scores.counts] or [np.ones(()) for _ in sample_scores]
