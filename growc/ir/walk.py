"""Graph traversals: each item that is reached once, in order of discovery or after all that it needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def walk(start: Iterable[T], step: Callable[[T], Iterable[T]], *, nearest: bool = False) -> Iterator[T]:
    """Yield all items that steps reach from `start`, each once: depth first, or nearest first.

    `step` is called on an item only after the item was yielded, so that a search may stop there.
    """
    pending = deque(dict.fromkeys(start))
    seen = set(pending)
    while pending:
        one = pending.popleft() if nearest else pending.pop()
        yield one
        new = [x for x in dict.fromkeys(step(one)) if x not in seen]
        seen.update(new)
        pending.extend(new)


def postorder(start: Iterable[T], needs: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Yield all items that are reached from `start`, each once and after its needs, in the needs' order."""
    seen = set[T]()
    for root in start:
        pending = [] if root in seen else [(root, iter(needs(root)))]
        seen.add(root)
        while pending:
            current, rest = pending[-1]
            next_need = next((x for x in rest if x not in seen), None)
            if next_need is None:
                yield current
                pending.pop()
            else:
                seen.add(next_need)
                pending.append((next_need, iter(needs(next_need))))
