"""Models of the Hugging Face Hub, named by references, against a stand-in for its server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoints import tiny_config
from graphs import MLP
from graphs import save as save_onnx
from hub_server import COMMIT, Repository, ask, serving

import growc
from growc.checkpoint.check import compare as comparing
from growc.cli.main import main
from growc.errors.diagnostic import GrowError
from growc.files.hub import local
from growc.files.reference import Reference, is_reference

WIDEN = "widen ffn to 2 * ffn with cyclic copy"


@pytest.fixture
def at_hub(tmp_path, monkeypatch):
    """Run in an empty folder with the server's address in the place of the Hub's, and an empty cache."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(comparing, "_exported", lambda *_: {})
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between tries

    def point(address, offline=False):
        ask(monkeypatch, address, tmp_path / "cache", offline)

    return point


@pytest.fixture
def llama(save):
    return save("LlamaForCausalLM", tiny_config("Llama"))


def refused(reference, code="G310"):
    with pytest.raises(GrowError) as caught:
        local(reference)
    [found] = caught.value.diagnostics
    assert found.code == code
    return found


MALFORMED = [
    *("hf://", "hf://a", "hf://a/", "hf:///b", "hf://a/b@", "hf://a/b@..", "hf://a/b@x/../y", "hf://../b"),
    *("hf://a/..", "hf://a/b c", "hf://a/b@x y", "hf://a b/c", "hf://a//b", "hf://a/b/c.bin", "hf://a/b@x@y"),
    *("hf://a/b/../c.onnx", "hf://a/b\n", "hf://a/-b", "hf://ä/b", "hf://a/b/model.safetensors"),
]


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_reference_is_a_wrong_command_line(text):
    assert is_reference(text)
    assert refused(text, "G200").help


@pytest.mark.parametrize(
    "text", ["hf://a/b", "hf://a/b@main", "hf://a/b@refs/pr/1", "hf://a/b/onnx/model.onnx@v1.0", "hf://a/b.c"]
)
def test_a_reference_is_read_as_it_is_written_and_as_a_path_has_it(text):
    assert str(Reference.read(text)) == text
    assert is_reference(Path(text))
    assert Reference.read(Path(text)) == Reference.read(text)


def test_a_folder_named_hf_is_a_folder(tmp_path, monkeypatch):
    (tmp_path / "hf:/a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert local(Path("hf:/a/b")) == Path("hf:/a/b")


def test_a_fetched_checkpoint_is_grown_and_its_record_has_the_commit(llama, at_hub, tmp_path, capsys):
    (llama / "tokenizer.json").write_text("{}")
    (llama / "README.md").write_text("---\nlicense: mit\nbase_model: x/y\n---\n# Tiny\n")
    code = {
        "modeling_evil.py": b"raise SystemExit",
        "pytorch_model.bin": b"\x80",
        "training_args.bin": b"\x80",
    }
    with serving(tiny=Repository.of(llama, **code)) as hub:
        at_hub(hub.address)
        assert main(["apply", "-e", WIDEN, "hf://owner/tiny@v1", "--no-verify"]) == 0
        said = capsys.readouterr().out
        assert said.startswith("tiny · ")
        assert said.endswith("Written: tiny.grown\n")
        assert not {"modeling_evil.py", "pytorch_model.bin", "training_args.bin"} & set(hub.fetched())
        again = growc.apply(WIDEN, "hf://owner/tiny", tmp_path / "again", check=False)
    record = json.loads(Path("tiny.grown.json").read_text())
    assert record["source"] == f"hf://owner/tiny@{COMMIT}"
    assert json.loads((tmp_path / "again.grown.json").read_text())["source"] == record["source"]
    assert again.plan.model == "tiny"
    names = {p.name for p in Path("tiny.grown").iterdir()}
    assert names >= {
        "config.json",
        "generation_config.json",
        "growc.json",
        "model.safetensors",
        "tokenizer.json",
    }
    assert not names & set(code)
    card = Path("tiny.grown/README.growc.md").read_text()
    assert "base_model: owner/tiny\nlicense: mit\n" in card
    assert f"from `hf://owner/tiny@{COMMIT}`" in card
    assert f"growc apply recipe.grow hf://owner/tiny@{COMMIT} -o GROWN\n" in card
    assert (tmp_path / "again/README.md").read_bytes() == (llama / "README.md").read_bytes()
    growc.apply(WIDEN, llama, tmp_path / "plain", check=False)
    ours, theirs = (p / "model.safetensors" for p in (Path("tiny.grown"), tmp_path / "plain"))
    assert ours.read_bytes() == theirs.read_bytes()


def test_only_what_growc_takes_is_seen_of_a_cache_that_others_filled(llama, at_hub, tmp_path):
    with serving(tiny=Repository.of(llama, **{"modeling_evil.py": b"", "notes.txt": b""})) as hub:
        at_hub(hub.address)
        from huggingface_hub import snapshot_download

        snapshot_download("owner/tiny", endpoint=hub.address, tqdm_class=None)
        place = local("hf://owner/tiny")
    assert place.name == "tiny"
    assert {p.name for p in place.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}


def test_shards_are_those_that_the_index_names(save, at_hub):
    path = save("LlamaForCausalLM", tiny_config("Llama"), max_shard_size="20KB")
    with serving(tiny=Repository.of(path, **{"other-00001-of-00002.safetensors": b"no"})) as hub:
        at_hub(hub.address)
        assert growc.plan(WIDEN, "hf://owner/tiny").certificate.exact
        shards = {p.name for p in path.glob("*.safetensors")}
        assert len(shards) > 1
        assert {name for name in hub.fetched() if name.endswith(".safetensors")} == shards


@pytest.mark.parametrize(
    "shard", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "x.bin", "lacks.safetensors"]
)
def test_an_index_that_names_other_files_is_refused(llama, at_hub, shard):
    index = json.dumps({"weight_map": {"lm_head.weight": shard}}).encode()
    files = {
        "config.json": (llama / "config.json").read_bytes(),
        "model.safetensors.index.json": index,
        "x.bin": b"",
    }
    with serving(tiny=Repository(files)) as hub:
        at_hub(hub.address)
        assert "shard" in refused("hf://owner/tiny").message
        assert set(hub.fetched()) == {"config.json", "model.safetensors.index.json"}


def test_names_that_lead_out_of_the_repository_are_not_fetched(llama, at_hub, tmp_path):
    repository = Repository.of(llama)
    repository.told = (
        "../x",
        "../../tokenizer.json",
        "/etc/tokenizer.json",
        "..\\tokenizer.json",
        "tokenizer\n.json",
    )
    with serving(tiny=repository) as hub:
        at_hub(hub.address)
        place = local("hf://owner/tiny")
        assert set(hub.fetched()) == {"config.json", "generation_config.json", "model.safetensors"}
    assert {p.name for p in place.iterdir()} == set(hub.fetched())


@pytest.mark.parametrize("commit", ["../../../x", "main", "0" * 39, "g" * 40])
def test_a_commit_that_is_none_is_refused(llama, at_hub, commit, tmp_path):
    repository = Repository.of(llama)
    repository.commit = commit
    with serving(tiny=repository) as hub:
        at_hub(hub.address)
        assert "calls the commit" in refused("hf://owner/tiny").message
        assert not hub.fetched()
    assert not list(tmp_path.rglob("*.safetensors.lock"))


def test_a_repository_with_pickles_alone_is_refused_and_none_is_fetched(llama, at_hub):
    files = {"config.json": (llama / "config.json").read_bytes(), "pytorch_model.bin": b"\x80"}
    with serving(tiny=Repository(files)) as hub:
        at_hub(hub.address)
        found = refused("hf://owner/tiny")
        assert "`pytorch_model.bin` alone" in found.message
        assert "hf://owner/tiny@refs/pr/N" in found.help
        assert not hub.fetched()


@pytest.mark.parametrize("status", [401, 403])
def test_refusals_of_the_server_are_explained_in_plain_words(llama, at_hub, status):
    gated = Repository.of(llama)
    gated.gated = status
    with serving(tiny=Repository.of(llama), gated=gated, empty=Repository({})) as hub:
        at_hub(hub.address)
        assert "no such model, or it is private" in refused("hf://owner/nosuch").message
        assert "no such revision" in refused("hf://owner/tiny@v2").message
        assert "no such revision" in refused(f"hf://owner/tiny@{'f' * 40}").message
        found = refused("hf://owner/gated")
        assert "is gated" in found.message
        assert f"{hub.address}/owner/gated" in found.help
        assert "no `config.json`" in refused("hf://owner/empty").message
        assert "no file `a/b.onnx`" in refused("hf://owner/empty/a/b.onnx").message


def test_no_network_is_told_and_what_is_in_the_cache_is_taken_offline(llama, at_hub, tmp_path):
    at_hub("http://127.0.0.1:9")
    assert "a network" in refused("hf://owner/tiny").help
    at_hub("http://127.0.0.1:9", offline=True)
    assert "HF_HUB_OFFLINE is set" in refused("hf://owner/tiny").message
    with serving(tiny=Repository.of(llama)) as hub:
        at_hub(hub.address)
        before = local("hf://owner/tiny")
        at_hub(hub.address, offline=True)
        hub.log.clear()
        assert before == local("hf://owner/tiny") == local(f"hf://owner/tiny@{COMMIT}")
        assert not hub.log
    at_hub("http://127.0.0.1:9")  # not what was cached: it may be old
    assert "a network" in refused("hf://owner/tiny").help


def test_a_download_that_breaks_off_goes_on(llama, at_hub):
    repository = Repository.of(llama)
    repository.cut = {"model.safetensors": 1}
    with serving(tiny=repository) as hub:
        at_hub(hub.address)
        place = local("hf://owner/tiny") / "model.safetensors"
        assert hub.fetched().count("model.safetensors") == 2
        assert place.read_bytes() == (llama / "model.safetensors").read_bytes()


def test_a_server_that_always_breaks_off_is_an_error_and_leaves_no_model(llama, at_hub, tmp_path):
    repository = Repository.of(llama)
    repository.cut = {"model.safetensors": 1000}
    with serving(tiny=repository) as hub:
        at_hub(hub.address)
        assert "run it again" in refused("hf://owner/tiny").help
        at_hub(hub.address, offline=True)
        assert "not in the cache as a whole" in refused("hf://owner/tiny").message
        at_hub(hub.address)
        repository.cut = {}
        place = local("hf://owner/tiny") / "model.safetensors"
        assert place.read_bytes() == (llama / "model.safetensors").read_bytes()


def test_an_interrupt_ends_a_download_and_the_next_run_makes_it_whole(llama, at_hub, capsys):
    def interrupt(phrase, done, total):
        if phrase == "fetching model.safetensors" and done > 0:
            raise KeyboardInterrupt

    with serving(tiny=Repository.of(llama)) as hub:
        at_hub(hub.address)
        with pytest.raises(KeyboardInterrupt):
            local("hf://owner/tiny", interrupt)
        told = []
        local("hf://owner/tiny", lambda *step: told.append(step))
    size = (llama / "model.safetensors").stat().st_size
    assert ("fetching model.safetensors", size, size) in told


def test_a_cache_that_cannot_be_written_to_is_read(llama, at_hub, tmp_path, monkeypatch):
    from growc.files import hub_download

    with serving(tiny=Repository.of(llama)) as hub:
        at_hub(hub.address)
        made = hub_download._linked

        def linked(folder, files):
            if tmp_path in folder.parents:
                raise PermissionError(13, "denied", str(folder))
            return made(folder, files)

        monkeypatch.setattr(hub_download, "_linked", linked)
        monkeypatch.setattr("tempfile.tempdir", "/tmp")
        place = local("hf://owner/tiny")
    assert tmp_path not in place.parents
    assert (place / "config.json").read_bytes() == (llama / "config.json").read_bytes()


def test_an_onnx_file_is_fetched_with_its_data(at_hub, tmp_path):
    save_onnx(tmp_path / "mlp.onnx", MLP)
    data = (tmp_path / "mlp.onnx").read_bytes()
    files = {"onnx/mlp.onnx": data, "onnx/mlp.onnx_data": b"x", "onnx/other.onnx": b"", "config.json": b"{}"}
    with serving(tiny=Repository(files)) as hub:
        at_hub(hub.address)
        done = growc.apply(WIDEN, "hf://owner/tiny/onnx/mlp.onnx")
        assert hub.fetched() == ["mlp.onnx", "mlp.onnx_data"]
        found = refused("hf://owner/tiny")
        several = [
            local(f"hf://owner/tiny/{name}") for name in ("onnx/mlp.onnx", "onnx/other.onnx", "config.json")
        ]
        assert all(place.is_file() for place in several)
    assert done.written == Path("mlp.grown.onnx")
    assert (
        json.loads(Path("mlp.grown.json").read_text())["source"] == f"hf://owner/tiny/onnx/mlp.onnx@{COMMIT}"
    )
    assert found.help == "`hf://owner/tiny/onnx/mlp.onnx` names a model in it"


def test_every_command_takes_a_reference(llama, at_hub, capsys, tmp_path):
    save_onnx(tmp_path / "mlp.onnx", MLP)
    np.savez(tmp_path / "inputs.npz", x=np.ones((4, 4), np.float32))
    both = {"mlp.onnx": (tmp_path / "mlp.onnx").read_bytes()}
    inputs = ["--inputs", str(tmp_path / "inputs.npz")]
    with serving(tiny=Repository.of(llama, **both)) as hub:
        at_hub(hub.address)
        name = "hf://owner/tiny/mlp.onnx"
        assert main(["plan", "-e", WIDEN, "hf://owner/tiny/config.json"]) == 0
        assert main(["inspect", "hf://owner/tiny", "--json"]) == 0
        assert main(["explain", name, "ffn"]) == 0
        assert main(["measure", name, *inputs]) == 0
        assert main(["apply", "-e", WIDEN, name, "-o", "wide.onnx"]) == 0
        assert main(["verify", name, "wide.onnx"]) == 0
        assert growc.flops(name).forward > 0
        assert growc.measure(name, tmp_path / "inputs.npz")
        assert growc.verify(name, "wide.onnx").cases > 0
    assert {p.name for p in Path().iterdir()} == {"mlp.importance.npz", "wide.onnx", "wide.grown.json"}
    assert not list((tmp_path / "cache").rglob("*.npz*"))


def test_the_extra_to_install_is_named_where_the_library_is_missing(monkeypatch):
    monkeypatch.setattr("growc.files.hub_download.find_spec", lambda name: None)
    assert refused("hf://owner/tiny", "G309").help == "install `growc[torch]`"


def test_a_class_is_for_checkpoints_alone(capsys):
    assert main(["inspect", "hf://owner/tiny/mlp.onnx", "--class", "a:B"]) == 2
    assert "is the class of a checkpoint directory" in capsys.readouterr().err


def test_nothing_is_written_to_a_reference(at_hub, tmp_path, capsys):
    save_onnx(tmp_path / "mlp.onnx", MLP)
    assert main(["apply", "-e", WIDEN, str(tmp_path / "mlp.onnx"), "-o", "hf://owner/x"]) == 2
    assert "uploads nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "meant"), [("owner/tiny", "`hf://owner/tiny`"), ("gpt2", "`hf://OWNER/gpt2`")]
)
def test_a_name_of_the_hub_without_its_scheme_is_recognised(at_hub, capsys, name, meant):
    for given in (["inspect", name], ["apply", "-e", WIDEN, name], ["verify", name, name]):
        assert main(given) == 3
        assert f"did you mean {meant}" in capsys.readouterr().err
    assert main(["inspect", "./nosuch/deep/model"]) == 3
    assert "did you mean" not in capsys.readouterr().err


def test_the_environment_names_server_cache_and_token(tmp_path):
    save_onnx(tmp_path / "mlp.onnx", MLP)
    with serving(tiny=Repository({"mlp.onnx": (tmp_path / "mlp.onnx").read_bytes()})) as hub:
        names = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_secret"}
        names |= {"HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-m", "growc", "plan", "-e", WIDEN, "hf://owner/tiny/mlp.onnx"]
        ran = subprocess.run(command, env=os.environ | names, capture_output=True, text=True, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr == ""
        assert hub.token == "Bearer hf_secret"
    assert list((tmp_path / "home/hub").glob("models--owner--tiny"))
