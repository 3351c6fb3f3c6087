"""The processes of one run under torch.distributed: the first decides, and all of them do what it asks for.

A process that is alone does everything itself, without torch.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from growc.errors.diagnostic import Diagnostic, GrowError

Made = TypeVar("Made")
Job = Callable[[int, int], Made]
"""What a process does that is told its number, and how many there are."""

PATIENCE = timedelta(days=30)
"""So long does a process wait for others: planning and comparing are the first one's alone."""


@dataclass(frozen=True)
class _End:
    """There is nothing more to do."""

    status: int


@dataclass(frozen=True)
class Ranks:
    """How many processes there are, and the number of this one.

    again: whether they are started anew if one of them fails.
    """

    rank: int = 0
    size: int = 1
    again: bool = False

    def each(self, job: Job[Made], own: Job[Made] | None = None) -> list[Made]:
        """What a job gives in every process, in their order; asked for by the first one.

        `own` is what it does itself. The job goes to the others by pickle. Raises the first error of one of
        them, once all are done; GrowError (G502) where one has ended.
        """
        if self.size == 1:
            return [(own or job)(0, 1)]
        _sent(job)
        made: list[Made] = []
        for outcome in self._outcomes(own or job):
            if isinstance(outcome, Exception):
                raise outcome
            made.append(outcome)
        return made

    def serve(self) -> int:
        """Do what the first process asks for until it ends; gives its exit status."""
        while not isinstance(job := _sent(None), _End):
            assert callable(job), job
            self._outcomes(job)
        return job.status

    def end(self, status: int) -> None:
        """Let the others end with this status."""
        if self.size > 1:
            with contextlib.suppress(GrowError):  # of those that have ended
                _sent(_End(status))

    def _outcomes(self, job: Job[Made]) -> list[Made | Exception]:
        """Results and errors of all processes; others than the first one know their own alone."""
        import torch.distributed as dist

        try:
            outcome: Made | Exception = job(self.rank, self.size)
        except Exception as error:  # noqa: BLE001 - the first process tells it
            outcome = _portable(error)
        found = [outcome] * self.size
        with _in_touch():
            dist.gather_object(outcome, found if self.rank == 0 else None)
        return found


ALONE = Ranks()


def started_by_torchrun() -> bool:
    """Whether this process is one of several that torchrun, or what is built on it, has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextlib.contextmanager
def joined() -> Iterator[Ranks]:
    """The processes that torchrun has started, on CPUs."""
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    counts = (f"TORCHELASTIC_{name}" for name in ("RESTART_COUNT", "MAX_RESTARTS"))
    begun, most = (int(os.environ.get(count, "0")) for count in counts)
    found, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    # where processes of an earlier start were reached stands there, too
    store = PrefixStore(f"growc/{begun}", found)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield Ranks(rank, size, begun < most)
    finally:
        dist.destroy_process_group()


def _sent(message: object) -> object:
    """What the first process sends to all."""
    import torch.distributed as dist

    box: list[object] = [message]
    with _in_touch():
        dist.broadcast_object_list(box)
    return box[0]


@contextlib.contextmanager
def _in_touch() -> Iterator[None]:
    """torch says RuntimeError where a process is gone."""
    try:
        yield
    except RuntimeError as error:
        message = "another process of this run has ended"
        remedy = "its own output says why; `torchrun --max-restarts N` starts all of them anew"
        raise GrowError(Diagnostic("G502", message, help=remedy)) from error


def _portable(error: Exception) -> Exception:
    """An error that can be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - of whatever is in it
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
