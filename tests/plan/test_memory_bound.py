"""The bound of `--memory`: parts that are not made by blocks, and how much they take."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import transformers

import growc
from growc.cli.main import main
from growc.errors.diagnostic import GrowError
from growc.plans.execute import planned
from growc.plans.memory_bound import BLOCKS, BOUND, excess, read_bound, working_bytes


@pytest.mark.parametrize(
    ("text", "bound"), [("256M", 256 << 20), ("2g", 2 << 30), ("1GiB", 1 << 30), ("", BOUND)]
)
def test_sizes_are_read(text, bound):
    assert read_bound(text) == bound


@pytest.mark.parametrize("text", ["256", "M", "1.5G", "0M", "63M", "-1G"])
def test_a_bound_that_is_no_size_or_too_small_is_refused(text):
    with pytest.raises(GrowError) as refused:
        read_bound(text)
    assert refused.value.diagnostics[0].code == "G200"


def test_the_largest_part_is_named():
    assert excess([("a", 1), ("b", BOUND)], BOUND).startswith("`b` is made as a whole")
    assert excess([("a", 1), ("b", BOUND - BLOCKS)], BOUND) == ""
    assert excess([], BOUND) == ""


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 1, "num_local_experts": 8}
    config = transformers.MixtralConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, vocab_size=48)
    path = tmp_path_factory.mktemp("mixture") / "model"
    transformers.MixtralForCausalLM(config).save_pretrained(path)
    return path


def test_experts_that_are_joined_are_refused_where_they_do_not_fit(mixture, tmp_path, capsys):
    arguments = ["apply", "-e", "widen ffn to 3 * ffn / 2 with uniform copy", str(mixture), "--no-verify"]
    assert main([*arguments, "-o", str(tmp_path / "a"), "--memory", "64M"]) == 4
    assert "experts" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
    assert main([*arguments, "-o", str(tmp_path / "a"), "--memory", "1G"]) == 0


def test_a_plain_model_fits_the_least_bound(tmp_path):
    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=4096, num_hidden_layers=1, num_attention_heads=4, vocab_size=8000
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    recipe = "widen ffn to 2 * ffn with uniform copy split random"
    done = growc.apply(recipe, tmp_path / "model", tmp_path / "larger", memory="64M", check=False)
    assert (done.written / "model.safetensors").exists()


def ones(name: str) -> np.ndarray:
    """Another tensor that a weight reads, as long as any axis here."""
    return np.ones(8192)


def test_no_weight_takes_more_than_was_said(mixture):
    recipe = """
    widen hidden to 768 with average fill
    widen ffn to 3 * ffn / 2 with uniform copy noise 0.01 balanced
    widen heads to 8 with neighbor copy
    """
    for weight in growc.plan(recipe, mixture).weights:
        source = np.ones(weight.before, np.float32)
        tracemalloc.start()
        try:
            for _ in planned(weight, source, ones).blocks():
                pass
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < BLOCKS + working_bytes(weight), weight.name
