"""What becomes of one model under every statement that is asked of it."""

from __future__ import annotations

import copy
import time
import traceback
from dataclasses import asdict, dataclass
from typing import Any

import judge
from subjects import Feeds, Subject
from torch import nn

import growc
from growc.errors.diagnostic import GrowError

AXES = (("channels",), ("ffn", "heads"), ("hidden",))
"""The first that a model has is asked for; a name of several is asked for by itself."""
RIGHT, AS_PLANNED, WRONG, REFUSED, CRASHED = "right", "as planned", "wrong", "refused", "crash"
NO_AXIS, ODD = "no axis", "odd"
"""The model lacks the axis, or a size of it has no half: nothing is asked then."""


@dataclass(frozen=True)
class Outcome:
    """What became of one case. said: gaps of the certificate, or the refusal; fixed: spaces that stay."""

    status: str
    said: str = ""
    difference: float = 0.0
    seconds: float = 0.0
    fixed: tuple[str, ...] = ()
    named: bool = True
    """Whether a refusal names a node or a place."""


def statements(axis: str) -> dict[str, str]:
    """What is asked on an axis."""
    return {
        f"{axis} ×2": f"widen {axis} to 2 * {axis} with neighbor copy",
        f"{axis} /2": f"subclone {axis} to {axis} / 2 by magnitude unscaled",
    }


DEEPER = "stack layers to layers + 1 by last with zero outputs"


def measured(subject: Subject) -> dict[str, Any]:
    """Outcomes by case, with the time that all of them took."""
    start = time.process_time()
    module, feeds = subject.make()
    module = judge.drawn(module, feeds[0])
    first = [judge.outputs(module, feed) for feed in feeds]
    if not judge.informative(*first):
        raise ValueError("the outputs say nothing")
    cases: dict[str, Any] = {}
    for names in AXES:
        found = {n: t for axis in names for n, t in statements(axis).items()}
        outcomes = {n: outcome(module, feeds, text) for n, text in found.items()}
        here = {n: o for n, o in outcomes.items() if o.status != NO_AXIS}
        if here:
            cases |= {n: asdict(o) for n, o in here.items()}
            break
    deeper = outcome(module, feeds, DEEPER)
    if deeper.status != NO_AXIS:
        cases["layers + 1"] = asdict(deeper)
    return {
        "parameters": sum(p.numel() for p in module.parameters()),
        "seconds": time.process_time() - start,
        "cases": cases,
    }


def outcome(module: nn.Module, feeds: Feeds, text: str) -> Outcome:
    """What became of one statement."""
    start = time.process_time()
    try:
        made = growc.apply(module, text, example_inputs=dict(feeds[0]), check=False, keep_class=False)
        seconds = time.process_time() - start
        off = distance(module, made, feeds)
    except GrowError as error:
        return _refused(error, text.split()[1], time.process_time() - start)
    except Exception as error:  # noqa: BLE001 - a crash is an outcome as well
        said = f"{type(error).__name__}: {error}\n{traceback.format_exc()[-1500:]}"
        return Outcome(CRASHED, said, seconds=time.process_time() - start)
    gaps = "; ".join(f"{gap.node}: {gap.cause}" for gap in made.plan.certificate.gaps[:3])
    exact = made.plan.certificate.exact
    status = RIGHT if off <= judge.CLOSE else WRONG if exact else AS_PLANNED
    fixed = tuple(note for note in made.plan.notes if "stay as they are" in note)
    return Outcome(status, gaps, off, seconds, fixed)


def distance(module: nn.Module, made: Any, feeds: Feeds) -> float:
    """How far the result is from its source, or from the source without what was dropped."""
    source = copy.deepcopy(module)
    precise = [judge.precise((source, made), feed) for feed in feeds]
    source, vectors = judge.without(source, made.plan) if made.plan.reduces else (source, {})
    off = 0.0
    for feed in precise:
        with judge.statistics_of(vectors):
            wanted = judge.outputs(source, feed)
        off = max(off, judge.difference(wanted, judge.outputs(made, feed)))
    return off


def _refused(error: GrowError, axis: str, seconds: float) -> Outcome:
    first = error.diagnostics[0]
    said = "; ".join([f"{first.code} {first.message}", *first.notes, first.help or ""]).strip("; ")
    if first.code == "G302":
        return Outcome(NO_AXIS, said, seconds=seconds)
    if first.message.endswith("does not come out whole") and not first.message.startswith("1 /"):
        return Outcome(ODD, said, seconds=seconds)
    return Outcome(REFUSED, said, seconds=seconds, named="`" in first.message.replace(f"`{axis}`", ""))
