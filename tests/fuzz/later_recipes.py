"""Random recipes with statements and options that came after version 1, in the place of ones like them."""

from __future__ import annotations

from collections.abc import Sequence

from choices import Choices
from random_builder import Net
from random_recipes import random_recipe


def later_recipe(c: Choices, net: Net) -> str:
    """A random recipe, each statement of which is a later one where there is one like it."""
    lines = [_later(c, line) for line in random_recipe(c, net).splitlines()]
    if "ffn" in net.roles and c.chance(15):
        parts = c.pick("", "", " reset 0.5", " in 2 parts")
        lines.append(f"upcycle ffn to experts 4 top {c.pick('2', '4')} with cyclic copy{parts}")
    if c.chance(15) and (axes := [axis for axis in ("ffn", "heads", "hidden") if axis in net.roles]):
        lines = [
            _budget(c, axes)
        ]  # on the sizes of the source: after other statements few budgets can be met
    return "\n".join(lines)


def _budget(c: Choices, axes: Sequence[str]) -> str:
    """A number of parameters, and the axes that may change for it."""
    over = ", ".join(axes[: 1 + c.below(len(axes))])
    if c.chance(50):
        return f"subclone to parameters <= {c.pick('3', '2')} * parameters / 4 over {over} by magnitude"
    goal, fill = (
        c.pick("5 * parameters / 4", "2 * parameters"),
        c.pick("cyclic copy", "uniform copy", "zero fill"),
    )
    return f"widen to parameters >= {goal} over {over} in proportion with {fill}"


def _later(c: Choices, line: str) -> str:
    verb, axis = line.split()[:2]
    if verb != "widen":
        return line
    if axis in ("hidden", "ffn", "heads") and c.chance(25):
        return f"nest {axis} by {c.pick('magnitude', 'random seed 2', 'first')}{c.pick('', ' at 1/2')}"
    if "random fill" in line:
        return line.replace("random fill", "random fill std 0.05")
    return line.replace(" copy", f" copy reset {c.pick('0.5', '0.3', '1')}", 1) if " copy" in line else line
