"""Importance of modules, `.pt2` programs and checkpoint directories: that of the ONNX file of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from agreement import built
from models import Models, build
from torch import nn
from torch.export import Dim

import growc
from growc.cli.main import main
from growc.errors.diagnostic import GrowError
from growc.reports import measure as measuring

VOCAB, ROWS, LENGTH = 48, 6, 9
HALF = 'measure importance on "{}"\nsubclone ffn to ffn / 2 by importance'


def tokens(path: Path, vocab: int = VOCAB) -> dict[str, np.ndarray]:
    """Token numbers, some of them masked, in a file."""
    random = np.random.default_rng(0)
    mask = (np.arange(LENGTH) < np.array([9, 9, 7, 5, 9, 6])[:, None]).astype(np.int64)
    arrays = {"input_ids": random.integers(4, vocab, (ROWS, LENGTH)), "attention_mask": mask}
    np.savez(path, **arrays)
    return arrays


def program(module: nn.Module, arrays: dict[str, np.ndarray], path: Path, free: int = 2) -> Path:
    given = {name: torch.from_numpy(array) for name, array in arrays.items()}
    shapes = tuple(dict.fromkeys(range(free), Dim.AUTO) for _ in given)
    made = torch.export.export(module, tuple(given.values()), dynamic_shapes=shapes)
    torch.export.save(made, path)
    return path


def require_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, scores in found.items():
        np.testing.assert_allclose(scores, wanted[name], rtol=1e-4, err_msg=name)
    assert {"ffn.0", "hidden.0", "heads.0", "layers.0"} <= found.keys()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_program_has_the_scores_of_its_file(models: Models, tmp_path: Path, name: str) -> None:
    arrays = tokens(tmp_path / "own.npz", 40)
    path = program(build(name), arrays, tmp_path / f"{name}.pt2")
    file = models.path(name, "torchscript")
    ports = [value.name for value in growc.inspect(file).graph.inputs]
    np.savez(tmp_path / "file.npz", **dict(zip(ports, arrays.values(), strict=True)))
    wanted = growc.measure(file, tmp_path / "file.npz", tmp_path / "scores.npz")
    require_same(growc.measure(path, tmp_path / "own.npz"), wanted)
    assert (tmp_path / f"{name}.importance.npz").exists()
    again = measuring.measurement(path, tmp_path / "own.npz")
    assert again.samples == 0
    require_same(again.scores, wanted)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["gpt2", "llama", "vit", "t5", "gpt2_cache"])
def test_a_program_of_the_zoo_has_the_scores_of_its_file(tmp_path: Path, name: str) -> None:
    model = built(name)
    given = model.feeds[0]
    np.savez(tmp_path / "in.npz", **{n: t.numpy() for n, t in given.items()})
    torch.export.save(torch.export.export(model.module, tuple(given.values())), tmp_path / "m.pt2")
    torch.onnx.export(
        model.module, tuple(given.values()), tmp_path / "m.onnx", input_names=list(given), dynamo=True
    )
    wanted = growc.measure(tmp_path / "m.onnx", tmp_path / "in.npz", tmp_path / "scores.npz")
    require_same(growc.measure(tmp_path / "m.pt2", tmp_path / "in.npz"), wanted)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A GPT-2 as transformers saves it, and token numbers for it without a mask."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_embd": 8, "n_layer": 3, "n_head": 2, "n_positions": 16, "vocab_size": VOCAB}
    module = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    module.save_pretrained(tmp_path / "gpt2")
    arrays = tokens(tmp_path / "masked.npz")
    np.savez(tmp_path / "ids.npz", input_ids=arrays["input_ids"])
    return tmp_path / "gpt2"


@pytest.mark.soak
def test_a_directory_needs_no_masks_and_keeps_its_scores_beside_it(folder: Path, tmp_path: Path) -> None:
    assert main(["measure", str(folder), "--inputs", str(tmp_path / "ids.npz")]) == 0
    assert (tmp_path / "gpt2.importance.npz").exists()
    open_scores = growc.measure(folder, tmp_path / "ids.npz", tmp_path / "open.npz")
    arrays = dict(np.load(tmp_path / "masked.npz"))
    np.savez(
        tmp_path / "ones.npz", input_ids=arrays["input_ids"], attention_mask=arrays["attention_mask"] * 0 + 1
    )
    require_same(growc.measure(folder, tmp_path / "ones.npz", tmp_path / "ones.scores.npz"), open_scores)
    masked = growc.measure(folder, tmp_path / "masked.npz", tmp_path / "masked.scores.npz")
    assert not np.allclose(masked["ffn.0"], open_scores["ffn.0"], rtol=1e-3)


def kept_of(folder: Path, tmp_path: Path) -> torch.Tensor:
    """The weight of the second layer whose units are the most important half."""
    scores = growc.measure(folder, tmp_path / "masked.npz", tmp_path / "scores.npz")["ffn.1"]
    kept = np.sort(np.argsort(-scores, kind="stable")[: len(scores) // 2])
    return loaded(folder).get_parameter(WEIGHT).detach()[:, kept]


def loaded(folder: Path) -> nn.Module:
    from transformers import GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(folder).eval()


WEIGHT = "transformer.h.1.mlp.c_fc.weight"


@pytest.mark.soak
def test_a_module_keeps_its_most_important_units(folder: Path, tmp_path: Path) -> None:
    recipe = HALF.format(tmp_path / "masked.npz")
    result = growc.apply(loaded(folder), recipe, keep_class=False, check=False)
    found = result.get_parameter(WEIGHT).detach()
    torch.testing.assert_close(found, kept_of(folder, tmp_path), rtol=0, atol=0)
    assert not list(Path.cwd().glob("GPT2*"))


@pytest.mark.soak
def test_a_directory_keeps_its_most_important_units_and_says_what_that_costs(
    folder: Path, tmp_path: Path
) -> None:
    made = growc.apply(HALF.format(tmp_path / "masked.npz"), folder, tmp_path / "half")
    found = loaded(made.written).get_parameter(WEIGHT).detach()
    torch.testing.assert_close(found, kept_of(folder, tmp_path), rtol=0, atol=0)
    assert made.calibration is not None
    assert made.calibration.samples == ROWS
    assert made.calibration.before is not None


@pytest.mark.soak
def test_layers_that_add_least_go(folder: Path, tmp_path: Path) -> None:
    layers = growc.measure(folder, tmp_path / "masked.npz", tmp_path / "scores.npz")["layers.0"]
    recipe = f'measure importance on "{tmp_path / "masked.npz"}"\nsubclone layers to 2 by importance\n'
    plan = growc.plan(recipe + "subclone ffn to ffn / 2 by importance", folder)
    kept = sorted(np.argsort(-layers, kind="stable")[:2])
    sources = {w.copy_of or w.source for w in plan.weights if "c_fc.weight" in w.source}
    assert sources == {f"transformer.h.{k}.mlp.c_fc.weight" for k in kept}


@pytest.mark.soak
def test_layers_are_profiled(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", str(folder), "--inputs", str(tmp_path / "ids.npz"), "--layers"]) == 0
    made = measuring.profile(folder, tmp_path / "ids.npz")
    assert len(made.layers) == 3
    assert all(layer.removed.outcome is not None for layer in made.layers)
    assert made.loss is not None


class Waves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(VOCAB, 8), nn.Linear(8, VOCAB)

    def forward(self, input_ids):
        return self.head(torch.fft.fft(self.table(input_ids)).real)


def test_a_model_without_operators_in_onnxruntime_is_refused_with_the_reason(tmp_path: Path) -> None:
    arrays = {"input_ids": tokens(tmp_path / "in.npz")["input_ids"]}
    path = program(Waves().eval(), arrays, tmp_path / "waves.pt2")
    with pytest.raises(GrowError, match="onnxruntime cannot run the model") as caught:
        growc.measure(path, tmp_path / "in.npz")
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.code == "G403"
    assert "complex numbers" in diagnostic.notes[0]


def test_a_file_written_to_be_run_is_removed_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    arrays = {"input_ids": tokens(tmp_path / "in.npz")["input_ids"]}
    path = program(nn.Sequential(nn.Embedding(VOCAB, 8), nn.Linear(8, 5)), arrays, tmp_path / "m.pt2")
    compilation = growc.inspect(path)
    file = compilation.model.file(path)
    assert onnx.load(file).graph.input[0].name == "input"
    del compilation
    import gc

    gc.collect()
    assert list((tmp_path / "temporary").iterdir()) == []
