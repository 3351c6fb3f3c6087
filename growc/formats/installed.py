"""Whether the libraries are installed that read other models than ONNX files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError


def require_torch(path: Path) -> None:
    """Raises GrowError (G309) where what reads other models than ONNX files is not installed."""
    missing = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
    if missing:
        message = f"`{path}` is no ONNX file, and for others growc needs {', '.join(missing)}"
        raise GrowError(Diagnostic("G309", message, help="install `growc[torch]`"))
