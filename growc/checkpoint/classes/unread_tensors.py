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
    from growc.checkpoint.classes.class_weights import ClassWeights
    from growc.checkpoint.classes.new_tensors import GrownWeights

REMEDY = "give inputs for which the class reads it (`--inputs`, in Python `example_inputs`)"


def unread_notes(grown: GrownWeights[ClassWeights]) -> list[str]:
    """A note for each unread tensor that its class resizes."""
    kind = type(grown.module).__name__
    resized = [name for name, plan in grown.unread.items() if plan.steps]
    return [
        f"`{name}` is as large as `{kind}` makes it: no input that was tried reads it" for name in resized
    ]


def unread_gaps(grown: GrownWeights[ClassWeights]) -> Iterator[Gap]:
    """The gap of a result whose embeddings have other units while unread tensors of their size stay
    unchanged.

    Unread tensors may compute what stands beside embedded tokens. Nothing is known about them, though some
    are as large as the embeddings were.
    """
    if any(plan.steps and name not in grown.unled for name, plan in grown.unread.items()):
        return
    sizes = _embedded(grown)
    alike = [name for name, plan in grown.unread.items() if not sizes.isdisjoint(plan.before)]
    if alike:
        others = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        cause = f"what stands in the places of tokens has other units, and `{alike[0]}`{others} may have to \
follow: no input that was tried reads it"
        yield Gap(alike[0], "", cause, REMEDY)


def _embedded(grown: GrownWeights[ClassWeights]) -> set[int]:
    """The number of units of the token embeddings before the plan; empty if the plan keeps them."""
    table = None
    with suppress(AttributeError, NotImplementedError):  # a class need not name its embedding table
        table = getattr(grown.module.get_input_embeddings(), "weight", None)
    names = [
        grown.first.get(name, name)
        for name, parameter in grown.module.named_parameters()
        if parameter is table
    ]
    plans = [grown.planned[name] for name in names if name in grown.planned]
    return {plan.before[1] for plan in plans for step in plan.steps if step.axis == 1}
