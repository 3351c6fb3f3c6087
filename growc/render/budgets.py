"""Budgets as text: the choices of sizes that were compared, and the nearest others below and beyond."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from growc.errors.printable import size_of
from growc.render.text import count, table
from growc.resolve.bound import BudgetRow, Decision


def budget_lines(decided: Sequence[Decision]) -> Iterator[str]:
    """Yield each budget with its table; nothing if a recipe has none."""
    for one in decided:
        yield from (f"  {one.text}", "")
        yield from (f"    {line}" for line in _table(one))
        yield from (f"    {note}" for note in one.notes)
        yield ""


def _table(one: Decision) -> Iterator[str]:
    measured = any(row.cost for row in one.rows)
    scored = any(row.lost for row in one.rows)
    measures = [*(["lost"] if scored else []), *(["on samples"] if measured else [])]
    head = [*one.axes, one.quantity.replace("_", " "), *measures, ""]
    rows = [head]
    for k, row in enumerate(one.rows):
        rows.append(_cells(one, row, scored, measured, "taken" if k == 0 else ""))
    for row in one.near:
        place = "the next below" if row.amount <= one.limit else "beyond the budget"
        rows.append(_cells(one, row, scored, measured, place))
    return table(rows, ">" * (len(head) - 1) + "<")


def _cells(one: Decision, row: BudgetRow, scored: bool, measured: bool, place: str) -> list[str]:
    amount = size_of(row.amount) if one.quantity == "memory" else count(row.amount)
    lost = [f"{row.lost:.1%}"] if scored else []
    return [*row.sizes, amount, *lost, *([row.cost] if measured else []), place]
