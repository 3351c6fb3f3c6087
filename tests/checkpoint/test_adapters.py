"""LoRA adapters grow by the maps of the weights that they adapt: judged by merging, before and after."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from growc.checkpoint.files.directory import Checkpoint
from growc.checkpoint.files.lora import AdapterGrowth, adapters_of, grow_adapter
from growc.errors.diagnostic import GrowError
from growc.plans.execute import execute
from growc.plans.plan import AxisStep, Layout, LeafStep, NextLayer, Noise, WeightPlan

CONFIG = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 4,
    "target_modules": ["fc"],
    "bias": "none",
    "base_model_name_or_path": "/home/someone/model",
    "task_type": "CAUSAL_LM",
    "init_lora_weights": True,
}
RNG = np.random.default_rng(0)
NAMES = {name: name for name in ("fc.weight", "h.0.fc.weight")}
WEIGHT = RNG.normal(size=(4, 6)).astype(np.float32)


def leaf(before, index, weight, **others):
    index = np.asarray(index)
    filler = np.asarray(others.pop("filler", np.zeros(len(index), dtype=np.int64)))
    return Layout("leaf", (), LeafStep(before, index, np.asarray(weight, dtype=float), filler, **others))


OUT = leaf(4, [0, 1, 2, 3, 1, -1], [1, 1, 1, 1, 1, 0.5], filler=[0, 0, 0, 0, 0, 1])
IN = leaf(6, [0, 0, 1, 2, 3, 4, 5], [0.3, 0.7, 1, 1, 1, 1, 1])


def plan(name="fc.weight", steps=((0, OUT, "makes"), (1, IN, "reads")), after=(6, 7), **others):
    made = tuple(AxisStep(*step) for step in steps)
    return WeightPlan(name, others.pop("source", name), "float32", (4, 6), after, made, **others)


@pytest.fixture
def adapter(tmp_path):
    def make(a=None, b=None, module="fc", ends=("lora_A.weight", "lora_B.weight"), **fields):
        folder = tmp_path / "adapter"
        folder.mkdir()
        a = RNG.normal(size=(2, 6)).astype(np.float32) if a is None else a
        b = RNG.normal(size=(4, 2)).astype(np.float32) if b is None else b
        save_file(
            {f"base_model.model.{module}.{ends[0]}": a, f"base_model.model.{module}.{ends[1]}": b},
            folder / "adapter_model.safetensors",
        )
        (folder / "adapter_config.json").write_text(json.dumps(CONFIG | fields))
        return folder, a, b

    return make


def grow(folder, *plans):
    read = {"fc.weight": WEIGHT}.__getitem__
    out = folder.with_name("out")
    grow_adapter(folder, out, AdapterGrowth({p.name: p for p in plans}, NAMES.get, read))
    found = load_file(out / "adapter_model.safetensors")
    return {name.removeprefix("base_model.model."): tensor for name, tensor in found.items()}


def test_the_merged_weight_grows_as_the_plain_one(adapter):
    folder, a, b = adapter()
    grown = grow(folder, plan(scale=1.5))
    merged = execute(plan(scale=1.5), WEIGHT + 2 * b @ a)
    new = execute(plan(scale=1.5), WEIGHT) + 2 * grown["fc.lora_B.weight"] @ grown["fc.lora_A.weight"]
    assert np.abs(new - merged).max() < 1e-6
    assert grown["fc.lora_A.weight"].shape == (2, 7)


def test_a_weight_stored_as_inputs_by_outputs_has_its_axes_the_other_way_round(adapter):
    folder, a, b = adapter(
        a=RNG.normal(size=(2, 4)).astype(np.float32), b=RNG.normal(size=(6, 2)).astype(np.float32)
    )
    grown = grow(folder, plan())
    new = execute(plan(), WEIGHT) + (grown["fc.lora_B.weight"] @ grown["fc.lora_A.weight"]).T
    assert np.abs(new - execute(plan(), WEIGHT + (b @ a).T)).max() < 1e-6


@pytest.mark.parametrize("across", [True, False])
def test_of_a_square_weight_the_config_says_which_way_it_is_stored(adapter, across):
    a, b = RNG.normal(size=(2, 4)).astype(np.float32), RNG.normal(size=(4, 2)).astype(np.float32)
    folder, *_ = adapter(a=a, b=b, fan_in_fan_out=across)
    square = WeightPlan("fc.weight", "fc.weight", "float32", (4, 4), (6, 4), (AxisStep(0, OUT, "makes"),))
    grown = grow(folder, square)
    way = np.transpose if across else np.asarray
    weight = WEIGHT[:, :4]
    new = execute(square, weight) + way(grown["fc.lora_B.weight"] @ grown["fc.lora_A.weight"])
    assert np.abs(new - execute(square, weight + way(b @ a))).max() < 1e-6


def test_random_entries_belong_to_the_weight_and_not_to_the_adapter(adapter):
    drawn = leaf(6, [0, 1, 2, 3, 4, 5, -1], [1] * 7, filler=[0] * 6 + [2], key=7)
    rows = np.array([False] * 4 + [True] * 2)
    noisy = leaf(4, [0, 1, 2, 3, 1, 2], [1] * 6, noise=Noise(5, 0.1, rows, np.arange(6)))
    folder, a, b = adapter()
    steps = ((0, noisy, "makes"), (1, drawn, "reads"))
    grown = grow(folder, plan(steps=steps))
    change = grown["fc.lora_B.weight"] @ grown["fc.lora_A.weight"]
    assert np.abs(change[[4, 5]] - change[[1, 2]]).max() == 0
    assert (change[:, 6] == 0).all()
    assert np.abs(change[:4, :6] - b @ a).max() < 1e-6


def test_new_layers_have_the_adapters_of_the_layers_that_they_come_from(adapter):
    folder, a, b = adapter(module="h.0.fc", target_modules=["fc"])
    steps: tuple[object, ...] = ()
    kept = plan("h.0.fc.weight", steps, (4, 6))
    copied = plan("h.1.fc.weight", steps, (4, 6), copy_of="h.0.fc.weight")
    zero = plan("h.2.fc.weight", steps, (4, 6), copy_of="h.0.fc.weight", zero=True)
    grown = grow(folder, kept, copied, zero)
    assert len(grown) == 6
    assert (grown["h.1.fc.lora_B.weight"] == b).all()
    assert (grown["h.2.fc.lora_B.weight"] == 0).all()
    assert (grown["h.2.fc.lora_A.weight"] == a).all()


def test_adapters_of_tables_are_grown(adapter):
    folder, a, b = adapter(
        a=RNG.normal(size=(2, 4)).astype(np.float32),
        b=RNG.normal(size=(6, 2)).astype(np.float32),
        ends=("lora_embedding_A", "lora_embedding_B"),
    )
    grown = grow(folder, plan())
    new = execute(plan(), WEIGHT) + (grown["fc.lora_embedding_B"] @ grown["fc.lora_embedding_A"]).T
    assert np.abs(new - execute(plan(), WEIGHT + (b @ a).T)).max() < 1e-6


def test_the_config_stays_but_for_the_path_of_the_base(adapter):
    folder, *_ = adapter()
    grow(folder, plan())
    assert json.loads((folder.with_name("out") / "adapter_config.json").read_text()) == CONFIG | {
        "base_model_name_or_path": None
    }


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"peft_type": "IA3"}, "of type IA3"),
        ({"use_dora": True}, "`use_dora` is set"),
        ({"bias": "all"}, "`bias` is 'all'"),
        ({"init_lora_weights": "pissa"}, "`init_lora_weights` is 'pissa'"),
        ({"something_new": {"x": 1}}, "`something_new` is set"),
    ],
)
def test_an_adapter_that_is_no_plain_lora_is_refused_with_the_reason(adapter, fields, reason):
    folder, *_ = adapter(**fields)
    with pytest.raises(GrowError, match=reason):
        grow(folder, plan())


@pytest.mark.parametrize("fields", [{"layers_to_transform": [0]}, {"target_modules": "h.0.fc"}])
def test_an_adapter_that_numbers_layers_is_refused_only_where_layers_move(adapter, fields):
    folder, *_ = adapter(module="h.0.fc", **fields)
    grow(folder, plan("h.0.fc.weight", (), (4, 6)))
    with pytest.raises(GrowError, match="layers change theirs"):
        grow(folder, plan("h.1.fc.weight", (), (4, 6), copy_of="h.0.fc.weight"))


def test_units_from_two_layers_have_no_pair_of_the_same_rank(adapter):
    folder, *_ = adapter()
    step = AxisStep(0, OUT, "makes", "ffn", NextLayer("other"))
    two = WeightPlan("fc.weight", "fc.weight", "float32", (4, 6), (6, 6), (step,))
    with pytest.raises(GrowError, match="comes from two weights"):
        grow(folder, two)


def test_a_tensor_that_is_no_pair_is_refused(adapter):
    folder, *_ = adapter(ends=("lora_A.weight", "lora_magnitude_vector"))
    with pytest.raises(GrowError, match="no A or B"):
        grow(folder, plan())


def test_an_adapter_of_a_weight_that_the_model_lacks_is_refused(adapter):
    folder, *_ = adapter(module="elsewhere")
    with pytest.raises(GrowError, match=r"no weight `elsewhere.weight`"):
        grow(folder, plan())


def test_sizes_that_fit_no_weight_are_refused(adapter):
    folder, *_ = adapter(a=np.zeros((2, 5), np.float32))
    with pytest.raises(GrowError, match=r"A and B are \[2, 5\]"):
        grow(folder, plan())


def test_adapters_are_found_in_the_directory_and_in_folders_of_it(tmp_path):
    for folder in (tmp_path, tmp_path / "lora"):
        folder.mkdir(exist_ok=True)
        (folder / "adapter_config.json").write_text("{}")
    (tmp_path / "config.json").write_text("{}")
    source = Checkpoint(tmp_path, {}, {}, {})
    save_file({}, tmp_path / "model.safetensors")
    assert adapters_of(source) == [tmp_path, tmp_path / "lora"]
