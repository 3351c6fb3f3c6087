"""One walk for all that follows a graph: each thing that is reached, once, or behind all that it needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def walk(start: Iterable[T], step: Callable[[T], Iterable[T]], *, nearest: bool = False) -> Iterator[T]:
    """All that is reached from `start` by steps, each once: what was found last first, or the nearest first.

    `step` is asked for what is behind something only after that was handed out, so that who looks for one
    thing may stop there.
    """
    pending = deque(dict.fromkeys(start))
    seen = set(pending)
    while pending:
        one = pending.popleft() if nearest else pending.pop()
        yield one
        fresh = [x for x in dict.fromkeys(step(one)) if x not in seen]
        seen.update(fresh)
        pending.extend(fresh)


def postorder(start: Iterable[T], needs: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """All that is reached from `start`, each once and behind what it needs, in the order of the needs."""
    seen = set[T]()
    for root in start:
        pending = [] if root in seen else [(root, iter(needs(root)))]
        seen.add(root)
        while pending:
            one, rest = pending[-1]
            further = next((x for x in rest if x not in seen), None)
            if further is None:
                yield one
                pending.pop()
            else:
                seen.add(further)
                pending.append((further, iter(needs(further))))
