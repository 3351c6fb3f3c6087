"""Progress on standard error, and only on a terminal: what is being done, how much, rate, time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from growc.errors.printable import printable

BYTES = "writing "
"""Phrases that begin so count bytes; others count what they name."""

WIDTH = 36
"""Characters of what is being done that are shown; names of weights are cut at their start."""


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A function (phrase, done, total) that shows what is going on. A total of 0 is not known."""
    if not sys.stderr.isatty():
        yield lambda phrase, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Amount(ProgressColumn):
        """`54.6/663.6 MB  175 MB/s  4 s left`, `16/128  3.2/s  35 s left`, or the seconds so far."""

        def render(self, task: Task) -> Text:
            if not task.total:
                return Text(f"{task.elapsed or 0:.0f} s")
            if task.description.startswith(BYTES):
                amount = f"{task.completed / 1e6:.1f}/{task.total / 1e6:.1f} MB"
                rate = f"  {task.speed / 1e6:.0f} MB/s" if task.speed else ""
            else:
                amount = f"{task.completed:.0f}/{task.total:.0f}"
                rate = f"  {task.speed:.3g}/s" if task.speed else ""
            left = f"  {task.time_remaining:.0f} s left" if task.time_remaining is not None else ""
            return Text(amount + rate + left)

    whole = Column(no_wrap=True)
    columns = (
        TextColumn("{task.description}", markup=False, table_column=whole),
        BarColumn(8),
        Amount(whole),
    )
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)

    def show(phrase: str, done: int, total: int) -> None:
        known = bar.tasks[0].total if bar.tasks else -1
        if known != (total or None):
            for task in bar.task_ids:
                bar.remove_task(task)
            bar.add_task("", total=total or None)
            bar.start()
        kept = phrase if len(phrase) <= WIDTH else f"{phrase[:8]}…{phrase[9 - WIDTH :]}"
        bar.update(bar.task_ids[0], description=printable(kept), completed=done)

    try:
        yield show
    finally:
        bar.stop()
