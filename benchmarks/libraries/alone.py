"""Work in a process of its own: what takes too long, or ends it, is an outcome."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

SLOWER = 8
"""So many times as long as its seconds of CPU may a process take, beside others."""
OVER = getattr(signal, "SIGXCPU", 24)
"""The signal that ends a process that has used up its seconds."""


def alone(
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    limit: float,
    failed: Callable[[str], dict[str, Any]],
) -> dict[str, Any]:
    """Return what `work` sends through the pipe, its last argument; else `failed` of why there is nothing.

    limit: seconds of CPU, where the system counts them.
    """
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = _context().Process(target=_limited, args=(limit, work, *arguments, theirs))
    process.start()
    theirs.close()
    try:
        record = ours.recv() if ours.poll(SLOWER * limit) else failed("time limit")
    except EOFError:
        process.join()
        record = failed("time limit" if process.exitcode == -OVER else "the process ended")
    process.kill()
    process.join()
    return dict(record)


@cache
def _context() -> ForkServerContext | SpawnContext:
    """Processes are forked from one that has imported what all of them need, where the system can."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # the one that is forked has no other path
    context.set_forkserver_preload(["imported"])
    return context


def _limited(limit: float, work: Callable[..., None], *arguments: Any) -> None:
    with suppress(ImportError):  # Windows counts none
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), resource.getrlimit(resource.RLIMIT_CPU)[1]))
    work(*arguments)
