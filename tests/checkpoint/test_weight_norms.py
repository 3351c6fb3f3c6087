"""Classes that compute a weight by its norm: what is planned for it is put back into what they store."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from growc.checkpoint.check import compare as comparing
from growc.cli.main import main
from growc.dialects.torch.emit import weight_norm as parametrized
from growc.plans import execute as weights

DOUBLED = (
    "widen hidden to 2 * hidden with cyclic copy",
    "widen heads to 2 * heads with neighbor copy",
    "widen ffn to 2 * ffn with cyclic copy",
)
SIZES = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 24,
    "conv_dim": (8, 8),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 12,
}
PLACE = "encoder.pos_conv_embed.conv.parametrizations.weight"
CLASSES = {"Wav2Vec2ForCTC": "wav2vec2", "HubertForCTC": "hubert"}


@pytest.fixture
def source(save):
    """A folder with a class whose weights have lengths and directions of their own."""

    def make(kind="Wav2Vec2ForCTC", dtype="float32", lengths=1.0):
        config = getattr(transformers, kind.replace("ForCTC", "Config"))(**SIZES)
        path = save(kind, config, dtype=dtype)
        tensors = load_file(path / "model.safetensors")
        random = torch.Generator().manual_seed(3)
        for name, tensor in tensors.items():
            if not name.endswith("original0"):
                drawn = 0.3 * torch.randn(tensor.shape, generator=random)
                tensors[name] = (drawn + ("norm.weight" in name)).to(tensor.dtype)
        v, g = (f"{CLASSES[kind]}.{PLACE}.original{k}" for k in (1, 0))
        drawn = torch.rand(tensors[g].shape, generator=random) + 0.5
        tensors[g] = (drawn * torch.tensor(lengths)).to(tensors[g].dtype)
        save_file(tensors, path / "model.safetensors", {"format": "pt"})
        return path, v, g

    return make


@pytest.fixture
def apply(tmp_path, monkeypatch, capsys):
    """Run `growc apply` on a folder; the exit status, and what was printed."""
    monkeypatch.setattr(comparing, "_exported", lambda *_: {})

    def run(path, *statements, options=()):
        given = [word for text in statements for word in ("-e", text)]
        capsys.readouterr()
        status = main(["apply", *given, str(path), "-o", str(tmp_path / "out"), *options])
        return status, "".join(capsys.readouterr())

    return run


def loaded(path):
    chosen = getattr(transformers, json.loads((path / "config.json").read_text())["architectures"][0])
    module, report = chosen.from_pretrained(path, output_loading_info=True)
    assert not any(report.values()), report
    return module.float().eval()


def outputs(path):
    wave = torch.randn(2, 400, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return loaded(path)(input_values=wave).logits


def assert_alike(one, other, close=2e-4):
    ours, theirs = outputs(one), outputs(other)
    assert ours.isfinite().all()
    assert float((ours - theirs).abs().max() / ours.abs().max()) < close


@pytest.mark.parametrize("kind", ["Wav2Vec2ForCTC", pytest.param("HubertForCTC", marks=pytest.mark.soak)])
def test_the_class_computes_what_was_planned(source, apply, tmp_path, kind):
    path, v, g = source(kind, lengths=[1.0, 0.0, -2.0, 1.0])
    status, said = apply(path, *DOUBLED, "expect exact")
    assert status == 0, said
    assert "training will not keep its norm" not in said
    assert_alike(path, tmp_path / "out")
    before, after = (load_file(p / "model.safetensors") for p in (path, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert torch.equal(after[v], before[v].repeat(2, 1, 1))  # copies are copies, with the norm that they had
    torch.testing.assert_close(after[g], before[g] * 2**0.5)
    assert after[g].flatten()[1] == 0


@pytest.mark.soak
def test_sixteen_bit_numbers_stay_sixteen_bit_numbers(source, apply, tmp_path):
    path, v, g = source(dtype="bfloat16")
    status, said = apply(path, *DOUBLED, "expect exact")
    assert status == 0, said
    assert_alike(path, tmp_path / "out", 3e-2)
    after = load_file(tmp_path / "out/model.safetensors")
    assert {after[v].dtype, after[g].dtype} == {torch.bfloat16}


@pytest.mark.soak
def test_other_fills_and_noise_are_put_back_too(source, apply, tmp_path):
    path, _, _ = source()
    statement = "widen hidden to 2 * hidden with cyclic copy split random noise 0.1 balanced"
    status, said = apply(path, statement, *DOUBLED[1:], "expect exact")
    assert status == 0, said
    assert_alike(path, tmp_path / "out")


@pytest.mark.soak
def test_the_state_of_an_optimizer_is_about_what_training_would_have_made(source, apply, tmp_path):
    path, _, g = source()
    module = loaded(path).train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    torch.save(optimizer.state_dict(), path / "optimizer.pt")
    status, said = apply(path, *DOUBLED, options=("--optimizer", str(path / "optimizer.pt")))
    assert status == 0, said
    assert f"and about that of 2, such as `{g}`" in said
    after = loaded(tmp_path / "out")
    torch.optim.AdamW(after.parameters()).load_state_dict(
        torch.load(tmp_path / "out/optimizer.pt", weights_only=True)
    )


@pytest.mark.soak
def test_a_result_that_differs_from_its_plan_is_not_written(source, apply, tmp_path, monkeypatch):
    path, _, _ = source()
    right = weights._normed

    def wrong(normed, read):
        return right(normed, read) * (1.01 if normed.part == "length" else 1)

    monkeypatch.setattr(weights, "_normed", wrong)
    status, said = apply(path, *DOUBLED, "expect exact")
    assert status != 0
    assert "G402" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.soak
def test_a_weight_that_is_computed_otherwise_is_refused_by_name(source, apply, tmp_path, monkeypatch):
    path, v, g = source()
    monkeypatch.setattr(parametrized, "weight_norm", lambda folded: None)
    status, said = apply(path, *DOUBLED)
    assert status != 0
    assert "G318" in said
    assert f"it is computed from `{v}` and `{g}`" in said
    assert not (tmp_path / "out").exists()
