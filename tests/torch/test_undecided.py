"""Questions of a forward to values that are not there: assertions hold, all else is refused by its place."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from undecided_forwards import Asserting, Branching, Checking, Converting, Decoding, Hooking, Looping, Reading

from growc.dialects.torch.capture.example_inputs import example_inputs, real_inputs
from growc.dialects.torch.capture.export import export, run
from growc.errors.diagnostic import GrowError


@pytest.mark.parametrize("kind", [Reading, Asserting])
def test_numbers_of_tokens_come_from_the_table_where_no_field_says_them(kind):
    module = kind()
    captured = export(module, (), example_inputs(module))
    inputs = real_inputs(module)
    assert inputs["input_ids"].max() < 6
    torch.testing.assert_close(
        run(captured, module.state_dict().__getitem__, (), inputs), module(**inputs).detach()
    )


def test_assertions_about_real_data_are_checked_afterwards_as_ever():
    module = Asserting()
    example_inputs(module)
    with pytest.raises(AssertionError):
        module(torch.full((1, 3), 7))


@pytest.mark.parametrize("kind", [Branching, Checking, Looping])
def test_a_decision_by_data_is_refused_with_its_place(kind):
    given = {"input_ids": torch.zeros((2, 12), dtype=torch.long)}
    for capture in (lambda: example_inputs(kind()), lambda: export(kind(), (), given)):
        with pytest.raises(GrowError) as caught:
            capture()
        [diagnostic] = caught.value.diagnostics
        assert diagnostic.code == "G317"
        assert diagnostic.message == f"`{kind.__name__}` cannot be traced by torch.export"
        assert "undecided_forwards.py:" in diagnostic.notes[1]
        assert "(`forward`)" in diagnostic.notes[1]


def test_a_forward_that_converts_a_part_runs_without_data():
    torch._subclasses.FakeTensorMode.cache_clear()  # only what torch sees first is in its memo
    module = Converting()
    assert set(example_inputs(module)) == {"input_ids"}
    assert type(module.head.weight) is nn.Parameter


def test_a_mask_is_given_where_the_data_would_decide_about_it():
    module = Decoding(is_encoder_decoder=True)
    module.get_decoder = lambda: module
    assert list(example_inputs(module)) == ["input_ids", "decoder_input_ids", "decoder_attention_mask"]


def test_a_forward_that_installs_hooks_leaves_none_behind():
    module, ids = Hooking(), torch.tensor([[1, 2, 3]])
    inputs = real_inputs(module)
    captured = export(module, (), inputs)
    assert not module.table._forward_hooks
    wanted = module.table(ids).detach()
    torch.testing.assert_close(module(ids).detach(), wanted)
    torch.testing.assert_close(
        run(captured, module.state_dict().__getitem__, (), inputs), module(**inputs).detach()
    )
