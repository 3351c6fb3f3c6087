"""`growc.apply` on modules of transformers: the same class comes out, from the config that has its sizes."""

from __future__ import annotations

import pytest
import torch
import transformers
from checkpoints import tiny_config
from torch import nn

import growc
from growc.dialects.torch.emit.grown_module import GrownModule

IDS = torch.randint(4, 48, (2, 9), generator=torch.Generator().manual_seed(1))
DOUBLED = (
    "widen hidden to 2 * hidden with cyclic copy\n"
    "widen heads to 2 * heads with neighbor copy\n"
    "widen ffn to 2 * ffn with cyclic copy\n"
)
FFN = "widen ffn to 3 * ffn / 2 with uniform copy"


def built(class_name: str, kind: str, **changes) -> nn.Module:
    """A module in evaluation whose gains and biases are drawn too."""
    torch.manual_seed(0)
    module = getattr(transformers, class_name)(tiny_config(kind, **changes)).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return module


def logits(module: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return module(input_ids=IDS).logits


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("class_name", "kind", "recipe", "fields"),
    [
        ("GPT2LMHeadModel", "GPT2", DOUBLED, {"n_embd": 64, "n_head": 8}),
        ("LlamaForCausalLM", "Llama", FFN, {"intermediate_size": 72}),
        ("MixtralForCausalLM", "Mixtral", FFN, {"intermediate_size": 36}),
        (
            *("LlamaForCausalLM", "Llama"),
            *("stack layers to 3 by last with zero outputs", {"num_hidden_layers": 3}),
        ),
    ],
)
def test_the_class_stays_and_computes_the_same(class_name, kind, recipe, fields, tmp_path):
    module = built(class_name, kind)
    result = growc.apply(module, f"{recipe}\nexpect exact")
    assert type(result) is type(module)
    assert {name: getattr(result.config, name) for name in fields} == fields
    torch.testing.assert_close(logits(result), logits(module), rtol=2e-4, atol=2e-4)
    assert result.verification.relative < 1e-4
    assert dict(result.named_parameters()).keys() <= result.lineage["weights"].keys()
    result.save_pretrained(tmp_path)
    again = type(module).from_pretrained(tmp_path)
    torch.testing.assert_close(logits(again), logits(result))


@pytest.mark.soak
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 4), (2, 4)])
def test_key_and_value_heads_become_more(before, after):
    """One head of keys is one element that is stretched; as many as queries have no groups left."""
    module = built("LlamaForCausalLM", "Llama", num_attention_heads=4, num_key_value_heads=before)
    recipe = f"widen kv_heads to {after} with neighbor copy\nexpect exact"
    result = growc.apply(module, recipe)
    assert (result.config.num_attention_heads, result.config.num_key_value_heads) == (4, after)
    torch.testing.assert_close(logits(result), logits(module), rtol=2e-4, atol=2e-4)
    own = growc.apply(module, recipe, {"input_ids": IDS}, keep_class=False)
    with torch.no_grad():
        torch.testing.assert_close(own(input_ids=IDS)["logits"], logits(module), rtol=2e-4, atol=2e-4)


def test_types_of_elements_what_is_trained_and_modes_stay():
    module = built("GPT2LMHeadModel", "GPT2", attn_pdrop=0.0).bfloat16().train()
    module.transformer.h[0].ln_1.float().requires_grad_(False)
    module.transformer.h[1].eval()
    result = growc.apply(module, "widen ffn to 2 * ffn with cyclic copy", {"input_ids": IDS}, check=False)
    for name, parameter in module.named_parameters():
        twin = result.get_parameter(name)
        assert (twin.dtype, twin.requires_grad) == (parameter.dtype, parameter.requires_grad), name
    assert result.lm_head.weight is result.transformer.wte.weight
    assert {n: p.training for n, p in result.named_modules()} == {
        n: p.training for n, p in module.named_modules()
    }


def test_the_source_is_left_as_it_was():
    module = built("LlamaForCausalLM", "Llama").train()
    module.model.layers[0].eval()
    config, modes = module.config.to_dict(), [part.training for part in module.modules()]
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    result = growc.apply(module, FFN)
    result.model.norm.weight.data += 1
    assert module.config.to_dict() == config
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())


def test_dropout_draws_as_in_the_source():
    module = built("GPT2LMHeadModel", "GPT2").train()
    result = growc.apply(module, "widen ffn to 2 * ffn with tail copy", IDS)
    found = []
    for one in (module, result):
        torch.manual_seed(1)
        found.append(one(input_ids=IDS).logits)
    torch.testing.assert_close(*found, rtol=2e-4, atol=2e-4)
    assert not torch.allclose(result(input_ids=IDS).logits, found[1], atol=1e-2)


def gradients(module: nn.Module) -> list[torch.Tensor]:
    module.zero_grad()
    module(input_ids=IDS, labels=IDS).loss.backward()
    return [parameter.grad for parameter in module.parameters()]


@pytest.mark.soak
def test_gradients_are_computed_by_checkpoints_where_the_source_does_so(monkeypatch):
    module = built("LlamaForCausalLM", "Llama").train()
    plain = growc.apply(module, FFN, check=False)
    assert not any(getattr(part, "gradient_checkpointing", False) for part in plain.modules())
    module.activation_checkpointing_enable()
    result = growc.apply(module, FFN, check=False)
    passes = []
    forward = type(result.model.layers[0].mlp).forward
    monkeypatch.setattr(
        type(result.model.layers[0].mlp), "forward", lambda *a: passes.append(a[0]) or forward(*a)
    )
    torch.testing.assert_close(gradients(result), gradients(plain))
    assert [sum(one in part.modules() for one in passes) for part in (result, plain)] == [4, 2]


@pytest.mark.soak
def test_sizes_that_the_class_cannot_hold_are_refused_and_a_plain_module_has_them():
    module = built("GPT2LMHeadModel", "GPT2")
    for ask in (growc.apply, growc.plan):
        with pytest.raises(growc.GrowError, match="G318") as refused:
            ask(module, "widen heads to 8 with neighbor copy")
        [said] = refused.value.diagnostics
        assert said.help == "the class ties these: `widen hidden to 64 with cyclic copy` too"
    recipe = "widen heads to 8 with neighbor copy\nexpect exact"
    result = growc.apply(module, recipe, {"input_ids": IDS}, keep_class=False)
    assert isinstance(result, GrownModule)
    torch.testing.assert_close(logits(result), logits(module), rtol=2e-4, atol=2e-4)


class Capped(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def another_part(module):
    module.model.layers[1].mlp.act_fn = Capped()


def another_number(module):
    module.model.layers[0].self_attn.scaling = 1.0


def another_tie(module):
    module.lm_head.weight = module.model.embed_tokens.weight


def another_tensor(module):
    module.model.norm.bias = nn.Parameter(torch.zeros(32))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("change", [another_part, another_number, another_tie, another_tensor])
def test_a_module_that_its_class_does_not_build_is_refused(change):
    module = built("LlamaForCausalLM", "Llama")
    change(module)
    with pytest.raises(growc.GrowError, match="G321") as refused:
        growc.plan(module, FFN)
    assert "keep_class=False" in refused.value.diagnostics[0].help
    assert growc.plan(module, FFN, keep_class=False).certificate.exact


@pytest.mark.soak
def test_experts_run_as_they_did():
    module = built("MixtralForCausalLM", "Mixtral")
    before = module.config._experts_implementation
    assert growc.apply(module, FFN, check=False).config._experts_implementation == before
    result = growc.apply(module, FFN, {"input_ids": IDS}, keep_class=False)
    torch.testing.assert_close(logits(result), logits(module), rtol=2e-4, atol=2e-4)
    assert module.config._experts_implementation == before


@pytest.mark.soak
def test_a_different_computation_of_the_class_is_a_gap_with_its_cause():
    config = transformers.XGLMConfig(
        vocab_size=48, max_position_embeddings=16, d_model=32, ffn_dim=48, num_layers=1, attention_heads=4
    )
    torch.manual_seed(0)
    module = transformers.XGLMForCausalLM(config).eval()
    recipe = "widen hidden to 64 with cyclic copy"
    result = growc.apply(module, recipe)
    assert type(result) is type(module)
    [gap] = result.plan.certificate.gaps
    assert gap.cause.startswith("`XGLMForCausalLM` computes from its config what no weight makes up for: ")
    assert result.verification.relative > 1e-3
    with pytest.raises(growc.GrowError, match="G401"):
        growc.apply(module, f"{recipe}\nexpect exact")


@pytest.mark.soak
def test_the_lineage_has_the_factors_that_make_up_for_the_class():
    config = transformers.Gemma2Config(**tiny_config("Llama").to_dict() | {"head_dim": 8, "pad_token_id": 0})
    torch.manual_seed(0)
    module = transformers.Gemma2ForCausalLM(config).eval()  # it multiplies embeddings by the root of hidden
    result = growc.apply(module, "widen hidden to 64 with cyclic copy\nexpect exact")
    table = module.model.embed_tokens.weight
    torch.testing.assert_close(result.model.embed_tokens.weight[:, :32], table / 2**0.5)
    assert result.lineage["weights"]["model.embed_tokens.weight"]["factor"] == pytest.approx(0.5**0.5)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bytes_to_write_are_those_of_what_is_stored(dtype):
    module = built("LlamaForCausalLM", "Llama").to(getattr(torch, dtype))
    result = growc.apply(module, FFN, check=False)
    assert result.plan.bytes_to_write == sum(p.nbytes for p in result.parameters())


@pytest.mark.sampled(9)
@pytest.mark.parametrize("wider", ["", "widen hidden to 48 with neighbor copy\n"])
def test_a_head_that_parts_from_its_table_is_a_parameter_of_the_class(wider, tmp_path):
    """The table stays a table, and the head takes what its readers of the stream take."""
    module = built("LlamaForCausalLM", "Llama", tie_word_embeddings=True)
    result = growc.apply(module, f"{wider}untie head\nexpect exact")
    assert not result.config.tie_word_embeddings
    assert result.lm_head.weight is not result.model.embed_tokens.weight
    assert result.lineage["weights"]["lm_head.weight"]["source"] == "model.embed_tokens.weight"
    torch.testing.assert_close(logits(result), logits(module), rtol=2e-4, atol=2e-4)
    result.save_pretrained(tmp_path)
    torch.testing.assert_close(logits(type(module).from_pretrained(tmp_path)), logits(result))


@pytest.mark.soak
def test_heads_share_the_width_of_a_stream_that_grows():
    """One matrix makes queries, keys and values: what it makes is a line in the reciprocal of the heads."""
    module = built("Phi3ForCausalLM", "Phi3", pad_token_id=0)
    result = growc.apply(module, "widen hidden to 48 with neighbor copy\nwiden heads to 6 with neighbor copy")
    assert (result.config.num_attention_heads, result.config.num_key_value_heads) == (6, 2)
    torch.testing.assert_close(logits(result), logits(module), rtol=2e-4, atol=2e-4)


@pytest.mark.soak
def test_a_refusal_gives_the_error_of_the_class_as_its_reason():
    module = built("LlamaForCausalLM", "Llama")
    with pytest.raises(growc.GrowError, match="G318") as caught:
        growc.plan("widen heads to 6 with neighbor copy", module)
    assert "refuses `num_attention_heads` = 6: " in caught.value.diagnostics[0].notes[-1]
    assert "is not a multiple of" in caught.value.diagnostics[0].notes[-1]


def test_a_module_that_fails_on_its_example_inputs_is_refused_with_its_reason():
    """As this class does on sequences that are no multiple of its segments."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 2}
    config = transformers.NystromformerConfig(
        vocab_size=48, segment_means_seq_len=64, num_landmarks=4, conv_kernel_size=3, **sizes
    )
    module = transformers.NystromformerModel(config).eval()
    with pytest.raises(growc.GrowError) as raised:
        growc.apply(FFN, module, example_inputs={"input_ids": IDS})
    assert raised.value.diagnostics[0].code == "G317"
    assert "RuntimeError" in str(raised.value)
