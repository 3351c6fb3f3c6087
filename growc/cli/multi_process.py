"""Run commands in several processes: those that torchrun started, or that `--workers` asks for."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence

from growc.errors.diagnostic import GrowError, wrong
from growc.system.ranks import ALONE, joined, started_by_torchrun

INTERRUPTED = 130
"""The exit status after a signal."""


def run(command: Callable[[Namespace], int], options: Namespace, arguments: Sequence[str]) -> int:
    """Run a command with the processes that help it in `options.ranks`; return its exit status.

    Raises GrowError: G200 for fewer workers than one, and those of the command.
    """
    options.ranks = ALONE
    if not started_by_torchrun():
        workers = getattr(options, "workers", 1)
        if workers < 1:
            raise wrong(f"`--workers {workers}` is no number of processes", "it is 1 or more")
        return _launched(workers, arguments) if workers > 1 else command(options)
    with joined() as options.ranks:
        if options.ranks.rank:
            try:
                return int(options.ranks.serve())
            except KeyboardInterrupt:  # the first process reports it
                return INTERRUPTED
        status = INTERRUPTED
        try:
            status = command(options)
        except GrowError as error:
            status = error.exit_status
            raise
        finally:
            options.ranks.end(status)
        return status


def _launched(workers: int, arguments: Sequence[str]) -> int:
    """Run the command in so many processes of this machine by torchrun; return the exit status of the first
    failure.
    """
    import logging

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import get_args_parser, run

    # Each process reports its own errors.
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torchrun does so, too, but prints a warning
    options = ["--standalone", f"--nproc-per-node={workers}", "--no-python", sys.executable, "-m", "growc"]
    try:
        run(get_args_parser().parse_args([*options, *arguments]))
    except ChildFailedError as error:
        return int(error.get_first_failure()[1].exitcode)
    except SignalException:
        return INTERRUPTED
    return 0
