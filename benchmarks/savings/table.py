"""Write docs/savings.md and its pictures from the runs that are committed. Trains nothing.

python -m benchmarks.savings.table [--runs DIR] [--out DIR]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.savings.advice import advice, advised, agreement, controls, cost_to_target
from benchmarks.savings.curves import picture
from benchmarks.savings.reading import (
    STEP,
    Line,
    percent,
    reached,
    source_cost,
    spread_in_points,
)
from benchmarks.savings.records import RUNS, Places
from benchmarks.savings.tables import MINIATURE, TABLES, Table

DOCS = Path(__file__).parent.parent.parent / "docs"
HEAD = """# How much growth saves

## Which recipe to take

The advice follows from the tables below, and from nothing else. `operations` is a part of scratch's
operations: after so many, the result is as good as scratch is in the end. `with its source's` adds the
source's training, for a source that is trained for this alone.
"""
TABLES_SAY = """
## What the tables say
"""
RULES = """
The number of a row is a part of scratch's operations: after so many, the row is as good as scratch is in the
end. Both are judged by their held-out losses after decay. `≤` says that the row was as good at its first
branch already. `> 100 %` says that it never was, and saves nothing.

[benchmarks/savings/](../benchmarks/savings/README.md) has the runs and the rules. The rules were written
before anything ran. `python -m benchmarks.savings.table` writes this page from the runs.
"""
MOST_SPREAD = 10
"""Points of operations; where scratch's seeds spread more, the table is too short."""
COLUMNS = (
    "row",
    "operations to scratch's loss",
    "each seed",
    "steps",
    "final loss",
    "± seeds",
    "at first",
    "its own cost",
    "its source cost",
    "tokens per parameter of the source",
    "rate",
    "the paper saves",
)


def lines_of(table: Table, places: Places) -> list[Line]:
    """The listed rows with the records of all their runs that have ended; those without any are left out."""
    lines = []
    for row in table.rows:
        records = [places.finished(table, row, seed) for seed in table.seeds]
        ended = tuple(record for record in records if record is not None)
        if row.listed and ended:
            lines.append(Line(row, ended))
    return lines


def ended_runs(table: Table, places: Places) -> int:
    """How many of a table's runs have ended."""
    return sum(places.finished(table, row, seed) is not None for row, seed in table.order())


def said(table: Table, places: Places) -> str:
    """The summary of a table: its message, and how many of its runs have ended."""
    order, lines = table.order(), lines_of(table, places)
    ended = ended_runs(table, places)
    open_ended = "" if ended == len(order) else " The table is not complete, and its numbers may change."
    words = [f"- **{table.title}**. {ended} of {len(order)} runs have ended.{open_ended}"]
    if lines and lines[0].row is table.rows[0]:
        words += _said(table, lines)
    return " ".join(words)


def section(table: Table, places: Places) -> Iterator[str]:
    """The lines of a table and its picture, when scratch has ended."""
    lines = lines_of(table, places)
    if not lines or lines[0].row is not table.rows[0]:
        return
    shape = table.rows[0].shape
    yield f"## {table.title}\n"
    yield (
        f"A run has {table.steps} steps of {table.task.batch} samples. Scratch has {shape.layers} layers of "
        f"width {shape.width}.\n"
    )
    yield f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}"
    for line in lines:
        yield f"| {' | '.join(_cells(lines[0], line))} |"
    yield f"\n![losses]({picture_name(table)})\n"


def picture_name(table: Table) -> str:
    """Where the picture of a table stands beside the page."""
    return f"savings/{table.name}.svg"


def _said(table: Table, lines: Sequence[Line]) -> Iterator[str]:
    """Sentences on the recipes that save most and nothing, and on how far that can be trusted."""
    scratch, *others = lines
    whole = scratch.cost
    better = [(line, cost_to_target(scratch, line)) for line in others]
    saving = sorted(((n.cost, line.row.name, n) for line, n in better if n.sign != ">"), key=lambda s: s[:2])
    rest = [line.row.name for line, n in better if n.sign == ">"]
    if saving:
        numbers = ", ".join(f"{name} {n.percent(whole)}" for _, name, n in saving)
        yield f"These rows reach scratch's loss, fewest operations first: {numbers}."
    if rest:
        yield f"These rows save nothing: {', '.join(rest)}."
    yield from agreement(lines)
    yield from controls(lines)
    if len(scratch.records) > 1:
        points = spread_in_points(scratch)
        yield (
            f"Scratch's {len(scratch.records)} seeds differ by ±{scratch.spread:.4f} nats, or ±{points:.1f} "
            f"points of its operations. Differences below {2 * points:.0f} points do not count."
        )
        if points > MOST_SPREAD:
            yield f"That is more than {MOST_SPREAD} points, so the table needs twice the steps."
    for family in table.families:
        rates = [line.records[0]["rate"] for line in lines if line.row.family == family.name]
        if rates and rates[0] in (family.rates[0], family.rates[-1]) and len(family.rates) > 1:
            edge = f"{rates[0]:g}, at an end of those tried"
            yield f"The best rate of {family.tuned} is {edge}. A better rate may lie beyond."


def _cells(scratch: Line, line: Line) -> Iterator[str]:
    whole, scratch_steps = scratch.cost, scratch.mean(STEP)[-1][0]
    own = cost_to_target(scratch, line)
    steps = reached(line.mean(STEP), scratch.final)
    yield line.row.name
    yield f"**{own.percent(whole)}**" if line is not scratch else "100 %"
    yield ", ".join(reached(points, scratch.final).percent(whole) for points in line.points())
    yield f"{steps.sign} {max(steps.cost, scratch_steps if steps.sign == '>' else 0):.0f}".strip()
    yield f"{line.final:.4f}"
    yield "–" if math.isnan(line.spread) else f"{line.spread:.4f}"
    yield f"{line.curve()[0][1]:.2f}"
    yield percent(line.cost, whole)
    source = source_cost(line)
    yield percent(source[0], whole) if source else "–"
    yield f"{source[1]:.0f}" if source else "–"
    yield f"{line.records[0]['rate']:g}"
    yield f"{line.row.paper} %" if line.row.paper else "–"


def page(tables: Sequence[Table], places: Places) -> str:
    """The whole page."""
    rows = [
        advice(table, lines_of(table, places), ended_runs(table, places) == len(table.order()))
        for table in tables
    ]
    bullets = [said(table, places) for table in tables]
    sections = [text for table in tables for text in section(table, places)]
    return "\n".join([HEAD, advised(rows), TABLES_SAY, *bullets, RULES, *sections]).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page and the pictures of all tables that have begun."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--out", type=Path, default=DOCS)
    parser.add_argument("--miniature", action="store_true", help="of runs of miniatures")
    given = parser.parse_args(arguments)
    places = Places(runs=given.runs)
    tables = [make(MINIATURE if given.miniature else None) for make in TABLES.values()]
    for table in tables:
        lines = lines_of(table, places)
        if lines and lines[0].row is table.rows[0]:
            path = given.out / picture_name(table)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(picture(table.title, lines), encoding="utf-8")
    (given.out / "savings.md").write_text(page(tables, places), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
