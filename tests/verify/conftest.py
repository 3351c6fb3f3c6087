"""Models written as text, saved as files for onnxruntime."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest


@pytest.fixture
def onnx_file(tmp_path: Path) -> Callable[..., Path]:
    """Save a graph written in ONNX's text syntax; keywords are its weights by name."""

    def save(
        graph: str, name: str = "model.onnx", *, opset: int = 17, external: bool = False, **weights: Any
    ) -> Path:
        header = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
        model = onnx.parser.parse_model(header + graph)
        for key, value in weights.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), key))
        path = tmp_path / name
        onnx.save(model, path, save_as_external_data=external, location=f"{name}.data", size_threshold=0)
        return path

    return save


@pytest.fixture
def random() -> Callable[..., Any]:
    """Weights drawn from N(0, 1), by shape."""

    def draw(*shape: int, seed: int = 0) -> Any:
        return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

    return draw
