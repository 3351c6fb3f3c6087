"""Digests of a recipe's result on a model: of every file that is written, and of the plan's JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import growc
from growc import api
from growc.errors.diagnostic import GrowError
from growc.plans.plan_to_json import to_json

LIBRARIES = ("torch", "transformers", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "numpy", "safetensors")

Digests = Mapping[str, str]


def of_bytes(data: bytes) -> str:
    """The first 16 hexadecimal digits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def of_folder(folder: Path) -> dict[str, str]:
    """Every file in a folder by its path there."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): of_bytes(path.read_bytes()) for path in files}


def of_path(path: Path) -> str:
    """One digest of a file or a folder."""
    digests = of_folder(path) if path.is_dir() else {path.name: of_bytes(path.read_bytes())}
    return of_bytes(json.dumps(digests).encode())


def of_plan(plan: Any) -> str:
    """The plan's JSON, but for `gone`, which follows from the rest and came later than the record."""
    fields = {name: value for name, value in to_json(plan).items() if name != "gone"}
    return of_bytes(json.dumps(fields, sort_keys=True).encode())


def of_module(module: nn.Module) -> dict[str, str]:
    """The names, types and numbers of a module's state, and the code that it runs in each mode."""
    state = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        numbers = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        state.update(numbers.tobytes())
    digests = {"state": state.hexdigest()[:16]}
    for mode, graph in getattr(module, "graphs", {}).items():
        code = graph.python_code("self").src
        digests["training" if mode else "evaluation"] = of_bytes(code.encode())
    return digests


def of_apply(recipe: str, model: Path, folder: Path, **options: Any) -> dict[str, str]:
    """The digests of what `apply` writes for a file or a directory, or the text of its refusal."""
    target = folder / "out" / ("result" if model.is_dir() else f"result{model.suffix}")
    target.parent.mkdir()
    return _refused_or(lambda: _applied(recipe, model, target, options))


def of_growth(recipe: str, module: nn.Module, inputs: Any) -> dict[str, str]:
    """The module that `apply` gives for a module, or the text of its refusal."""

    def grown() -> dict[str, str]:
        result = growc.apply(module, recipe, inputs, check=False, keep_class=False)
        return {"plan": of_plan(result.plan)} | of_module(result)

    return _refused_or(grown)


def _applied(recipe: str, model: Path, target: Path, options: Mapping[str, Any]) -> dict[str, str]:
    # the card of a directory says once more what the plan does
    result = api.apply(recipe, model, target, check=False, card=False, **options)
    return {"plan": of_plan(result.plan)} | of_folder(target.parent)


def _refused_or(make: Callable[[], dict[str, str]]) -> dict[str, str]:
    try:
        return make()
    except GrowError as error:
        codes = " ".join(diagnostic.code for diagnostic in error.diagnostics)
        return {"refused": codes, "said": of_bytes(str(error).encode())}


def versions() -> dict[str, str]:
    """Of the libraries and the processor's vectors, on which the last bit of a sum may depend."""
    configuration: Any = np.show_config(mode="dicts")
    vectors = " ".join(configuration["SIMD Extensions"].get("found", ()))
    return {name: version(name) for name in LIBRARIES} | {"vectors": vectors}
