"""Tables with a row for each layer, or between any two: rows go, come and change places with their layers."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from graphs import save
from judging import judge
from onnx.numpy_helper import to_array
from torch import nn

import growc
from growc import api

WIDTH, SIDE = 8, 3


class Net(nn.Module):
    """`between`: a row is added between any two layers, from a table that is resized first; else each layer
    scales its branch by a row."""

    def __init__(self, layers: int, *, between: bool) -> None:
        super().__init__()
        self.between = between
        self.up = nn.ModuleList([nn.Linear(WIDTH, 12) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(12, WIDTH) for _ in range(layers)])
        shape = (layers - 1, 1, 1 + SIDE * SIDE, WIDTH) if between else (layers, WIDTH)
        self.table = nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(layers)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.resized() if self.between else self.table
        for k, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            branch = down(torch.relu(up(x)))
            x = x + (branch if self.between else branch * self.table[k])
            if self.between and k < len(self.up) - 1:
                x = x + rows[k]
        return x

    def resized(self) -> torch.Tensor:
        count, first, grid = len(self.table), self.table[:, :, 0, :][:, None], self.table[:, :, 1:, :]
        grid = grid.transpose(2, 3).view(count, WIDTH, SIDE, SIDE)
        grid = nn.functional.interpolate(grid, size=(4, 4), mode="bicubic", align_corners=False)
        grid = grid.flatten(2).transpose(1, 2).contiguous().view(count, 1, 16, WIDTH)
        return torch.cat((first, grid), dim=2)


def source(layers: int, *, between: bool) -> Net:
    torch.manual_seed(0)
    return Net(layers, between=between).eval()


def rebuilt(net: Net, layers: list[int], rows: list[int | None]) -> Net:
    """The module with these layers and these rows; None: zeros."""
    made = Net(len(layers), between=net.between).eval()
    for k, layer in enumerate(layers):
        made.up[k].load_state_dict(net.up[layer].state_dict())
        made.down[k].load_state_dict(net.down[layer].state_dict())
    zero = torch.zeros_like(made.table[:1])
    found = [zero if row is None else net.table[row : row + 1] for row in rows]
    made.table = nn.Parameter(torch.cat(found).detach())
    return made


INPUT = torch.randn(2, 17, WIDTH, generator=torch.Generator().manual_seed(3))

CASES = [
    ("arrange layers as 0, 0, 1, 2", [0, 0, 1, 2], [0, 0, 1]),
    ("stack layers to 5 by last", [0, 1, 2, 2, 2], [0, 1, None, None]),
    ("arrange layers as 2, 0", [2, 0], [None]),
    ("drop layers 1", [0, 2], [0]),
    ("subclone layers to 2 by first", [0, 1], [0]),
]
"""Recipes, and the layers and rows that they make of three layers with rows between them."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("recipe", "layers", "rows"), CASES)
def test_rows_between_layers_go_with_the_layer_before(recipe, layers, rows):
    net = source(3, between=True)
    made, wanted = growc.apply(net, recipe, example_inputs=(INPUT,), check=False), rebuilt(net, layers, rows)
    assert torch.equal(made.state_dict()["table"], wanted.table)
    torch.testing.assert_close(made(INPUT), wanted(INPUT))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("layers", [[0, 0, 1, 2], [2, 0], [1, 2, 0], [0, 1, 2, 2, 2]])
def test_a_row_for_each_layer_goes_with_it(layers):
    net = source(3, between=False)
    recipe = f"arrange layers as {', '.join(map(str, layers))}"
    made, wanted = (
        growc.apply(net, recipe, example_inputs=(INPUT,), check=False),
        rebuilt(net, layers, layers),
    )
    assert torch.equal(made.state_dict()["table"], wanted.table)
    torch.testing.assert_close(made(INPUT), wanted(INPUT))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", ["last", "each"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("between", [True, False])
def test_what_new_layers_take_of_a_table_adds_nothing(order, count, between):
    net = source(count, between=between)
    recipe = f"stack layers to {2 * count} by {order} with zero outputs\nexpect exact"
    made = growc.apply(net, recipe, example_inputs=(INPUT,), check=False)
    assert len(made.state_dict()["table"]) == 2 * count - between
    torch.testing.assert_close(made(INPUT), net(INPUT))


def test_a_table_of_which_no_row_is_left_goes():
    net = source(2, between=True)
    made = growc.apply(net, "subclone layers to 1 by first", example_inputs=(INPUT,), check=False)
    assert "table" not in made.state_dict()
    torch.testing.assert_close(made(INPUT), net.down[0](torch.relu(net.up[0](INPUT))) + INPUT)


def test_rows_are_resized_with_the_stream():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, WIDTH), Net(3, between=True), nn.Linear(WIDTH, 6)).eval()
    recipe = "stack layers to 4 by last with zero outputs\nwiden hidden to 12 with zero fill\nexpect exact"
    made = growc.apply(net, recipe, example_inputs=(INPUT[..., :5],), check=False)
    assert made.state_dict()["1.table"].shape == (3, 1, 1 + SIDE * SIDE, 12)
    torch.testing.assert_close(made(INPUT[..., :5]), net(INPUT[..., :5]))


def test_a_table_that_something_else_reads_stays():
    class Summed(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + self.table.sum()

    net = Summed(3, between=False).eval()
    made = growc.apply(net, "arrange layers as 0, 1, 2, 2", example_inputs=(INPUT,), check=False)
    assert torch.equal(made.state_dict()["table"], net.table)


TABLE = """
rows (float[N, 8] x0) => (float[N, 3] y)
<float[3, 8] table, float[8, 3] columns, {weights}>
{{
    axis = Constant <value = int64[1] {{0}}> ()
{layers}
    y = MatMul(x3, columns)
}}
"""

LAYER = """
    up{k} = MatMul(x{k}, rows{k})
    r{k} = Relu(up{k})
    b{k} = MatMul(r{k}, one{k})
    i{k} = Constant <value = int64[1] {{{{{k}}}}}> ()
    j{k} = Constant <value = int64[1] {{{{{n}}}}}> ()
    t{k} = {take}
    c{k} = Add(b{k}, t{k})
    x{n} = Add(x{k}, c{k})
"""


@pytest.mark.parametrize("take", ["Gather <axis = 0> (table, i{k})", "Slice (table, i{k}, j{k}, axis)"])
def test_layers_of_a_file_take_their_rows_of_a_table(tmp_path: Path, take: str) -> None:
    layers = "".join(
        LAYER.format(k=k, n=k + 1, take=take.format(k=k)).replace("{{", "{").replace("}}", "}")
        for k in range(3)
    )
    weights = ", ".join(f"float[8, 12] rows{k}, float[12, 8] one{k}" for k in range(3))
    model, out = (
        save(tmp_path / "model.onnx", TABLE.format(weights=weights, layers=layers)),
        tmp_path / "o.onnx",
    )
    judge("stack layers to 6 by each with zero outputs", model, out).assert_exact()
    (table,) = [to_array(w) for w in onnx.load(out).graph.initializer if w.name == "table"]
    (before,) = [to_array(w) for w in onnx.load(model).graph.initializer if w.name == "table"]
    assert (table[::2] == before).all()
    assert (table[1::2] == 0).all()
    api.apply("drop layers 1", model, out, check=False, force=True)
    (table,) = [to_array(w) for w in onnx.load(out).graph.initializer if w.name == "table"]
    assert (table == before[[0, 2]]).all()
