"""The processes of one run under torch.distributed: the first one decides, and all carry out its jobs.

A single process does everything itself, without torch.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from growc.errors.diagnostic import Diagnostic, GrowError

Made = TypeVar("Made")
Job = Callable[[int, int], Made]
"""A job for a process, called with its number and the number of processes."""

PATIENCE = 30
"""The most days that a process waits for others, since only the first one plans and compares."""


@dataclass(frozen=True)
class _End:
    """The message that there are no more jobs."""

    status: int


@dataclass(frozen=True)
class Ranks:
    """The number of processes, and the number of this one.

    again: whether all are restarted if one of them fails.
    """

    rank: int = 0
    size: int = 1
    again: bool = False

    def each(self, job: Job[Made], own: Job[Made] | None = None) -> list[Made]:
        """The results of a job in every process, in their order; called by the first process.

        own: the first process's own version of the job. The job is sent to the others by pickle. Raises the
        first error of any process, once all are done; GrowError (G502) if a process has ended.
        """
        if self.size == 1:
            return [(own or job)(0, 1)]
        _sent(job)
        results: list[Made] = []
        for outcome in self._outcomes(own or job):
            if isinstance(outcome, Exception):
                raise outcome
            results.append(outcome)
        return results

    def serve(self) -> int:
        """Carry out the jobs of the first process until it ends; return its exit status."""
        while not isinstance(job := _sent(None), _End):
            assert callable(job), job
            self._outcomes(job)
        return job.status

    def end(self, status: int) -> None:
        """End the other processes with this status."""
        if self.size > 1:
            with contextlib.suppress(GrowError):  # others may have ended already
                _sent(_End(status))

    def _outcomes(self, job: Job[Made]) -> list[Made | Exception]:
        """Results and errors of all processes. Processes other than the first know only their own."""
        import torch.distributed as dist

        try:
            outcome: Made | Exception = job(self.rank, self.size)
        except Exception as error:  # noqa: BLE001 - the first process raises it
            outcome = _portable(error)
        outcomes = [outcome] * self.size
        with _in_touch():
            dist.gather_object(outcome, outcomes if self.rank == 0 else None)
        return outcomes


ALONE = Ranks()


def started_by_torchrun() -> bool:
    """Whether torchrun, or a tool built on it, started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextlib.contextmanager
def joined() -> Iterator[Ranks]:
    """In this context, the processes that torchrun started are connected, on CPUs."""
    from datetime import timedelta

    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    counts = (f"TORCHELASTIC_{name}" for name in ("RESTART_COUNT", "MAX_RESTARTS"))
    patience = timedelta(days=PATIENCE)
    restarts, max_restarts = (int(os.environ.get(count, "0")) for count in counts)
    rendezvous_store, rank, size = next(rendezvous("env://", timeout=patience))
    # The store also holds the addresses of processes of an earlier start.
    store = PrefixStore(f"growc/{restarts}", rendezvous_store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=patience)
    try:
        yield Ranks(rank, size, restarts < max_restarts)
    finally:
        dist.destroy_process_group()


def _sent(message: object) -> object:
    """The message that the first process sends to all."""
    import torch.distributed as dist

    box: list[object] = [message]
    with _in_touch():
        dist.broadcast_object_list(box)
    return box[0]


@contextlib.contextmanager
def _in_touch() -> Iterator[None]:
    """In this context, torch's RuntimeError for a lost process becomes GrowError (G502)."""
    try:
        yield
    except RuntimeError as error:
        message = "another process of this run has ended"
        remedy = "its own output says why; `torchrun --max-restarts N` starts all of them anew"
        raise GrowError(Diagnostic("G502", message, help=remedy)) from error


def _portable(error: Exception) -> Exception:
    """The error, or a copy as RuntimeError if it cannot be pickled."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - pickle may raise anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
