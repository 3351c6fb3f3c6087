"""Numbers that are put into each row at a place of its own: rows and places go in pairs, and no axis cuts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import growc


class Marked(nn.Module):
    """Scores of rows, or what they are made of, one number of which is written over."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.inside, self.up, self.down = inside, nn.Linear(5, 8), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        made = torch.relu(self.up(x))
        made = made if self.inside else self.down(made)
        marked = made.clone()
        marked[torch.arange(len(x)), places] = 2.0
        return self.down(marked) if self.inside else marked


INPUTS = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([4, 0, 2])


def test_a_place_in_each_row_leaves_what_it_is_made_of_free():
    torch.manual_seed(0)
    source = Marked(inside=False).eval()
    made = growc.apply(source, "widen ffn to 12 with neighbor copy\nexpect exact", INPUTS)
    with torch.no_grad():
        torch.testing.assert_close(made(*INPUTS), source(*INPUTS))


def test_an_axis_with_a_place_in_each_row_is_frozen():
    recipe = 'widen axis 0 of "up.weight" to 12 with neighbor copy'
    with pytest.raises(growc.GrowError, match=r"scatter|ScatterND|index_put"):
        growc.plan(recipe, Marked(inside=True).eval(), example_inputs=INPUTS)
