"""Progress on standard error: current step, amount, rate and time left on a terminal; else stages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Timer
from time import perf_counter

from growc.errors.printable import printable
from growc.errors.progress import Progress

BYTES = ("writing ", "fetching ")
"""Prefixes of phrases that count bytes; other phrases count what they name."""

WIDTH = 36
"""The most characters shown of the current step; names of weights are cut at their start."""


SELDOM = 0.1
"""Seconds between updates in a notebook."""
PATIENCE = 5.0
"""Seconds after which a stage is named if no terminal shows a bar, as in the log of a batch job."""


_ERASERS: list[Callable[[], None]] = []
"""Functions that erase the bars on the terminal; a bar is drawn again at its next step."""


def erase() -> None:
    """Erase all bars, so that a line can be printed where they stood."""
    for erase_bar in _ERASERS:
        erase_bar()


@contextmanager
def progress(*, quiet: bool = False, verbose: bool = False) -> Iterator[Progress]:
    """Yield a function (phrase, done, total) that shows progress. A total of 0 is unknown.

    verbose: each stage is printed with its seconds, once it is done.
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
def in_python(callback: Progress | None) -> Iterator[Progress]:
    """Yield the progress that a Python caller asked for; else a line below a notebook's cell, or nothing."""
    kernel = getattr(getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)(), "kernel", None)
    if callback is not None or kernel is None:
        yield callback or (lambda phrase, done, total: None)
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
    """Stages on separate lines; long ones are shown once they have lasted for a while."""

    def __init__(self, *, verbose: bool) -> None:
        self.verbose, self.stage, self.start = verbose, "", 0.0
        self.timer: Timer | None = None

    def show(self, phrase: str, done: int, total: int) -> None:
        """Show the current step."""
        counted = next(filter(phrase.startswith, BYTES), None)
        stage = phrase if counted is None else f"{counted}the weights"
        if stage != self.stage:
            self.close()
            self.stage, self.start = stage, perf_counter()
            self.timer = Timer(PATIENCE, _tell, [f"{stage} …"])
            self.timer.daemon = True
            with suppress(RuntimeError):  # without a thread for the timer, nothing is shown
                self.timer.start()

    def close(self) -> None:
        """End the stage."""
        if self.timer is not None:
            self.timer.cancel()
        if self.verbose and self.stage:
            _tell(f"{self.stage}: {perf_counter() - self.start:.1f} s")


def _tell(line: str) -> None:
    with suppress(OSError, ValueError):
        print(printable(line), file=sys.stderr, flush=True)


@contextmanager
def _bar() -> Iterator[Progress]:
    """Yield a bar on a terminal."""
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
            remaining = f"  {task.time_remaining:.0f} s left" if task.time_remaining is not None else ""
            return Text(amount + rate + remaining)

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
            bar.add_task(printable(phrase[:WIDTH]), total=total or None)
        bar.start()
        shortened = phrase if len(phrase) <= WIDTH else f"{phrase[:8]}…{phrase[9 - WIDTH :]}"
        bar.update(bar.task_ids[0], description=printable(shortened), completed=done)

    _ERASERS.append(bar.stop)
    try:
        yield show
    finally:
        _ERASERS.remove(bar.stop)
        bar.stop()
