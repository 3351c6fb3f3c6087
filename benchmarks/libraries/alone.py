"""Work in a process of its own: what takes too long, or ends it, is an outcome."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any


def alone(
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    limit: float,
    failed: Callable[[str], dict[str, Any]],
) -> dict[str, Any]:
    """What `work` sends through the pipe that is its last argument; else `failed` of why there is nothing.

    limit: seconds.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(*arguments, theirs))
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(limit) else failed("time limit")
    except EOFError:
        found = failed("the process ended")
    process.kill()
    process.join()
    return dict(found)
