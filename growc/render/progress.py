"""Progress on standard error: what is being done, how much, rate and time left on a terminal; else stages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from threading import Timer
from time import perf_counter

from growc.errors.printable import printable
from growc.errors.progress import Progress

BYTES = ("writing ", "fetching ")
"""Phrases that begin so count bytes; others count what they name."""

WIDTH = 36
"""Characters of what is being done that are shown; names of weights are cut at their start."""


SELDOM = 0.1
"""Seconds between changes of what a notebook shows."""
PATIENCE = 5.0
"""After so many seconds a stage is named where no terminal shows a bar, as in the log of a batch job."""


@contextmanager
def progress(*, quiet: bool = False, verbose: bool = False) -> Iterator[Progress]:
    """A function (phrase, done, total) that shows what is going on. A total of 0 is not known.

    verbose: each stage is told with its seconds, once it is done.
    """
    if quiet:
        yield lambda phrase, done, total: None
    elif verbose or not sys.stderr.isatty():
        with closing(_Stages(verbose=verbose)) as stages:
            yield stages.show
    else:
        with _bar() as show:
            yield show


@contextmanager
def in_python(asked: Progress | None) -> Iterator[Progress]:
    """What a caller in Python asked for; else a line below the cell of a notebook, and nothing elsewhere."""
    kernel = getattr(getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)(), "kernel", None)
    if asked is not None or kernel is None:
        yield asked or (lambda phrase, done, total: None)
        return
    from IPython.display import display

    line = display({"text/plain": ""}, raw=True, display_id=True)
    shown = 0.0

    def show(phrase: str, done: int, total: int) -> None:
        nonlocal shown
        if (now := perf_counter()) - shown >= SELDOM:
            shown = now
            share = f" {100 * done // total} %" if total else " …"
            line.update({"text/plain": printable(phrase) + share}, raw=True)

    try:
        yield show
    finally:
        line.update({"text/plain": ""}, raw=True)


class _Stages:
    """Stages on lines of their own: long ones when they have lasted for a while."""

    def __init__(self, *, verbose: bool) -> None:
        self.verbose, self.stage, self.start = verbose, "", 0.0
        self.timer: Timer | None = None

    def show(self, phrase: str, done: int, total: int) -> None:
        """What is being done."""
        stage = f"{BYTES}the weights" if phrase.startswith(BYTES) else phrase
        if stage != self.stage:
            self.close()
            self.stage, self.start = stage, perf_counter()
            self.timer = Timer(PATIENCE, _tell, [f"{stage} …"])
            self.timer.daemon = True
            with suppress(RuntimeError):  # where no thread can be had, nothing is told
                self.timer.start()

    def close(self) -> None:
        """The stage is done."""
        if self.timer is not None:
            self.timer.cancel()
        if self.verbose and self.stage:
            _tell(f"{self.stage}: {perf_counter() - self.start:.1f} s")


def _tell(line: str) -> None:
    with suppress(OSError, ValueError):
        print(printable(line), file=sys.stderr, flush=True)


@contextmanager
def _bar() -> Iterator[Progress]:
    """A bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as Bar
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
    bar = Bar(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)

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
