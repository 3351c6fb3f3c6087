"""All architectures of the zoo."""

from __future__ import annotations

import models_cached
import models_convolutional
import models_decoders
import models_encoders
import models_experts
import models_torch
import models_vision
from registry import ZOO, build

__all__ = ["FAMILIES", "ZOO", "build", "names"]

FAMILIES = (
    models_decoders,
    models_experts,
    models_encoders,
    models_vision,
    models_torch,
    models_convolutional,
    models_cached,
)


def names() -> list[str]:
    """Every model's name, in order."""
    return list(ZOO)
