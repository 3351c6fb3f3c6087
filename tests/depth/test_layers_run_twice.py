"""A body of layers that a model runs more than once: what it has one of, it has one of behind a statement."""

from __future__ import annotations

import onnx
import pytest
import torch
from graphs import save
from torch import nn

import growc

WIDTH = 12


class Layer(nn.Module):
    """A feed-forward network with a norm in front."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 20), nn.Linear(20, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Pair(nn.Module):
    """Two inputs through the same layers, compared."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, WIDTH), nn.Linear(6, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.last = nn.Linear(2 * WIDTH, 3)

    def body(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, x, y):
        return self.last(torch.cat([self.body(self.one(x)), self.body(self.other(y))], -1))


@pytest.fixture
def pair():
    torch.manual_seed(0)
    module = Pair(2).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.5)
    return module, (torch.randn(5, 4), torch.randn(5, 6))


def test_new_layers_of_both_runs_have_their_weights_together(pair):
    module, inputs = pair
    grown = growc.apply(module, "stack layers to 4 by whole with zero outputs", inputs)
    assert {name for name, _ in grown.named_parameters()} == {n for n, _ in Pair(4).named_parameters()}
    torch.testing.assert_close(grown(*inputs), module(*inputs), rtol=1e-4, atol=1e-4)
    assert not grown.verification.refutes_exact()


def test_the_result_is_what_the_module_of_that_depth_computes(pair):
    module, inputs = pair
    grown = growc.apply(module, "stack layers to 3 by last with zero outputs", inputs)
    deeper = Pair(3).eval()
    deeper.load_state_dict(grown.state_dict())
    with torch.no_grad():
        for parameter in deeper.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    grown.load_state_dict(deeper.state_dict())
    torch.testing.assert_close(grown(*inputs), deeper(*inputs), rtol=1e-5, atol=1e-5)


def test_layers_that_go_are_gone_from_both_runs(pair):
    module, inputs = pair
    grown = growc.apply(module, "arrange layers as 1, 0, 1", inputs, check=False)
    assert {name for name, _ in grown.named_parameters()} == {n for n, _ in Pair(3).named_parameters()}
    deeper = Pair(3).eval()
    deeper.load_state_dict(grown.state_dict())
    torch.testing.assert_close(grown(*inputs), deeper(*inputs), rtol=1e-5, atol=1e-5)
    assert torch.equal(grown.state_dict()["layers.1.up.weight"], module.layers[0].up.weight)


def test_zero_weights_of_a_new_layer_are_shared_by_both_runs(pair):
    module, inputs = pair
    recipe = "widen ffn to 30 with uniform copy split random\nstack layers to 3 by last with zero outputs"
    grown = growc.apply(module, recipe, inputs)
    assert {name for name, _ in grown.named_parameters()} == {n for n, _ in Pair(3).named_parameters()}
    assert not grown.layers.get_parameter("2.down.weight").any()
    torch.testing.assert_close(grown(*inputs), module(*inputs), rtol=1e-4, atol=1e-4)


def test_drawn_layers_are_drawn_once_for_both_runs(pair):
    module, inputs = pair
    grown = growc.apply(module, "stack layers to 4 by last with random fill seed 3", inputs, check=False)
    deeper = Pair(4).eval()
    deeper.load_state_dict(grown.state_dict())
    torch.testing.assert_close(grown(*inputs), deeper(*inputs), rtol=1e-5, atol=1e-5)
    assert not torch.equal(deeper.layers[2].up.weight, module.layers[1].up.weight)


class Uneven(Pair):
    """One input goes through all layers, the other one through all but the last."""

    def forward(self, x, y):
        y = self.other(y)
        for layer in self.layers[:-1]:
            y = layer(y)
        return self.last(torch.cat([self.body(self.one(x)), y], -1))


def test_runs_that_do_not_move_alike_go_on_to_share_what_they_share():
    torch.manual_seed(0)
    module, inputs = Uneven(3).eval(), (torch.randn(5, 4), torch.randn(5, 6))
    grown = growc.apply(module, "stack layers to layers + 1 by last with zero outputs", inputs)
    torch.testing.assert_close(grown(*inputs), module(*inputs), rtol=1e-5, atol=1e-5)
    kept = {name for name, _ in module.named_parameters()}
    assert kept < {name for name, _ in grown.named_parameters()}


def test_weights_that_a_file_transposes_once_for_both_runs_are_theirs_together(tmp_path):
    def run(x: str, k: int) -> str:
        inner = f"{x}a{k} = MatMul({x}{k}, t{k})  {x}b{k} = Relu({x}a{k})  {x}c{k} = MatMul({x}b{k}, s{k})"
        return f"{inner}  {x}{k + 1} = Add({x}{k}, {x}c{k})"

    turn = "Transpose <perm = [1, 0]>"
    turned = "\n".join(f"t{k} = {turn} (up{k})  s{k} = {turn} (down{k})" for k in range(2))
    layers = "\n".join(run(x, k) for x in "xz" for k in range(2))
    weights = ", ".join(f"float[12, 8] up{k}, float[8, 12] down{k}" for k in range(2))
    graph = f"""g (float[N, 4] x, float[N, 5] z) => (float[N, 3] y, float[N, 3] u)
        <float[4, 8] first, float[5, 8] second, {weights}, float[8, 3] last> {{
        {turned} x0 = MatMul(x, first)  z0 = MatMul(z, second) {layers}
        y = MatMul(x2, last)  u = MatMul(z2, last) }}"""
    save(tmp_path / "pair.onnx", graph)
    done = growc.apply("stack layers to 3 by last with zero outputs", tmp_path / "pair.onnx")
    assert done.plan.certificate.exact
    names = {tensor.name for tensor in onnx.load(done.written).graph.initializer}
    assert sorted(name[:2] for name in names) == ["do"] * 3 + ["fi", "la", "se"] + ["up"] * 3
