"""State dicts beside a module, and of what it becomes: `.safetensors` files and mappings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import growc
from growc.errors.diagnostic import GrowError

RECIPE = "widen ffn to 18 with uniform copy split random"
WIDTH, VOCAB = 8, 20
IDS = torch.arange(10).reshape(2, 5)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Text(nn.Module):
    """Ties, a stored buffer that is no weight, and one that nothing stores."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(VOCAB, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("shift", torch.randn(VOCAB))
        self.register_buffer("factor", torch.tensor(1.5), persistent=False)

    def forward(self, ids):
        return self.head(self.last(self.blocks(self.table(ids) * self.factor))) + self.shift


@pytest.fixture
def trained() -> Text:
    torch.manual_seed(0)
    module = Text().eval()
    for tensor in module.state_dict().values():
        tensor.copy_(torch.randn(tensor.shape))
    return module


@pytest.fixture
def path(trained, tmp_path):
    save_model(trained, str(tmp_path / "model.safetensors"))
    return tmp_path / "model.safetensors"


def same(result: nn.Module, source: nn.Module) -> None:
    torch.testing.assert_close(result(IDS), source(IDS), rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("as_mapping", [False, True])
def test_the_weights_of_the_file_are_those_that_are_grown(trained, path, as_mapping):
    other = Text().eval()
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    given = {n: t.numpy() for n, t in trained.state_dict().items()} if as_mapping else path
    result = growc.apply(other, RECIPE, IDS, state_dict=given)
    same(result, trained)
    assert not result.verification.refutes_exact()
    assert result.head.weight is result.table.weight
    for name, tensor in other.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)


def test_a_plan_and_an_inspection_take_them_too(path):
    assert growc.plan(Text(), RECIPE, example_inputs=IDS, state_dict=path).certificate.exact
    assert growc.inspect(Text(), example_inputs=IDS, state_dict=path).roles.axes["ffn"]
    with pytest.raises(GrowError, match="is for modules"):
        growc.plan(RECIPE, path, state_dict=path)


def test_buffers_that_only_the_class_computes_need_a_module_with_values(path):
    with torch.device("meta"):
        module = Text().eval()
    with pytest.raises(GrowError, match="`factor` has no values") as caught:
        growc.apply(module, RECIPE, IDS, state_dict=path)
    assert caught.value.diagnostics[0].code == "G322"
    module.register_buffer("factor", torch.tensor(1.5), persistent=False)
    assert growc.apply(module, RECIPE, IDS, state_dict=path).get_parameter("blocks.0.up.weight").shape == (
        18,
        WIDTH,
    )
    assert module.table.weight.is_meta


def problems(given) -> tuple[str, ...]:
    with pytest.raises(GrowError) as caught:
        growc.apply(Text(), RECIPE, IDS, state_dict=given)
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.code == "G322"
    return diagnostic.notes


def test_entries_that_do_not_fit_are_named(trained):
    state = dict(trained.state_dict())
    assert problems(
        {n: t for n, t in state.items() if n not in ("table.weight", "head.weight", "blocks.0.up.bias")}
    ) == (
        "it lacks `table.weight` or `head.weight`",
        "it lacks `blocks.0.up.bias`",
    )
    assert problems(state | {"ghost": torch.ones(1)}) == ("the module has no `ghost`",)
    assert problems(state | {"blocks.0.up.bias": torch.ones(13)}) == (
        "`blocks.0.up.bias` is [13] of float32, and in the module [12] of float32",
    )
    assert problems(state | {"blocks.0.up.bias": torch.ones(12, dtype=torch.long)}) == (
        "`blocks.0.up.bias` is [12] of int64, and in the module [12] of float32",
    )
    other = {"head.weight": state["head.weight"] + 1}
    assert problems(state | other) == (
        "`table.weight` and `head.weight` are one tensor in the module, and two in the state dict",
    )


@pytest.mark.parametrize("damaged", [b"", b"\x08\x00\x00\x00\x00\x00\x00\x00notjson!"])
def test_a_file_that_is_none_is_refused(path, damaged):
    path.write_bytes(damaged)
    with pytest.raises(GrowError) as caught:
        growc.plan(Text(), RECIPE, example_inputs=IDS, state_dict=path)
    assert caught.value.diagnostics[0].code == "G310"


def test_a_saved_state_dict_is_loaded_by_the_library_and_by_growc(trained, path, tmp_path):
    result = growc.apply(Text().eval(), RECIPE, IDS, state_dict=path)
    written = growc.save(result, tmp_path / "large.safetensors")
    stored = load_file(written)
    assert "head.weight" not in stored
    assert stored["blocks.1.up.weight"].shape == (18, WIDTH)
    larger = Text().eval()
    for block in larger.blocks:
        block.up, block.down = nn.Linear(WIDTH, 18), nn.Linear(18, WIDTH)
    assert load_model(larger, str(written)) == (set(), [])
    same(larger, trained)
    again = growc.apply(larger, "widen ffn to 24 with uniform copy", IDS, state_dict=written)
    same(again, trained)
    bytes_before = written.read_bytes()
    growc.save(result, written)
    assert written.read_bytes() == bytes_before


def test_a_file_that_growc_did_not_write_stays(trained, path, tmp_path):
    before = path.read_bytes()
    with pytest.raises(GrowError, match="growc did not make it"):
        growc.save(trained, path)
    assert path.read_bytes() == before
    growc.save(trained, path, force=True)
    assert path.read_bytes() != before
    with pytest.raises(GrowError):
        growc.save(trained, tmp_path / "nosuch" / "x.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("keep_class", [True, False])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_class_of_transformers_on_meta_is_grown_with_the_weights_of_a_file(kind, keep_class, tmp_path):
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0}
    if kind == "gpt2":
        config = GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=16, **sizes)
        model = GPT2LMHeadModel
    else:
        config = LlamaConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, **sizes
        )
        model = LlamaForCausalLM
    source = model(config).eval()
    save_model(source, str(tmp_path / "m.safetensors"))
    with torch.device("meta"):
        empty = model(config).eval()
    result = growc.apply(
        empty,
        "widen ffn to 2 * ffn with uniform copy split random",
        state_dict=tmp_path / "m.safetensors",
        keep_class=keep_class,
    )
    assert not result.verification.refutes_exact()
    given = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    torch.testing.assert_close(result(**given).logits, source(**given).logits, rtol=1e-4, atol=1e-5)
    assert isinstance(result, model) == keep_class


def test_the_element_types_are_the_modules(trained, tmp_path):
    half = {name: tensor.to(torch.bfloat16) for name, tensor in trained.state_dict().items()}
    half.pop("head.weight")
    save_file(half, tmp_path / "half.safetensors")
    result = growc.apply(Text().eval(), RECIPE, IDS, state_dict=tmp_path / "half.safetensors")
    assert {tensor.dtype for tensor in result.state_dict().values()} == {torch.float32}
    np.testing.assert_array_equal(result.shift.numpy(), half["shift"].float().numpy())
