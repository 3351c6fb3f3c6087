"""Prune torchvision's models by Torch-Pruning: half of the channels, by magnitude, as its README does.

    python benchmarks/libraries/pruning.py [NAME…] [--json FILE]

Each model is pruned in a process of its own; what the file has already is not run again, unless it is named.
The result is run, and compared with the source whose dropped channels are at zero.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import judge
import numpy as np
import subjects
import torch
from alone import alone
from measure import prepared
from torch import nn

LIMIT = 300
"""Seconds for one model."""
PREDICTIONS = ("cls_logits", "bbox_pred", "bbox_reg", "bbox_ctrness", "fpn")
"""Names of the layers that the library's own example for torchvision leaves as they are in detectors."""
SAME, DIFFERS, SHAPES, LARGE, ERROR = "same", "differs", "other shapes", "not smaller", "error"
"""Outputs are the source's without the dropped channels; others; ill-shaped; nothing went; it raised."""


def ignored(module: nn.Module, package: str, classes: set[int]) -> list[nn.Module]:
    """The layers that make the outputs: classifiers, by their number of classes, and heads of detectors."""
    if isinstance(module, subjects.Detected):
        predictions = [m for name, m in module.named_modules() if name.rsplit(".", 1)[-1] in PREDICTIONS]
        return [*predictions, module.head] if "ssd" in package and module.head is not None else predictions
    sizes = ((m, getattr(m, "out_features", getattr(m, "out_channels", 0))) for m in module.modules())
    return [m for m, size in sizes if size in classes]


def halve(module: nn.Module, inputs: Any, package: str, classes: set[int]) -> None:
    """Drop half of the channels, in place."""
    import torch_pruning
    from torchvision.models import VisionTransformer

    pruner = torch_pruning.pruner.BasePruner(
        module,
        inputs,
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
        pruning_ratio=0.5,
        ignored_layers=ignored(module, package, classes),
        num_heads={m: m.num_heads for m in module.modules() if isinstance(m, nn.MultiheadAttention)},
        output_transform=judge.floats,
    )
    pruner.step()
    if isinstance(module, VisionTransformer):  # as the example does: its forward reads the size
        module.hidden_dim = module.conv_proj.out_channels


def number(module: nn.Module) -> None:
    """Give every weight a gradient that counts its elements: it is pruned along with the weight."""
    for weight in module.parameters():
        weight.requires_grad_(True)
        weight.grad = torch.arange(weight.numel(), dtype=weight.dtype).view(weight.shape)


def kept(source: nn.Module, made: nn.Module) -> dict[str, dict[int, np.ndarray]]:
    """The rows of the source that stay, by tensor and axis, where some go: read from the gradients."""
    staying: dict[str, dict[int, np.ndarray]] = {}
    after, buffers = dict(made.named_parameters()), dict(source.named_buffers())
    for name, weight in source.named_parameters():
        numbers = after[name].grad
        if numbers is None or numbers.ndim != weight.ndim:
            continue
        for axis, size in enumerate(weight.shape):
            rows = (numbers.long() // weight.stride(axis) % size).unique().numpy()
            mean = f"{name.rpartition('.')[0]}.running_mean"
            for tensor in (name, *([mean] if weight.ndim == 1 and mean in buffers else [])):
                staying.setdefault(tensor, {}).update({axis: rows} if len(rows) < size else {})
    return staying


def pruned(source: nn.Module, feed: judge.Feed, package: str) -> dict[str, Any]:
    """The outcome on one model."""
    before = [t.shape for t in judge.outputs(source, feed)]
    result = copy.deepcopy(source)
    number(result)
    start = time.process_time()
    halve(result, next(iter(feed.values())), package, {shape[1] for shape in before})
    seconds = time.process_time() - start
    outputs = judge.outputs(result, feed)
    removed, vectors = judge.dropped(source, kept(source, result))
    with judge.statistics_of(vectors):
        off = judge.difference(judge.outputs(removed, feed), outputs)
    sizes = [sum(p.numel() for p in m.parameters()) for m in (source, result)]
    status = SAME if off <= judge.CLOSE else DIFFERS
    status = SHAPES if [t.shape for t in outputs] != before else status
    status = LARGE if sizes[1] >= sizes[0] else status
    return {"status": status, "parameters": sizes, "difference": off, "seconds": seconds}


def _work(name: str, pipe: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    subject = next(s for s in subjects.torchvision_subjects() if s.name == name)
    try:
        source, feeds = prepared(subject)
        feed, _ = judge.precise((source,), feeds[0])
    except Exception as error:  # noqa: BLE001 - it is not made here either
        large = isinstance(error, subjects.TooLargeError)
        reason = "more parameters than are run" if large else f"{type(error).__name__}: {error}"
        pipe.send({"skipped": reason})
        return
    try:
        pipe.send(pruned(source, feed, subject.family))
    except Exception as error:  # noqa: BLE001 - it is an outcome
        failure = _failed(f"{type(error).__name__}: {error}")
        pipe.send(failure | {"trace": traceback.format_exc()[-1500:]})


def _failed(said: str) -> dict[str, Any]:
    return {"status": ERROR, "said": said}


def main() -> None:
    """Prune what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path, default=Path("build/pruning.json"))
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    for subject in subjects.torchvision_subjects():
        if subject.name in options.names if options.names else subject.name not in results:
            results[subject.name] = alone(_work, (subject.name,), LIMIT, _failed)
            options.json.write_text(json.dumps(results, indent=1))
            print(*_lines(subject.name, results[subject.name]), sep="\n", flush=True)


def _lines(name: str, model: Mapping[str, Any]) -> Iterator[str]:
    if "skipped" in model:
        yield f"{name:36} not run: {model['skipped']}"
    elif model["status"] == ERROR:
        yield f"{name:36} {ERROR:12} {model['said'][:150]}"
    else:
        before, after = model["parameters"]
        yield f"{name:36} {model['status']:12} {before:>10} -> {after:>10} {model['difference']:7.0e}"


if __name__ == "__main__":
    main()
