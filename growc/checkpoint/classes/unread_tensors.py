"""Tensors of a class that the captured program does not read: what is said of them, and where exactness ends.

A class may read them for other inputs: pictures beside words, a mask. Nothing that was captured says what
their units mean. One that the class resizes takes the units of axes that change with it; where there are
none, new ones are zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from growc.plans.plan import Gap

if TYPE_CHECKING:
    from growc.checkpoint.classes.holder import Holder
    from growc.checkpoint.classes.new_tensors import GrownWeights

REMEDY = "give inputs for which the class reads it (`--inputs`, in Python `example_inputs`)"


def unread_notes(held: GrownWeights[Holder]) -> list[str]:
    """What is said of those that their class resizes."""
    kind = type(held.module).__name__
    found = [name for name, plan in held.unread.items() if plan.steps]
    return [f"`{name}` is as large as `{kind}` makes it: no input that was tried reads it" for name in found]


def unread_gaps(held: GrownWeights[Holder]) -> Iterator[Gap]:
    """Where what stands in the places of tokens has other units, and what may stand there beside it has not:
    nothing follows of what other inputs read, though some of it is as large as that was.
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


def _embedded(held: GrownWeights[Holder]) -> set[int]:
    """How many units stood in the places of tokens, if other ones do now."""
    table = None
    with suppress(AttributeError, NotImplementedError):  # a class need not know of its table
        table = getattr(held.module.get_input_embeddings(), "weight", None)
    names = [held.first.get(name, name) for name, one in held.module.named_parameters() if one is table]
    plans = [held.planned[name] for name in names if name in held.planned]
    return {plan.before[1] for plan in plans for step in plan.steps if step.axis == 1}
