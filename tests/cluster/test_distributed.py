"""Distributed checkpoints: read by their metadata, grown, written, and trained on."""

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.checkpoint.state_dict_saver import save

import growc
from growc.checkpoint.files.distributed import Distributed
from growc.errors.diagnostic import GrowError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")

RECIPE = """
widen ffn to 2 * ffn with neighbor copy
widen heads to 8 with neighbor copy
stack layers to 3 by last with zero outputs
"""
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
OTHERS = {"rotation": torch.arange(6.0), "seen": 1234, "name": "run-7"}


def trained(kind="Llama", dtype=torch.float32, **sizes):
    """A tiny model after two steps of AdamW in two groups, and its optimizer."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES, **sizes)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).to(dtype)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices}, {"params": others, "weight_decay": 0.0}], lr=1e-2)
    words = torch.randint(0, 64, (2, 16))
    for _ in range(2):
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval(), optimizer


def described(folder, model):
    """The config of a model in a folder, which is given."""
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    return folder


def saved(folder, model, optimizer=None, *, flat=False, prefix="model"):
    """A distributed checkpoint in a folder, its config in another one beside it."""
    state = {prefix: model.state_dict(), **OTHERS} if prefix else model.state_dict()
    if optimizer is not None:
        options = StateDictOptions(flatten_optimizer_state_dict=flat)
        _, state["optim"] = get_state_dict(model, optimizer, options=options)
    save(state, checkpoint_id=folder / "saved", no_dist=True)
    return folder / "saved", described(folder / "home", model)


def arrays(folder):
    found = Distributed.open(folder)
    return {key: found.array(key) for key in found.tensors}


@pytest.mark.parametrize(
    ("flat", "tied"),
    [pytest.param(False, True, id="nested", marks=pytest.mark.soak), pytest.param(True, False, id="flat")],
)
def test_weights_and_state_are_those_of_a_directory(tmp_path, flat, tied):
    model, optimizer = trained(tie_word_embeddings=tied)
    source, home = saved(tmp_path, model, optimizer, flat=flat)
    grown = growc.apply(RECIPE, source, tmp_path / "grown", home=home)
    assert grown.verification is not None
    assert grown.plan.certificate.exact
    model.save_pretrained(tmp_path / "directory")
    torch.save(optimizer.state_dict(), state := tmp_path / "optimizer.pt")
    names = {id(p): name for name, p in model.named_parameters()}
    written = optimizer.state_dict()
    for group, own in zip(written["param_groups"], optimizer.param_groups, strict=True):
        group["param_names"] = [names[id(p)] for p in own["params"]]
    torch.save(written, state)
    growc.apply(RECIPE, tmp_path / "directory", tmp_path / "wide", optimizer=state)
    wanted = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "wide").state_dict()
    moments = torch.load(tmp_path / "wide" / "optimizer.pt", weights_only=True)
    found = arrays(tmp_path / "grown")
    for name, tensor in wanted.items():
        assert np.array_equal(found.pop(f"model.{name}"), tensor.numpy())
    for group in moments["param_groups"]:
        for number, name in zip(group["params"], group["param_names"], strict=True):
            for word, value in moments["state"][number].items():
                assert np.array_equal(found.pop(f"optim.state.{name}.{word}"), value.numpy()), (name, word)
    assert list(found) == ["rotation"]
    own = Distributed.open(tmp_path / "grown")
    assert (own.value("seen"), own.value("name")) == (1234, "run-7")
    if flat:
        rates = {
            k: own.value(k) for k in own.values if k.endswith(".weight.weight_decay") and ".layers.2." in k
        }
        assert {k.endswith("layernorm.weight.weight_decay"): v for k, v in rates.items()} == {
            True: 0.0,
            False: 0.01,
        }
    else:
        listed = [own.value(f"optim.param_groups.{k}.params") for k in range(2)]
        assert listed == [group["param_names"] for group in moments["param_groups"]]


@pytest.mark.parametrize(("kind", "sizes"), [("Llama", {}), ("Mixtral", {"num_local_experts": 4})])
@pytest.mark.sampled(5)
def test_there_and_back_are_the_same_bytes(tmp_path, kind, sizes):
    """Through safetensors, in the names that files of the class have, and as another one's config."""
    model, _ = trained(kind, torch.bfloat16, **sizes)
    source, home = saved(tmp_path, model)
    growc.apply("", source, tmp_path / "plain", home=home, weights="safetensors")
    growc.apply("", tmp_path / "plain", tmp_path / "back", weights="distcp")
    model.save_pretrained(tmp_path / "directory")
    plain, known = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("plain", "directory"))
    assert plain == known
    first, last = arrays(source), arrays(tmp_path / "back")
    del first["rotation"]
    assert first.keys() == last.keys()
    assert all(first[key].tobytes() == last[key].tobytes() for key in first)


@pytest.mark.soak
def test_a_checkpoint_without_a_path_has_its_own_config(tmp_path):
    model, _ = trained()
    source, home = saved(tmp_path, model, prefix="")
    shutil.copy2(home / "config.json", source / "config.json")
    assert growc.apply(RECIPE, source, tmp_path / "grown").plan.certificate.exact
    config = json.loads((tmp_path / "grown" / "config.json").read_text())
    assert config["num_hidden_layers"] == 3


class Command:
    def __reduce__(self):
        return os.system, ("touch ran",)


def changed(folder, **fields):
    """The metadata of a checkpoint with other fields."""
    place = folder / ".metadata"
    found = pickle.loads(place.read_bytes())
    for name, value in fields.items():
        setattr(found, name, value(getattr(found, name)))
    place.write_bytes(pickle.dumps(found))


def elsewhere(storage):
    for info in storage.values():
        info.relative_path = "../home/config.json"
    return storage


def behind(storage):
    for info in storage.values():
        info.offset += 10**6
    return storage


def packed(storage):
    for info in storage.values():
        info.transform_descriptors = ["zstd"]
    return storage


def parted(tensors):
    tensors["model.model.norm.weight"].chunks.clear()
    return tensors


def twice(tensors):
    """Two pieces of one and the same half; the other one is nobody's."""
    cut = tensors["model.lm_head.weight"]
    cut.chunks[:] = [type(cut.chunks[0])(torch.Size((at, 0)), torch.Size((32, 32))) for at in (0, 16)]
    return tensors


def outside(tensors):
    cut = tensors["model.lm_head.weight"]
    cut.chunks[:] = [type(cut.chunks[0])(torch.Size((0, 32)), torch.Size((64, 32)))]
    return tensors


def huge(tensors):
    cut = tensors["rotation"]
    cut.size = cut.chunks[0].sizes = torch.Size((10**15,))
    return tensors


def retyped(tensors):
    tensors["model.lm_head.weight"].properties.dtype = torch.int32
    return tensors


def untyped(tensors):
    tensors["model.lm_head.weight"].properties.dtype = None
    return tensors


def building(folder):
    text = b"ctorch.distributed.checkpoint.metadata\nMetadata\n(S'version'\nS'taken'\ndb."
    (folder / ".metadata").write_bytes(text)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda folder: changed(folder, planner_data=lambda _: Command()), "it holds code"),
        (lambda folder: (folder / ".metadata").write_bytes(b"no pickle"), "cannot be read"),
        (lambda folder: changed(folder, storage_data=elsewhere), "lies outside"),
        (lambda folder: changed(folder, storage_data=behind), "does not lie in"),
        (lambda folder: changed(folder, storage_data=packed), "compressed or encrypted"),
        (lambda folder: changed(folder, state_dict_metadata=parted), "are missing"),
        (lambda folder: (folder / "__0_0.distcp").unlink(), "no such file"),
        (lambda folder: changed(folder, state_dict_metadata=twice), "no part of it|overlap|'model.lm_head"),
        (lambda folder: changed(folder, state_dict_metadata=outside), "no part of it|'model.lm_head"),
        (lambda folder: changed(folder, state_dict_metadata=huge), "no part of it"),
        (lambda folder: changed(folder, state_dict_metadata=retyped), "not what the metadata says"),
        (lambda folder: changed(folder, state_dict_metadata=untyped), "no type of elements"),
        (lambda folder: changed(folder, planner_data=lambda _: 5), "cannot be read"),
        (lambda folder: changed(folder, planner_data=lambda p: dict.fromkeys(p, ())), "has no path"),
        (building, "cannot be read"),
    ],
    ids=[
        *["code", "damage", "elsewhere", "behind", "packed", "parts", "file", "overlap", "outside", "huge"],
        *["type", "no type", "no paths", "empty paths", "class"],
    ],
)
def test_an_untrusted_checkpoint_is_refused(tmp_path, fault, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, home = saved(tmp_path, trained()[0])
    fault(source)
    with pytest.raises(GrowError, match=message):
        growc.apply(RECIPE, source, tmp_path / "grown", home=home)
    assert not (tmp_path / "grown").exists()
    assert not (tmp_path / "ran").exists()
    assert Metadata({}).version is None


def test_damage_within_the_files_is_told(tmp_path):
    source, home = saved(tmp_path, trained()[0])
    place = source / "__0_0.distcp"
    place.write_bytes(b"\0" * place.stat().st_size)
    with pytest.raises(GrowError, match="cannot be read"):
        growc.apply(RECIPE, source, tmp_path / "grown", home=home)


def test_weights_that_are_there_twice_are_refused(tmp_path):
    model, _ = trained()
    save(
        {"model": model.state_dict(), "average": model.state_dict()},
        checkpoint_id=tmp_path / "s",
        no_dist=True,
    )
    described(tmp_path / "home", model)
    with pytest.raises(GrowError, match="twice, as `average` and `model`"):
        growc.apply(RECIPE, tmp_path / "s", tmp_path / "grown", home=tmp_path / "home")


def test_a_result_that_torch_reads_otherwise_is_seen(tmp_path, monkeypatch):
    """The comparison reads what stands in the files, by torch's own way."""
    from growc.checkpoint.files import write_distributed

    own = write_distributed._Planner.resolve_data

    def other(self, item):
        made = own(self, item)
        return made if isinstance(made, io.BytesIO) or made.ndim < 2 else made + 0.01

    source, home = saved(tmp_path, trained()[0])
    monkeypatch.setattr(write_distributed._Planner, "resolve_data", other)
    with pytest.raises(GrowError, match="differ"):
        growc.apply(RECIPE, source, tmp_path / "grown", home=home)


def torchrun(ranks, *command):
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*start, *map(str, command)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_a_training_under_fsdp_goes_on_with_the_grown_model(tmp_path):
    """Trained by two ranks, grown by two, trained on by three."""
    model, _ = trained()
    home, script = described(tmp_path / "home", model), Path(__file__).with_name("train.py")
    before = json.loads(torchrun(2, script, home / "config.json", "-", tmp_path / "saved", 20))
    (tmp_path / "wider.grow").write_text(recipe := RECIPE + "widen hidden to 64 with neighbor copy\n")
    given = [tmp_path / "wider.grow", tmp_path / "saved", "--model", home, "-o", tmp_path / "grown"]
    assert "Certificate: exact" in torchrun(2, "-m", "growc", "apply", *given)
    after = json.loads(torchrun(3, script, tmp_path / "grown" / "config.json", tmp_path / "grown", "-", 4))
    assert after["step"] == 20
    assert before["last"] < before["first"] - 0.1
    assert abs(after["first"] - before["last"]) < 1e-4
    assert after["last"] < after["first"]
    growc.apply(recipe, tmp_path / "saved", tmp_path / "alone", home=home, check=False)
    one, two = arrays(tmp_path / "alone"), arrays(tmp_path / "grown")
    assert one.keys() == two.keys()
    assert all(one[key].tobytes() == two[key].tobytes() for key in one)
    assert len([*(tmp_path / "grown").glob("*.distcp")]) == 2
