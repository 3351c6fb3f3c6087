"""Check that a class computes the planned program: sizes, ties, operators, literals and constants.

Branches that add nothing yet may differ. The class is built from the config that is to be written, and is
compared with a `Target`. The result is the first difference.
"""

from __future__ import annotations

from torch import nn

from growc.dialects.transformers.config.shapes import among, read_by, shapes_of, ties_of
from growc.dialects.transformers.config.trials import Target, said
from growc.dialects.transformers.log.entry import CONSTANT, Log, LogEntry, same_logs
from growc.dialects.transformers.log.record import operator_log
from growc.dialects.transformers.log.zero_branches import pruned
from growc.errors.diagnostic import Attempt, Diagnostic, GrowError


def check(module: nn.Module, target: Target, log: Log | None = None) -> None:
    """Raise GrowError (G319) if a class differs from the planned program in anything at all."""
    first_difference = difference(module, target, log)
    if first_difference:
        message = f"`{type(module).__name__}` with this config does not compute what was planned"
        raise GrowError(Diagnostic("G319", message, notes=(first_difference,)))


def difference(module: nn.Module, target: Target, log: Log | None = None) -> str:
    """Return the first difference between a class and the planned program in words, or an empty string.

    log: the operator log of the class, if it is known.
    """
    with Attempt() as attempt:
        log = log or operator_log(module, target.inputs, target.fixed)
    if log is None:
        return f"the class does not run: {said(attempt.error) if attempt.error else ''}"
    ties = ties_of(module)
    shapes = read_by(log.reads, shapes_of(module), ties)
    for name in (*target.shapes, *shapes):
        planned, actual = target.shapes.get(name), shapes.get(name)
        if planned != actual:
            return f"`{name}` is planned as {_shape(planned)}, and is {_shape(actual)} in the class"
    for names in among(ties, shapes) ^ target.ties:
        return f"{_listed(names)} are one tensor in one of both"
    same = same_logs(target.log, log) or same_logs(
        pruned(target.log, target.zeros), pruned(log, target.zeros)
    )
    return "" if same else first_log_difference(target.log, log)


def first_log_difference(planned: Log, class_log: Log) -> str:
    """Return the first difference of two logs in words, or an empty string."""
    for a, b in zip(planned.entries, class_log.entries, strict=False):
        if a != b:
            return f"planned is {_told(a)}, and the class has {_told(b)}"
    if len(planned.entries) != len(class_log.entries):
        return f"planned are {len(planned.entries)} operators, and the class has {len(class_log.entries)}"
    for k, (wires, others) in enumerate(zip(planned.wires, class_log.wires, strict=True)):
        if wires != others:
            reads = _told(planned.entries[k]) if k < len(planned.entries) else "what is returned"
            return f"{reads} is not made from the same in both"
    return ""


def _told(entry: LogEntry) -> str:
    if entry.operator == CONSTANT:
        return f"a constant of shape {list(entry.shapes[0])} with {_few(entry.real)}"
    shapes = ", ".join(str(list(shape)) for shape in entry.shapes)
    literals = (*entry.whole, *entry.real)
    return f"`{entry.operator}` to {shapes}" + (f" with {_few(literals)}" if literals else "")


def _few(numbers: tuple[int | float, ...]) -> str:
    shown = ", ".join(f"{n:g}" for n in numbers[:6])
    return f"{shown}, …" if len(numbers) > 6 else shown or "no values"


def _shape(shape: tuple[int, ...] | None) -> str:
    return "nothing" if shape is None else str(list(shape))


def _listed(names: frozenset[str]) -> str:
    return " and ".join(f"`{name}`" for name in sorted(names))
