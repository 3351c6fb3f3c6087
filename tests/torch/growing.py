"""Every module of the zoo, grown by every recipe: a table of what became of it.

    python tests/torch/growing.py [NAME…] [-r RECIPE]

A result is judged by torch: against its source where it is exact, against its plan in onnxruntime, in both
modes, after a pickle, by the names of its state; and where layers move, against the file of the same model,
grown by the same recipe.
"""

from __future__ import annotations

import argparse
import pickle
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnxruntime
import torch
from agreement import FILES, built
from registry import Built
from torch.utils._pytree import tree_leaves
from zoo import ZOO

import growc
from growc import api
from growc.dialects.torch import model as dialect
from growc.dialects.torch.capture.export import export
from growc.dialects.torch.emit.grown_module import GrownModule
from growc.dialects.torch.run.run_module import outputs
from growc.errors.diagnostic import Attempt, GrowError
from growc.modules import grow as growth
from growc.modules.check_against_plan import WAY

RECIPES = {
    "arrange": "arrange layers as 1, 0, 1",
    "hidden": "widen hidden to 2 * hidden with cyclic copy",
    "heads": "widen heads to 2 * heads with neighbor copy",
    "ffn": "widen ffn to 3 * ffn / 2 with uniform copy",
    "deeper": "stack layers to layers + 2 by last with zero outputs",
    "narrow": "subclone ffn to ffn / 2 by magnitude",
    "channels": "widen channels to 2 * channels with cyclic copy",
}
MOVING = ("arrange", "deeper")

NOT_TRACED = "cannot be traced by torch.export"
"""Why there is no graph for training, where that is no fault of growc's."""
COMPLEX = frozenset({"fnet"})
"""Plans that onnxruntime cannot run, which has no complex numbers."""


def judged(name: str, model: Built, key: str) -> str:
    """The outcome on a model: "grown", why it was refused, or why it has no graph for training.

    Raises AssertionError where it is wrong.
    """
    inputs = tuple(model.feeds[0].values())
    try:
        result = growc.apply(model.module, RECIPES[key], inputs, keep_class=False)
    except GrowError as error:
        first = error.diagnostics[0]
        if first.code in ("G402", "G406"):
            raise AssertionError(first.message) from error
        return f"{first.code}: {first.message}"
    assert isinstance(result, GrownModule)
    assert WAY in result.verification.beside or name in COMPLEX, result.verification.notes
    judge_names(model.module, result, key)
    case = result.descent.case((inputs, {})).result
    again = pickle.loads(pickle.dumps(result))
    for one, other in zip(outputs(result, case), outputs(again, case), strict=True):
        np.testing.assert_array_equal(one, other)
    assert list(again.state_dict()) == list(result.state_dict())
    if result.missing:
        assert NOT_TRACED in result.missing, result.missing
        return f"grown, but {result.missing}"
    judge_training(result, case)
    return "grown"


def judge_names(source: torch.nn.Module, result: GrownModule, key: str) -> None:
    """Names of the state are the source's, in its order; of layers, with other numbers."""
    before, after = list(source.state_dict()), list(result.state_dict())
    if key in MOVING:
        assert {plain(n) for n in after} <= {plain(n) for n in before}, set(after) - set(before)
    else:
        assert after == before


def plain(name: str) -> str:
    """A name without its numbers, and without the mark of one that another run of layers has already."""
    return re.sub(r"\d+", "0", re.sub(r"_\d*$", "", name))


def judge_training(result: GrownModule, case: tuple[Any, Mapping[str, Any]]) -> None:
    """A step of training gives numbers, and gradients that are numbers."""
    args, kwargs = case
    for parameter in result.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    outputs = tree_leaves(result.train()(*args, **kwargs))
    loss = sum(x.abs().float().mean() for x in outputs if isinstance(x, torch.Tensor))
    assert torch.isfinite(loss)
    loss.backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in result.parameters())
    assert any(p.grad is not None for p in result.parameters())


def difference_from_file(model: Built, key: str, path: Path) -> float | str:
    """How far a grown module is from its file, grown by the same recipe; or why that was refused."""
    inputs = tuple(model.feeds[0].values())
    result = growc.apply(model.module, RECIPES[key], inputs, keep_class=False, check=False)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "grown.onnx"
        try:
            api.apply(RECIPES[key], path, target, check=False)
        except GrowError as error:
            return error.diagnostics[0].message
        session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
        case = result.descent.case((inputs, {}))
        feeds = dict(zip(model.feeds[0], (x.numpy() for x in inputs), strict=True)) | result.descent.feeds(
            case
        )
        wanted = {port.name for port in session.get_inputs()}
        expected = session.run(None, {n: v for n, v in feeds.items() if n in wanted})
    pairs = zip(expected, outputs(result, case.result), strict=True)
    return max(float(np.abs(a - b).max(initial=0) / max(1e-9, np.abs(a).max(initial=0))) for a, b in pairs)


@contextmanager
def captured_once() -> Iterator[None]:
    """Modules are captured once in each mode, however often they are grown."""
    known: dict[object, Any] = {}

    def once(module: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        key = (id(module), len(args), *(kwargs or {}), *options.items())
        if key not in known:
            try:
                known[key] = export(module, args, kwargs, **options)
            except GrowError as error:
                known[key] = error
        if isinstance(known[key], GrowError):
            raise known[key]
        return known[key]

    with mock.patch.object(dialect, "export", once), mock.patch.object(growth, "export", once):
        yield


def rows(name: str, keys: list[str]) -> Iterator[tuple[str, str]]:
    """The outcome on a model by each recipe."""
    model = built(name)
    with captured_once():
        for key in keys:
            with Attempt() as attempt:  # a row of the table
                outcome = judged(name, model, key)
            if attempt.error is not None:
                outcome = f"WRONG {type(attempt.error).__name__}: {str(attempt.error)[:200]}"
            if key in MOVING and outcome.startswith("grown"):
                for path in (FILES / f"{name}.{kind}.onnx" for kind in ("dynamo", "torchscript")):
                    if path.exists():
                        far = difference_from_file(model, key, path)
                        wrong = not isinstance(far, str) and far > 2e-5
                        outcome += f"{'; WRONG' * wrong}; {path.suffixes[0][1:]}: {far}"
            yield key, outcome


def main() -> None:
    """Print the table, and how many rows are of which kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("-r", "--recipe", action="append", choices=RECIPES)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kinds: Counter[tuple[str, str]] = Counter()
    for name in given.names or ZOO:
        start = time.time()
        for key, outcome in rows(name, given.recipe or list(RECIPES)):
            kind = "WRONG" if "WRONG" in outcome else outcome.split(":")[0].split(",")[0].split(";")[0]
            kinds[key, kind] += 1
            print(f"{name:24} {key:10} {outcome}", flush=True)
        print(f"{name:24} {time.time() - start:.0f} s", flush=True)
    for (key, kind), count in sorted(kinds.items()):
        print(f"{key:10} {kind:8} {count}")
    sys.exit(any(kind == "WRONG" for _, kind in kinds))


if __name__ == "__main__":
    main()
