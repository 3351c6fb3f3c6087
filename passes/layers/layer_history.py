"""What became of a model's layers: which of the source's each is, and how they stood in between."""

from __future__ import annotations

from dataclasses import dataclass

from growc.plans.plan import Gap, Summary


@dataclass(frozen=True)
class Move:
    """What one statement does to a run: layer k of the result was layer `order[k]` before it."""

    number: int
    order: tuple[int, ...]


@dataclass(frozen=True)
class Past:
    """One run of layers. `count`: how many the source has; `zeroed`: which of the result's add nothing."""

    count: int
    moves: tuple[Move, ...] = ()
    zeroed: tuple[bool, ...] = ()

    @staticmethod
    def of(count: int) -> Past:
        """Nothing has moved yet."""
        return Past(count, (), (False,) * count)

    @property
    def order(self) -> tuple[int, ...]:
        """The source's layer of every layer of the result."""
        return tuple(self.number_before(k, 0) for k in range(self.count_before(None)))

    @property
    def sources_zeroed(self) -> frozenset[int]:
        """The source's layers of which some copy adds nothing."""
        return frozenset(k for k, zero in zip(self.order, self.zeroed, strict=True) if zero)

    @property
    def moved(self) -> bool:
        """Whether anything is another layer than in the source."""
        return self.order != tuple(range(self.count))

    def count_before(self, moment: int | None) -> int:
        """How many layers there were before the statement of a number; None: after the last one."""
        done = [m for m in self.moves if moment is None or m.number < moment]
        return len(done[-1].order) if done else self.count

    def number_before(self, layer: int, moment: int) -> int:
        """The number that a layer of the result, or the layer that it came from, had before a statement."""
        for move in reversed(self.moves):
            if move.number < moment:
                break
            layer = move.order[layer]
        return layer

    def after(self, move: Move, zeroed: tuple[bool, ...]) -> Past:
        """One statement more; `zeroed` of the layers as they stand after it."""
        return Past(self.count, (*self.moves, move), zeroed)


@dataclass(frozen=True)
class Depth:
    """All runs of a model; where the result is not the source; each statement's line of the plan."""

    runs: tuple[Past, ...] = ()
    gaps: tuple[Gap, ...] = ()
    summaries: tuple[tuple[int, Summary], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any layer moves."""
        return any(run.moved for run in self.runs)
