"""Plan statements on one model, as often as a budget needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from growc.formats.compiler import CompileOptions, asked_of, compiled
from growc.recipe.layer_orders import Depth
from growc.resolve.bound import Bound, Resolved

if TYPE_CHECKING:
    from growc.formats.compiler import Model
    from growc.passes.compilation import Analysis, Result


@dataclass
class Planning:
    """A model on which statements are planned. done: the number of plans made."""

    model: Model
    options: CompileOptions
    done: int = 0
    kept: list[Analysis] = field(default_factory=list)

    def of(self, statements: tuple[Bound, ...]) -> Result:
        """The compilation of statements on the model, before any class of the result is applied."""
        self.done += 1
        moves = any(isinstance(bound.statement, Depth) for bound in statements)
        return asked_of(self._analysis(once=moves), Resolved(statements))

    def has_class(self, c: Result) -> bool:
        """Whether the result is stored by a class with a config."""
        return hasattr(c.model, "class_weights") and self.options.get("keep_class", True)

    def _analysis(self, *, once: bool) -> Analysis:
        """The analysis of the model. Moving layers changes it, so it is then used once."""
        if not self.kept:
            self.kept.append(compiled(Resolved(()), self.model, analysis_only=True, **self.options))
        return self.kept.pop() if once else self.kept[0]
