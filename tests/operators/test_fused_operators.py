"""Fused operators by themselves: taken apart, grown, put together again, and judged by onnxruntime."""

from __future__ import annotations

import pytest
from fused_cases import FUSED_CASES
from one_node import Case, OneNode
from test_operator_table import judged, tried

from growc.algebra.space import Space, find
from growc.ir.notation import labels
from growc.passes.axes.infer import LineInstance


def promised(one: OneNode, space: Space) -> set[str]:
    """The kinds of map that must pass on a space: those that every part of the operator lets pass."""
    kinds = {"copies", "twice", "isometric"}
    for instance in one.axes.instances:
        kinds &= _promised(instance, {n for n, s in one.labelled(instance).items() if s is space})
    return kinds


def _promised(instance: LineInstance, names: set[str]) -> set[str]:
    line = instance.line
    made = {n for terms in line.outputs for t in terms or () for n in labels(t)}
    if not names:
        return {"copies", "twice", "isometric"}
    if line.treatment in ("layer_norm", "rms_norm") and "c" in names:
        return {"twice"} if line.treatment == "layer_norm" else {"twice", "isometric"}
    if line.treatment == "attention" and names & {"d", "e"}:
        return {"isometric"} if names == {"d"} else set()  # some want keys and values of one width
    if line.treatment == "contract" and not names & made:
        return {"isometric"}
    return {"copies", "twice"}


@pytest.mark.parametrize("case", FUSED_CASES, ids=lambda c: c.name)
def test_claims_about_a_grown_fused_operator_hold_in_onnxruntime(case: Case) -> None:
    one = OneNode(case, case.opsets[0])
    growable = one.growable()
    assert growable
    for label, space in growable.items():
        for kind in sorted(tried(case, one, label) if label.startswith("#") else KINDS):
            try:
                found = judged(case, case.opsets[0], label, kind, space.size[0])
            except AssertionError as wrong:
                raise AssertionError(f"{label} with {kind}") from wrong
            if kind in promised(one, find(space)):
                assert found.passes, f"{label} with {kind}: {found}"


KINDS = {"copies", "twice", "isometric", "shares", "scaled", "zeros", "mean", "junk"}
