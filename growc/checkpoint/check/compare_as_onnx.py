"""Checkpoints as ONNX files in onnxruntime: a second pair of eyes, where a class can be exported."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from growc.checkpoint.check.run import Loaded
from growc.checkpoint.files.quiet import quiet
from growc.errors.diagnostic import Attempt, GrowError
from growc.formats.onnx_file import OnnxFile
from growc.passes.finish.interface import Ports

WAY = "Exported to ONNX, in onnxruntime"


def compare_exported(
    ports: Ports, before: Loaded, after: Loaded, case: Mapping[str, Any], notes: Sequence[str]
) -> dict[str, Any]:
    """The fields of a measurement that this one stands beside, or a note why there is none."""
    if not (before.whole and after.whole):
        return {"notes": (*notes, "not compared as ONNX files: an exporter needs all weights in memory")}
    with Attempt() as attempt, tempfile.TemporaryDirectory(prefix="growc-") as name:
        files = [
            _export(loaded, case, Path(name) / f"{number}.onnx")
            for number, loaded in enumerate((before, after))
        ]
        found = OnnxFile().verify(ports, files[0], files[1], None, lambda *_: None)
        return {"beside": {WAY: found}}
    error = attempt.error  # an exporter raises whatever a model leads it to
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    reason = error.diagnostics[0].message if isinstance(error, GrowError) else reason
    return {"notes": (*notes, f"not compared as ONNX files: {reason}")}


def _export(loaded: Loaded, case: Mapping[str, Any], path: Path) -> Path:
    given = loaded.fitting(case)
    outputs = list(loaded.run(given))
    tensors = [name for name, value in given.items() if isinstance(value, torch.Tensor)]
    with quiet():
        torch.onnx.export(
            loaded.module,
            (),
            path,
            kwargs=given,
            input_names=tensors,
            output_names=outputs,
            dynamo=True,
            optimize=False,
            verbose=False,
        )
    return path
