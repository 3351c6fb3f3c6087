"""Memory replay: batches that mix a new domain with what is remembered of earlier ones.

Qin et al. 2022, "ELLE": a memory of each domain is kept; an expanded model first recovers on the memory alone
(function-recovering warm-up), then learns the new domain together with the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from torch.utils.data import Sampler

Shares = Callable[[int], Sequence[float]]
"""Which part of a step's batch each source has: numbers that sum to 1, for a step from 0 on."""


@dataclass(frozen=True)
class Replay:
    """ELLE's shares, of the new domain and of each of `memories` earlier ones, which count alike.

    share: of all memories together. recovery: steps of function-recovering warm-up, on memories alone.
    """

    memories: int
    share: float
    recovery: int = 0

    def __post_init__(self) -> None:
        if self.memories < 1 or not 0 <= self.share <= 1:
            raise ValueError(f"{self.memories} memories cannot have the share {self.share}")

    def __call__(self, step: int) -> tuple[float, ...]:
        """Shares of the new domain, and of each memory."""
        share = 1.0 if step < self.recovery else self.share
        return (1 - share, *[share / self.memories] * self.memories)


def remembered(size: int, count: int, seed: int = 0) -> list[int]:
    """Which `count` samples of a domain with `size` its memory keeps, each as likely as any other."""
    return sorted(map(int, np.random.default_rng(seed).choice(size, count, replace=False)))


class Mixer(Sampler[int]):
    """Numbers of samples in the concatenation of several sources, mixed by shares; for any DataLoader.

    The next sample is of the source that is owed most. Of m sources with constant shares, each is therefore
    within 1 + ln m samples of its share at any time, however the samples are cut into batches: by processes,
    and by accumulation of gradients. A source is drawn without repetition until it is used up, then anew in
    another order.

    The state is how many samples are drawn. It is taken between batches; where workers draw ahead, `seek`
    goes to the number of samples that were used. A Trainer needs neither: it skips what was used.
    """

    def __init__(
        self, sizes: Sequence[int], shares: Shares, *, batch: int, steps: int, seed: int = 0
    ) -> None:
        """`sizes` are numbers of samples; `batch` is how many a step takes, of all processes together."""
        if not sizes or min(*sizes, batch, steps) < 1:
            raise ValueError(f"no {steps} batches of {batch} from sources of {list(sizes)}")
        self.sizes, self.shares, self.batch, self.steps, self.seed = tuple(sizes), shares, batch, steps, seed
        self._starts = (0, *accumulate(self.sizes))
        self._orders: dict[int, tuple[int, list[int]]] = {}
        self.seek(0)

    def __len__(self) -> int:
        """How many samples all steps take."""
        return self.batch * self.steps

    def __iter__(self) -> Iterator[int]:
        """From where it stands to the end, after which it stands at the beginning."""
        while self.drawn < len(self):
            source = self._next_source()
            turn, place = divmod(self._taken[source] - 1, self.sizes[source])
            yield self._starts[source] + self._order(source, turn)[place]
        self.seek(0)

    def seek(self, drawn: int) -> None:
        """Stand where `drawn` samples have been drawn. Raises ValueError behind the end."""
        if not 0 <= drawn <= len(self):
            raise ValueError(f"there is no sample {drawn} among {len(self)}")
        self.drawn = 0
        self._taken, self._owed = [0] * len(self.sizes), [0.0] * len(self.sizes)
        while self.drawn < drawn:
            self._next_source()

    def state_dict(self) -> dict[str, object]:
        """How many samples are drawn, and of which mixture."""
        return {"drawn": self.drawn, "sizes": list(self.sizes), "batch": self.batch, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on where `state_dict` was taken. Raises ValueError for the state of another mixture."""
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
