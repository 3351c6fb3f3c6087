"""Every row of the operator table, judged by onnxruntime on a model of one node.

Each label of the row takes maps of several kinds. All that the compiler then claims of the node's results
must be what onnxruntime computes, and all that the row's treatment promises must be claimed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from cases import CASES
from fused_cases import FUSED_CASES
from one_node import Case, Feed, Judgement, OneNode, judge

from growc.algebra.indexmap import IndexMap
from growc.dialects.onnx.operators.table import OPERATORS
from growc.ir.notation import choosing, labels, parse_axes
from growc.passes.raising.attention import REPEAT_OP, UNFOLD_OP

SHAPE_ARITHMETIC = {"Shape", "Size"}
"""Rows that only say that nothing is tied."""


def kinds(d: int) -> dict[str, tuple[IndexMap, str]]:
    """Maps on d units, each with a fill that makes such maps."""
    units = list(range(d))
    unequal = IndexMap.of(d, [*units, d - 1, 0, d - 1])
    more = [*units, -1, -1]
    return {
        "copies": (unequal, "uniform copy"),
        "twice": (IndexMap.of(d, units * 2), "cyclic copy"),
        "order": (IndexMap.of(d, units[::-1]), ""),
        "isometric": (unequal.isometric(), "uniform copy"),
        "shares": (unequal.scaled(1 / unequal.counts[unequal.index]), "uniform copy"),
        "scaled": (IndexMap.of(d, [*units, d - 1, 0], np.linspace(0.5, 2, d + 2)), "uniform copy"),
        "zeros": (IndexMap.of(d, more), "zero fill"),
        "mean": (IndexMap.of(d, [*units, -1], None, [0.0] * d + [1.0]), "average fill"),
        "junk": (IndexMap.of(d, more, None, None, [False] * d + [True] * 2), "random fill"),
    }


LINEAR = {"copies", "twice", "isometric", "shares", "scaled", "zeros", "mean"}
WHOLE_NUMBERS = {"copies", "twice", "zeros"}
"""Kinds that integers and booleans can take."""


def bearers(case: Case, one: OneNode, label: str) -> Iterator[int]:
    """The operands that bear a label."""
    for i, terms in enumerate(one.line.inputs):
        if case.inputs[i] is not None and any(label in labels(t) for t in terms or ()):
            yield i


def tried(case: Case, one: OneNode, label: str) -> set[str]:
    """The kinds of map that a label takes here."""
    if label.startswith("#"):
        return {"copies"}
    whole = any(
        isinstance(o := case.inputs[i], Feed) and o.kind in ("integer", "index", "boolean")
        for i in bearers(case, one, label)
    )
    symmetric = label in choosing(one.line) or one.line.treatment.startswith("fold")
    anew = {"order"} if symmetric else set()
    return WHOLE_NUMBERS if whole else LINEAR | anew | {"junk"}


def promised(case: Case, one: OneNode, label: str) -> set[str]:
    """The kinds that pass by the row's treatment: exactly, and with nothing lost."""
    line, treatment = one.line, one.line.treatment
    borne = list(bearers(case, one, label))
    leaves = any(label in labels(t) for terms in line.outputs for t in terms or ())
    composite = any(
        label in labels(t) and t != label for terms in [*line.inputs, *line.outputs] for t in terms or ()
    )
    if label.startswith("#"):
        return {"copies"}
    if label in choosing(line):
        return {"order"}
    if treatment in ("layer_norm", "rms_norm", "l2_norm", "l1_norm"):
        if label in line.over:
            alone = {"mean"} if len(line.over) == 1 and len(borne) > 1 else set()
            beside = {"layer_norm": alone, "l1_norm": {"zeros"}}
            return {"twice"} | beside.get(treatment, {"isometric", "zeros"})
        return {"copies", "twice"}
    if treatment == "recurrent" and label in ("h", "k"):
        return {"copies", "twice"} | ({"zeros"} if "activations" not in case.attributes else set())
    if not leaves:
        stored = any(isinstance(o := case.inputs[i], Feed) and o.stored for i in borne)
        reduced = {
            "mean": {"twice", "mean"},
            "sum": {"shares", "zeros"},
            "extreme": {"copies", "twice"},
            "fold": {"order"},
            "fold squares": {"order"},
        }
        contracted = LINEAR if stored else {"isometric"}
        found = {**reduced, "contract": contracted, "attention": {"isometric"}}.get(treatment, LINEAR)
        return found - ({"mean"} if composite else set())
    everywhere = len(borne) == sum(o is not None and o.shape != () for o in case.inputs)
    alone = len(borne) == 1 and sum(isinstance(o, Feed) for o in case.inputs) <= 2
    passing = {
        "layout": LINEAR - {"mean"},
        "multiply": LINEAR - {"mean"},
        "add": LINEAR - {"mean"}
        if everywhere and all(isinstance(o, Feed) for o in case.inputs)
        else {"copies"},
        "contract": LINEAR - {"mean"} if alone else {"copies"},
        "pointwise zero": {"copies", "zeros"},
        "pointwise zero homogeneous": {"copies", "zeros", "scaled"},
    }
    return passing.get(treatment, {"copies"}) | {"copies", "twice"}


def judged(case: Case, opset: int, label: str, kind: str, size: int) -> Judgement:
    wanted, fill = kinds(size)[kind]
    return judge(case, opset, label, wanted, fill)


def test_every_row_has_a_case_and_every_case_has_a_row() -> None:
    lowered = {n.op for c in FUSED_CASES for n in OneNode(c, c.opsets[0]).graph.nodes}
    counting = {UNFOLD_OP, REPEAT_OP}  # which growc puts in: tests/growth/test_single_heads.py
    foreign = {op for op in OPERATORS if op.startswith("aten::")}  # tests/torch/test_complex_numbers.py
    assert {c.op for c in CASES} | lowered | counting | foreign == set(OPERATORS)


def test_every_row_has_a_case_in_which_something_may_grow() -> None:
    for op in {c.op for c in CASES} - SHAPE_ARITHMETIC:
        mine = [OneNode(c, (c.opsets or (c.since,))[-1]) for c in CASES if c.op == op]
        assert any(one.growable() for one in mine), op


@pytest.mark.parametrize("case", [c for c in CASES if c.op in SHAPE_ARITHMETIC], ids=lambda c: c.name)
def test_shape_arithmetic_ties_nothing(case: Case) -> None:
    for opset in case.opsets:
        assert OneNode(case, opset).is_shape_arithmetic


@pytest.mark.parametrize("case", [c for c in CASES if c.op not in SHAPE_ARITHMETIC], ids=lambda c: c.name)
def test_claims_about_a_grown_operator_hold_in_onnxruntime(case: Case) -> None:
    opsets = case.opsets or (case.since,)
    for opset in opsets:
        one = OneNode(case, opset)
        for label, space in one.growable().items():
            chosen = tried(case, one, label) if opset == opsets[-1] else {"copies"}
            for kind in sorted(chosen):
                try:
                    found = judged(case, opset, label, kind, space.size[0])
                except AssertionError as wrong:
                    raise AssertionError(f"{label} with {kind} at opset {opset}") from wrong
                if kind in promised(case, one, label):
                    assert found.passes, f"{label} with {kind} at opset {opset}: {found}"


LINES = [
    ("Split", "a0 (p0 + p1), _ -> a0 p0, a0 p1"),
    ("MatMul", "e0 m k, k n -> e0 m n"),
    ("Conv", "b i _ _, o i _ _, o -> b o _ _"),
    ("Transpose", "a0 a1 a2 -> a2 a1 a0"),
    ("Reshape", "g0_0 g1_1 (g2_3 g2_2), _ -> g0_0 g1_1 g2_3 g2_2"),
    ("LayerNormalization", "a0 a1 c, c, c -> a0 a1 c"),
    ("Gather", "# a1, i0 i1 -> i0 i1 a1"),
    ("Softmax", "a0 a1 u~ -> a0 a1 u~"),
    ("ReduceMean", "a0 a1 a2 -> a0 a1"),
]


@pytest.mark.parametrize(("op", "line"), LINES)
def test_a_line_reads_as_the_documentation_says(op: str, line: str) -> None:
    case = next(c for c in CASES if c.op == op)
    assert str(OneNode(case, (case.opsets or (case.since,))[0]).line) == line


TREATMENTS = [
    ("Pow", 0, "pointwise zero"),
    ("Pow", 2, "pointwise"),
    ("Pow", 4, "pointwise"),
    ("Clip", 0, "pointwise zero"),
    ("Clip", 1, "pointwise"),
    ("Clip", 2, "pointwise zero homogeneous"),
    ("Clip", 3, "pointwise zero"),
    ("Max", 0, "pointwise zero homogeneous"),
    ("Max", 1, "pointwise"),
    ("Min", 0, "pointwise zero"),
    ("Min", 1, "pointwise"),
    ("Cast", 0, "layout"),
    ("Cast", 1, "pointwise zero"),
    ("Pad", 1, "layout"),
    ("Pad", 2, "pointwise"),
]


@pytest.mark.parametrize(("op", "number", "treatment"), TREATMENTS)
def test_a_treatment_follows_from_the_numbers_beside_it(op: str, number: int, treatment: str) -> None:
    case = [c for c in CASES if c.op == op][number]
    assert OneNode(case, 17).line.treatment == treatment


def test_a_fourier_transform_freezes_its_axis_alone_and_says_why() -> None:
    for case in (c for c in CASES if c.op == "DFT"):
        line = OneNode(case, case.opsets[0]).line
        assert [t == "_" for t in line.inputs[0] or ()].count(True) == 2
        assert "Fourier" in line.because


def test_the_triangle_of_a_matrix_is_opaque_and_its_batch_is_not() -> None:
    case = next(c for c in CASES if c.op == "Trilu")
    assert set(OneNode(case, 17).growable()) == {"a0", "a1"}


def test_every_mark_of_the_notation_is_read() -> None:
    assert parse_axes("... (a! b) c~ # _ 1") == ["...", ("*", ("a!", "b")), "c~", "#", "_", "1"]
