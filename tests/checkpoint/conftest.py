"""Small checkpoints as transformers saves them, and how a test looks at one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Save a new model of a class, with random weights, and give its folder."""

    def make(
        class_name: str, config: Any, name: str = "model", dtype: str = "float32", **options: Any
    ) -> Path:
        import torch
        import transformers

        torch.manual_seed(0)
        model = getattr(transformers, class_name)(config).to(getattr(torch, dtype))
        model.save_pretrained(tmp_path / name, **options)
        return tmp_path / name

    return make
