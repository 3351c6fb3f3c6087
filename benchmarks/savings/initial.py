"""What a row begins with: a new model, its source, or what growc makes of its source."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.savings.data import Bytes, Digits
from benchmarks.savings.model import model_of
from benchmarks.savings.tables import Row

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
CALIBRATION_STEPS = 4
"""Batches of the training data on which importance is measured; their seed is of no run."""


def initial(
    row: Row, seed: int, source: Row | None, weights: Mapping[str, Tensor] | None, task: Bytes | Digits
):
    """The model that a row begins with. `weights` are its source's. Raises GrowError where growc refuses."""
    model = model_of(row.shape, seed)
    if source is None or weights is None:
        return model
    if row.recipe:
        begun = model_of(source.shape, 0)
        begun.load_state_dict(weights)
        model.load_state_dict(_grown(begun, row, task).state_dict())
        return model
    own = model.state_dict()
    same = {name: w for name, w in weights.items() if name in own and own[name].shape == w.shape}
    model.load_state_dict(own | same)
    return model


def _grown(model: nn.Module, row: Row, task: Bytes | Digits) -> nn.Module:
    from growc import api
    from growc.errors.source import Source

    example, _ = next(iter(task.held_out()))
    with tempfile.TemporaryDirectory(prefix="savings-") as folder:
        sources = []
        for part in row.recipe:
            path = EXAMPLES / part / "recipe.grow" if "\n" not in part else None
            if path is not None and path.exists():
                sources.append(api.read_source(path))
            else:
                sources.append(Source(str(Path(folder) / "row.grow"), part))
        if any("measure importance" in source.text for source in sources):
            batches = [task.training(2**32, step)[0] for step in range(CALIBRATION_STEPS)]
            np.savez(Path(folder) / "calibration.npz", **{task.input: torch.cat(batches).numpy()})
        return api.grow(model, sources, (example[:2],), row.lets)
