"""Predictions of a model: which output scores the next token of which input, and the loss of that.

They are found by trial. Such an output has the axes of an input of token numbers and one more; it changes
from a changed token on, but not before. Scores that see the token they predict (a masked language model's)
predict no next token.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from growc.algebra.indexmap import Array
from growc.dialects.onnx.files.signature import Input, Role
from growc.verification.feeds import Runner
from growc.verification.ort_session import Feeds

STILL = 1e-4
"""The most that scores may move before a changed token, as a share of their move behind it."""

_BLOCK = 1 << 20
"""The number of elements that are processed together."""


@dataclass(frozen=True)
class Prediction:
    """`output` scores the next number of the input `tokens`; `masks` tell which places count."""

    output: str
    tokens: str
    masks: tuple[str, ...] = ()

    def loss(self, feeds: Feeds, outputs: Feeds) -> Loss:
        """Return the cross-entropy of every next token that counts, and stands behind one that does."""
        ids, logits = feeds[self.tokens], outputs[self.output]
        length = ids.shape[-1]
        counts = np.ones(ids.shape, dtype=bool)
        for name in self.masks:
            counts &= feeds[name][..., -length:] > 0
        counts = counts[..., 1:] & counts[..., :-1]
        return cross_entropy(logits[..., :-1, :][counts], ids[..., 1:][counts])


@dataclass(frozen=True)
class Loss:
    """The sum in nats over `tokens` tokens."""

    total: float = 0.0
    tokens: int = 0

    @property
    def mean(self) -> float:
        """The loss in nats a token."""
        return self.total / self.tokens if self.tokens else 0.0

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.total + other.total, self.tokens + other.tokens)


def cross_entropy(logits: Array, targets: Array) -> Loss:
    """Return the loss of rows of scores. Rows with a number that is not finite do not count."""
    loss = Loss()
    step = max(1, _BLOCK // max(logits.shape[-1], 1))
    for k in range(0, len(logits), step):
        rows, row_targets = logits[k : k + step].astype(np.float64), targets[k : k + step]
        usable = np.isfinite(rows).all(axis=1) & (row_targets < rows.shape[1])
        rows, row_targets = rows[usable], row_targets[usable]
        top = rows.max(axis=1, initial=-np.inf)
        total = np.log(np.exp(rows - top[:, None]).sum(axis=1)) + top
        loss += Loss(float((total - rows[np.arange(len(rows)), row_targets]).sum()), len(rows))
    return loss


def find_prediction(
    inputs: Sequence[Input], model: Runner, case: Feeds, logits: Collection[str]
) -> Prediction | None:
    """Return the first output among `logits` that predicts an input's next number; None if none does."""
    outputs = model.run(case)
    for name in outputs:
        if name not in logits:
            continue
        candidates = [p for p in inputs if p.role is Role.IDS and _fits(case[p.name], outputs[name])]
        for port in sorted(candidates, key=lambda p: abs(p.high - outputs[name].shape[-1])):
            if _follows(port, model, case, outputs[name], name):
                return Prediction(name, port.name, tuple(_masks(inputs, case, port)))
    return None


def _fits(ids: Array, scores: Array) -> bool:
    return ids.ndim > 1 and ids.shape == scores.shape[:-1] and ids.shape[-1] > 2


def _follows(port: Input, model: Runner, case: Feeds, scores: Array, name: str) -> bool:
    """Whether scores change from a changed token on, and not before."""
    ids = case[port.name].copy()
    place = ids.shape[-1] // 2
    ids[..., place] = port.low + (ids[..., place] - port.low + 1) % max(port.high - port.low, 1)
    moved = np.abs(model.run({**case, port.name: ids})[name].astype(np.float64) - scores)
    behind = moved[..., place:, :].max(initial=0.0)
    return bool(behind > 0 and moved[..., :place, :].max(initial=0.0) <= STILL * behind)


def _masks(inputs: Sequence[Input], case: Feeds, tokens: Input) -> list[str]:
    shape = case[tokens.name].shape
    masks = [p.name for p in inputs if p.role is Role.MASK]
    return [
        n
        for n in masks
        if case[n].ndim == len(shape) and case[n].shape[:-1] == shape[:-1] and case[n].shape[-1] >= shape[-1]
    ]
