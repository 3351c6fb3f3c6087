"""Optimizers in distributed checkpoints: of other kinds, in other forms, and what is none of them."""

import json
from functools import partial

import numpy as np
import pytest
import torch
import transformers
from test_distributed import RECIPE, SIZES, arrays, described, saved, trained
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save as save_by_all

import growc
from growc.checkpoint.files.distributed import Distributed
from growc.cli.main import main
from growc.errors.diagnostic import GrowError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")

save = partial(save_by_all, no_dist=True)


def grown_model(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    return transformers.LlamaForCausalLM(config)


def loaded(folder, optimizer_of):
    """The model and the optimizer of a result, by torch."""
    model = grown_model(folder)
    optimizer = optimizer_of(model)
    weights, state = get_state_dict(model, optimizer)
    load({"model": weights, "optim": state}, checkpoint_id=folder, no_dist=True)
    return weights, state


def stepped(model, optimizer):
    words = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(0))
    model(input_ids=words, labels=words).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def three_groups(model):
    """Neither in the module's order, nor in its groups of matrices and others."""
    names = dict(model.named_parameters())
    heads = [n for n in names if "mlp" in n][::-1]
    norms = [n for n in names if "norm" in n]
    rest = [n for n in names if n not in (*heads, *norms)]
    return [[(n, names[n]) for n in group] for group in (norms, heads, rest)]


@pytest.mark.soak
def test_a_file_of_state_takes_the_place_of_that_beside_the_weights(tmp_path):
    model, optimizer = trained()
    source, home = saved(tmp_path, model, optimizer)
    for _ in range(3):
        stepped(model, optimizer)
    names = {id(p): n for n, p in model.named_parameters()}
    state = optimizer.state_dict()
    for group, own in zip(state["param_groups"], optimizer.param_groups, strict=True):
        group["param_names"] = [names[id(p)] for p in own["params"]]
    torch.save(state, tmp_path / "later.pt")
    growc.apply(RECIPE, source, tmp_path / "grown", home=home, optimizer=tmp_path / "later.pt")
    found = arrays(tmp_path / "grown")
    assert found["optim.state.model.embed_tokens.weight.step"] == 5


@pytest.mark.parametrize("form", ["safetensors", "distcp"])
@pytest.mark.soak
def test_groups_in_an_order_of_their_own_stay_so(tmp_path, form):
    model, _ = trained()
    groups = three_groups(model)
    optimizer = stepped(model, torch.optim.AdamW([{"params": group} for group in groups], lr=1e-2))
    source, home = saved(tmp_path, model, optimizer)
    growc.apply("", source, tmp_path / "same", home=home, weights=form)
    if form == "safetensors":
        again = torch.optim.AdamW([{"params": [p for _, p in group]} for group in groups])
        again.load_state_dict(torch.load(tmp_path / "same" / "optimizer.pt", weights_only=True))
        for own, other in zip(optimizer.param_groups, again.param_groups, strict=True):
            for one, two in zip(own["params"], other["params"], strict=True):
                assert torch.equal(optimizer.state[one]["exp_avg"], again.state[two]["exp_avg"])
    else:
        listed = [[n for n, _ in group] for group in groups]
        own = Distributed.open(tmp_path / "same")
        assert [own.value(f"optim.param_groups.{k}.params") for k in range(3)] == listed
    growc.apply(RECIPE, source, tmp_path / "grown", home=home, weights=form)
    if form == "safetensors":
        growc.apply("", tmp_path / "grown", tmp_path / "again", optimizer=tmp_path / "grown" / "optimizer.pt")


@pytest.mark.soak
def test_a_flat_state_becomes_one_of_the_groups_that_have_its_settings(tmp_path):
    model, optimizer = trained()
    source, home = saved(tmp_path, model, optimizer, flat=True)
    growc.apply("", source, tmp_path / "plain", home=home, weights="safetensors")
    state = torch.load(tmp_path / "plain" / "optimizer.pt", weights_only=True)
    optimizer.load_state_dict(state)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]


@pytest.mark.parametrize(
    "kind",
    [
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
        lambda m: torch.optim.AdamW(m.named_parameters(), lr=0.1, amsgrad=True),
    ],
    ids=["SGD", "momentum", "named"],
)
@pytest.mark.sampled(5)
def test_torch_loads_the_state_of_other_optimizers(tmp_path, kind):
    model, _ = trained()
    optimizer = stepped(model, kind(model))
    source, home = saved(tmp_path, model, optimizer)
    growc.apply(RECIPE, source, tmp_path / "grown", home=home)
    _, state = loaded(tmp_path / "grown", kind)
    own = Distributed.open(tmp_path / "grown")
    listed = own.value("optim.param_groups.0.params")
    assert any(".layers.2." in name for name in listed)
    if "param_names" in state["param_groups"][0]:
        assert own.value("optim.param_groups.0.param_names") == listed


@pytest.mark.soak
def test_a_state_by_numbers_is_grown_by_the_names_that_they_stand_for(tmp_path):
    model, _ = trained()
    optimizer = stepped(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    save(
        {"model": model.state_dict(), "optim": optimizer.state_dict()},
        checkpoint_id=tmp_path / "s",
        no_dist=True,
    )
    described(tmp_path / "home", model)
    growc.apply(RECIPE, tmp_path / "s", tmp_path / "grown", home=tmp_path / "home")
    wider = grown_model(tmp_path / "grown")
    again = stepped(wider, torch.optim.AdamW(wider.parameters()))
    state = again.state_dict()
    load({"optim": state}, checkpoint_id=tmp_path / "grown", no_dist=True)
    again.load_state_dict(state)
    for parameter in wider.parameters():
        assert again.state[parameter]["exp_avg"].shape == parameter.shape
    before = {n: optimizer.state[p]["exp_avg"] for n, p in model.named_parameters()}
    after = {n: again.state[p]["exp_avg"] for n, p in wider.named_parameters()}
    name = "model.layers.0.mlp.up_proj.weight"
    assert np.array_equal(after[name][::2], before[name] / 2)


@pytest.mark.soak
def test_all_names_of_a_tied_weight_are_written_for_torch(tmp_path):
    model, _ = trained(tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "directory")
    growc.apply("", tmp_path / "directory", tmp_path / "made", weights="distcp")
    assert {"model.lm_head.weight", "model.model.embed_tokens.weight"} <= set(arrays(tmp_path / "made"))


@pytest.mark.soak
def test_another_copy_of_weights_that_grow_is_refused(tmp_path):
    model, _ = trained()
    name = "model.layers.0.mlp.up_proj.weight"
    state = {"model": model.state_dict(), "ema": {name: model.state_dict()[name]}}
    save(state, checkpoint_id=tmp_path / "s")
    described(tmp_path / "home", model)
    with pytest.raises(GrowError, match="another copy of a weight"):
        growc.apply(RECIPE, tmp_path / "s", tmp_path / "grown", home=tmp_path / "home")
    growc.apply("", tmp_path / "s", tmp_path / "same", home=tmp_path / "home")


@pytest.mark.soak
def test_state_of_an_unknown_kind_stays_where_nothing_grows(tmp_path):
    model, _ = trained()
    optimizer = stepped(model, torch.optim.Adadelta(model.parameters()))
    source, home = saved(tmp_path, model, optimizer)
    growc.apply("", source, tmp_path / "same", home=home)
    first, last = arrays(source), arrays(tmp_path / "same")
    assert first.keys() == last.keys()
    assert all(np.array_equal(first[key], last[key]) for key in first)
    with pytest.raises(GrowError, match="nothing is known of how it grows"):
        growc.apply(RECIPE, source, tmp_path / "grown", home=home)


@pytest.mark.soak
def test_entries_of_types_that_growc_does_not_hold_stay(tmp_path):
    model, _ = trained()
    extra = {
        "spectrum": torch.randn(5, dtype=torch.complex128),
        "none": None,
        "rates": [torch.ones(2), {"a": 1}],
    }
    save({"model": model.state_dict(), **extra}, checkpoint_id=tmp_path / "s")
    described(tmp_path / "home", model)
    growc.apply(RECIPE, tmp_path / "s", tmp_path / "grown", home=tmp_path / "home")
    own = Distributed.open(tmp_path / "grown")
    assert torch.equal(own.tensor("spectrum"), extra["spectrum"])
    assert own.value("none") is None


def test_new_units_may_begin_at_zero(tmp_path):
    model, optimizer = trained()
    source, home = saved(tmp_path, model, optimizer)
    growc.apply(RECIPE, source, tmp_path / "grown", home=home, optimizer_new="zero")
    found = arrays(tmp_path / "grown")["optim.state.model.layers.0.mlp.up_proj.weight.exp_avg"]
    assert found.shape == (2 * SIZES["intermediate_size"], SIZES["hidden_size"])
    assert found.any(axis=1).sum() == SIZES["intermediate_size"]


def test_a_plan_counts_the_state_among_the_loads(tmp_path, capsys):
    model, optimizer = trained()
    source, home = saved(tmp_path, model, optimizer)
    given = ["plan", "-e", "widen ffn to 2 * ffn with neighbor copy", str(source), "--model", str(home)]
    assert main([*given, "--ranks", "3", "--json"]) == 0
    loads = json.loads(capsys.readouterr().out)["ranks"]["processes"]
    growc.apply(given[2], source, tmp_path / "grown", home=home, check=False)
    extra = arrays(tmp_path / "grown")
    del extra["rotation"]  # which nobody makes
    assert sum(load["written"] for load in loads) == sum(array.nbytes for array in extra.values())


def test_names_of_a_wrapped_module_are_told(tmp_path):
    model, _ = trained()
    save(
        {f"module.{n}": t for n, t in model.state_dict().items()}, checkpoint_id=tmp_path / "s", no_dist=True
    )
    described(tmp_path / "home", model)
    with pytest.raises(GrowError, match=r"but `module\.model\.embed_tokens\.weight`"):
        growc.apply(RECIPE, tmp_path / "s", tmp_path / "grown", home=tmp_path / "home")
