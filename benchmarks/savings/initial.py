"""The initial model of a row: a new model, its source, or growc's result from its source."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.savings.data import Bytes, Digits
from benchmarks.savings.model import Gpt, Vit, model_of
from benchmarks.savings.tables import Row

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
CALIBRATION_SEED, CALIBRATION_STEPS = 2**32, 4
"""Importance is measured on these batches of the training files; the seed is of no run."""


def initial(
    row: Row, seed: int, source: Row | None, weights: Mapping[str, Tensor] | None, task: Bytes | Digits
) -> Gpt | Vit:
    """The model that a row begins with. `weights` are its source's. Raises GrowError where growc refuses."""
    model = model_of(row.shape, seed)
    if source is None or weights is None:
        return model
    if row.recipe:
        begun = model_of(source.shape, 0)
        begun.load_state_dict(weights)
        inputs, _ = next(iter(task.held_out()))
        _take_over(model, _grown(begun, row, task, inputs[:2]), inputs[:2])
        return model
    own = model.state_dict()
    same = {name: w for name, w in weights.items() if name in own and own[name].shape == w.shape}
    model.load_state_dict(own | same)
    return model


def _grown(model: nn.Module, row: Row, task: Bytes | Digits, example: Tensor) -> nn.Module:
    from growc import api
    from growc.errors.source import SourceText

    with tempfile.TemporaryDirectory(prefix="savings-") as folder:
        sources = []
        for part in row.recipe:
            path = EXAMPLES / part / "recipe.grow"
            words = SourceText(str(Path(folder) / "row.grow"), part)
            sources.append(api.read_source(path) if "\n" not in part and path.exists() else words)
        if any("measure importance" in source.text for source in sources):
            batches = [task.training(CALIBRATION_SEED, step)[0] for step in range(CALIBRATION_STEPS)]
            np.savez(Path(folder) / "calibration.npz", **{task.input: torch.cat(batches).numpy()})
        return api.grow(model, sources, (example,), row.lets)


def _take_over(model: nn.Module, grown: nn.Module, example: Tensor) -> None:
    """Give a model what growc made: the weights, and each norm's eps, which no weight holds.

    Raises ValueError where the model then computes something else.
    """
    model.load_state_dict(grown.state_dict())
    for node in grown.graph.nodes:
        if node.target is torch.ops.aten.layer_norm.default:
            _, _, weight, _, eps, *_ = node.args
            model.get_submodule(weight.target.removesuffix(".weight")).eps = eps
    with torch.no_grad():
        own, theirs = model(example), grown(example)
    if not torch.allclose(own, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max())):
        raise ValueError(f"the result of growc computes what no {type(model).__name__} of its sizes does")
