"""Outcomes on one model, under every statement that is asked of it."""

from __future__ import annotations

import copy
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import judge
import torch
from captured_once import captured_once
from subjects import Feeds, Subject
from torch import Tensor, nn
from trained import state_off

import growc
from growc.errors.diagnostic import GrowError
from growc.plans.plan import Plan

AXES = (("channels",), ("ffn", "heads"), ("hidden",))
"""The first that a model has is asked for; a name of several is asked for by itself."""
RIGHT, AS_PLANNED, WRONG, REFUSED, CRASHED = "right", "as planned", "wrong", "refused", "crash"
NO_AXIS, ODD = "no axis", "odd"
"""The model lacks the axis, or a size of it has no half: nothing is asked then."""
RUNS = "runs"
"""The result runs, and there is nothing that it can be compared with."""


class UnsoundError(Exception):
    """A written result does not load as what it is said to be."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case. said: gaps of the certificate, or the refusal; fixed: spaces that stay."""

    status: str
    said: str = ""
    difference: float = 0.0
    seconds: float = 0.0
    fixed: tuple[str, ...] = ()
    named: bool = True
    """Whether a refusal names a node or a place."""
    beside: str = ""
    """The part of a training beside the weights that the outcome is about, if it is: a suffix of the case."""


def statements(axis: str) -> dict[str, str]:
    """The statements that are asked on an axis, by case."""
    return {
        f"{axis} ×2": f"widen {axis} to 2 * {axis} with neighbor copy",
        f"{axis} /2": f"subclone {axis} to {axis} / 2 by magnitude unscaled",
    }


DEEPER = "stack layers to layers + 1 by last with zero outputs"


def measured(subject: Subject) -> dict[str, Any]:
    """Outcomes by case, with the time that all of them took."""
    start = time.process_time()
    module, feeds = prepared(subject)
    with captured_once():
        return report(subject, module, start, lambda text: outcomes(module, feeds, text))


def prepared(subject: Subject) -> tuple[nn.Module, Feeds]:
    """A model with its weights drawn, and its inputs. Raises ValueError where the outputs say nothing."""
    module, feeds = subject.make()
    module = judge.drawn(module, feeds[0])
    if not judge.informative(*(judge.outputs(module, feed) for feed in feeds)):
        raise ValueError("the outputs say nothing")
    return module, feeds


def report(
    subject: Subject, module: nn.Module, start: float, ask: Callable[[str], Iterator[Outcome]]
) -> dict[str, Any]:
    """Outcomes of all statements asked of a model; an axis that it must have and lacks is refused.

    ask: what became of a statement, and, where that was right, of what a training has beside the weights.
    """
    cases: dict[str, Any] = {}
    for names in [subject.axes] if subject.axes else AXES:
        outcomes: dict[str, Outcome] = {}
        for axis in names:
            for name, text in statements(axis).items():
                answers = {f"{name}{o.beside}": o for o in ask(text)}
                outcomes |= answers
                if answers[name].status == NO_AXIS:
                    break
        if subject.axes:
            lacking = {n: o for n, o in outcomes.items() if o.status == NO_AXIS}
            outcomes |= {n: replace(o, status=REFUSED, named=False) for n, o in lacking.items()}
        here = {n: o for n, o in outcomes.items() if o.status != NO_AXIS}
        if here:
            cases |= {n: asdict(o) for n, o in here.items()}
            break
    if not cases:
        cases["any axis"] = asdict(Outcome(REFUSED, "none is found", named=False))
    deeper = {f"layers + 1{o.beside}": asdict(o) for o in ask(DEEPER) if o.status != NO_AXIS}
    return {
        "parameters": sum(p.numel() for p in module.parameters()),
        "seconds": time.process_time() - start,
        "cases": cases | deeper,
    }


def outcomes(module: nn.Module, feeds: Feeds, text: str) -> Iterator[Outcome]:
    """The outcome of one statement, and of the state of an optimizer."""

    @cache
    def made() -> Any:
        return growc.apply(module, text, example_inputs=dict(feeds[0]), check=False, keep_class=False)

    first = judged(text, made, lambda made: distance(module, made, feeds))
    yield first
    if first.status == RIGHT and is_widened(text):
        state = judged(text, made, lambda made: state_off(module, made, made.plan, feeds[0]))
        yield replace(state, beside=", state")


def is_widened(text: str) -> bool:
    """Whether a statement is one for which what a training has beside the weights is asked too."""
    return text.startswith("widen")


def judged(text: str, grow: Callable[[], Any], compare: Callable[[Any], float | None]) -> Outcome:
    """The outcome of one statement. grow: makes the result; compare: how far that is off, None if unknown."""
    start = time.process_time()
    try:
        result = grow()
        seconds = time.process_time() - start
        off = compare(result)
    except GrowError as error:
        return _refused(error, text.split()[1], time.process_time() - start)
    except UnsoundError as error:
        return Outcome(WRONG, str(error), float("inf"), time.process_time() - start)
    except Exception as error:  # noqa: BLE001 - a crash is an outcome as well
        message = f"{type(error).__name__}: {error}\n{traceback.format_exc()[-1500:]}"
        return Outcome(CRASHED, message, seconds=time.process_time() - start)
    gaps = "; ".join(f"{gap.node}: {gap.cause}" for gap in result.plan.certificate.gaps[:3])
    fixed = tuple(note for note in result.plan.notes if "stay as they are" in note)
    if off is None:
        return Outcome(RUNS, gaps, 0.0, seconds, fixed)
    exact = result.plan.certificate.exact
    status = RIGHT if off <= judge.CLOSE else WRONG if exact else AS_PLANNED
    return Outcome(status, gaps, off, seconds, fixed)


def distance(module: nn.Module, made: Any, feeds: Feeds, plan: Plan | None = None) -> float:
    """How far the result is from its source, or from the source without what was dropped."""
    plan = made.plan if plan is None else plan
    if not plan.reduces:
        return max(judge.difference(*_of_both(module, made, feed)) for feed in feeds)
    source = copy.deepcopy(module)
    precise_outputs = [judge.precise((made,), feed) for feed in feeds]
    kept = all(t.dtype == torch.float64 for _, [given] in precise_outputs for t in given)
    removed, vectors = judge.without(source.double() if kept else source, plan)
    off = 0.0
    for feed, [given] in precise_outputs:
        with judge.statistics_of(vectors):
            off = max(off, judge.difference(judge.outputs(removed, feed), given))
    return off


GIVES: dict[tuple[int, int], tuple[nn.Module, judge.Feed, list[Tensor]]] = {}
"""Outputs of a source in float64 for a feed, kept with both so that nothing else has their ids."""


def _of_both(module: nn.Module, made: nn.Module, feed: judge.Feed) -> list[list[Tensor]]:
    """The outputs of the source and of the result."""
    key = id(module), id(feed)
    if key in GIVES:
        *_, wanted = GIVES[key]
        _, [given] = judge.precise((made,), feed)
        if [t.dtype for t in given] == [t.dtype for t in wanted]:
            return [wanted, given]
    _, outputs = judge.precise((copy.deepcopy(module), made), feed)
    if all(t.dtype == torch.float64 for t in outputs[0]):
        GIVES[key] = module, feed, outputs[0]
    return outputs


def _refused(error: GrowError, axis: str, seconds: float) -> Outcome:
    first = error.diagnostics[0]
    message = "; ".join([f"{first.code} {first.message}", *first.notes, first.help or ""]).strip("; ")
    if first.code == "G302":
        return Outcome(NO_AXIS, message, seconds=seconds)
    if first.message.endswith("does not come out whole") and not first.message.startswith("1 /"):
        return Outcome(ODD, message, seconds=seconds)
    places = [note for note in first.notes if note.startswith("asked for axis ")]
    named = "`" in " ".join([first.message, *places]).replace(f"`{axis}`", "")
    return Outcome(REFUSED, message, seconds=seconds, named=named)
