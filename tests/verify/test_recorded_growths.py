"""`growc replay`: growths that a record tells of, done again on another model of the same shapes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from graphs import STREAM, save

import growc
from growc.cli.main import main
from growc.errors.diagnostic import GrowError

FIRST = "let more = 12\nwiden ffn to ffn + more with uniform copy split random noise 0.1 seed 3"
SECOND = """measure importance on "calibration.npz"
subclone ffn to 10 by importance
widen vocab to 20 with zero fill
"""
ROWS = STREAM.replace("int64[N]", "int64[N, S]").replace("float[N,", "float[N, S,")
"""A model that takes rows of tokens."""


def weights(model: Path) -> dict[str, np.ndarray]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}


def trained(model: Path, place: Path, seed: int = 7) -> Path:
    """The same model with other numbers, and without a record."""
    proto, random = onnx.load(model), np.random.default_rng(seed)
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        moved = (array + random.standard_normal(array.shape)).astype(array.dtype)
        tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))
    del proto.metadata_props[:]
    onnx.save(proto, place)
    return place


@pytest.fixture
def source(tmp_path: Path) -> Path:
    np.savez(tmp_path / "calibration.npz", tokens=np.arange(16).reshape(4, 4) % 16)
    return save(
        tmp_path / "source.onnx", STREAM.replace("int64[N]", "int64[N, S]").replace("float[N,", "float[N, S,")
    )


@pytest.fixture
def grown(source: Path, tmp_path: Path) -> Path:
    """Two growths, one after the other."""
    half = growc.apply(FIRST, source, tmp_path / "half.onnx", {"more": "4"}).written
    recipe = tmp_path / "second.grow"
    recipe.write_text(SECOND)
    return growc.apply(recipe, half, tmp_path / "grown.onnx").written


@pytest.fixture
def other(source: Path, tmp_path: Path) -> Path:
    return trained(source, tmp_path / "other.onnx")


def refused(*given: object, **named: object) -> str:
    with pytest.raises(GrowError) as caught:
        growc.replay(*given, **named)
    return str(caught.value)


@pytest.mark.parametrize("record", ["grown.onnx", "grown.grown.json"])
def test_replaying_is_applying_the_same_recipes_to_the_other_model(grown, other, tmp_path, record):
    done = growc.replay(tmp_path / record, other, tmp_path / "again.onnx")
    half = growc.apply(FIRST, other, tmp_path / "by-hand-half.onnx", {"more": "4"}).written
    wanted = growc.apply(tmp_path / "second.grow", half, tmp_path / "by-hand.onnx").written
    found, wanted = weights(done.written), weights(wanted)
    assert found.keys() == wanted.keys()
    assert all((found[name] == wanted[name]).all() for name in found)
    assert not (found["up_weight"] == weights(grown)["up_weight"]).all()


def test_the_new_record_is_that_of_the_same_growths(grown, other, tmp_path):
    again = growc.replay(grown, other, tmp_path / "again.onnx")
    records = [json.loads((tmp_path / f"{name}.grown.json").read_text()) for name in ("grown", "again")]
    for record in (one for last in records for one in (last, *last["earlier"])):
        del record["measured"], record["certificate"]  # how much importance is dropped
    assert records[0] == records[1]
    assert growc.replay(again.written, other, tmp_path / "thrice.onnx").written.exists()


def test_a_model_that_the_first_growth_made_takes_the_others(grown, tmp_path):
    done = growc.replay(grown, tmp_path / "half.onnx", tmp_path / "again.onnx")
    found, wanted = weights(done.written), weights(grown)
    assert all((found[name] == wanted[name]).all() for name in wanted)
    assert "has had all growths" in refused(grown, grown, tmp_path / "none.onnx")


def test_a_model_of_another_history_is_refused(grown, source, tmp_path):
    made = growc.apply("widen ffn to 16 with zero fill", source, tmp_path / "elsewhere.onnx").written
    assert "other recipes" in refused(grown, made, tmp_path / "again.onnx")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"8, 12] up": "8, 14] up", "12] up_b": "14] up_b", "12, 8]": "14, 8]"}, "`up_weight` is [8, 14]"),
        ({"norm2_bias>": "norm2_bias, float[3, 5] spare>"}, "has `spare` [3, 5]"),
    ],
)
def test_a_model_of_other_shapes_is_refused_with_the_name_of_a_weight(grown, tmp_path, changes, said):
    text = STREAM
    for old, new in changes.items():
        text = text.replace(old, new)
    model = save(tmp_path / "wrong.onnx", text)
    assert said in refused(grown, model, tmp_path / "again.onnx")
    assert not (tmp_path / "again.onnx").exists()


def test_tensors_may_have_other_names_but_none_may_be_missing(grown, source, tmp_path):
    renamed = save(tmp_path / "renamed.onnx", ROWS.replace("up_weight", "onnx__MatMul_7"))
    assert growc.replay(grown, renamed, tmp_path / "again.onnx").written.exists()
    less = save(
        tmp_path / "less.onnx",
        ROWS.replace("float[8] down_bias, ", "").replace("Add(d, down_bias)", "Identity(d)"),
    )
    assert "has no `down_bias`, and [8]" in refused(grown, less, tmp_path / "none.onnx")


def test_a_file_that_recipes_read_lies_beside_the_record_or_is_given(grown, other, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    data = (tmp_path / "calibration.npz").rename(elsewhere / "data.npz")
    said = refused(grown, other, tmp_path / "again.onnx")
    assert "there is no" in said
    assert "--file 'calibration.npz=PATH'" in said
    done = growc.replay(grown, other, tmp_path / "again.onnx", files={"calibration.npz": data})
    assert done.remarks == ()
    assert "elsewhere" not in (tmp_path / "again.grown.json").read_text()


def test_another_file_of_the_name_is_refused_but_where_it_is_given(grown, other, tmp_path):
    data = tmp_path / "calibration.npz"
    np.savez(data, tokens=np.zeros((2, 4), np.int64))
    assert "is not the file" in refused(grown, other, tmp_path / "again.onnx")
    done = growc.replay(grown, other, tmp_path / "again.onnx", files={"calibration.npz": data})
    assert "is not the file" in done.remarks[0]


def test_a_file_that_no_recipe_reads_is_refused(grown, other, tmp_path):
    said = refused(grown, other, tmp_path / "again.onnx", files={"calibration": "calibration.npz"})
    assert "reads `calibration`" in said
    assert "they read `calibration.npz`" in said


def test_a_file_without_a_record_is_refused(source, other, tmp_path):
    assert "has no record of a growth" in refused(source, other, tmp_path / "again.onnx")
    (tmp_path / "other.json").write_text('{"growc": "1"}')
    assert "has no record of a growth" in refused(tmp_path / "other.json", other, tmp_path / "again.onnx")
    assert "there is no" in refused(tmp_path / "nosuch.onnx", other, tmp_path / "again.onnx")


def test_a_record_of_a_later_language_is_refused(grown, other, tmp_path):
    record = json.loads((tmp_path / "half.grown.json").read_text())
    (tmp_path / "later.json").write_text(json.dumps(record | {"language": "9"}))
    assert "does not read language 9" in refused(tmp_path / "later.json", other, tmp_path / "again.onnx")


def test_nothing_is_written_over_the_record(grown, other, tmp_path):
    assert "so is the record" in refused(grown, other, grown)
    assert "so is the record" in refused(tmp_path / "grown.grown.json", other, grown)


def test_the_command_shows_each_growth(grown, other, tmp_path, capsys):
    assert main(["replay", str(grown), str(other), "-o", str(tmp_path / "again.onnx")]) == 0
    said = capsys.readouterr().out
    assert "Growth 1 of 2:" in said
    assert "Growth 2 of 2:" in said
    assert said.rstrip().endswith("again.onnx")
    assert main(["replay", str(grown), str(other), "-o", str(tmp_path / "once.onnx"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["plans"]) == 2


def test_a_module_takes_the_growths_of_a_module_s_program(tmp_path):
    pytest.importorskip("torch.nn")  # without torch, the folder tests/torch would have its name
    import torch

    def made(seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()

    inputs = (torch.randn(5, 4),)
    for seed in (1, 2):
        torch.export.save(torch.export.export(made(seed), inputs), tmp_path / f"{seed}.pt2")
    recipe = "widen ffn to 12 with uniform copy split random"
    growc.apply(recipe, tmp_path / "1.pt2", tmp_path / "grown.pt2")
    done = growc.replay(tmp_path / "grown.pt2", tmp_path / "2.pt2", tmp_path / "again.pt2")
    wanted = growc.apply(recipe, tmp_path / "2.pt2", tmp_path / "wanted.pt2")
    found, expected = (torch.export.load(one.written).module() for one in (done, wanted))
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), expected.parameters(), strict=True))
    module = growc.replay(tmp_path / "grown.pt2", made(2), example_inputs=inputs)
    by_hand = growc.apply(recipe, made(2), inputs)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), by_hand.parameters(), strict=True))
    wrong = torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3))
    with pytest.raises(GrowError, match=r"`0\.weight` is \[9, 4\]"):
        growc.replay(tmp_path / "grown.pt2", wrong, example_inputs=inputs)


def test_a_checkpoint_directory_takes_the_growths_of_another_one(tmp_path):
    transformers = pytest.importorskip("transformers")
    import torch

    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2
    )
    for seed in (1, 2):
        torch.manual_seed(seed)
        transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / str(seed))
    recipe = "widen ffn to 18 with uniform copy seed 5"
    growc.apply(recipe, tmp_path / "1", tmp_path / "grown", check=False)
    growc.replay(tmp_path / "grown", tmp_path / "2", tmp_path / "again", check=False)
    growc.apply(recipe, tmp_path / "2", tmp_path / "wanted", check=False)
    found, wanted = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("again", "wanted"))
    assert found == wanted
    config.num_hidden_layers = 1
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "short")
    said = refused(tmp_path / "grown", tmp_path / "short", tmp_path / "none")
    assert "has no `model.layers.1." in said
