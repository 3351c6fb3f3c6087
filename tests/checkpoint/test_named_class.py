"""Checkpoints of a class that transformers does not have, which the caller names."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from contextvars import copy_context

import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.checkpoint.state_dict_saver import save

import growc
from growc.errors.diagnostic import GrowError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")

OWN = """
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class OwnConfig(PretrainedConfig):
    model_type = "own"

    def __init__(self, width=24, inner=40, depth=2, parts=4, words=50, **others):
        self.width, self.inner, self.depth, self.parts, self.words = width, inner, depth, parts, words
        super().__init__(**others)


class Mixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = nn.LayerNorm(config.width)
        self.read = nn.Linear(config.width, 3 * config.width)
        self.write = nn.Linear(config.width, config.width)

    def forward(self, x):
        size = x.shape[-1] // self.config.parts
        q, k, v = (
            t.unflatten(-1, (self.config.parts, size)).transpose(1, 2)
            for t in self.read(self.norm(x)).chunk(3, -1)
        )
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.write(seen.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mixer, self.norm = Mixer(config), nn.LayerNorm(config.width)
        self.up, self.down = nn.Linear(config.width, config.inner), nn.Linear(config.inner, config.width)

    def forward(self, x):
        x = self.mixer(x)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.words, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.words, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.words

    def forward(self, input_ids, attention_mask=None):
        x = self.words(input_ids)
        for block in self.blocks:
            x = block(x)
        return CausalLMOutput(logits=self.head(self.norm(x)))


class Plain(nn.Module):
    pass


class Bare(PreTrainedModel):
    pass
"""
RECIPE = "widen ffn to 2 * ffn with neighbor copy\nstack layers to 3 by last with zero outputs\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a module of one's own, and a checkpoint of its class."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_model.py").write_text(OWN)
    (folder / "wider.grow").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        own = importlib.import_module("own_model")
        torch.manual_seed(0)
        model = own.OwnModel(own.OwnConfig())
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(folder / "model")
        yield folder, own.OwnModel


def grow(folder, *words):
    """A run of growc in the folder."""
    command = [sys.executable, "-m", "growc", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_named_class_is_grown_exactly_and_loads(place):
    folder, own = place
    done = grow(folder, "apply", "wider.grow", "model", "-o", "grown", "--class", "own_model:OwnModel")
    assert done.returncode == 0, done.stderr
    config = json.loads((folder / "grown/config.json").read_text())
    assert (config["inner"], config["depth"], config["architectures"]) == (80, 3, ["OwnModel"])
    words = torch.arange(20)[None]
    before, after = (own.from_pretrained(folder / name).eval() for name in ("model", "grown"))
    with torch.no_grad():
        assert torch.allclose(before(words).logits, after(words).logits, atol=1e-4)
    again = grow(folder, "verify", "model", "grown", "--class", "own_model:OwnModel")
    assert again.returncode == 0, again.stderr


def test_python_takes_the_class_itself(place):
    folder, own = place
    done = growc.apply(RECIPE, folder / "model", folder / "by.python", model_class=own)
    assert done.plan.certificate.exact
    grow(folder, "apply", "wider.grow", "model", "-o", "by.name", "--class", "own_model:OwnModel")
    files = {path.name: path.read_bytes() for path in (folder / "by.python").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (folder / "by.name").iterdir()}


@pytest.mark.soak
def test_a_distributed_checkpoint_of_a_named_class_is_grown_by_several(place):
    folder, own = place
    model = own.from_pretrained(folder / "model")
    save({"model": get_model_state_dict(model)}, checkpoint_id=str(folder / "saved"))
    words = ["apply", "wider.grow", "saved", "--model", "model", "--class", "own_model:OwnModel"]
    for more in (["-o", "one"], ["-o", "two", "--workers", "2"]):
        done = grow(folder, *words, *more)
        assert done.returncode == 0, done.stderr
    for name in ("one", "two"):
        plain = ["apply", "-e", "", name, "-o", f"{name}.plain", "--weights", "safetensors"]
        assert grow(folder, *plain, "--class", "own_model:OwnModel").returncode == 0
    grown = [(folder / f"{name}.plain/model.safetensors").read_bytes() for name in ("one", "two")]
    assert grown[0] == grown[1]


@pytest.mark.parametrize("command", [["plan", "wider.grow"], ["inspect"]], ids=lambda words: words[0])
def test_other_commands_take_a_class(place, command):
    folder, _ = place
    done = grow(folder, *command, "model", "--class", "own_model:OwnModel")
    assert done.returncode == 0, done.stderr
    assert "ffn" in done.stdout


def test_without_its_name_the_class_is_asked_for(place):
    folder, _ = place
    with pytest.raises(GrowError) as caught:
        growc.inspect(folder / "model")
    (told,) = caught.value.diagnostics
    assert told.code == "G310"
    assert "--class MODULE:NAME" in told.help


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_model", "names no class"),
        ("own_model:", "names no class"),
        ("no_such_module:OwnModel", "cannot be imported"),
        ("own_model:Missing", "has no `Missing`"),
        ("own_model:Plain", "is no class of a checkpoint"),
        ("own_model:OwnConfig", "is no class of a checkpoint"),
        ("own_model:Bare", "has no `config_class`"),
    ],
)
def test_a_name_of_no_class_is_refused(place, name, said):
    folder, _ = place
    with pytest.raises(GrowError, match=said) as caught:
        growc.apply(RECIPE, folder / "model", folder / "never", model_class=name)
    assert caught.value.diagnostics[0].code == "G200"
    assert not (folder / "never").exists()


def test_a_file_has_no_class(place, tmp_path):
    folder, _ = place
    (tmp_path / "model.onnx").write_bytes(b"")
    done = grow(folder, "inspect", str(tmp_path / "model.onnx"), "--class", "own_model:OwnModel")
    assert done.returncode != 0
    assert "`--class` is the class of a checkpoint directory" in done.stderr


def test_a_class_named_for_results_alone_does_not_stay_so_for_the_next_one():
    """As `growc.plan` of an `upcycle` leaves it, which names no class."""
    from transformers import LlamaForCausalLM

    from growc.dialects.transformers.named_class import class_named, name_results_alone, names

    def later() -> bool:
        name_results_alone()
        with class_named(LlamaForCausalLM):
            return names({"architectures": ["Own"]})

    assert copy_context().run(later)
