"""The zoo's modules: lowered they compute what torch does, and where they grow exactly they still do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import built, captured
from lowered import in_onnxruntime, opaque
from registry import Built
from zoo import ZOO

from growc import api
from growc.dialects.onnx.emit import emitted
from growc.dialects.torch.model import TorchModel, reader
from growc.errors.diagnostic import GrowError
from growc.formats.compiler import outside
from growc.passes import PIPELINE, run
from growc.passes.compilation import Source

QUICK = ("vit", "own_unet")
COMPLEX = frozenset({"fnet"})
"""Models that compute with complex numbers: they have opaque nodes."""

GROWTHS = (
    "widen ffn to 2 * ffn with uniform copy",
    "widen hidden to 2 * hidden with cyclic copy\nwiden heads to 2 * heads with neighbor copy",
    "widen channels to 2 * channels with cyclic copy",
    "stack layers to layers + 2 by last with zero outputs",
)

names = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.soak) for n in ZOO]
)


def worst(model: Built, made: Any) -> float:
    """The largest difference from torch on the first input, relative to the largest number."""
    feed = dict(zip((v.name for v in made.graph.inputs), model.feeds[0].values(), strict=True))
    pairs = zip(model.run(model.feeds[0]), in_onnxruntime(made, feed), strict=True)
    off = [np.abs(a.numpy() - b).max(initial=0) / max(1.0, float(a.abs().max())) for a, b in pairs]
    return float(max(off))


@pytest.mark.sampled(2)
@names
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # an LSTM keeps them beside its parameters
def test_a_module_of_the_zoo_is_lowered_and_grown(name):
    model = built(name)
    program, read = captured(model), reader(model.module)
    lowered = TorchModel.open(program, read).source
    if name in COMPLEX:
        assert opaque(lowered)
        return
    assert opaque(lowered) == []
    assert worst(model, lowered) <= 1e-5
    for recipe in GROWTHS:
        opened = TorchModel.open(program, read)
        try:
            c = run(PIPELINE, Source(Path(name), opened, outside(), api.recipe(recipe).statements))
        except GrowError:
            continue  # an axis that the model lacks, or one that is frozen
        if c.plan.certificate.exact and not c.graph.states:  # caches are given in their new size
            assert worst(model, emitted(c)) <= 2e-5, recipe
