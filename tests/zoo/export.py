"""From a torch model to ONNX files: torch's exporters, and what onnxruntime makes of their files."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from registry import ATTENTIONS, Built, build
from zoo import ZOO

from growc.errors.diagnostic import Attempt

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Flavour:
    """How a file is made.

    dynamo: by torch.export, or by tracing. opset: None for the exporter's own.
    """

    dynamo: bool
    opset: int | None


EXPORTED = {
    "dynamo": Flavour(True, None),
    "torchscript": Flavour(False, 17),
    "torchscript14": Flavour(False, 14),  # norms in pieces, as older files have them
    "dynamo23": Flavour(True, 23),  # attention, norms and rotary embeddings as one operator each
}
OPTIMISED = ("extended", "fused")
"""Made of the torchscript file, of those models that name an `optimiser`: by onnxruntime's own graph
optimisations, and by onnxruntime.transformers.optimizer."""
FLAVOURS = (*EXPORTED, *OPTIMISED)

DYNAMIC = (("batch", "seq", "dec_seq", "past", "total"), ("batch",), ())
"""Symbols of axes to leave dynamic, most first: not every model can be exported with all of them."""
AGREES = 1e-3
"""How far from torch's answer a file may be, relative to the largest number."""


class NotExportableError(Exception):
    """No way of exporting gave a file that computes what the model does."""


def export(name: str, flavour: str, path: Path) -> list[bool]:
    """Write a model in one flavour, and say on which of the three inputs the file agrees with torch.

    Raises NotExportableError with the first line of what went wrong first.
    """
    reasons: list[str] = []
    best: list[bool] = []
    for attention, symbols in ((a, s) for s in DYNAMIC for a in ATTENTIONS):
        if flavour == "dynamo23" and attention == "eager":
            continue  # written out, it has none of the operators that the flavour is for
        draft = path.with_suffix(".draft")
        with Attempt() as attempt, warnings.catch_warnings():  # exporters raise anything
            warnings.simplefilter("ignore")
            built = build(name, attention)
            _write(built, symbols, EXPORTED[flavour], draft)
            agreed = agreement(draft, built)
        if attempt.error is not None:
            reasons.append(_first_line(attempt.error))
            continue
        if agreed[0] and sum(agreed) > sum(best):
            best = agreed
            draft.replace(path)
        if sum(best) == 3 or (flavour == "dynamo23" and sum(best) == 2):
            break
    path.with_suffix(".draft").unlink(missing_ok=True)
    if not best:
        raise NotExportableError(reasons[0] if reasons else "the file differs from torch, or does not run")
    return best


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def _write(built: Built, symbols: Sequence[str], flavour: Flavour, path: Path) -> None:
    names = list(built.feeds[0])
    axes = {n: {a: s for a, s in built.axes.get(n, {}).items() if s in symbols} for n in names}
    common: dict[str, Any] = {"input_names": names, "output_names": list(built.outputs)}
    if flavour.opset is not None:
        common["opset_version"] = flavour.opset
    arguments = tuple(built.feeds[0].values())
    with torch.no_grad():
        if flavour.dynamo:
            options = {"dynamic_shapes": axes, "external_data": False, "verbose": False}
            torch.onnx.export(built.module, arguments, path, dynamo=True, **options, **common)
            return
        rows = {output: {0: "batch"} for output in built.outputs if any(axes.values())}
        dynamic = {n: symbols_of for n, symbols_of in (axes | rows).items() if symbols_of}
        with _traceable():
            torch.onnx.export(built.module, arguments, path, dynamo=False, dynamic_axes=dynamic, **common)


@contextlib.contextmanager
def _traceable() -> Iterator[None]:
    """Without what the tracing exporter gets wrong: its Expand for repeat_interleave over a dynamic size."""
    function, method = torch.repeat_interleave, torch.Tensor.repeat_interleave

    def repeated(x: Any, repeats: Any, dim: int | None = None, **options: Any) -> Any:
        if isinstance(repeats, int) and dim == -1:
            return torch.stack([x] * repeats, -1).flatten(-2)
        return function(x, repeats, dim=dim, **options)

    torch.repeat_interleave = torch.Tensor.repeat_interleave = repeated
    try:
        yield
    finally:
        torch.repeat_interleave, torch.Tensor.repeat_interleave = function, method


# ------------------------------------------------------------------------------------- onnxruntime's


def optimise(name: str, flavour: str, source: Path, path: Path) -> list[bool]:
    """Write what onnxruntime makes of a file, and say on which inputs it agrees with torch.

    Raises NotExportableError where it makes nothing of it.
    """
    built = build(name)
    try:
        if flavour == "extended":
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            options.optimized_model_filepath = str(path)
            options.log_severity_level = 4
            onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
        else:
            from onnxruntime.transformers.optimizer import optimize_model

            facts = ZOO[name].facts
            optimised = optimize_model(
                str(source),
                ZOO[name].optimiser,
                num_heads=facts.heads[0],
                hidden_size=facts.hidden[0],
                opt_level=0,
            )
            optimised.save_model_to_file(str(path))
    except Exception as error:
        raise NotExportableError(_first_line(error)) from error
    agreed = agreement(path, built)
    if not agreed[0]:
        path.unlink()
        raise NotExportableError("what onnxruntime makes of it computes something else")
    return agreed


# ------------------------------------------------------------------------------------------- judging


def agreement(path: Path, built: Built) -> list[bool]:
    """For each of the model's inputs: whether the file runs on it and agrees with torch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = {port.name for port in session.get_inputs()}
    agrees = []
    for feed in built.feeds:
        answers = [answer.numpy() for answer in built.run(feed)]
        assert all(np.isfinite(answer).all() for answer in answers), "torch's own answer is not finite"
        with Attempt() as attempt:  # these exceptions have no other common base
            given = {name: value.numpy() for name, value in feed.items() if name in wanted}
            results = session.run(None, given)
        if attempt.error is not None:
            print(_first_line(attempt.error), file=sys.stderr)
            agrees.append(False)
            continue
        agrees.append(all(_close(a, b) for a, b in zip(answers, results, strict=True)))
    return agrees


def _close(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.shape == b.shape and float(np.abs(a - b).max(initial=0)) <= AGREES * max(
        1.0, np.abs(a).max(initial=0)
    )


def arrays(built: Built) -> Arrays:
    """The inputs (`in0.NAME`) and torch's answers (`out0.NAME`) of all cases."""
    stored: Arrays = {}
    for k, feed in enumerate(built.feeds):
        stored |= {f"in{k}.{name}": value.numpy() for name, value in feed.items()}
        answers: Mapping[str, Any] = dict(zip(built.outputs, built.run(feed), strict=True))
        stored |= {f"out{k}.{name}": value.numpy() for name, value in answers.items()}
    return stored


def insensitive(built: Built, share: float = 1e-4) -> list[str]:
    """Parameters whose change no output shows: key biases under a softmax, experts that no token takes."""
    base = built.run(built.feeds[0])
    scale = max(float(answer.abs().max()) for answer in base)
    names = []
    for name, parameter in built.module.named_parameters():
        kept = parameter.clone()
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        parameter.add_(0.1 * noise.to(parameter.dtype))
        moved = max(float((a - b).abs().max()) for a, b in zip(built.run(built.feeds[0]), base, strict=True))
        parameter.copy_(kept)
        if not math.isfinite(moved) or moved <= share * scale:
            names.append(name)
    return names
