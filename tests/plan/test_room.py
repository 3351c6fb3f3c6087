"""A result that no memory can hold is refused before it is made, with the bytes that it takes."""

from __future__ import annotations

import time

import pytest
from graphs import TINY

from growc import api
from growc.errors.diagnostic import GrowError
from growc.plans import memory_bound as room

HUGE = {
    "ffn": "widen ffn to 1B with tail copy",
    "hidden": "widen hidden to 1B with cyclic copy",
    "factor": "widen hidden to hidden * 1000000000 with average fill",
    "vocab": "widen vocab to 1B with zero fill",
    "positions": "widen positions to 1B with zero fill",
    "heads": "widen heads to 1B with uniform copy",
    "head_dim": "widen head_dim to 1B with tail copy",
    "by name": 'widen axis 1 of "transformer.h.0.mlp.c_fc.weight" to 10B with zero fill',
    "layers": "stack layers to 1B by last",
    "layers zero": "stack layers to 1000 * 1000000 by each with zero outputs",
}


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Imports are no part of what is timed."""
    api.plan("widen ffn to 400 with tail copy\nstack layers to 5 by last", TINY)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", HUGE)
def test_what_no_memory_can_hold_is_refused_at_once(name):
    start = time.process_time()
    with pytest.raises(GrowError) as caught:
        api.plan(HUGE[name], TINY)
    assert time.process_time() - start < 4
    [found] = caught.value.diagnostics
    assert found.code == "G502"
    assert "B of memory, and there are" in found.message
    assert found.span is not None
    assert caught.value.exit_status == 4


def test_the_memory_of_statements_adds_up(monkeypatch):
    monkeypatch.setattr(room, "memory", lambda: 64 * 3 * 4 * (1 + 1000) + 1_000_000)
    api.plan("widen ffn to 1000 with tail copy", TINY)
    with pytest.raises(GrowError, match="G502"):
        api.plan("widen ffn to 1000 with tail copy\nwiden ffn to 2000 with tail copy", TINY)


def test_a_wide_model_is_planned_where_memory_permits():
    plan = api.plan("widen ffn to 200K with cyclic copy", TINY)
    assert plan.parameters[1] > 10**8


def test_a_checkpoint_directory_is_refused_as_soon_as_it_is_read(tmp_path):
    import transformers

    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=32, vocab_size=48)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    start = time.process_time()
    api.inspect(tmp_path)
    read = time.process_time() - start
    start = time.process_time()
    with pytest.raises(GrowError, match="B of memory, and there are") as caught:
        api.plan("widen ffn to 1B with tail copy", tmp_path)
    assert caught.value.diagnostics[0].code == "G502"
    assert time.process_time() - start < read + 2
    plan = api.plan("widen ffn to 20K with cyclic copy", tmp_path)
    assert plan.parameters[1] > 2 * 2 * 32 * 20_000
