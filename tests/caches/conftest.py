"""Decoders with caches, exported once for all tests of this folder."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from caches.decoders import export


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The ONNX file of a kind of decoder."""
    folder = tmp_path_factory.mktemp("decoders")
    return cache(lambda kind: export(kind, folder / f"{kind}.onnx"))
