"""Outcomes on one model's checkpoint directory, under every statement that is asked of it.

The class saves it, growc grows it, and the class loads the result: its config and its file names included.
growc is given inputs where it asks for them.
"""

from __future__ import annotations

import copy
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import judge
import numpy as np
import transformers
from captured_once import captured_once
from measure import RIGHT, Outcome, UnsoundError, distance, is_widened, judged, prepared, report
from safetensors import safe_open
from subjects import Feeds, Subject
from torch import Tensor, nn
from trained import merged, write_adapter

import growc
from growc.errors.diagnostic import GrowError
from growc.plans.plan import Plan


def measured_directory(subject: Subject) -> dict[str, Any]:
    """Outcomes by case, with the time that all of them took: as of the module."""
    start = time.process_time()
    logging.disable(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    module, feeds = prepared(subject)
    with tempfile.TemporaryDirectory(prefix="libraries-") as folder, captured_once():
        source = Path(folder) / "source"
        module.save_pretrained(source)
        shutil.copytree(source, source.with_name("adapted"))
        write_adapter(module, source.with_name("adapted"))
        return report(subject, module, start, lambda text: directory_outcomes(module, feeds, source, text))


def directory_outcomes(module: nn.Module, feeds: Feeds, source: Path, text: str) -> Iterator[Outcome]:
    """The outcome of one statement, and of the LoRA adapter that lies beside the checkpoint."""
    source = source.with_name("adapted") if is_widened(text) else source
    target, inputs = source.with_name("grown"), source.with_name("inputs.npz")

    @cache
    def grow() -> growc.Applied:
        try:
            return growc.apply(text, source, target, check=False, force=True)
        except GrowError as error:
            if "give example inputs" not in error.diagnostics[0].help:
                raise
            np.savez(inputs, **{n: t.numpy() for n, t in feeds[0].items() if isinstance(t, Tensor)})
            return growc.apply(text, source, target, inputs=inputs, check=False, force=True)

    def compare(done: growc.Applied) -> float | None:
        result = loaded(module, target)
        if unknown(module, source, done.plan):
            return ran(result, feeds)
        return distance(module, result, feeds, done.plan)

    def adapted(done: growc.Applied) -> float:
        before = merged(copy.deepcopy(module), source)
        return distance(before, merged(loaded(module, target), target), feeds, done.plan)

    first = judged(text, grow, compare)
    yield first
    if first.status == RIGHT and is_widened(text):
        yield replace(judged(text, grow, adapted), beside=", adapter")


def loaded(module: Any, path: Path) -> nn.Module:
    """A directory, by a module's class. Raises UnsoundError where a tensor is missing or unexpected."""
    kind = type(module)
    try:
        result, problems = kind.from_pretrained(path, output_loading_info=True)
    except AttributeError:  # a class that takes what is loaded for the model alone
        result, problems = kind.from_pretrained(path), {}
    except (RuntimeError, ValueError) as error:
        raise UnsoundError(f"loading: {type(error).__name__}: {error}") from error
    if any(problems.values()):
        raise UnsoundError(f"loading: { {name: names for name, names in problems.items() if names} }")
    result.config._experts_implementation = module.config._experts_implementation
    return result.eval()


def unknown(module: nn.Module, path: Path, plan: Plan) -> bool:
    """Whether tensors lose rows that the file has under names of its own, so that the judge knows none."""
    names = {*dict(module.named_parameters(remove_duplicate=False)), *dict(module.named_buffers())}
    stored: set[str] = set()
    for file in path.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            stored.update(tensors.keys())
    return any(w.source in stored - names and judge.kept(w) for w in plan.weights)


def ran(module: nn.Module, feeds: Feeds) -> None:
    """Run a module. Raises UnsoundError where a number that comes of it is none."""
    for feed in feeds:
        if not all(bool(tensor.isfinite().all()) for tensor in judge.outputs(module, feed)):
            raise UnsoundError("the outputs are not finite")
