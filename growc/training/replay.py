"""Memory replay: batches that mix a new domain with samples kept of earlier ones.

Qin et al. 2022, "ELLE": a memory of each domain is kept. An expanded model first recovers on the memory alone
(function-recovering warm-up), then learns the new domain together with the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from torch.utils.data import Sampler

FractionsAt = Callable[[int], Sequence[float]]
"""Function that returns each source's fraction of the batch at a step, counted from 0. Fractions sum to 1."""


@dataclass(frozen=True)
class Replay:
    """ELLE's shares of the new domain and of `memories` earlier ones, which have equal shares.

    share: that of all memories together. recovery: the number of steps of function-recovering warm-up, on
    memories alone.
    """

    memories: int
    share: float
    recovery: int = 0

    def __post_init__(self) -> None:
        if self.memories < 1 or not 0 <= self.share <= 1:
            raise ValueError(f"{self.memories} memories cannot have the share {self.share}")

    def __call__(self, step: int) -> tuple[float, ...]:
        """Return the shares of the new domain and of each memory."""
        share = 1.0 if step < self.recovery else self.share
        return (1 - share, *[share / self.memories] * self.memories)


def remembered(size: int, count: int, seed: int = 0) -> list[int]:
    """Return the `count` samples that the memory of a domain of `size` samples keeps, drawn uniformly."""
    return sorted(map(int, np.random.default_rng(seed).choice(size, count, replace=False)))


class Mixer(Sampler[int]):
    """Sampler of several concatenated sources, mixed by shares, for any DataLoader.

    The next sample comes from the source that is furthest behind its share. So with constant shares, each of
    m sources is within 1 + ln m samples of its share at any time. That holds for any division of samples into
    batches: by processes, and by accumulation of gradients. A source is drawn without repetition until it is
    used up, then again in another order.

    The state is the number of drawn samples. It is taken between batches. If workers draw ahead, `seek` goes
    to the number of samples that were used. A Trainer needs neither: it skips used samples itself.
    """

    def __init__(
        self, sizes: Sequence[int], shares: FractionsAt, *, batch: int, steps: int, seed: int = 0
    ) -> None:
        """`sizes` are the sources' numbers of samples.

        `batch` is the number of samples per step, over all processes.
        """
        if not sizes or min(*sizes, batch, steps) < 1:
            raise ValueError(f"no {steps} batches of {batch} from sources of {list(sizes)}")
        self.sizes, self.shares, self.batch, self.steps, self.seed = tuple(sizes), shares, batch, steps, seed
        self._starts = (0, *accumulate(self.sizes))
        self._orders: dict[int, tuple[int, list[int]]] = {}
        self.seek(0)

    def __len__(self) -> int:
        """Return the number of samples of all steps."""
        return self.batch * self.steps

    def __iter__(self) -> Iterator[int]:
        """Yield samples from the present position to the end, and return to the beginning."""
        while self.drawn < len(self):
            source = self._next_source()
            turn, place = divmod(self._taken[source] - 1, self.sizes[source])
            yield self._starts[source] + self._order(source, turn)[place]
        self.seek(0)

    def seek(self, drawn: int) -> None:
        """Go to the position after `drawn` samples. Raises ValueError beyond the end."""
        if not 0 <= drawn <= len(self):
            raise ValueError(f"there is no sample {drawn} among {len(self)}")
        self.drawn = 0
        self._taken, self._owed = [0] * len(self.sizes), [0.0] * len(self.sizes)
        while self.drawn < drawn:
            self._next_source()

    def state_dict(self) -> dict[str, object]:
        """Return the number of drawn samples, and the sizes, batch and seed of the mixture."""
        return {"drawn": self.drawn, "sizes": list(self.sizes), "batch": self.batch, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continue where `state_dict` was taken. Raises ValueError for the state of another mixture."""
        own, drawn = self.state_dict(), state.get("drawn")
        if not isinstance(drawn, int) or {**own, "drawn": drawn} != dict(state):
            raise ValueError(f"the state {dict(state)} is of another mixture than {own}")
        self.seek(drawn)

    def _next_source(self) -> int:
        if self.drawn % self.batch == 0:
            self._now = _checked(self.shares(self.drawn // self.batch), len(self.sizes))
        self._owed = [owed + share for owed, share in zip(self._owed, self._now, strict=True)]
        source = max((k for k, share in enumerate(self._now) if share > 0), key=self._owed.__getitem__)
        self._owed[source] -= 1
        self._taken[source] += 1
        self.drawn += 1
        return source

    def _order(self, source: int, turn: int) -> list[int]:
        if self._orders.get(source, (-1, []))[0] != turn:
            draws = np.random.default_rng([self.seed, source, turn])
            self._orders[source] = turn, draws.permutation(self.sizes[source]).tolist()
        return self._orders[source][1]


def _checked(shares: Sequence[float], count: int) -> Sequence[float]:
    if len(shares) != count or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise ValueError(f"{list(shares)} are no shares of {count} sources")
    return shares
