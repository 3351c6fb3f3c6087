"""Outcomes on one model's ONNX file, by either exporter of torch, under every statement asked of it."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import judge
import numpy as np
import onnx
import onnxruntime
import torch
from measure import Outcome, judged, prepared, report
from subjects import Feeds, Subject
from torch import Tensor

import growc
from growc.plans.plan import Plan

KINDS = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}
OWN_ROUNDINGS = 4
"""How many times its own rounding two results may be apart, where that is more than judge.CLOSE."""


def measured_export(subject: Subject, dynamo: bool) -> dict[str, Any]:
    """Outcomes by case, with the time that all of them took. dynamo: which exporter; it may raise."""
    start = time.process_time()
    logging.disable(logging.CRITICAL)
    module, feeds = prepared(subject)
    with tempfile.TemporaryDirectory(prefix="libraries-") as folder:
        source = Path(folder) / "source.onnx"
        with redirect_stdout(StringIO()):
            torch.onnx.export(module, (), source, kwargs=dict(feeds[0]), dynamo=dynamo)
        ran(source, feeds[0])  # no model to be measured where onnxruntime cannot run it
        return report(subject, module, start, partial(exported_outcomes, feeds, source))


def exported_outcomes(feeds: Feeds, source: Path, text: str) -> Iterator[Outcome]:
    """The outcome of one statement."""
    target = source.with_name("grown.onnx")

    def compare(done: growc.Applied) -> float | None:
        without = zeroed(source, done.plan) if done.plan.reduces else source
        return max(distance(without, target, feed) for feed in feeds)

    yield judged(text, lambda: growc.apply(text, source, target, check=False, force=True), compare)


def distance(one: Path, other: Path, feed: judge.Feed) -> float:
    """How far two files are apart; where the first is farther from itself without onnxruntime's rewriting of
    its graph than files may be apart, in units of that: deep chains of convolutions round so much.
    """
    outputs = ran(one, feed)
    off = judge.difference(outputs, ran(other, feed))
    own = judge.difference(outputs, ran(one, feed, rewritten=False)) if off > judge.CLOSE else 0.0
    return off / max(1.0, OWN_ROUNDINGS * own / judge.CLOSE)


def zeroed(path: Path, plan: Plan) -> Path:
    """A copy of a file with the units at zero that a plan drops; norms take their statistics over all."""
    model, stays = onnx.load(path), {weight.source: judge.kept(weight) for weight in plan.weights}
    for tensor in model.graph.initializer:
        held = onnx.numpy_helper.to_array(tensor).copy()
        for axis, rows in stays.get(tensor.name, {}).items():
            gone = np.setdiff1d(np.arange(held.shape[axis]), rows)
            np.moveaxis(held, axis, 0)[gone] = 0
            tensor.CopyFrom(onnx.numpy_helper.from_array(held, tensor.name))
    target = path.with_name("zeroed.onnx")
    onnx.save(model, target)
    return target


def ran(path: Path, feed: judge.Feed, *, rewritten: bool = True) -> list[Tensor]:
    """The floating-point outputs of a file, in order. rewritten: as onnxruntime rewrites its graph."""
    options = onnxruntime.SessionOptions()
    if not rewritten:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given, taken = [tensor.numpy() for tensor in judge.tensors(feed)], {}
    for value in session.get_inputs():
        taken[value.name] = _fitting(value, given)
    outputs = session.run(None, taken)
    return [torch.from_numpy(a) for a in outputs if isinstance(a, np.ndarray) and a.dtype.kind == "f"]


def _fitting(value: onnxruntime.NodeArg, given: list[np.ndarray]) -> np.ndarray:
    """The first tensor of the kind of an input, taken from those that are left: exporters put them in another
    order, and make an input of a number that forward has a default for, for which any value does.
    """
    kind = KINDS.get(value.type)
    for k, tensor in enumerate(given):
        if tensor.dtype == kind and list(tensor.shape) == value.shape:
            return given.pop(k)
    return np.ones(value.shape, kind)
