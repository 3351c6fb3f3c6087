"""`subclone kv_heads to N by mean`: keys and values become the means of groups, query heads stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import run
from models import export, maker, stored
from test_grouped import ATTENTION, G, H, attention

import growc
from growc.diagnostic import GrowError

HEADS, D = 8, 6


def llama(kv_heads: int) -> Any:
    """A torch module of grouped queries, rotary, seeded."""
    import torch
    import transformers

    class Llama(transformers.LlamaForCausalLM):  # type: ignore[misc]
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return super().forward(input_ids, attention_mask, use_cache=False).logits

    config = transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=HEADS * D, num_attention_heads=HEADS, vocab_size=90,
        intermediate_size=40, max_position_embeddings=32, num_key_value_heads=kv_heads, attention_bias=True,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(3)
    model = Llama(config).eval().requires_grad_(False)
    maker().draw_weights(model, torch.Generator().manual_seed(3))
    return model


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama") / "llama.onnx"
    export(llama(4), "torchscript", path)
    return path


@pytest.mark.parametrize("left", [1, 2])
def test_the_result_is_the_module_whose_keys_and_values_are_mean_pooled(
    grouped: Path, tmp_path: Path, left: int
) -> None:
    import torch

    made = growc.apply(f"subclone kv_heads to {left} by mean", grouped, tmp_path / "out.onnx", check=False)
    source, wanted = llama(4), llama(left)
    state = source.state_dict()
    for name, value in state.items():
        if "k_proj" in name or "v_proj" in name:
            state[name] = value.reshape(left, 4 // left, D, -1).mean(1).reshape(-1, *value.shape[1:])
    wanted.load_state_dict(state)
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 90, (2, 9)))
    expected = wanted(ids, torch.ones_like(ids)).numpy()
    got = run(made.written, {"input_ids": ids.numpy(), "attention_mask": np.ones((2, 9), np.int64)})
    (logits,) = got.values()
    assert np.abs(logits - expected).max() <= 2e-6 * np.abs(expected).max()
    assert {name: (c.before, c.after) for name, c in made.plan.axes.items() if "heads" in name} == {
        "heads": ((HEADS,), (HEADS,)),
        "kv_heads": ((4,), (left,)),
    }


def test_only_keys_and_values_change_and_the_plan_says_that_it_is_not_exact(tmp_path: Path) -> None:
    model = attention(tmp_path / "m.onnx")
    done = growc.apply("subclone kv_heads to 1 by mean", model, tmp_path / "out.onnx")
    before, after = stored(model), stored(done.written)
    for name in ("k_weight", "v_weight"):
        wanted = before[name].astype(np.float64).reshape(H, 3, 2).mean(1)
        assert np.allclose(after[name], wanted, rtol=1e-6)
    for name in ("q_weight", "o_weight"):
        assert (after[name] == before[name]).all()
    [gap] = done.plan.certificate.gaps
    assert gap.cause == "every 3 kv_heads become their mean"
    heads = growc.inspect(done.written).roles.sizes("heads")
    assert heads == [3 * G]


def test_the_means_of_equal_heads_change_nothing(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    once = {name: np.tile(random.standard_normal((H, 2)), 3) for name in ("k_weight", "v_weight")}
    model = attention(tmp_path / "m.onnx", **{n: w.astype(np.float32) for n, w in once.items()})
    done = growc.apply("subclone kv_heads to 1 by mean", model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-6


WRONG = {
    "no whole groups": ("subclone kv_heads to 2 by mean", "G301"),
    "together with other statements": (
        "subclone kv_heads to 1 by mean\nsubclone heads to 6 by first",
        "G309",
    ),
    "of other units": ("subclone heads to 6 by mean", "G210"),
    "as an order": ("reorder kv_heads by mean", "G210"),
    "rescaled": ("subclone kv_heads to 1 by mean rescaled", "G205"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_averaged_is_refused(tmp_path: Path, case: str) -> None:
    recipe, code = WRONG[case]
    model = attention(tmp_path / "m.onnx")
    with pytest.raises(GrowError) as caught:
        growc.plan(recipe, model)
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_heads_that_a_node_sums_over_are_refused(tmp_path: Path) -> None:
    from graphs import save

    text = ATTENTION.replace("float[B, S, 6] y)", "float[B, S, 6] y, float[B, S, 5] z)").replace(
        "int64[5] wide", "float[6, 5] side, int64[5] wide"
    )
    text = text.replace("k2 = Reshape", "z = MatMul(k1, side)\n    k2 = Reshape")
    values = {"wide": [1, 1, 4, 1, 1], "merged": [0, 0, 12, 2], "few": [0, 0, 3, 2], "flat4": [0, 12, -1, 2]}
    values |= {"back": [0, 0, -1], "two": [2]}
    model = save(tmp_path / "m.onnx", text, **{k: np.array(v, dtype=np.int64) for k, v in values.items()})
    with pytest.raises(GrowError, match="takes them together"):
        growc.plan("subclone kv_heads to 1 by mean", model)
