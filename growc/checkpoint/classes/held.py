"""A class with weights, and the config that stores what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from growc.checkpoint.classes.fit_config import hold
from growc.checkpoint.classes.model import ClassModel
from growc.errors.brief import brief

if TYPE_CHECKING:
    from growc.passes.compilation import Result


@dataclass
class HeldModel(ClassModel):
    """A class whose results have a config of it."""

    __repr__ = brief

    def hold(self, c: Result) -> Result:
        """With a config of the class. Raises GrowError (G309, G318, G319) where there is none."""
        return hold(c)
