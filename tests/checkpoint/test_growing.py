"""`growc apply` on checkpoint directories: what their classes load afterwards is what was planned."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from checkpoints import tiny_config
from safetensors.numpy import load_file, save_file

from growc.checkpoint.check import compare as comparing
from growc.checkpoint.check.run import Loaded
from growc.cli.main import main

DOUBLED = (
    "widen hidden to 2 * hidden with cyclic copy",
    "widen heads to 2 * heads with neighbor copy",
    "widen ffn to 2 * ffn with cyclic copy",
)
KV = "widen kv_heads to 2 * kv_heads with neighbor copy"


@pytest.fixture
def apply(tmp_path, monkeypatch, capsys):
    """Run `growc apply` with some statements on a folder; the exit status, and what was printed."""
    monkeypatch.setattr(comparing, "_exported", lambda *_: {})

    def run(path, *statements, options=(), out="out"):
        given = [word for text in statements for word in ("-e", text)]
        capsys.readouterr()
        status = main(["apply", *given, str(path), "-o", str(tmp_path / out), *options])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return run


def loaded(path):
    config = json.loads((path / "config.json").read_text())
    chosen = getattr(transformers, config["architectures"][0])
    model, report = chosen.from_pretrained(path, output_loading_info=True)
    assert not any(report.values()), report
    return model.eval()


def logits(path):
    ids = torch.randint(4, 48, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return loaded(path)(input_ids=ids).logits.float()


def difference(one, other):
    return float((logits(one) - logits(other)).abs().max() / logits(one).abs().max())


CASES = [
    ("LlamaForCausalLM", "Llama", ("widen ffn to 3 * ffn / 2 with uniform copy",)),
    ("MixtralForCausalLM", "Mixtral", DOUBLED[2:]),
    ("GPT2LMHeadModel", "GPT2", ("stack layers to 3 by last with zero outputs",)),
]
SLOW = [
    ("LlamaForCausalLM", "Llama", (*DOUBLED, KV)),
    ("LlamaForCausalLM", "Llama", ("stack layers to 4 by last with zero outputs",)),
    ("GPT2LMHeadModel", "GPT2", DOUBLED),
    ("BertForMaskedLM", "Bert", DOUBLED[2:]),
]
CASES += [pytest.param(*case, marks=pytest.mark.soak) for case in SLOW]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("class_name", "kind", "statements"), CASES)
def test_what_the_class_loads_computes_the_same(save, apply, tmp_path, class_name, kind, statements):
    path = save(class_name, tiny_config(kind))
    status, said = apply(path, *statements, "expect exact")
    assert status == 0, said
    assert difference(path, tmp_path / "out") < 2e-4


def test_a_class_that_torch_cannot_run_in_double_precision_is_compared(save, apply):
    """torch multiplies grouped experts in float32 and narrower types alone."""
    path = save("MixtralForCausalLM", tiny_config("Mixtral", num_hidden_layers=1))
    status, said = apply(path, "widen experts to 6 with cyclic copy top 4", "expect exact")
    assert status == 0, said
    assert "Measured: " in said
    assert "own rounding not measured on the float64 copy: Expected mat_a to be Float32" in said


def test_a_class_that_refuses_a_single_row_is_compared_on_batches_alone(save):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    module = loaded(path)

    def refuse(_, args, named):
        if len(named["input_ids"]) < 2:
            raise RuntimeError("at least two rows")

    alone = SimpleNamespace(input_maps=dict, narrower=False)
    cases = comparing._drawn(Loaded(module), path, path, alone)
    module.register_forward_pre_hook(refuse, with_kwargs=True)
    fewer = comparing._drawn(Loaded(module), path, path, alone)
    assert [len(case["input_ids"]) > 1 for case in cases] == [True] * len(fewer) + [False]


def test_heads_without_groups_become_means_that_the_class_shares(save, apply, tmp_path):
    path = save("LlamaForCausalLM", tiny_config("Llama", num_key_value_heads=4))
    status, said = apply(path, "subclone kv_heads to 2 by mean")
    assert status == 0, said
    assert json.loads((tmp_path / "out/config.json").read_text())["num_key_value_heads"] == 2
    before, after = (load_file(p / "model.safetensors") for p in (path, tmp_path / "out"))
    for name, value in before.items():
        if "k_proj" in name or "v_proj" in name:
            value = value.reshape(2, 2, -1, *value.shape[1:]).mean(1).reshape(after[name].shape)
        assert np.allclose(after[name], value, rtol=1e-6), name


def test_saving_what_was_loaded_gives_the_same_bytes(save, apply, tmp_path):
    path = save("LlamaForCausalLM", tiny_config("Llama"), dtype="bfloat16", max_shard_size="20KB")
    status, said = apply(path, "widen ffn to 2 * ffn with cyclic copy", options=("--shard-size", "30KB"))
    assert status == 0, said
    loaded(tmp_path / "out").save_pretrained(tmp_path / "again", max_shard_size="30KB")
    ours, theirs = tmp_path / "out", tmp_path / "again"
    assert len(list(theirs.glob("*.safetensors"))) > 1
    for file in theirs.glob("model*"):
        assert file.read_bytes() == (ours / file.name).read_bytes()
    assert json.loads((ours / "config.json").read_text()) == json.loads((theirs / "config.json").read_text())


def test_the_same_recipe_gives_the_same_bytes_and_a_record(save, apply, tmp_path):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    (path / "tokenizer.json").write_text("{}")
    for out in ("one", "two"):
        apply(path, "widen ffn to 2 * ffn with uniform copy split random", out=out)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert one == two
    assert set(one) == {
        *("README.md", "config.json", "generation_config.json", "growc.json", "model.safetensors"),
        "tokenizer.json",
    }
    record = json.loads((tmp_path / "one.grown.json").read_text())
    inside = json.loads(one["growc.json"])
    assert set(inside.pop("written")) == set(one) - {"growc.json"}
    assert record == inside
    assert record["certificate"]["exact"]


def test_a_directory_that_growc_did_not_make_is_replaced_only_by_force(save, apply, tmp_path):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/precious").write_text("")
    widen = "widen ffn to 2 * ffn with cyclic copy"
    assert apply(path, widen)[0] == 4  # before anything is read
    assert (tmp_path / "out/precious").exists()
    assert apply(path, widen, options=("--force", "--no-verify"))[0] == 0
    assert not (tmp_path / "out/precious").exists()
    assert apply(path, widen, options=("--no-verify",))[0] == 0


def test_sizes_that_the_class_cannot_hold_are_refused_and_nothing_is_written(save, apply, tmp_path):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    status, said = apply(path, "widen heads to 8 with neighbor copy")
    assert status == 3, said
    assert "error[G318]: no config of `GPT2LMHeadModel` gives the planned sizes" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("statement", "tensors_after"),
    [(DOUBLED[2:], 8), ((DOUBLED[2], "stack layers to 3 by last with zero outputs"), 12)],
)
def test_an_adapter_grows_with_its_checkpoint(save, apply, tmp_path, statement, tensors_after):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    rng, rank = np.random.default_rng(0), 2
    state = load_file(path / "model.safetensors")
    adapted = [n for n in state if n.endswith(("q_proj.weight", "down_proj.weight"))]
    tensors = {}
    for name in adapted:
        outputs, inputs = state[name].shape
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        tensors[f"{stem}.lora_A.weight"] = rng.normal(size=(rank, inputs)).astype(np.float32)
        tensors[f"{stem}.lora_B.weight"] = rng.normal(size=(outputs, rank)).astype(np.float32)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 1, "target_modules": ["q_proj", "down_proj"]}
    (path / "lora").mkdir()
    (path / "lora/adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, path / "lora/adapter_model.safetensors")
    status, said = apply(path, *statement)
    assert status == 0, said
    assert len(load_file(tmp_path / "out/lora/adapter_model.safetensors")) == tensors_after
    for folder in (path, tmp_path / "out"):
        merge(folder, folder / "lora", 1 / rank)
    assert difference(path, tmp_path / "out") < 2e-4


def merge(folder, adapter, scale):
    state, pair = load_file(folder / "model.safetensors"), load_file(adapter / "adapter_model.safetensors")
    for name in [n for n in pair if n.endswith("lora_A.weight")]:
        stem = name.removesuffix("lora_A.weight")
        weight = f"{stem.removeprefix('base_model.model.')}weight"
        state[weight] = state[weight] + scale * pair[f"{stem}lora_B.weight"] @ pair[name]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def test_the_state_of_an_optimizer_is_carried_along(save, apply, tmp_path):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    model = transformers.LlamaForCausalLM.from_pretrained(path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(4, 48, (2, 9))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), path / "optimizer.pt")
    given = ("--optimizer", str(path / "optimizer.pt"))
    status, said = apply(path, "widen ffn to 2 * ffn with cyclic copy", options=given)
    assert status == 0, said
    assert "`optimizer.pt` has the state of" in said
    grown = loaded(tmp_path / "out")
    after = torch.optim.AdamW(grown.parameters(), lr=1e-3)
    after.load_state_dict(torch.load(tmp_path / "out/optimizer.pt", weights_only=True))
    assert [s["exp_avg"].shape for s in after.state.values()] == [p.shape for p in grown.parameters()]


def matrices(module):
    """The parameters that Muon trains: the matrices inside of layers."""
    return [(n, p) for n, p in module.named_parameters() if p.ndim == 2 and ".h." in n]


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (lambda module: torch.optim.AdamW(module.named_parameters(), lr=1e-3), "exp_avg"),
        (lambda module: torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9), "momentum_buffer"),
        (lambda module: torch.optim.Muon(matrices(module), lr=1e-3), "momentum_buffer"),
    ],
    ids=["AdamW", "SGD", "Muon"],
)
def test_new_units_begin_without_state_where_that_is_asked_for(save, apply, tmp_path, make, kept):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    model = transformers.GPT2LMHeadModel.from_pretrained(path)
    optimizer, ids = make(model), torch.randint(4, 48, (2, 9))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), path / "optimizer.pt")
    states = {}
    for new in ("mapped", "zero"):
        given = ("--optimizer", str(path / "optimizer.pt"), "--optimizer-new", new)
        status, said = apply(path, "widen ffn to 3 * ffn / 2 with cyclic copy", options=given, out=new)
        assert status == 0, said
        assert ("entries of new units are zero" in said) == (new == "zero")
        grown = loaded(tmp_path / new)
        after, names = make(grown), {p: n for n, p in grown.named_parameters()}
        after.load_state_dict(torch.load(tmp_path / new / "optimizer.pt", weights_only=True))
        states[new] = {names[p]: entry[kept] for p, entry in after.state.items()}
    ffn = model.config.n_embd * 4
    for name, mapped in states["mapped"].items():
        new = torch.zeros_like(mapped)
        if ".mlp.c_fc." in name:
            new[..., ffn:] = 1
        elif name.endswith(".mlp.c_proj.weight"):
            new[ffn:] = 1
        assert torch.equal(states["zero"][name], mapped * (1 - new)), name
        assert mapped.abs().sum() > 0


@pytest.mark.soak
def test_both_measurements_are_shown(save, tmp_path, capsys):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    status = main(["apply", "-e", "widen ffn to 2 * ffn with cyclic copy", str(path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert status == 0
    assert found["verification"]["relative"] < 1e-5
    assert found["verification"]["beside"]["Exported to ONNX, in onnxruntime"]["relative"] < 1e-5
    assert found["written"] == str(tmp_path / "model.grown")


def test_options_of_directories_are_refused_for_files(tmp_path, capsys):
    (tmp_path / "model.onnx").write_bytes(b"")
    options = ["--shard-size", "5GB"]
    assert main(["apply", "-e", "let n = 1", str(tmp_path / "model.onnx"), *options]) == 2
    assert "checkpoint directories" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--optimizer-new", "zero"), "and none is named"),
        (("--optimizer", "optimizer.pt", "--optimizer-new", "half"), "is `mapped` or `zero`, and not `half`"),
    ],
)
def test_an_unknown_word_for_new_units_of_a_state_is_refused(save, apply, tmp_path, options, said):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    status, printed = apply(path, "widen ffn to 2 * ffn with cyclic copy", options=options)
    assert status == 2
    assert said in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.soak
def test_inspect_plan_and_verify_take_directories(save, apply, tmp_path, capsys):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    assert main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["axes"]["ffn"] == 48
    assert main(["plan", "-e", "widen vocab to 64 with zero fill", str(path)]) == 0
    status, said = apply(path, "widen vocab to 64 with zero fill")
    assert status == 0, said
    assert main(["verify", str(path), str(tmp_path / "out")]) == 0
