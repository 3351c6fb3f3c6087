"""The examples, as folders of recipe, explanation and plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Example:
    """One paper's recipe, and the model that its first comment applies it to."""

    folder: Path

    @property
    def recipe(self) -> Path:
        return self.folder / "recipe.grow"

    @property
    def model(self) -> Path:
        commands = re.findall(
            r"^#   growc apply (\S+) (\S+)$", self.recipe.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
        ((recipe, model),) = commands
        assert ROOT / recipe == self.recipe
        return ROOT / model

    @property
    def plan(self) -> Path:
        return self.folder / "plan.txt"


def example(name: str) -> Example:
    """The example whose folder has this name, with its number or without."""
    (folder,) = (f for f in EXAMPLES.glob("[0-9][0-9]-*") if name in (f.name, f.name[3:]))
    return Example(folder)


ALL = [Example(folder) for folder in sorted(EXAMPLES.glob("[0-9][0-9]-*"))]
