"""Gradient times weight: how far the loss would move without a unit, to first order (`by taylor on "FILE"`).

Needs: the analysis of a model that torch runs, and inputs. Gives: for every unit the mean over samples of the
sum, over the weights that make or read it, of (Σ ∂L/∂w · w)². The inner sum runs over the weight's elements
of the unit (Molchanov et al. 2019, equation 8, added up over weights as for coupled layers). L is the loss of
next tokens. Sums are kept as other scores are: an interrupted measurement continues from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from growc.verification.feeds import cases_in, rows_of
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Feeds, Session

if TYPE_CHECKING:
    from torch import Tensor

    from growc.ir.graph import Value
    from growc.passes.compilation import Analysis

ScoredAtoms = tuple[Space, ...]
"""The atoms whose units are scored together."""


def taylor_tables(c: Analysis, data: Path, *, keeps: bool, progress: Progress) -> Tables:
    """Return the scores of all units of a model.

    Raises GrowError: G309 if there are no gradients, G313 if there is no loss, G403 if inputs do not fit.
    """
    from growc.dialects.onnx.model import OnnxModel

    if isinstance(c.model, OnnxModel):
        message = "an ONNX file has no gradients, by which `by taylor` ranks"
        remedy = "give the module, its `.pt2` program or its checkpoint directory, or write another ranking"
        raise GrowError(Diagnostic("G309", message, help=remedy))
    uses_by_atoms = _wanted(c)
    samples = list(_samples(c, data))
    scores = Scores(mark(c, data, None, TAYLOR), len(samples))
    path = cache_path(c.path, TAYLOR) if c.path.exists() else None
    cached = None if path is None else read_scores(path)
    if cached is not None and cached.fingerprint == scores.fingerprint:
        scores = cached
    if scores.done < len(samples):
        _run(c, uses_by_atoms, samples, scores, path if keeps else None, progress)
    tables = [
        Table(units, values) for units, values in zip(uses_by_atoms, scores.values(TAYLOR), strict=True)
    ]
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


def _wanted(c: Analysis) -> dict[ScoredAtoms, list[tuple[Value, Sequence[int]]]]:
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
    fixed = torch_model(c).captured.constants
    stored = (u for u in c.graph.uses() if u.weight is not None and u.weight.name not in fixed)
    uses = [u for u in stored if u not in left_out]
    for use in uses:
        weight = use.weight
        if weight is not None and (weight.computed or weight.order is not None or weight.stored is not None):
            message = f"`{weight.name}` is no tensor that the model stores, so that it has no gradient here"
            raise GrowError(Diagnostic("G309", message, help="write another ranking, such as `by magnitude`"))
    return [u for u in uses if u.weight is not None and u.weight.floating and not u.weight.assumed]


@dataclass(frozen=True)
class _Loss:
    """The loss of next tokens, computed in torch. place: the index of the output among all of the program."""

    prediction: Prediction
    place: int

    def of(self, feeds: Feeds, outputs: Sequence[Tensor]) -> Tensor | None:
        """Return the mean over the tokens that count; None if none does."""
        import torch

        ids = torch.from_numpy(feeds[self.prediction.tokens])
        counts = torch.ones_like(ids, dtype=torch.bool)
        for name in self.prediction.masks:
            counts &= torch.from_numpy(feeds[name])[..., -ids.shape[-1] :] > 0
        counts = counts[..., 1:] & counts[..., :-1]
        rows = outputs[self.place][..., :-1, :][counts]
        targets = ids[..., 1:][counts].long()
        return torch.nn.functional.cross_entropy(rows.float(), targets) if len(rows) else None


def _loss(c: Analysis, case: Feeds, gives: Sequence[str]) -> _Loss:
    """Return the loss of the model. Raises GrowError (G313) if there is nothing to predict."""
    file = c.model.file(c.path)
    with runnable(file) as copy, Session(copy) as session:
        prediction = find_prediction(read_signature(file), session, case, logits(c))
    if prediction is None:
        message = "there is no loss to take gradients of: no output predicts the next token of an input"
        raise GrowError(Diagnostic("G313", message, help="write another ranking, such as `by importance`"))
    return _Loss(prediction, list(gives).index(prediction.output))


def _run(
    c: Analysis,
    uses_by_atoms: Mapping[ScoredAtoms, Sequence[tuple[Value, Sequence[int]]]],
    samples: Sequence[Feeds],
    scores: Scores,
    path: Path | None,
    progress: Progress,
) -> None:
    """Run all samples that are not done yet."""
    import torch

    from growc.dialects.torch.capture.export import run_named
    from growc.dialects.torch.model import torch_model

    model = torch_model(c)
    names = {
        use.weight.name
        for loss_of_sample in uses_by_atoms.values()
        for use, _ in loss_of_sample
        if use.weight is not None
    }
    leaves_of = {name: model.read(name).detach().clone().requires_grad_() for name in sorted(names)}

    def tensor(name: str) -> Tensor:
        return leaves_of[name] if name in leaves_of else model.read(name).detach()

    loss = _loss(c, samples[0], model.output_names)
    try:
        while scores.done < len(samples):
            progress("taking gradients", scores.done, len(samples))
            feeds = samples[scores.done]
            inputs = {name: torch.from_numpy(array) for name, array in feeds.items()}
            loss_of_sample = loss.of(feeds, run_named(model.captured, tensor, inputs))
            if loss_of_sample is not None:
                gradients = torch.autograd.grad(loss_of_sample, list(leaves_of.values()), allow_unused=True)
                products = {
                    name: np.zeros(w.shape) if g is None else (g.double() * w.detach().double()).numpy()
                    for (name, w), g in zip(leaves_of.items(), gradients, strict=True)
                }
                _add(scores, [_squared(c, units, own, products) for units, own in uses_by_atoms.items()])
            scores.done += 1
    finally:
        if path is not None:
            write_scores(path, scores)


def _squared(
    c: Analysis,
    units: ScoredAtoms,
    uses: Sequence[tuple[Value, Sequence[int]]],
    moved: Mapping[str, Floats],
) -> Floats:
    """Return the sum over weights of (Σ g·w)² for each unit."""
    total = np.zeros(int(np.prod([a.size[0] for a in units], dtype=np.int64)))
    for use, bearing in uses:
        assert use.weight is not None
        whole = moved[use.weight.name]
        summed = tuple(k for k in range(whole.ndim) if k not in bearing)
        by_unit = placed([c.axes.of(use)[k] for k in bearing], whole.sum(axis=summed), units)
        if by_unit is not None:
            values, unit = by_unit
            total += np.bincount(unit[unit >= 0], values[unit >= 0], len(total)) ** 2
    return total.reshape([a.size[0] for a in units])


def _add(scores: Scores, sample_scores: Sequence[Floats]) -> None:
    """Add the scores of one sample."""
    sums = (
        [np.add(a, b) for a, b in zip(scores.sums, sample_scores, strict=True)]
        if scores.sums
        else sample_scores
    )
    scores.sums = list(sums)
    scores.counts = [n + 1 for n in scores.counts] or [np.ones(()) for _ in sample_scores]
