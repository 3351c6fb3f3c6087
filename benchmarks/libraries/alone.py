"""Work in a process of its own: what takes too long, or ends it, is an outcome."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from typing import Any

SLOWER = 8
"""So many times as long as its seconds of CPU may a process take, beside others."""


def alone(
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    limit: float,
    failed: Callable[[str], dict[str, Any]],
) -> dict[str, Any]:
    """What `work` sends through the pipe that is its last argument; else `failed` of why there is nothing.

    limit: seconds of CPU, where the system counts them.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_limited, args=(limit, work, *arguments, theirs))
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(SLOWER * limit) else failed("time limit")
    except EOFError:
        process.join()
        over = -process.exitcode in (signal.SIGXCPU, signal.SIGKILL) if process.exitcode else False
        found = failed("time limit" if over else "the process ended")
    process.kill()
    process.join()
    return dict(found)


def _limited(limit: float, work: Callable[..., None], *arguments: Any) -> None:
    try:
        import resource
    except ImportError:  # pragma: no cover - not on Windows
        pass
    else:
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
    work(*arguments)
