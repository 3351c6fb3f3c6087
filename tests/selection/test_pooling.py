"""`subclone kv_heads to N by mean`: keys and values become the means of groups, query heads stay."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import SAME_KEYS
from judging import run
from models import export, maker, stored
from test_grouped import G, H, attention

import growc
from growc.errors.diagnostic import GrowError

HEADS, D = 8, 6


def llama(kv_heads: int, heads: int = HEADS, ffn: int = 40) -> Any:
    """A torch module with rotary, seeded; of grouped queries where there are fewer key/value heads."""
    import torch
    import transformers

    class Llama(transformers.LlamaForCausalLM):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return super().forward(input_ids, attention_mask, use_cache=False).logits

    config = transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=HEADS * D, num_attention_heads=heads, vocab_size=90,
        intermediate_size=ffn, max_position_embeddings=32, num_key_value_heads=kv_heads, attention_bias=True,
        bos_token_id=0, eos_token_id=0, head_dim=D,
    )  # fmt: skip
    torch.manual_seed(3)
    model = Llama(config).eval().requires_grad_(False)
    maker().draw_weights(model, torch.Generator().manual_seed(3))
    return model


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The file of a module by its number of key/value heads, and the exporter."""

    @cache
    def made(kv_heads: int, flavour: str = "torchscript") -> Path:
        path = tmp_path_factory.mktemp("llama") / "llama.onnx"
        export(llama(kv_heads), flavour, path)
        return path

    return made


def means(state: dict[str, Any], left: int) -> dict[str, Any]:
    """A state dict whose keys and values are those of fewer heads."""
    pooled = dict(state)
    for name, value in state.items():
        if "k_proj" in name or "v_proj" in name:
            pooled[name] = value.reshape(left, -1, D, *value.shape[1:]).mean(1).reshape(-1, *value.shape[1:])
    return pooled


def differs(written: Path, wanted: Any) -> float:
    """How far a file is from a module."""
    import torch

    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 90, (2, 9)))
    expected = wanted(ids, torch.ones_like(ids)).numpy()
    got = run(written, {"input_ids": ids.numpy(), "attention_mask": np.ones((2, 9), np.int64)})
    (logits,) = got.values()
    return float(np.abs(logits - expected).max() / np.abs(expected).max())


@pytest.mark.sampled(7)
@pytest.mark.parametrize("flavour", ["torchscript", "dynamo"])
@pytest.mark.parametrize(("kv_heads", "left"), [(4, 1), (4, 2), (HEADS, 1), (HEADS, 4)])
def test_the_result_is_the_module_whose_keys_and_values_are_mean_pooled(
    exported: Callable[..., Path], tmp_path: Path, kv_heads: int, left: int, flavour: str
) -> None:
    text = f"subclone kv_heads to {left} by mean"
    made = growc.apply(text, exported(kv_heads, flavour), tmp_path / "out.onnx", check=False)
    wanted = llama(left)
    wanted.load_state_dict(means(llama(kv_heads).state_dict(), left))
    assert differs(made.written, wanted) <= 2e-6
    assert {name: (c.before, c.after) for name, c in made.plan.axes.items() if "heads" in name} == {
        "heads": ((HEADS,), (HEADS,)),
        "kv_heads": ((kv_heads,), (left,)),
    }
    roles = growc.inspect(made.written).roles
    assert (roles.sizes("kv_heads"), roles.sizes("heads")) == ([left], [HEADS])


KEPT = [1, 2, 5, 7]
"""Of eight heads; two of each four in a row, and of each two next to each other not one of every pair."""

TOGETHER = {
    "the heads before": (
        'subclone heads to 4 by keep "keep.txt" unscaled\nsubclone kv_heads to 2 by mean',
        True,
    ),
    "the heads behind": (
        'subclone kv_heads to 2 by mean\nsubclone heads to 4 by keep "keep.txt" unscaled',
        False,
    ),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_statements_before_means_choose_heads_and_those_behind_query_heads(
    exported: Callable[..., Path], tmp_path: Path, case: str
) -> None:
    """And other axes change with them, whatever they are."""
    text, before = TOGETHER[case]
    (tmp_path / "keep.txt").write_text("\n".join(map(str, KEPT)))
    (tmp_path / "r.grow").write_text(f"{text}\nsubclone ffn to 24 by first unscaled\n")
    made = growc.apply(tmp_path / "r.grow", exported(HEADS), tmp_path / "out.onnx", check=False)
    state = dict(llama(HEADS).state_dict())
    for name, value in state.items():
        key = "k_proj" in name or "v_proj" in name
        if "q_proj" in name or (key and before):
            state[name] = value.reshape(HEADS, D, -1)[KEPT].reshape(-1, *value.shape[1:])
        elif "o_proj.weight" in name:
            state[name] = value.reshape(-1, HEADS, D)[:, KEPT].flatten(1)
        elif "up_proj" in name or "gate_proj" in name:
            state[name] = value[:24]
        elif "down_proj" in name:
            state[name] = value[:, :24]
    wanted = llama(2, 4, 24)
    wanted.load_state_dict(means(state, 2))
    assert differs(made.written, wanted) <= 2e-6


def test_query_heads_behind_means_rank_as_the_source_s(exported: Callable[..., Path]) -> None:
    """In every group the two best by the weights that make and read them."""
    weights = growc.plan(
        "subclone kv_heads to 2 by mean\nsubclone heads to 4 by magnitude", exported(HEADS)
    ).weights
    state = {name: value.double().numpy() for name, value in llama(HEADS).state_dict().items()}
    for layer in (0, 1):
        name = f"model.layers.{layer}.self_attn"
        tensors = [state[f"{name}.q_proj.{kind}"].reshape(HEADS, -1) for kind in ("weight", "bias")]
        tensors.append(state[f"{name}.o_proj.weight"].reshape(-1, HEADS, D).swapaxes(0, 1).reshape(HEADS, -1))
        scores = np.sqrt(sum((t**2).sum(1) / (t**2).sum() for t in tensors))
        best = [4 * g + i for g in (0, 1) for i in sorted(np.argsort(-scores[4 * g :][:4])[:2])]
        [bias] = [w for w in weights if w.name == f"{name}.q_proj.bias"]
        taken = np.arange(HEADS * D)
        for step in bias.steps:
            taken = taken[step.layout.as_map().index]
        assert taken.tolist() == [h * D + d for h in best for d in range(D)]


def test_a_mean_of_heads_ranks_as_the_mean_of_their_scores(
    exported: Callable[..., Path], tmp_path: Path
) -> None:
    text = "subclone kv_heads to 4 by mean\nsubclone kv_heads to 1 by magnitude\nexpect heads == 2"
    done = growc.apply(text, exported(HEADS), tmp_path / "out.onnx", check=False)
    state = {name: value.double().numpy() for name, value in llama(HEADS).state_dict().items()}
    for layer in (0, 1):
        name = f"model.layers.{layer}.self_attn"
        made = [state[f"{name}.{x}_proj.{kind}"] for x in "qkv" for kind in ("weight", "bias")]
        tensors = [t.reshape(HEADS, -1) for t in (*made, state[f"{name}.o_proj.weight"].T)]
        scores = np.sqrt(sum((t**2).sum(1) / (t**2).sum() for t in tensors)).reshape(4, 2).mean(1)
        mean = state[f"{name}.k_proj.bias"].reshape(4, 2, D).mean(1)[scores.argmax()]
        assert np.allclose(stored(done.written)[f"{name}.k_proj.bias"], mean, rtol=1e-6)


def test_a_packed_projection_keeps_all_queries(models: Any, tmp_path: Path) -> None:
    """GPT-2 has queries, keys and values side by side: the last two become shorter."""
    import onnx
    import onnx.numpy_helper as nh

    for flavour in ("torchscript", "dynamo"):
        model = models.path("gpt2", flavour)
        done = growc.apply("subclone kv_heads to 2 by mean", model, tmp_path / "out.onnx", force=True)
        assert growc.inspect(done.written).roles.sizes("kv_heads") == [2]
        proto = onnx.load(model)
        changed = {w.source: w.before for w in done.plan.weights if w.steps}
        for tensor in proto.graph.initializer:
            if tensor.name in changed:
                packed = nh.to_array(tensor)
                heads = packed.reshape(*packed.shape[:-1], 3, 6, -1).copy()
                for group in (slice(0, 3), slice(3, 6)):
                    heads[..., 1:, group, :] = heads[..., 1:, group, :].mean(-2, keepdims=True)
                tensor.CopyFrom(nh.from_array(heads.reshape(packed.shape), tensor.name))
        onnx.save(proto, tmp_path / "equal.onnx")
        assert len(changed) == 4
        ids = np.random.default_rng(1).integers(0, 50, (2, 7))
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        feeds = {value.name: feeds[value.name] for value in proto.graph.input}
        [(one, other)] = zip(
            run(done.written, feeds).values(), run(tmp_path / "equal.onnx", feeds).values(), strict=True
        )
        assert np.abs(one - other).max() <= 2e-6 * np.abs(other).max()


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


ONE_OPERATOR = """
attention (float[B, S, 12] x) => (float[B, S, 12] y)
<float[12, 16] q_weight, float[12, 16] k_weight, float[12, 16] v_weight, float[16, 12] o_weight>
{
    q = MatMul(x, q_weight)
    k = MatMul(x, k_weight)
    v = MatMul(x, v_weight)
    c = Attention <q_num_heads = 4, kv_num_heads = 4> (q, k, v)
    y = MatMul(c, o_weight)
}
"""


def test_an_operator_that_shares_heads_needs_no_other(tmp_path: Path) -> None:
    import onnx
    from graphs import save

    random = np.random.default_rng(5)
    once = {n: random.standard_normal((12, 2, 1, 4)).astype(np.float32) for n in ("k_weight", "v_weight")}
    twice = {name: np.repeat(w, 2, axis=2).reshape(12, 16) for name, w in once.items()}
    model = save(tmp_path / "one.onnx", ONE_OPERATOR, opset=23, **twice)
    done = growc.apply("subclone kv_heads to 2 by mean", model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-6
    nodes = onnx.load(done.written).graph.node
    assert [n.op_type for n in nodes] == ["MatMul", "MatMul", "MatMul", "Attention", "MatMul"]
    assert {a.name: a.i for a in nodes[3].attribute} == {"q_num_heads": 4, "kv_num_heads": 2}


ALONE = {
    "other rankings": "subclone kv_heads to 4 by first",
    "before": "subclone kv_heads to 4 by first\nsubclone kv_heads to 2 by mean",
}


@pytest.mark.parametrize("case", ALONE)
def test_without_groups_no_heads_can_be_chosen_as_key_value_heads(
    exported: Callable[..., Path], case: str
) -> None:
    with pytest.raises(GrowError, match="it has no groups") as caught:
        growc.plan(ALONE[case], exported(HEADS))
    assert {d.code for d in caught.value.diagnostics} == {"G302"}


WRONG = {
    "no whole groups": ("subclone kv_heads to 2 by mean", "G301"),
    "no whole groups before": ("subclone heads to 5 by first\nsubclone kv_heads to 1 by mean", "G301"),
    "of other units": ("subclone heads to 6 by mean", "G210"),
    "as an order": ("reorder kv_heads by mean", "G210"),
    "rescaled": ("subclone kv_heads to 1 by mean rescaled", "G205"),
}


@pytest.mark.parametrize("case", WRONG)
def test_heads_that_cannot_be_averaged_are_refused(tmp_path: Path, case: str) -> None:
    recipe, code = WRONG[case]
    model = attention(tmp_path / "m.onnx")
    with pytest.raises(GrowError) as caught:
        growc.plan(recipe, model)
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_heads_that_a_node_sums_over_are_refused(tmp_path: Path) -> None:
    model = attention(
        tmp_path / "m.onnx",
        outputs=", float[B, S, 5] z",
        weights=", float[6, 5] side",
        keys_of=f"    z = MatMul(k1, side)\n{SAME_KEYS}",
    )
    with pytest.raises(GrowError, match="takes them together"):
        growc.plan("subclone kv_heads to 1 by mean", model)
