"""Unknown operators freeze the axes that they touch, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from streams import WIDTH, Builder, stream

from growc.api import inspect, plan
from growc.errors.diagnostic import GrowError


def mystery(declared: bool) -> object:
    def middle(b: Builder, x: str) -> str:
        out = b.node("Mystery", [x], domain="my.ops")
        if declared:
            b.declare(out, "batch", "seq", WIDTH)
        return out

    return middle


@pytest.mark.parametrize("declared", [True, False], ids=["shapes declared", "no shapes"])
def test_an_unknown_operator_in_the_stream_freezes_hidden_and_is_named(
    tmp_path: Path, declared: bool
) -> None:
    model = stream(tmp_path / "model.onnx", mystery(declared))
    with pytest.raises(GrowError) as refusal:
        plan("widen hidden to 16 with cyclic copy", model)
    assert refusal.value.diagnostics[0].code == "G304"
    assert "Mystery" in str(refusal.value)
    assert refusal.value.exit_status == 3


@pytest.mark.parametrize("declared", [True, False], ids=["shapes declared", "no shapes"])
def test_axes_that_an_unknown_operator_does_not_touch_still_grow(tmp_path: Path, declared: bool) -> None:
    model = stream(tmp_path / "model.onnx", mystery(declared))
    found = plan('widen axis 1 of "first.up" to 32 with uniform copy', model)
    assert found.certificate.exact
    assert [w.name for w in found.weights if w.changed] == ["first.up", "first.down"]


def test_inner_widths_grow_on_both_sides_of_an_unknown_operator(tmp_path: Path) -> None:
    model = stream(tmp_path / "model.onnx", mystery(True))
    found = plan("widen ffn to 32 with uniform copy split random", model)
    assert found.certificate.exact
    changed = [w.name for w in found.weights if w.changed]
    assert changed == ["first.up", "first.down", "second.up", "second.down"]


def test_frozen_axes_are_reported_with_their_operator(tmp_path: Path) -> None:
    model = stream(tmp_path / "model.onnx", mystery(True))
    reasons = {(r.node.op, r.cause) for _, _, r in inspect(model).axes.frozen() if r.node is not None}
    assert ("my.ops::Mystery", "the operator my.ops::Mystery is not known") in reasons


def test_a_softmax_over_the_stream_freezes_it(tmp_path: Path) -> None:
    model = stream(tmp_path / "model.onnx", lambda b, x: b.node("Softmax", [x], axis=-1))
    with pytest.raises(GrowError) as refusal:
        plan("widen hidden to 16 with cyclic copy", model)
    assert "Softmax" in str(refusal.value)


@pytest.mark.parametrize("norm", ["SimplifiedLayerNormalization", "RMSNormalization", "LayerNormalization"])
def test_a_norm_may_stand_behind_shapes_that_are_not_known(tmp_path: Path, norm: str) -> None:
    def middle(b: Builder, x: str) -> str:
        gain = b.weight("gain", WIDTH)
        return b.node(norm, [b.node("Mystery", [x], domain="my.ops"), gain], axis=-1)

    model = stream(tmp_path / "model.onnx", middle)
    assert plan('widen axis 1 of "first.up" to 32 with uniform copy', model).certificate.exact
