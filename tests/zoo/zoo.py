"""All architectures of the zoo."""

from __future__ import annotations

from collections.abc import Mapping

import models_cached
import models_convolutional
import models_decoders
import models_encoders
import models_experts
import models_torch
import models_vision
from registry import KNOWN, Blueprint, build

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
ZOO: Mapping[str, Blueprint] = dict(KNOWN)
"""As these modules add them: a table of checkpoints that is loaded later makes more architectures known."""


def names() -> list[str]:
    """Every model's name, in order."""
    return list(ZOO)
