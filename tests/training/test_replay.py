"""Memory replay: proportions, order, and going on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from growc.training.replay import Mixer, Replay, remembered

SIZES = (50, 7, 11)


def source_of(sample: int) -> int:
    return 0 if sample < 50 else 1 if sample < 57 else 2


@pytest.mark.parametrize(
    "shares", [(0.9, 0.1, 0.0), (0.5, 0.25, 0.25), (1 / 3, 1 / 3, 1 / 3), (0.0, 0.7, 0.3)]
)
def test_every_source_has_its_share_at_any_time(shares: Sequence[float]) -> None:
    mixer = Mixer(SIZES, lambda step: shares, batch=8, steps=60, seed=4)
    counts: Counter[int] = Counter()
    for n, sample in enumerate(mixer, 1):
        counts[source_of(sample)] += 1
        for source, share in enumerate(shares):
            assert abs(counts[source] - n * share) < 1 + math.log(3)
            assert share > 0 or not counts[source]
    assert sum(counts.values()) == len(mixer) == 480


def test_a_model_recovers_on_memories_alone() -> None:
    mixer = Mixer(SIZES, Replay(memories=2, share=0.25, recovery=5), batch=8, steps=25)
    samples = [source_of(sample) for sample in mixer]
    batches = [Counter(samples[at : at + 8]) for at in range(0, 200, 8)]
    assert all(batch == {1: 4, 2: 4} for batch in batches[:5])
    assert all(batch == {0: 6, 1: 1, 2: 1} for batch in batches[5:])


def test_a_source_is_used_up_before_it_is_used_again() -> None:
    mixer = Mixer((5, 3), lambda step: (0.5, 0.5), batch=2, steps=30, seed=2)
    samples = list(mixer)
    large, small = ([s for s in samples if (s < 5) == first] for first in (True, False))
    turns = [large[at : at + 5] for at in range(0, 30, 5)]
    assert all(sorted(turn) == [0, 1, 2, 3, 4] for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1
    assert all(sorted(small[at : at + 3]) == [5, 6, 7] for at in range(0, 30, 3))
    assert list(mixer) == samples, "and then from the beginning"
    assert list(Mixer((5, 3), lambda step: (0.5, 0.5), batch=2, steps=30, seed=3)) != samples


def test_batches_go_on_where_they_stopped() -> None:
    def mixer() -> Mixer:
        return Mixer(SIZES, Replay(2, 0.3, recovery=2), batch=4, steps=12, seed=9)

    data = ConcatDataset([TensorDataset(torch.arange(n) + 100 * k) for k, n in enumerate(SIZES)])
    whole = [batch.tolist() for (batch,) in DataLoader(data, batch_size=4, sampler=mixer())]
    first = mixer()
    begun = [batch.tolist() for (batch,) in islice(DataLoader(data, batch_size=4, sampler=first), 5)]
    second = mixer()
    second.load_state_dict(first.state_dict())
    rest = [batch.tolist() for (batch,) in DataLoader(data, batch_size=4, sampler=second)]
    assert begun + rest == whole


def test_another_mixture_does_not_go_on() -> None:
    state = Mixer(SIZES, Replay(2, 0.3), batch=4, steps=3).state_dict()
    for other in (
        Mixer(SIZES, Replay(2, 0.3), batch=4, steps=3, seed=1),
        Mixer((9, 9), Replay(1, 0.3), batch=4, steps=3),
    ):
        with pytest.raises(ValueError, match="another mixture"):
            other.load_state_dict(state)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.5, 0.6, -0.1), (0.5, 0.2, 0.2)])
def test_numbers_that_are_no_shares_are_refused(shares: Sequence[float]) -> None:
    with pytest.raises(ValueError, match="no shares"):
        list(Mixer(SIZES, lambda step: shares, batch=4, steps=3))


def test_a_memory_keeps_different_samples_of_a_domain() -> None:
    kept = remembered(100, 30, seed=1)
    assert len(set(kept)) == 30
    assert kept == sorted(kept) == remembered(100, 30, seed=1)
    assert set(kept) <= set(range(100))
    assert kept != remembered(100, 30, seed=2)


def test_samples_beyond_the_end_and_empty_sources_are_refused() -> None:
    with pytest.raises(ValueError, match="no sample 13"):
        Mixer(SIZES, Replay(2, 0.3), batch=4, steps=3).seek(13)
    with pytest.raises(ValueError, match="batches"):
        Mixer((4, 0), Replay(1, 0.3), batch=4, steps=3)
    with pytest.raises(ValueError, match="cannot have"):
        Replay(0, 0.3)
