"""`merge layers RANGE by mean`: layers become one, whose weights are the means of theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import ROOT
from models import stored
from papers import BERT, GPT, LLAMA, in_layer, placed, weights
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import growc
from growc.errors.diagnostic import GrowError
from growc.plans.plan_to_json import from_json, to_json

MODELS = {"tiny-gpt": (GPT, 4), "tiny-bert": (BERT, 3), "tiny-llama": (LLAMA, 3)}
Parts = Callable[[int], list[list[int]]]
PARTS: list[tuple[str, Parts]] = [
    ("merge layers 0..2 by mean", lambda n: [[0, 1], *([k] for k in range(2, n))]),
    ("merge layers -2.. by mean", lambda n: [*([k] for k in range(n - 2)), [n - 2, n - 1]]),
    ("merge layers 0..layers by mean", lambda n: [[*range(n)]]),
    (
        "merge layers 0..2 by mean\nmerge layers 0..2 by mean",
        lambda n: [[0, 1, 2, 2], *([k] for k in range(3, n))],
    ),
    ("merge layers 1 by mean", lambda n: [[k] for k in range(n)]),
]
"""The layers of the source of which each layer of the result is the mean, of n layers."""


def model(name: str) -> Path:
    return ROOT / "examples/models" / f"{name}.onnx"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("recipe", "parts"), PARTS)
def test_weights_are_means_by_the_formula(tmp_path: Path, name: str, recipe: str, parts: Parts) -> None:
    form, count = MODELS[name]
    done = growc.apply(recipe, model(name), tmp_path / "out.onnx", check=False)
    expected = parts(count)
    before = weights(model(name), placed(form, count))
    after = weights(done.written, placed(form, len(expected)))
    for k, part in enumerate(expected):
        sources = [in_layer(before, layer) for layer in part]
        for number, one in enumerate(in_layer(after, k)):
            value = np.mean([own[number].value.astype(np.float64) for own in sources], axis=0)
            np.testing.assert_allclose(one.value, value, rtol=1e-6, atol=1e-7)
    merged = [part for part in expected if len(part) > 1]
    assert len(done.plan.certificate.gaps) == len(merged)


def llama(**more: Any) -> LlamaForCausalLM:
    torch.manual_seed(5)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        vocab_size=40,
        max_position_embeddings=32,
        bos_token_id=1,
        eos_token_id=2,
        **more,
    )
    made = LlamaForCausalLM(config).eval()
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


def merged(state: dict[str, torch.Tensor], layers: list[list[int]]) -> dict[str, torch.Tensor]:
    """The state of the result, from that of the source alone."""
    found = {name: value for name, value in state.items() if ".layers." not in name}
    for k, part in enumerate(layers):
        for name, value in state.items():
            if f".layers.{part[0]}." in name:
                others = [state[name.replace(f".layers.{part[0]}.", f".layers.{m}.")].double() for m in part]
                found[name.replace(f".layers.{part[0]}.", f".layers.{k}.")] = (
                    sum(others, torch.zeros_like(value, dtype=torch.float64)) / len(part)
                ).to(value.dtype)
    return found


def test_a_checkpoint_directory_has_the_means_and_loads(tmp_path: Path) -> None:
    source = llama()
    source.save_pretrained(tmp_path / "source")
    plain = growc.apply("merge layers 1..3 by mean", tmp_path / "source", tmp_path / "out", check=False)
    result = LlamaForCausalLM.from_pretrained(plain.written)
    expected = merged(source.state_dict(), [[0], [1, 2]])
    assert result.config.num_hidden_layers == 2
    assert result.state_dict().keys() == expected.keys()
    for name, value in result.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-7)


@pytest.mark.soak
def test_units_of_the_next_layer_are_those_of_the_mean(tmp_path: Path) -> None:
    source = llama()
    source.save_pretrained(tmp_path / "source")
    recipe = "merge layers 1..3 by mean\nwiden ffn to 2 * ffn with cyclic copy from next layer"
    done = growc.apply(recipe, tmp_path / "source", tmp_path / "further", check=False)
    expected, up = merged(source.state_dict(), [[0], [1, 2]]), "model.layers.{}.mlp.up_proj.weight"
    made = LlamaForCausalLM.from_pretrained(done.written).state_dict()[up.format(0)]
    torch.testing.assert_close(made[:24], expected[up.format(0)])
    torch.testing.assert_close(made[24:], expected[up.format(1)])


class Block(nn.Module):
    """One branch, with gain and biases of its own."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = x + self.down(self.activation(self.up(self.norm(x))))
        return made


class Stream(nn.Module):
    """Blocks between a table and a head."""

    def __init__(self, *activations: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.table, self.head = nn.Embedding(16, 8), nn.Linear(8, 16)
        self.layers = nn.ModuleList(Block(one) for one in activations)
        for parameter in self.parameters():
            parameter.data += 0.5 * torch.randn_like(parameter)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        for block in self.layers:
            x = block(x)
        made: torch.Tensor = self.head(x)
        return made


IDS = torch.tensor([[3, 1, 4]])


def test_a_module_has_the_means() -> None:
    source = Stream(*(nn.ReLU() for _ in range(3))).eval()
    result = growc.apply(source, "merge layers 0..2 by mean", example_inputs=IDS, check=False)
    state = {f".{name}": value for name, value in source.state_dict().items()}
    expected = merged(state, [[0, 1], [2]])
    assert len(expected) == len(result.state_dict())
    for name, value in result.state_dict().items():
        torch.testing.assert_close(value, expected[f".{name}"], rtol=1e-6, atol=1e-7)


def test_layers_of_several_kinds_are_refused() -> None:
    source = Stream(nn.ReLU(), nn.Tanh(), nn.Tanh()).eval()
    with pytest.raises(GrowError, match="layers 0 and 1 cannot become one: they have other nodes"):
        growc.apply(source, "merge layers 0..2 by mean", example_inputs=IDS, check=False)


def test_the_plan_and_the_lineage_name_what_was_merged(tmp_path: Path) -> None:
    plan = growc.plan("merge layers 1..3 by mean", model("tiny-gpt"))
    one = next(w for w in plan.weights if w.name == "transformer.h.1.ln_1.weight")
    assert one.mean_of == ("transformer.h.1.ln_1.weight", "transformer.h.2.ln_1.weight")
    assert not plan.gone
    again = from_json(to_json(plan))
    assert [w.mean_of for w in again.weights] == [w.mean_of for w in plan.weights]


WRONG = {
    "beyond": ("merge layers 2..9 by mean", "G302"),
    "new layers": ("stack layers to 5 by last with zero outputs\nmerge layers 3..5 by mean", "G314"),
    "drawn layers": ("stack layers to 5 by last with random fill\nmerge layers 3..5 by mean", "G314"),
}


@pytest.mark.parametrize("case", WRONG)
def test_layers_that_cannot_be_merged_are_refused(case: str) -> None:
    recipe, code = WRONG[case]
    with pytest.raises(GrowError) as caught:
        growc.plan(recipe, model("tiny-gpt"))
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_nothing_was_measured_of_a_mean(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", input_ids=np.arange(24).reshape(2, 12))
    recipe = f'measure importance on "{tmp_path / "x.npz"}"\nmerge layers 0..2 by mean\n'
    with pytest.raises(GrowError, match="it is the mean of several"):
        growc.plan(f"{recipe}subclone layers to 2 by importance", model("tiny-gpt"))


def test_weights_that_layers_share_stay_shared_and_unchanged(tmp_path: Path) -> None:
    before = stored(model("tiny-gpt"))
    out = growc.apply("merge layers 0..4 by mean", model("tiny-gpt"), tmp_path / "out.onnx", check=False)
    after = stored(out.written)
    for name in ("lm_head.weight", "transformer.wpe.weight"):
        np.testing.assert_array_equal(after[name], before[name])
