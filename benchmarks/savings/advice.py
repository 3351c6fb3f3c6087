"""Which recipe to take, for each situation: sentences and a table that follow from the runs alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from benchmarks.savings.reading import Line, Reached, percent, reached, source_cost, spread_in_points
from benchmarks.savings.tables import Row, Table

COLUMNS = (
    "you have",
    "you want",
    "take",
    "operations",
    "with its source's",
    "as good within the seeds",
)


def cost_to_target(scratch: Line, line: Line) -> Reached:
    """At how many operations a row is as good as scratch is in the end."""
    return reached(line.mean(), scratch.final)


def linked(row: Row) -> str:
    """The name of a row, with a link to the recipe of examples/ that it is."""
    folders = [part for part in row.recipe if part[:2].isdigit()]
    return f"[{row.name}](../examples/{folders[0]}/README.md)" if folders else row.name


def advice(table: Table, lines: Sequence[Line], complete: bool) -> str:
    """The row of a table's situation: the cheapest line, and those that the seeds do not tell from it.

    A line whose model is not of scratch's sizes is not what is wanted: it is a control (see `controls`).
    """
    have, want = table.situation
    if not complete:
        ranked = sorted((row for row in table.rows if paper_saves(row)), key=paper_saves, reverse=True)
        papers = ", ".join(f"{linked(row)} {row.paper} %" for row in ranked)
        return _cells(have, want, "not measured yet", "–", "–", f"papers save, most first: {papers}")
    scratch = lines[0]
    whole = scratch.cost
    saving = [(cost_to_target(scratch, line), line) for line in of_wanted_size(lines)]
    saving = sorted(((n, line) for n, line in saving if n.sign != ">"), key=lambda s: s[0].cost)
    if not saving:
        return _cells(have, want, "scratch: no row reaches its loss", "100 %", "–", "–")
    number, best = saving[0]
    limit = margin(scratch)
    if whole - number.cost < limit:
        named = f"{linked(best.row)} {number.percent(whole)}"
        return _cells(have, want, "scratch: the seeds tell no row from it", "100 %", "–", named)
    alike = [(n, line) for n, line in saving[1:] if n.cost - number.cost < limit]
    others_too = ", ".join(f"{linked(line.row)} {n.percent(whole)}" for n, line in alike) or "none"
    source = source_cost(best)
    together = percent(number.cost + source[0], whole) if source else "–"
    return _cells(have, want, linked(best.row), number.percent(whole), together, others_too)


def controls(lines: Sequence[Line]) -> Iterator[str]:
    """Lines that keep their source's size, against the line of the wanted size that is best in the end."""
    scratch = lines[0]
    best = min(of_wanted_size(lines), key=lambda line: line.final, default=None)
    for line in lines:
        if best is None or line.row.shape == scratch.row.shape:
            continue
        there = cost_to_target(scratch, line).percent(scratch.cost)
        yield (
            f"The row `{line.row.name}` keeps its size. It reaches scratch's loss at {there}, and ends at "
            f"{line.final:.4f} after {percent(line.cost, scratch.cost)}. The row `{best.row.name}` has the "
            f"wanted size, and is the best in the end. It ends at {best.final:.4f} after "
            f"{percent(best.cost, scratch.cost)}."
        )


def of_wanted_size(lines: Sequence[Line]) -> list[Line]:
    """The lines behind scratch whose models have scratch's sizes."""
    scratch, *others = lines
    return [line for line in others if line.row.shape == scratch.row.shape]


def advised(rows: Sequence[str]) -> str:
    """The table of all situations."""
    return "\n".join([_cells(*COLUMNS), f"|{' --- |' * len(COLUMNS)}", *rows])


def agreement(lines: Sequence[Line]) -> Iterator[str]:
    """How the order of the rows agrees with that of the papers, pair by pair."""
    scratch, *others = lines
    given = [line for line in others if paper_saves(line.row)]
    ranked = sorted(given, key=lambda line: paper_saves(line.row))
    if len(ranked) < 2:
        return
    limit = margin(scratch)
    agree, alike, differ = 0, 0, []
    for less, more in combinations(ranked, 2):
        first, second = (cost_to_target(scratch, line) for line in (less, more))
        open_ended = first.sign == second.sign != ""
        if open_ended or abs(first.cost - second.cost) < limit:
            alike += 1
        elif first.cost > second.cost:
            agree += 1
        else:
            differ.append(f"{less.row.name} before {more.row.name}")
    named = f" ({', '.join(differ)})" if differ else ""
    yield (
        f"Papers rank {agree + alike + len(differ)} pairs of these rows. The order here is the same for "
        f"{agree}, the opposite for {len(differ)}{named}, and open for {alike}."
    )


def paper_saves(row: Row) -> float:
    """The saving that the paper of a row reports, in percent; 0 where it gives no single number."""
    return float(row.paper) if row.paper.replace(".", "").isdigit() else 0.0


def margin(scratch: Line) -> float:
    """The operations below which a difference is none: twice the spread of scratch's seeds."""
    return 2 * spread_in_points(scratch) / 100 * scratch.cost if len(scratch.records) > 1 else 0.0


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
