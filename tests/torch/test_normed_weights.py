"""Weights that modules compute by their norms, however it is spelled: what is trained stays so."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

import growc
from growc.plans.execute import execute, read_for
from growc.plans.plan import MEAN, ZERO, AxisStep, Layout, LeafStep, WeightNormRole, WeightPlan
from growc.plans.plan_to_json import from_json, to_json
from growc.training.param_groups import entry_kinds

WIDTH, INNER = 8, 12


class Spelled(nn.Module):
    """A linear layer that computes its weight."""

    shape: tuple[int, ...] = (-1, 1)

    def __init__(self, linear):
        super().__init__()
        self.v, self.bias = nn.Parameter(linear.weight.detach().clone()), linear.bias
        self.g = nn.Parameter(torch.rand(len(self.v)).reshape(self.shape))

    def weight(self):
        return self.g * self.v / self.v.norm(dim=1, keepdim=True)

    def forward(self, x):
        return nn.functional.linear(x, self.weight(), self.bias)


class Roots(Spelled):
    def weight(self):
        return self.g * (self.v / self.v.pow(2).sum(1, keepdim=True).sqrt())


class Vector(Spelled):
    shape = (-1,)

    def weight(self):
        return self.g[:, None] * (self.v / torch.linalg.vector_norm(self.v, dim=1, keepdim=True))


class Bounded(Spelled):
    def weight(self):
        return self.g * self.v / (self.v.norm(dim=1, keepdim=True) + 0.1)


class Columns(Spelled):
    """Lengths of rows, and factors of columns: no tensors of this form make another weight."""

    def __init__(self, linear):
        super().__init__(linear)
        self.g = nn.Parameter(torch.rand(self.v.shape[1]))


class Block(nn.Module):
    def __init__(self, normed):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = normed(nn.Linear(WIDTH, INNER)), normed(nn.Linear(INNER, WIDTH))

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, normed):
        super().__init__()
        self.stem, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 4)
        self.layers = nn.ModuleList(Block(normed) for _ in range(2))

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


SPELLINGS = {
    "of rows": parametrizations.weight_norm,
    "of columns": lambda linear: parametrizations.weight_norm(linear, dim=1),
    "of all": lambda linear: parametrizations.weight_norm(linear, dim=None),
    "by a hook": weight_norm,
    "by hand": Spelled,
    "by roots": Roots,
    "by a vector": Vector,
}


def net(normed):
    """One with parameters of their own: lengths are of both signs, and one is zero."""
    torch.manual_seed(2)
    made = Net(normed)
    for name, parameter in made.named_parameters():
        drawn = torch.randn_like(parameter)
        if name.endswith((".g", "_g", "original0")) and parameter.numel() > 1:
            drawn.flatten()[1] = 0
        parameter.data = drawn + 1 if "norm." in name or not drawn.ndim else drawn / 2
    return made.eval()


def linear_weight(linear):
    """The weight that a layer computes, by what it makes of the unit vectors."""
    with torch.no_grad():
        return (linear(torch.eye(WIDTH)) - linear(torch.zeros(1, WIDTH))).T


WIDE = "widen hidden to 11 with average fill\nwiden ffn to 24 with cyclic copy"
NOISE = "widen ffn to 17 with uniform copy split random noise 0.1 balanced"
CASES = [*((spelling, WIDE) for spelling in SPELLINGS), ("of rows", NOISE), ("of columns", NOISE)]
CASES += [("of rows", "widen ffn to 17 with zero fill")]


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
@pytest.mark.parametrize(("spelling", "recipe"), CASES)
def test_the_module_keeps_what_it_trains(spelling, recipe):
    module, x = net(SPELLINGS[spelling]), torch.randn(2, 5, 3)
    result = growc.apply(module, f"{recipe}\nexpect exact", x)
    assert result.state_dict().keys() == module.state_dict().keys()
    assert [n for n, _ in result.named_parameters()] == [n for n, _ in module.named_parameters()]
    assert not any("training will not keep its norm" in w for w in result.plan.warnings)
    for mode in (True, False):
        torch.testing.assert_close(result.train(mode)(x), module.train(mode)(x))
    result(x).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in result.parameters())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spelling", ["of rows", "of all", "by a vector"])
def test_new_layers_compute_their_weights_as_the_others_do(spelling):
    module, x = net(SPELLINGS[spelling]), torch.randn(2, 5, 3)
    recipe = "stack layers to 3 by last with zero outputs\nwiden hidden to 16 with cyclic copy\nexpect exact"
    result = growc.apply(module, recipe, x)
    torch.testing.assert_close(result(x), module(x))
    module.layers.append(copy.deepcopy(module.layers[1]))
    assert result.state_dict().keys() == module.state_dict().keys()


@pytest.mark.parametrize("spelling", ["of rows", "of all", "by a vector"])
def test_new_layers_that_are_drawn_compute_their_weights_from_what_was_drawn(spelling):
    module, x = net(SPELLINGS[spelling]), torch.randn(2, 5, 3)
    result = growc.apply(module, "stack layers to 3 by last with random fill", x, check=False)
    module.layers.append(copy.deepcopy(module.layers[1]))
    module.load_state_dict(result.state_dict())
    torch.testing.assert_close(result(x), module(x))
    old, new = (linear_weight(layer.up) for layer in module.layers[1:])
    assert 0.5 < float(new.std() / old.std()) < 2
    assert abs(np.corrcoef(old.ravel(), new.ravel())[0, 1]) < 5 / np.sqrt(old.numel())


@pytest.mark.parametrize("other", [Bounded, Columns])
def test_a_look_alike_of_a_weight_norm_is_stored_and_trained(other):
    module, x = net(other), torch.randn(2, 5, 3)
    result = growc.apply(module, "widen ffn to 24 with cyclic copy\nexpect exact", x)
    torch.testing.assert_close(result(x), module(x))
    stored = [name for name, _ in result.named_parameters() if name.startswith("growc_")]
    assert len(stored) == 4
    assert set(stored) <= result.state_dict().keys()


def test_one_module_that_is_called_twice_stays_one():
    module, x = net(parametrizations.weight_norm), torch.randn(2, 5, 3)
    module.layers[1].up = module.layers[0].up
    result = growc.apply(module, "widen hidden to 16 with cyclic copy\nexpect exact", x)
    assert [n for n, _ in result.named_parameters()] == [n for n, _ in module.named_parameters()]
    torch.testing.assert_close(result(x), module(x))


def test_lineage_knows_which_entries_are_copies():
    module, x = net(parametrizations.weight_norm), torch.randn(2, 5, 3)
    result = growc.apply(module, "widen ffn to 24 with cyclic copy", x)
    kinds = entry_kinds(result, result.lineage)
    place = "layers.0.up.parametrizations.weight.original"
    assert kinds[f"{place}1"][:, 0].tolist() == [0] * INNER + [1] * INNER
    assert kinds[f"{place}0"].flatten().tolist() == [0] * INNER + [1] * INNER


def test_a_plan_from_json_makes_the_same_parts():
    module, x = net(parametrizations.weight_norm), torch.randn(2, 5, 3)
    result = growc.apply(module, "widen ffn to 24 with cyclic copy split random", x)
    plan = from_json(to_json(result.plan))
    assert to_json(plan) == to_json(result.plan)
    tensors = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    parts = [weight for weight in plan.weights if weight.normed is not None]
    assert len(parts) == 8
    for weight in parts:
        assert read_for(weight) == {weight.normed.direction, weight.normed.length}
        made = execute(weight, tensors[weight.source], tensors.__getitem__)
        np.testing.assert_array_equal(made, result.state_dict()[weight.name].numpy())


def test_a_direction_that_vanishes_gets_the_length_of_the_longest():
    tensors = {"v": np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 4.0]]), "g": np.array([[3.0], [1.0], [0.0]])}
    index = np.array([0, 1, 2, -1, -1])
    leaf = LeafStep(3, index, np.ones(5), np.array([ZERO, ZERO, ZERO, MEAN, ZERO]))
    steps = (AxisStep(0, Layout("leaf", (), leaf), "makes"),)
    normed = WeightNormRole("direction", "v", "g", (1,), steps)
    sizes = {"v": (5, 2), "g": (5, 1)}
    made = {
        name: execute(
            WeightPlan(name, name, "float64", old.shape, sizes[name], steps, normed=part),
            old,
            tensors.__getitem__,
        )
        for (name, old), part in zip(tensors.items(), (normed, replace(normed, part="length")), strict=True)
    }
    np.testing.assert_allclose(made["g"].flatten(), [3, 1, 0, 2 / 3, 0])  # the mean of 3, -1 and 0
    np.testing.assert_allclose(made["v"][:3], tensors["v"])
    np.testing.assert_allclose(np.linalg.norm(made["v"], axis=1), [2, 2, 4, 4 / 3, 4])
    np.testing.assert_allclose(made["v"][3], [4 / 3, 0])
