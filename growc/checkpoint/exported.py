"""Checkpoints as ONNX files in onnxruntime: a second pair of eyes, where a class can be exported."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from growc.checkpoint.running import Loaded
from growc.checkpoint.silence import quiet
from growc.diagnostic import GrowError
from growc.ports import Ports
from growc.verification import Verification, verify

WAY = "Exported to ONNX, in onnxruntime"
LIMIT = 1 << 30
"""No more parameters than this many bytes in single precision are exported."""


def compare_exported(
    ports: Ports, before: Loaded, after: Loaded, case: Mapping[str, Any], notes: Sequence[str]
) -> dict[str, Any]:
    """The fields of a measurement that this one stands beside, or a note why there is none."""
    size = 4 * sum(p.numel() for p in after.module.parameters())
    if size > LIMIT:
        return {"notes": (*notes, f"not exported to ONNX: it would take more than {LIMIT >> 30} GiB")}
    with tempfile.TemporaryDirectory(prefix="growc-") as name:
        try:
            files = [
                _export(loaded, case, Path(name) / f"{number}.onnx")
                for number, loaded in enumerate((before, after))
            ]
            return {"beside": {WAY: _verified(ports, files[0], files[1])}}
        except GrowError as error:
            reason = error.diagnostics[0].message
        except Exception as error:  # noqa: BLE001 - an exporter raises whatever a model leads it to
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return {"notes": (*notes, f"not compared as ONNX files: {reason}")}


def _verified(ports: Ports, source: Path, result: Path) -> Verification:
    return verify(
        source,
        result,
        output_maps=ports.output_maps(),
        input_maps=ports.input_maps(),
        renamed=ports.renamed,
        narrower=ports.narrower,
        logits=ports.logits,
    )


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
