"""Progress on standard error, only on a terminal: what is being done, rate, time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A function (phrase, done, total) -> None that shows what is going on. Totals are bytes; 0 is unknown."""
    if not sys.stderr.isatty():
        yield lambda phrase, done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(phrase: str, done: int, total: int) -> None:
            bar.update(task, description=phrase[-48:], completed=done, total=total or None)

        yield show
