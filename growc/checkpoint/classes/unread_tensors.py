"""Notes and gaps for tensors of a class that the captured program does not read.

A class may read them for other inputs, such as images beside words, or a mask. The captured program does not
tell what their units mean. A tensor that the class resizes takes the units of axes that change with it. If
there are none, its new units are zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from growc.plans.plan import Gap

if TYPE_CHECKING:
    from growc.checkpoint.classes.held_model import ClassWeights
    from growc.checkpoint.classes.new_tensors import GrownWeights

REMEDY = "give inputs for which the class reads it (`--inputs`, in Python `example_inputs`)"


def unread_notes(held: GrownWeights[ClassWeights]) -> list[str]:
    """A note for each unread tensor that its class resizes."""
    kind = type(held.module).__name__
    resized = [name for name, plan in held.unread.items() if plan.steps]
    return [
        f"`{name}` is as large as `{kind}` makes it: no input that was tried reads it" for name in resized
    ]


def unread_gaps(held: GrownWeights[ClassWeights]) -> Iterator[Gap]:
    """The gap of a result whose embeddings have other units while unread tensors of their size stay
    unchanged.

    Unread tensors may compute what stands beside embedded tokens. Nothing is known about them, though some
    are as large as the embeddings were.
    """
    if any(plan.steps and name not in held.unled for name, plan in held.unread.items()):
        return
    sizes = _embedded(held)
    alike = [name for name, plan in held.unread.items() if not sizes.isdisjoint(plan.before)]
    if alike:
        others = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        cause = f"what stands in the places of tokens has other units, and `{alike[0]}`{others} may have to \
follow: no input that was tried reads it"
        yield Gap(alike[0], "", cause, REMEDY)


def _embedded(held: GrownWeights[ClassWeights]) -> set[int]:
    """The number of units of the token embeddings before the plan; empty if the plan keeps them."""
    table = None
    with suppress(AttributeError, NotImplementedError):  # a class need not name its embedding table
        table = getattr(held.module.get_input_embeddings(), "weight", None)
    names = [
        held.first.get(name, name) for name, parameter in held.module.named_parameters() if parameter is table
    ]
    plans = [held.planned[name] for name in names if name in held.planned]
    return {plan.before[1] for plan in plans for step in plan.steps if step.axis == 1}
