"""Plans of statements on one model, as many as a budget has to try."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from growc.formats.compiler import Options, asked_of, compiled
from growc.recipe.layer_orders import Depth
from growc.resolve.bound import Bound, Resolved

if TYPE_CHECKING:
    from growc.formats.compiler import Model
    from growc.passes.compilation import Analysis, Result


@dataclass
class Planning:
    """A model that plans are made of. done: how many were made."""

    model: Model
    options: Options
    done: int = 0
    kept: list[Analysis] = field(default_factory=list)

    def of(self, statements: tuple[Bound, ...]) -> Result:
        """What statements make of the model, whatever stores the result."""
        self.done += 1
        moves = any(isinstance(bound.statement, Depth) for bound in statements)
        return asked_of(self._analysis(once=moves), Resolved(statements))

    def has_class(self, c: Result) -> bool:
        """Whether a class with a config stores the results."""
        return hasattr(c.model, "holder") and self.options.get("keep_class", True)

    def _analysis(self, *, once: bool) -> Analysis:
        """The analysis of the model; layers move in it, so that it then serves once."""
        if not self.kept:
            self.kept.append(compiled(Resolved(()), self.model, analysis_only=True, **self.options))
        return self.kept.pop() if once else self.kept[0]
