"""Growing a model, and onnxruntime's word on whether it still computes the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from growc import api
from growc.plans.plan import Certificate

Arrays = list[NDArray[Any]]
SYMBOLS = (2, 3)
"""The sizes of every symbolic dimension, in turn."""


@dataclass(frozen=True)
class Judged:
    """The certificate of a recipe on a model, and the largest relative difference that onnxruntime finds."""

    certificate: Certificate
    difference: float
    path: Path

    @property
    def causes(self) -> str:
        """Every gap in words."""
        return "\n".join(f"{g.op} {g.node}: {g.cause} {g.help}" for g in self.certificate.gaps)

    def assert_exact(self, limit: float = 1e-5) -> None:
        """Claimed and true."""
        assert self.certificate.exact, self.causes
        assert self.difference <= limit

    def assert_gap(self, *words: str) -> None:
        """Not claimed, for the reason with these words, and rightly so."""
        assert not self.certificate.exact
        assert all(w in self.causes for w in words), self.causes
        assert self.difference > 1e-4


def judge(recipe: str, model: Path, out: Path) -> Judged:
    """Grow `model` and compare, with two sizes of every symbol. Raises GrowError where it is refused."""
    done = api.apply(recipe, model, out, check=False, force=True)
    outputs = api.compile(api.recipe(recipe), model).outputs
    worst = 0.0
    for size in SYMBOLS:
        feeds = draw(model, size)
        for (name, before), after in zip(run(model, feeds).items(), run(out, feeds).values(), strict=True):
            for (output, axis), state in outputs.items():
                if output == name:
                    first = [int(np.flatnonzero(state.index == u)[0]) for u in range(state.source)]
                    after = np.take(after, first, axis)
            assert before.shape == after.shape
            assert np.isfinite(before).all()
            assert np.isfinite(after).all()
            worst = max(worst, float(np.abs(before - after).max() / np.abs(before).max()))
    return Judged(done.plan.certificate, worst, out)


def draw(model: Path, size: int) -> dict[str, NDArray[Any]]:
    """An input with `size` in the place of every symbol."""
    random = np.random.default_rng(size)
    feeds = {}
    for info in onnx.load(model, load_external_data=False).graph.input:
        kind = info.type.tensor_type
        shape = [d.dim_value or size for d in kind.shape.dim]
        real = kind.elem_type == onnx.TensorProto.FLOAT
        feeds[info.name] = (
            random.standard_normal(shape).astype(np.float32) if real else random.integers(0, size, shape)
        )
    return feeds


def run(model: Path, feeds: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The outputs of a model by onnxruntime without its optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, feeds)), strict=True))
