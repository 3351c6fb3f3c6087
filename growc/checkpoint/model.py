"""A checkpoint as the passes see a model: its class, captured; tensors are read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from growc.checkpoint.opened import Opened
from growc.checkpoint.silence import quiet
from growc.dialects.torch.dialect import TorchModel
from growc.dialects.torch.export import export
from growc.dialects.torch.inputs import example_inputs
from growc.dialects.torch.lowering import lower


@dataclass
class CheckpointModel(TorchModel):
    """The program of a checkpoint's class; `opened` has the weights."""

    opened: Opened = field(kw_only=True)

    @staticmethod
    def at(path: Path) -> CheckpointModel:
        """Raises GrowError (G309, G310, G317) where it cannot be read, or its class not captured."""
        with quiet():
            opened = Opened.open(path)
            captured = export(opened.module, (), example_inputs(opened.module))
        program = lower(captured, opened.tensor)
        return CheckpointModel(program, captured=captured, read=opened.tensor, opened=opened)
