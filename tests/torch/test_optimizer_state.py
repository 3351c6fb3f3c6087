"""Optimizer state takes the maps of gradients: judged by the gradients of grown torch modules."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch import nn

import growc
from growc.plans.execute import execute
from growc.training.optimizer_state import carry, gradient_plan, parameter_groups, read_optimizer

TOKENS = torch.tensor([1, 5, 3, 3, 0, 2])
SIZES = {"hidden": 6, "ffn": 8, "layers": 2}


class LayerNorm(nn.LayerNorm):
    """Without the eps that some growths scale, and that a class cannot take from weights."""

    def __init__(self, size: int) -> None:
        super().__init__(size, eps=0.0)


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True)) * self.weight


class Block(nn.Module):
    def __init__(self, norm, hidden: int, ffn: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = norm(hidden), nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Stream(nn.Module):
    """A residual stream of two feed-forward blocks, with a head that is tied to its table or its own."""

    def __init__(self, norm=LayerNorm, tied: bool = False, *, hidden: int, ffn: int, layers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(7, hidden)
        self.blocks = nn.ModuleList(Block(norm, hidden, ffn) for _ in range(layers))
        self.norm, self.head = norm(hidden), nn.Linear(hidden, 7, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Grown:
    """A module, what a recipe makes of it, and the gradients of both for one loss."""

    def __init__(self, recipe: str, folder, norm=LayerNorm, tied: bool = False) -> None:
        torch.manual_seed(0)
        self.source = Stream(norm, tied, **SIZES)
        for parameter in self.source.parameters():
            nn.init.normal_(parameter, 1 if parameter.ndim == 1 else 0, 0.5)
        torch.onnx.export(
            self.source,
            (TOKENS,),
            folder / "m.onnx",
            input_names=["tokens"],
            dynamic_axes={"tokens": {0: "n"}},
            do_constant_folding=False,
            dynamo=False,
        )
        self.plan = growc.plan(recipe, folder / "m.onnx")
        axes = {name: change.after[0] for name, change in self.plan.axes.items()}
        sizes = {name: axes.get(name, size) for name, size in SIZES.items()}
        self.result = Stream(norm, tied, **sizes).double()
        weights = {w.name: w for w in self.plan.weights}
        state = self.source.double().state_dict()
        with torch.no_grad():
            for name, parameter in self.result.named_parameters():
                weight = weights[name]
                parameter.copy_(
                    0 if weight.zero else torch.tensor(execute(weight, state[origin(weight)].numpy()))
                )
        self.weights = {name: weights[name] for name, _ in self.result.named_parameters()}
        self.loss = [self.backward(m) for m in (self.source, self.result)]

    @staticmethod
    def backward(module: nn.Module) -> float:
        loss = nn.functional.cross_entropy(module(TOKENS), TOKENS.flip(0))
        loss.backward()
        return loss.item()

    def state(self) -> dict:
        """An Adam state that has just seen the gradient."""
        entries = {
            i: {"step": torch.tensor(5.0), "exp_avg": p.grad, "exp_avg_sq": p.grad**2}
            for i, p in enumerate(self.source.parameters())
        }
        group = {"lr": 0.1, "betas": (0.9, 0.99), "params": list(entries)}
        return {"state": entries, "param_groups": [group]}

    def carried(self, **options):
        before = [[name for name, _ in self.source.named_parameters()]]
        after = [name for name, _ in self.result.named_parameters()]
        return carry(self.state(), self.plan, before, after, **options)


def origin(weight) -> str:
    return weight.copy_of or weight.source


EQUAL = [
    ("widen ffn to 12 with uniform copy", LayerNorm, False),
    ("widen hidden to 12 with cyclic copy\nwiden ffn to 13 with neighbor copy", LayerNorm, False),
    ("widen hidden to 12 with cyclic copy", LayerNorm, True),
    ("widen ffn to 12 with tail copy\nwiden ffn to 15 with tail copy", LayerNorm, False),
    ("widen hidden to 9 with tail copy\nwiden ffn to 10 with last copy", RMSNorm, False),
    ("widen hidden to 10 with uniform copy", RMSNorm, True),
]


@pytest.mark.parametrize(("recipe", "norm", "tied"), EQUAL)
def test_the_gradient_of_an_equal_growth_is_the_mapped_gradient(recipe, norm, tied, tmp_path):
    grown = Grown(recipe, tmp_path, norm, tied)
    assert grown.loss[0] == pytest.approx(grown.loss[1], rel=1e-9)
    made = grown.carried()
    assert made.approximate == made.fresh == ()
    for i, parameter in enumerate(grown.result.parameters()):
        entry = made.state["state"][i]
        torch.testing.assert_close(entry["exp_avg"], parameter.grad, rtol=1e-6, atol=1e-12)
        torch.testing.assert_close(entry["exp_avg_sq"], parameter.grad**2, rtol=1e-6, atol=1e-12)


OTHER = [
    ("widen ffn to 12 with uniform copy split random", "blocks.0.up.weight"),
    ("widen ffn to 12 with tail copy with zero outputs", "blocks.0.up.weight"),
    ("widen ffn to 12 with tail copy noise 0.1 balanced", "blocks.0.down.weight"),
    ("widen hidden to 8 with average fill", "table.weight"),
]


@pytest.mark.parametrize(("recipe", "name"), OTHER)
def test_the_gradient_of_another_exact_growth_comes_back_by_the_map_and_is_said_to_be_approximate(
    recipe, name, tmp_path
):
    grown = Grown(recipe, tmp_path)
    assert grown.plan.certificate.exact
    made = grown.carried()
    assert name in made.approximate
    parameters = dict(grown.result.named_parameters())
    for exact in made.exact:
        mapped = made.state["state"][list(parameters).index(exact)]["exp_avg"]
        torch.testing.assert_close(mapped, parameters[exact].grad, rtol=1e-6, atol=1e-12)
    for name, parameter in grown.source.named_parameters():
        assert_comes_back(grown.weights[name], parameter.grad, parameters[name].grad)


def assert_comes_back(weight, gradient, grown) -> None:
    """MᵀG' = G: along what the map makes of a step of the source, both losses change alike."""
    step = np.random.default_rng(0).standard_normal(gradient.shape)
    there = execute(weight, step) - execute(weight, 0 * step)
    assert (grown.numpy() * there).sum() == pytest.approx((gradient.numpy() * step).sum(), rel=1e-5)


@pytest.mark.parametrize("recipe", [recipe for recipe, _ in OTHER])
def test_mapped_state_comes_back_by_the_map(recipe, tmp_path):
    grown = Grown(recipe, tmp_path)
    for name, parameter in grown.source.named_parameters():
        weight = grown.weights[name]
        if not any(leaf_noise(step.layout) for step in weight.steps):
            mapped = execute(gradient_plan(weight), parameter.grad.numpy())
            assert_comes_back(weight, parameter.grad, torch.tensor(mapped))


def leaf_noise(layout) -> bool:
    parts = layout.parts or (layout,)
    return any(part.step is not None and part.step.noise is not None for part in parts)


def test_new_entries_are_zero_where_that_is_asked_for(tmp_path):
    grown = Grown("widen ffn to 12 with tail copy", tmp_path)
    made = grown.carried(new="zero")
    entry = made.state["state"][3]
    assert entry["exp_avg"][8:].abs().max() == 0 == entry["exp_avg_sq"][8:].abs().max()
    assert entry["exp_avg"][:8].abs().min() > 0
    assert "blocks.0.up.weight" in made.approximate


def test_the_step_and_the_options_of_a_group_stay(tmp_path):
    grown = Grown("widen ffn to 12 with tail copy", tmp_path)
    made = grown.carried().state
    assert all(entry["step"] == 5 for entry in made["state"].values())
    assert made["param_groups"] == [{"lr": 0.1, "betas": (0.9, 0.99), "params": list(range(16))}]


def test_a_new_layer_takes_the_state_of_its_source_or_none(tmp_path):
    grown = Grown("stack layers to 3 by last with zero outputs", tmp_path)
    assert grown.loss[0] == pytest.approx(grown.loss[1], rel=1e-9)
    new = tuple(name for name, _ in grown.result.named_parameters() if name.startswith("blocks.2"))
    made = grown.carried()
    assert made.approximate == new
    assert grown.carried(new="zero").fresh == new
    parameters = dict(grown.result.named_parameters())
    for name in made.exact:
        mapped = made.state["state"][list(parameters).index(name)]["exp_avg"]
        torch.testing.assert_close(mapped, parameters[name].grad, rtol=1e-6, atol=1e-12)


def test_adam_goes_on_with_the_carried_state_as_the_source_does(tmp_path):
    """Where each unit is copied once more, Adam moves copies as it moves their source: it forgets scale."""
    grown = Grown("widen ffn to 16 with cyclic copy", tmp_path)
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-4, eps=1e-30) for m in (grown.source, grown.result)]
    optimizers[0].step()
    before = [[name for name, _ in grown.source.named_parameters()]]
    after = [name for name, _ in grown.result.named_parameters()]
    made = carry(optimizers[0].state_dict(), grown.plan, before, after)
    optimizers[1].load_state_dict(made.state)
    moved = grown.result.blocks[0].up.weight.detach().clone()
    optimizers[1].step()
    moved -= grown.result.blocks[0].up.weight.detach()
    torch.testing.assert_close(moved[:8], moved[8:])
    assert moved.abs().max() == pytest.approx(1e-4, rel=1e-6)


# ---------------------------------------------------------------------------------------------- layouts


def stepped(module: nn.Module, groups) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(groups)
    module(TOKENS).sum().backward()
    optimizer.step()
    return optimizer


def test_one_group_has_the_parameters_in_their_order():
    module = Stream(**SIZES)
    state = stepped(module, module.parameters()).state_dict()
    assert parameter_groups(module, state) == [[name for name, _ in module.named_parameters()]]


def test_two_groups_are_those_of_a_trainer():
    module = Stream(**SIZES)
    plain = [n for n, p in module.named_parameters() if p.ndim == 2]
    rest = [n for n, p in module.named_parameters() if p.ndim == 1]
    named = dict(module.named_parameters())
    state = stepped(module, [{"params": [named[n] for n in names]} for names in (plain, rest)]).state_dict()
    assert parameter_groups(module, state) == [plain, rest]


def test_names_in_the_state_are_taken():
    module = Stream(**SIZES)
    backwards = list(module.named_parameters())[::-1]
    state = stepped(module, backwards).state_dict()
    assert parameter_groups(module, state) == [[name for name, _ in backwards]]


def refused(make) -> str:
    with pytest.raises(growc.GrowError) as caught:
        make()
    [problem] = caught.value.diagnostics
    assert problem.code == "G316"
    return problem.message


def test_an_order_that_does_not_fit_is_refused():
    module = Stream(**SIZES)
    state = stepped(module, list(module.parameters())[::-1]).state_dict()
    assert "in the place of `blocks.0.up.weight`" in refused(lambda: parameter_groups(module, state))


def test_state_of_which_nothing_is_known_is_refused(tmp_path):
    grown = Grown("widen ffn to 12 with tail copy", tmp_path)
    state = grown.state()
    state["state"][0]["quantised"] = torch.zeros(1)
    names = [name for name, _ in grown.source.named_parameters()]
    assert "`quantised`" in refused(lambda: carry(state, grown.plan, [names], names))


def test_an_optimizer_file_is_read_and_nothing_in_it_is_executed(tmp_path):
    module = Stream(**SIZES)
    state = stepped(module, module.parameters()).state_dict()
    torch.save(state, tmp_path / "optimizer.pt")
    assert read_optimizer(tmp_path / "optimizer.pt")["param_groups"] == state["param_groups"]

    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("it was executed",))

    (tmp_path / "bomb.pt").write_bytes(pickle.dumps({"state": Bomb()}, protocol=2))
    torch.save({"state": Bomb()}, tmp_path / "bomb2.pt")
    for name in ("bomb.pt", "bomb2.pt", "missing.pt"):
        assert "cannot be read" in refused(lambda name=name: read_optimizer(tmp_path / name))
