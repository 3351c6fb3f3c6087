"""Logs of programs that write in place, and of what programs make of numbers alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from torch import Tensor, nn

from growc.dialects.transformers.log.entry import Log, alike, same_logs
from growc.dialects.transformers.log.record import operator_log


class Plain(nn.Module):
    def __init__(self, run: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 6))
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x, self.weight)


def log_of(run: Callable[[Tensor, Tensor], Tensor]) -> Log:
    return operator_log(Plain(run), {"x": torch.zeros(3, 4)})


def in_place(x: Tensor, weight: Tensor) -> Tensor:
    made = x @ weight
    shown = made[:, 2:]
    made[:, :3].mul_(2.0)
    made[0].copy_(made[1])
    parts = made.chunk(2, dim=1)
    parts[1].add_(1.0)
    return made + shown.sum()


def functional(x: Tensor, weight: Tensor) -> Tensor:
    made = x @ weight
    made = torch.slice_scatter(made, made[:, :3].mul(2.0), 1, 0, 3)
    made = torch.select_scatter(made, made[1], 0, 0)
    made = torch.slice_scatter(made, made.chunk(2, dim=1)[1].add(1.0), 1, 3, 6)
    return made + made[:, 2:].sum()


def test_a_tensor_after_a_write_is_another_value():
    assert log_of(in_place) == log_of(functional)


def test_a_draw_whose_chance_is_left_out_is_that_of_one_half():
    said = log_of(lambda x, weight: (x @ weight).bernoulli_())
    assert same_logs(said, log_of(lambda x, weight: (x @ weight).bernoulli_(0.5)))
    assert not same_logs(said, log_of(lambda x, weight: (x @ weight).bernoulli_(0.25)))


def test_a_view_shows_what_stands_there_when_it_is_read():
    def early(x: Tensor, weight: Tensor) -> Tensor:
        made = x @ weight
        shown = made[0] + 0.5
        made.mul_(2.0)
        return shown + made

    def late(x: Tensor, weight: Tensor) -> Tensor:
        made = x @ weight
        made.mul_(2.0)
        return made[0] + 0.5 + made

    assert log_of(early) != log_of(late)


def scaled(values: Callable[[], Tensor]) -> Log:
    return log_of(lambda x, weight: (x @ weight) * values())


def test_numbers_are_the_same_however_they_are_made():
    computed = scaled(lambda: torch.arange(1, 7).float() * 2.0)
    written = scaled(lambda: torch.tensor([2.0, 4.0, 6.0, 8.0, 10.0, 12.0]))
    others = scaled(lambda: torch.tensor([2.0, 4.0, 6.0, 8.0, 10.0, 14.0]))
    assert computed != written
    assert same_logs(computed, written)
    assert not same_logs(computed, others)
    assert alike(computed, others) is not None


def test_whole_numbers_are_structure():
    def chosen(values: Callable[[], Tensor]) -> Log:
        return log_of(lambda x, weight: (x @ weight)[:, values()])

    computed = chosen(lambda: torch.arange(3) + 1)
    assert same_logs(computed, chosen(lambda: torch.tensor([1, 2, 3])))
    assert alike(computed, chosen(lambda: torch.tensor([1, 2, 4]))) is None


def test_every_entry_of_a_large_constant_counts():
    def added(at: int) -> Log:
        values = torch.zeros(3, 6, 200)
        values[1, 2, at] = 1.0
        return log_of(lambda x, weight: (x @ weight)[..., None] + values)

    assert not any(same_logs(added(7), added(at)) for at in range(8, 40))
    assert same_logs(added(7), added(7))


def test_a_view_of_a_view_shows_the_same():
    plain = log_of(lambda x, weight: x @ weight)
    assert log_of(lambda x, weight: (x @ weight)[:, None].expand(3, 1, 6).reshape(3, 6)) == plain
    parted = log_of(lambda x, weight: (x @ weight).view(3, 2, 3) + 1)
    assert log_of(lambda x, weight: (x @ weight).view(18).view(3, 2, 3) + 1) == parted
    assert log_of(lambda x, weight: (x @ weight).view(3, 3, 2).transpose(1, 2) + 1) != parted


def test_random_or_uninitialised_numbers_are_not_known():
    drawn = [log_of(lambda x, weight: (x @ weight) * torch.rand(6)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert drawn[0].folded == drawn[0]
    unset = log_of(lambda x, weight: (x @ weight) * torch.empty(6))
    assert unset.folded == unset


def test_nothing_without_values_is_kept_by_a_class():
    """Beit keeps its indices in a cache of the process, unless it is being captured."""
    import growc

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    shape = {"image_size": 8, "patch_size": 4, "use_relative_position_bias": True}
    module = transformers.BeitForImageClassification(transformers.BeitConfig(**sizes, **shape)).eval()
    growc.plan("widen ffn to 24 with zero fill", module)
    made = module(torch.zeros(1, 3, 8, 8)).logits
    assert type(made) is Tensor


def test_a_size_that_a_constant_says_is_known():
    class Padded(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.register_buffer("sizes", torch.tensor([size, 4]), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            size = torch.ops.aten.item.default(torch.ops.aten.select.int(self.sizes, 0, 0))
            places = torch.ops.aten.arange.start(0, size)
            return x + torch.ops.aten.constant_pad_nd.default(places, [1, 0], 0).sum()

    said = [operator_log(Padded(size), {"x": torch.zeros(2, 3)}) for size in (3, 3, 5)]
    assert said[0] == said[1]
    assert said[0] != said[2]
