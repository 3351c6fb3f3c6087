"""Check that the libraries are installed that read models other than ONNX files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError


def require_torch(path: Path) -> None:
    """Raise GrowError (G309) if a library that reads models other than ONNX files is not installed."""
    missing = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
    if missing:
        message = f"`{path}` is no ONNX file, and for others growc needs {', '.join(missing)}"
        raise GrowError(Diagnostic("G309", message, help="install `growc[torch]`"))
