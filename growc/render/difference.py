"""The differences between two models, as lines that fit a width and as data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from growc.errors.json_data import Json
from growc.errors.printable import printable, size_of
from growc.plans.plan_to_json import one
from growc.render.text import count, cut, many, short, table
from growc.reports.difference import Difference, Growth, Side
from growc.reports.tensor_changes import ChangeKind, TensorChange

WIDTH = 80
"""Columns of lines that no terminal shows."""

OPERATOR, FORMER_NAME = 0.675, 0.55
"""The most room, as shares of a line, for the name of an operator, and for the former name of a tensor."""

SHOWN = 12
"""The most groups of weights, and the most operators, that are listed without `--all`."""

SIGNS: dict[ChangeKind, str] = {
    "new": "+",
    "gone": "-",
    "renamed": "=",
    "resized": "~",
    "retyped": "~",
    "changed": "~",
}


def difference_lines(
    difference: Difference, *, everything: bool = False, width: int = WIDTH
) -> Iterator[str]:
    """Yield the difference as text. Lists at full length have lines of any width."""
    before, after = difference.before, difference.after
    yield cut(f"{before.path.name} -> {after.path.name}", width)
    if difference.same:
        yield ""
        tensors = many(difference.equal, "tensor")
        yield f"Nothing differs: axes, layers, operators and all {tensors} are the same."
        return
    rows = list(_sizes(difference))
    yield from ["", *(f"  {line}" for line in table(rows))] if rows else []
    yield from _operators(difference, everything, width)
    yield from _weights(difference, everything, width)
    yield from _growth(difference, width)
    if difference.uncompared:
        yield ""
        yield "Not compared:"
        yield from (f"  {line}" for model in difference.uncompared for line in _wrapped(model, width))


def _sizes(difference: Difference) -> Iterator[tuple[str, str]]:
    before, after = difference.before, difference.after
    if not difference.one_form:
        yield "form", f"{before.form} -> {after.form}"
    if before.parameters != after.parameters:
        yield "parameters", " -> ".join("?" if n is None else count(n) for n in _parameters(difference))
    if before.nbytes != after.nbytes:
        yield "stored", f"{size_of(before.nbytes)} -> {size_of(after.nbytes)}"
    for name, sizes in difference.axes.items():
        yield name, " -> ".join("/".join(map(str, size)) or "none" for size in sizes)


def _parameters(difference: Difference) -> tuple[int | None, int | None]:
    return difference.before.parameters, difference.after.parameters


def _operators(difference: Difference, everything: bool, width: int) -> Iterator[str]:
    rows = [(name, f"{a} -> {b}") for name, (a, b) in difference.operators.items()]
    for (operator, name, value), (a, b) in difference.attributes.items():
        rows.append((f"{operator} with {name} {value}", f"{a} -> {b}"))
    if difference.rewired:
        yield ""
        yield "Operators: the same ones, put together in another way."
    if not rows:
        return
    yield ""
    yield "Operators:"
    shown = rows if everything else rows[:SHOWN]
    room = int(OPERATOR * width)
    yield from (
        cut(f"  {line}", width) for line in table((cut(name, room), change) for name, change in shown)
    )
    yield from [f"  … {len(rows) - len(shown)} more (--all)"] if len(rows) > len(shown) else []


def _weights(difference: Difference, everything: bool, width: int) -> Iterator[str]:
    changes = difference.weights
    if not changes and not difference.equal:
        return
    kinds = [kind for kind in SIGNS if any(change.kind == kind for change in changes)]
    tally = ", ".join(f"{sum(c.kind == kind for c in changes)} {kind}" for kind in kinds)
    yield ""
    yield f"Weights: {difference.equal} equal{', ' if tally else ''}{tally}."
    groups = [[change] for change in changes] if everything else list(grouped(changes))
    shown = groups if everything else groups[:SHOWN]
    rows = [_row(group, width) for group in shown]
    if everything:
        yield from (f"  {line}".rstrip() for line in table(rows))
    elif rows:
        widest = max(len(change) for _, change in rows)
        room = max(24, width - 5 - widest)
        yield from (
            cut(f"  {line}", width) for line in table((cut(name, room), change) for name, change in rows)
        )
    hidden = sum(map(len, groups[len(shown) :]))
    if hidden or len(groups) < len(changes):
        yield f"  … {hidden} more (--all)" if hidden else "  (--all lists every one)"


def grouped(changes: Iterable[TensorChange]) -> Iterator[list[TensorChange]]:
    """Yield groups of changes that are alike and whose names differ only in numbers.

    Groups come in the order of their first changes.
    """
    groups: dict[object, list[TensorChange]] = {}
    for change in changes:
        key = change.kind, _pattern(change.name), change.before, change.after, _pattern(change.was)
        groups.setdefault(key, []).append(change)
    yield from groups.values()


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "*", name)


def _row(group: Sequence[TensorChange], width: int) -> tuple[str, str]:
    first = group[0]
    name = first.name if len(group) == 1 else _pattern(first.name)
    description = {
        "new": f"{_shape(first.after)}",
        "gone": f"{_shape(first.before)}",
        "renamed": f"was {first.was if len(group) == 1 else _pattern(first.was)}",
        "resized": f"{_shape(first.before)} -> {_shape(first.after)}",
        "retyped": f"{first.was}, {_apart(group)}",
        "changed": _apart(group),
    }[first.kind]
    description = cut(description, int(FORMER_NAME * width)) if first.kind == "renamed" else description
    return f"{SIGNS[first.kind]} {name}", description + (f"   × {len(group)}" if len(group) > 1 else "")


def _shape(shape: tuple[int, ...] | None) -> str:
    return str(list(shape or ()))


def _apart(group: Sequence[TensorChange]) -> str:
    """Return `by 1.2e-03`, `by 1.0e-03 to 2.0e-01`, or `in kind` if some difference is no number."""
    known = sorted(change.relative for change in group if change.relative is not None)
    if len(known) < len(group):
        return "in kind"
    ends = list(dict.fromkeys((short(known[0]), short(known[-1]))))
    return f"by {' to '.join(ends)}"


def _growth(difference: Difference, width: int) -> Iterator[str]:
    growth = difference.growth
    if growth is None:
        return
    yield ""
    yield from _wrapped(_origin(difference, growth), width)
    for number, recipe in enumerate(growth.recipes, 1):
        yield from [f"  {number}."] if len(growth.recipes) > 1 else []
        yield from (f"    {line}" for line in recipe)


def _origin(difference: Difference, growth: Growth) -> str:
    before, after = difference.before.path.name, difference.after.path.name
    steps = "this recipe" if len(growth.recipes) == 1 else f"these {len(growth.recipes)} recipes"
    return {
        True: f"{after} was grown from {before}, by {steps}:",
        False: f"{after} was grown by {steps}, and not from {before} as it is (the sizes differ):",
        None: f"{after} was grown by {steps}, perhaps from {before}:",
    }[growth.from_first]


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(printable(text), width - 2, break_on_hyphens=False)


# --------------------------------------------------------------------------------------------- as data


def difference_data(difference: Difference) -> dict[str, Json]:
    """Return the data that `growc diff --json` prints."""
    growth = difference.growth
    return {
        "same": difference.same,
        "models": [_side(side) for side in (difference.before, difference.after)],
        "axes": {name: {"before": one(a), "after": one(b)} for name, (a, b) in difference.axes.items()},
        "operators": {name: {"before": a, "after": b} for name, (a, b) in difference.operators.items()},
        "attributes": [
            {"operator": operator, "name": name, "value": value, "before": a, "after": b}
            for (operator, name, value), (a, b) in difference.attributes.items()
        ],
        "rewired": difference.rewired,
        "equal": difference.equal,
        "weights": [_change(change) for change in difference.weights],
        "growth": None
        if growth is None
        else {"recipes": [list(r) for r in growth.recipes], "from_first": growth.from_first},
        "uncompared": list(difference.uncompared),
    }


def _side(side: Side) -> dict[str, Json]:
    return {
        "model": side.path.name,
        "form": side.form,
        "parameters": side.parameters,
        "bytes": side.nbytes,
    }


def _change(change: TensorChange) -> dict[str, Json]:
    return {
        "name": change.name,
        "kind": change.kind,
        "before": None if change.before is None else list(change.before),
        "after": None if change.after is None else list(change.after),
        "relative": change.relative,
        "was": change.was,
    }
