"""`stack layers to N from "FILE"`: a model without layers gets those of a template."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from graphs import STREAM, TINY, save
from models import stored

import growc
from growc import api
from growc.errors.diagnostic import GrowError

SEED = """
seed (int64[N] tokens) => (float[N, 16] logits)
<float[16, 8] table, float[8] norm2_weight, float[8] norm2_bias>
{
    x0 = Gather(table, tokens)
    n2 = LayerNormalization <axis = -1> (x0, norm2_weight, norm2_bias)
    head = Transpose <perm = [1, 0]> (table)
    logits = MatMul(n2, head)
}
"""
"""STREAM without its layer."""
OUTER = ("table", "norm2_weight", "norm2_bias")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(tmp_path / "template.onnx", STREAM)
    random = np.random.default_rng(9)
    drawn = {name: random.normal(1, 2, 8).astype(np.float32) for name in OUTER[1:]}
    return save(tmp_path / "seed.onnx", SEED, table=random.normal(size=(16, 8)).astype(np.float32), **drawn)


def stack(folder: Path, behind: str = "", size: int = 3, template: str = "template.onnx") -> str:
    return f'stack layers to {size} from "{folder / template}" {behind}'


def refused(recipe: str, model: object) -> tuple[str, str]:
    with pytest.raises(GrowError) as caught:
        growc.plan(recipe, model)
    [problem] = caught.value.diagnostics
    return problem.code, problem.message


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("behind", "exact"),
    [
        ("with zero outputs", True),
        ("with random fill with zero outputs", True),
        ("with random fill std 0.5", False),
        ("", False),
    ],
)
def test_layers_that_add_nothing_are_exact_and_no_others(model, tmp_path, size, behind, exact):
    done = growc.apply(stack(tmp_path, behind, size), model, tmp_path / "out.onnx")
    assert done.plan.certificate.exact == exact
    assert (done.verification.relative < 1e-6) == exact
    assert exact or len(done.plan.certificate.gaps) == size


def test_the_model_s_tensors_stand_around_the_template_s_layers(model, tmp_path):
    made = growc.apply(stack(tmp_path), model, tmp_path / "out.onnx").written
    found, outer, layer = stored(made), stored(model), stored(tmp_path / "template.onnx")
    for name in OUTER:
        assert (found[name] == outer[name]).all()
        assert (layer[name] != outer[name]).any()
    copies = [values for name, values in found.items() if name.startswith("up_weight")]
    assert len(copies) == 3
    assert all((values == layer["up_weight"]).all() for values in copies)


def test_drawn_layers_keep_nothing_of_the_template(model, tmp_path):
    made = growc.apply(
        stack(tmp_path, "with random fill std 0.25 seed 3"), model, tmp_path / "out.onnx"
    ).written
    found = stored(made)
    for name in ("up_weight", "down_weight"):
        copies = np.stack([values for key, values in found.items() if key.startswith(name)])
        assert len({values.tobytes() for values in copies}) == 3
        assert abs(copies.std() - 0.25) < 0.05
    assert all((found[name] == 0).all() for name in found if "bias" in name and name not in OUTER)
    assert all((found[name] == 1).all() for name in found if name.startswith("norm1_weight"))


def test_later_statements_work_on_the_new_layers(model, tmp_path):
    recipe = stack(tmp_path, "with random fill with zero outputs")
    recipe += "\nwiden ffn to 20 with tail copy\nstack layers to 5 by last with zero outputs\nexpect exact"
    done = growc.apply(recipe, model, tmp_path / "out.onnx")
    assert done.verification.relative < 1e-6
    assert growc.inspect(done.written).roles.sizes("ffn") == [20]


def test_a_template_of_several_layers_gives_them_in_turn(model, tmp_path):
    two = "stack layers to 2 by last with random fill"
    growc.apply(two, tmp_path / "template.onnx", tmp_path / "two.onnx", check=False)
    recipe = stack(tmp_path, size=4, template="two.onnx")
    found = stored(growc.apply(recipe, model, tmp_path / "out.onnx").written)
    copies = [values.tobytes() for name, values in found.items() if name.startswith("up_weight")]
    assert sorted(copies.count(one) for one in set(copies)) == [2, 2]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "n2 = LayerNormalization <axis = -1>",
            "n2 = LayerNormalization <axis = -1, epsilon = 0.01>",
            "stands for",
        ),
        ("logits = MatMul(n2, head)", "raw = MatMul(n2, head)\n logits = Tanh(raw)", "Tanh"),
        ("x0 = Gather(table, tokens)", "x00 = Gather(table, tokens)\n x0 = Neg(x00)", "Neg"),
        ("float[16, 8] table", "float[15, 8] table", "[15, 8]"),
        ("(x1, norm2_weight, norm2_bias)", "(x1, norm2_bias, norm2_bias)", "and for"),
        ("float[N, 16] logits)", "float[N, 16] logits, float[N, 8] x1)", "its outputs are"),
        ("int64[N] tokens)", "int64[N] tokens, float[N] spare)", "its inputs are"),
    ],
)
def test_a_template_that_is_another_model_is_refused_with_the_place(model, tmp_path, old, new, said):
    """Planted faults: each would compute something else around layers that add nothing."""
    assert old in STREAM
    save(tmp_path / "template.onnx", STREAM.replace(old, new))
    code, message = refused(stack(tmp_path, "with zero outputs"), model)
    assert code == "G314"
    assert said in message


def test_other_versions_of_operators_are_other_models(model, tmp_path):
    save(tmp_path / "template.onnx", STREAM, opset=18)
    assert refused(stack(tmp_path), model)[0] == "G314"


def test_a_recipe_or_model_with_no_place_for_a_template_is_refused(model, tmp_path):
    assert refused(stack(tmp_path), tmp_path / "template.onnx")[0] == "G303"
    assert refused(stack(tmp_path, template="seed.onnx"), model)[0] == "G302"
    assert refused(f"{stack(tmp_path)}\n{stack(tmp_path)}", model)[0] == "G303"
    assert refused(stack(tmp_path, template="nosuch.onnx"), model)[0] == "G310"
    np.savez(tmp_path / "data.npz", tokens=np.arange(4))
    measure = f'measure importance on "{tmp_path / "data.npz"}"'
    assert refused(f"{measure}\n{stack(tmp_path)}", model)[0] == "G209"
    assert refused(f'{stack(tmp_path)}\nmatch "{TINY}" with cyclic copy', model)[0] == "G209"
    with pytest.raises(GrowError, match="came with language"):
        api.recipe(f"language 1\n{stack(tmp_path)}")


def test_models_of_other_forms_are_refused_with_the_reason(tmp_path):
    pytest.importorskip("torch.nn")  # without torch, the folder tests/torch would have its name
    import torch

    save(tmp_path / "template.onnx", STREAM)
    module = torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.LayerNorm(8)).eval()
    with pytest.raises(GrowError, match="where both models are ONNX files"):
        growc.plan(stack(tmp_path), module, example_inputs=(torch.arange(4),))


def test_names_of_both_models_may_clash(tmp_path, model):
    """A tensor of the model has the name of a value in the template."""
    text = SEED.replace("norm2_bias", "act")
    clashing = save(tmp_path / "clash.onnx", text)
    done = growc.apply(stack(tmp_path, "with zero outputs"), clashing, tmp_path / "out.onnx")
    assert done.plan.certificate.exact
    assert done.verification.relative < 1e-6
    assert (stored(done.written)["act"] == stored(clashing)["act"]).all()


def test_the_record_has_the_digest_of_the_template_and_can_be_replayed(model, tmp_path):
    recipe = tmp_path / "r.grow"
    recipe.write_text('stack layers to 2 from "template.onnx" with random fill std 0.1\n')
    growc.apply(recipe, model, tmp_path / "out.onnx")
    assert [*json.loads((tmp_path / "out.grown.json").read_text())["files"]] == ["template.onnx"]
    other = save(tmp_path / "other.onnx", SEED)
    made = growc.replay(tmp_path / "out.grown.json", other, tmp_path / "again.onnx").written
    assert (stored(made)["table"] == stored(other)["table"]).all()
