"""Optimizer state takes the maps of gradients: judged by the gradients of grown torch modules."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import growc
from growc.checkpoint.files.torch_tensors import on_disk
from growc.errors.diagnostic import GrowError
from growc.plans.execute import execute
from growc.plans.lineage import lineage_of
from growc.training.optimizer_state import carry, gradient_plan, mapped, parameter_groups, read_optimizer
from growc.training.param_groups import entry_kinds

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


def test_a_parameter_that_the_program_does_not_use_keeps_its_state(tmp_path):
    grown, unused = Grown("widen ffn to 12 with uniform copy", tmp_path), torch.randn(3)
    before = [name for name, _ in grown.source.named_parameters()]
    after = [name for name, _ in grown.result.named_parameters()]
    state = grown.state()
    state["state"][len(before)] = {"step": torch.tensor(5.0), "exp_avg": unused}
    state["param_groups"][0]["params"].append(len(before))
    made = carry(state, grown.plan, [[*before, "mask"]], ["mask", *after])
    assert torch.equal(made.state["state"][0]["exp_avg"], unused)
    assert made.exact[0] == "mask"
    with pytest.raises(GrowError, match="the plan knows no weight `another`"):
        carry(state, grown.plan, [[*before, "mask"]], ["another", *after])


def test_new_entries_are_zero_where_that_is_asked_for(tmp_path):
    grown = Grown("widen ffn to 12 with tail copy", tmp_path)
    made = grown.carried(new="zero")
    entry = made.state["state"][3]
    assert entry["exp_avg"][8:].abs().max() == 0 == entry["exp_avg_sq"][8:].abs().max()
    assert entry["exp_avg"][:8].abs().min() > 0
    assert "blocks.0.up.weight" in made.approximate
    mapped = grown.carried().state["state"][3]
    for key in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(entry[key][:8], mapped[key][:8], rtol=0, atol=0)


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


# ------------------------------------------------------------------------------------------- optimizers

OPTIMIZERS = {
    "Adam": lambda named: torch.optim.Adam(named, lr=0.0),
    "AMSGrad": lambda named: torch.optim.Adam(named, lr=0.0, amsgrad=True),
    "AdamW": lambda named: torch.optim.AdamW(named, lr=0.0, weight_decay=0.1),
    "SGD": lambda named: torch.optim.SGD(named, lr=0.0, momentum=0.9, dampening=0.3),
    "Nesterov": lambda named: torch.optim.SGD(named, lr=0.0, momentum=0.9, nesterov=True),
    "Muon": lambda named: torch.optim.Muon([(n, p) for n, p in named if p.ndim == 2], lr=0.0),
}
BATCHES = [TOKENS, TOKENS.roll(2), 6 - TOKENS]


def trained(module: nn.Module, make, batches=BATCHES) -> torch.optim.Optimizer:
    """An optimizer that has seen some batches, at a rate of zero: its state is made of gradients alone."""
    optimizer = make(list(module.named_parameters()))
    for tokens in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(tokens), TOKENS.flip(0)).backward()
        optimizer.step()
    return optimizer


def carried_from(grown: Grown, optimizer: torch.optim.Optimizer, **options):
    state = optimizer.state_dict()
    after = [name for name, _ in grown.result.named_parameters()]
    return carry(state, grown.plan, parameter_groups(grown.source, state), after, **options)


@pytest.mark.parametrize(("recipe", "norm", "tied"), [EQUAL[1], EQUAL[2], EQUAL[4]])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_state_of_an_equal_growth_is_what_its_own_training_makes(make, recipe, norm, tied, tmp_path):
    grown = Grown(recipe, tmp_path, norm, tied)
    made = carried_from(grown, trained(grown.source, make))
    assert made.approximate == made.fresh == ()
    own = trained(grown.result, make).state_dict()
    assert made.state["param_groups"] == own["param_groups"]
    assert made.state["state"].keys() == own["state"].keys()
    for number, entry in own["state"].items():
        assert made.state["state"][number].keys() == entry.keys()
        for key, value in entry.items():
            torch.testing.assert_close(made.state["state"][number][key], value, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("recipe", [EQUAL[1][0], OTHER[0][0], "stack layers to 3 by last with random fill"])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_zero_is_mapped_but_for_what_the_lineage_calls_new(make, recipe, tmp_path):
    grown = Grown(recipe, tmp_path)
    optimizer = trained(grown.source, make)
    mapped, zero = (carried_from(grown, optimizer, new=new).state["state"] for new in ("mapped", "zero"))
    [names] = carried_from(grown, optimizer).names
    kinds = entry_kinds(grown.result, lineage_of(grown.plan))
    for number, name in enumerate(names):
        new = kinds[name] > 0
        if number not in zero:
            assert new.all()
            continue
        for key in zero[number].keys() - {"step"}:
            expected = torch.where(new, torch.zeros(()), mapped[number][key])
            torch.testing.assert_close(
                zero[number][key], expected.to(zero[number][key].dtype), rtol=0, atol=0
            )


@pytest.mark.parametrize(
    ("make", "decays"), [("Adam", True), ("SGD", True), ("AdamW", False), ("Muon", False)]
)
def test_weights_that_are_decayed_by_their_gradients_make_state_approximate(make, decays, tmp_path):
    grown = Grown("widen ffn to 12 with uniform copy", tmp_path)
    options = {"momentum": 0.9} if make == "SGD" else {}
    made = carried_from(
        grown,
        trained(
            grown.source,
            lambda named: getattr(torch.optim, make)(
                [(n, p) for n, p in named if p.ndim == 2], lr=0.0, weight_decay=0.1, **options
            ),
        ),
    )
    assert ("blocks.0.up.weight" in made.approximate) == decays
    assert "table.weight" in made.exact
    assert {"norm.weight", "blocks.1.up.bias"} <= set(made.absent)


MOVES = {"SGD": (1 / 2, 1e-6), "Muon": (2**-0.5, 0.06)}
"""By how much the rows of two copies move, of what their source moves; Muon computes with 8 bits."""


@pytest.mark.parametrize("make", MOVES)
def test_copies_move_as_far_as_is_documented(make, tmp_path):
    grown, (share, limit) = Grown("widen ffn to 16 with cyclic copy", tmp_path), MOVES[make]
    optimizer = trained(grown.source, OPTIMIZERS[make])
    made = carried_from(grown, optimizer)
    following = OPTIMIZERS[make](list(grown.result.named_parameters()))
    following.load_state_dict(made.state)
    moved = []
    for module, chosen in ((grown.source, optimizer), (grown.result, following)):
        weight = module.blocks[0].up.weight
        before = weight.detach().clone()
        chosen.zero_grad()
        nn.functional.cross_entropy(module(TOKENS), TOKENS.flip(0)).backward()
        for group in chosen.param_groups:
            factor = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5 if make == "Muon" else 1.0
            group.update(lr=0.01 / factor, weight_decay=0.0)
        chosen.step()
        moved.append(weight.detach() - before)
    for half in (moved[1][:8], moved[1][8:]):
        assert (half - share * moved[0]).norm() <= limit * moved[0].norm()


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
    names = [name for name, _ in grown.source.named_parameters()]
    state["state"][0]["quantised"] = torch.zeros(1)  # of a weight that stays as it is
    assert "quantised" in carry(state, grown.plan, [names], names).state["state"][0]
    state["state"][names.index("blocks.0.up.weight")]["quantised"] = torch.zeros(1)
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


class Unit(nn.Module):
    """A weight of rows of length one, computed as it is used, with no length that is trained."""

    def forward(self, weight):
        return weight / weight.norm(dim=-1, keepdim=True)


def test_a_weight_that_is_stored_now_joins_the_group_of_what_it_was_computed_from():
    module = Stream(**SIZES)
    for block in module.blocks:
        for linear in (block.up, block.down):
            nn.utils.parametrize.register_parametrization(linear, "weight", Unit())
    names = [name for name, _ in module.named_parameters()]
    computed = [name for name in names if "parametrizations" in name]
    others = [name for name in names if name not in computed]
    named = dict(module.named_parameters())
    groups = [{"params": [named[n] for n in part]} for part in (others, computed)]
    state = stepped(module, groups).state_dict()
    result = growc.apply(module, "widen ffn to 16 with neighbor copy", TOKENS)
    made = carry(state, result.plan, [others, computed], [name for name, _ in result.named_parameters()])
    stored = {name for name, _ in result.named_parameters() if name.startswith("growc_")}
    assert len(stored) == 4 == len(computed)
    assert (set(made.names[1]), set(made.fresh), made.absent) == (stored, stored, ())


def test_state_that_lies_in_files_while_it_is_made_is_that_of_memory(tmp_path):
    grown = Grown(EQUAL[1][0], tmp_path)
    (tmp_path / "files").mkdir()
    held, filed = grown.carried(), grown.carried(make=partial(mapped, empty=on_disk(tmp_path / "files")))
    assert sum(path.stat().st_size for path in (tmp_path / "files").iterdir()) > 0
    for number, entry in held.state["state"].items():
        for key, tensor in entry.items():
            assert torch.equal(filed.state["state"][number][key], tensor)


def test_a_directory_has_the_state_and_no_file_that_it_lay_in(tmp_path):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=8, vocab_size=20))
    model.save_pretrained(tmp_path / "source")
    optimizer = torch.optim.AdamW(model.parameters())
    model(input_ids=torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    recipe = "widen ffn to 2 * ffn with uniform copy"
    out, file = tmp_path / "grown", tmp_path / "optimizer.pt"
    growc.apply(recipe, tmp_path / "source", out, optimizer=file, check=False, memory="64M")
    made = torch.load(out / "optimizer.pt", weights_only=True)
    plan, names = growc.plan(recipe, tmp_path / "source"), [n for n, _ in model.named_parameters()]
    wanted = carry(optimizer.state_dict(), plan, [names], names).state
    assert made["param_groups"] == wanted["param_groups"]
    for number, entry in wanted["state"].items():
        assert all(torch.equal(made["state"][number][key], tensor) for key, tensor in entry.items())
    names = {path.name for path in out.iterdir()}
    assert names == {
        "README.md",
        "config.json",
        "generation_config.json",
        "growc.json",
        "model.safetensors",
        "optimizer.pt",
    }
