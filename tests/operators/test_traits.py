"""The laws of traits (growc.ir.traits), on every operator that has them: by onnxruntime on what it runs,
by the line of those that are known to the analysis alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from cases import CASES
from fused_cases import FUSED_CASES
from numpy.typing import NDArray
from one_node import Case, Feed, OneNode

from growc.dialects.onnx.operators.table import OPERATORS
from growc.ir.notation import Line, names_of
from growc.ir.traits import LAWS as WORDS
from growc.ir.traits import Trait
from growc.passes.raising.attention import REPEAT_OP, UNFOLD_OP

Arrays = list[NDArray[Any]]
Law = Callable[["Node"], None]


class Node:
    """One case as onnxruntime runs it: operands by their places, and results for other first operands."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.one = OneNode(case, (case.opsets or (case.since,))[-1])
        stored = {w.name: onnx.numpy_helper.to_array(w) for w in self.one.proto.graph.initializer}
        given = {**stored, **self.one.arrays}
        self.inputs = [given.get(f"x{i}") for i in range(len(case.inputs))]

    @property
    def first(self) -> NDArray[Any]:
        assert self.inputs[0] is not None
        return self.inputs[0]

    def run(self, first: NDArray[Any] | None = None) -> Arrays:
        """The results, for another first operand where one is given."""
        return self.given({} if first is None else {0: first})

    def given(self, operands: Mapping[int, NDArray[Any]]) -> Arrays:
        """The results for other operands in these places."""
        feeds, proto = dict(self.one.arrays), onnx.ModelProto()
        proto.CopyFrom(self.one.proto)
        for i, array in operands.items():
            if f"x{i}" in feeds:
                feeds[f"x{i}"] = array
            else:
                [stored] = [w for w in proto.graph.initializer if w.name == f"x{i}"]
                stored.CopyFrom(onnx.numpy_helper.from_array(array, f"x{i}"))
        session = onnxruntime.InferenceSession(proto.SerializeToString())
        return [np.asarray(a) for a in session.run(None, feeds)]

    @property
    def numbered(self) -> NDArray[Any]:
        """A first operand of which no two elements are equal."""
        return np.arange(self.first.size).reshape(self.first.shape).astype(self.first.dtype)


def same(node: Node) -> None:
    [made] = node.run()
    np.testing.assert_array_equal(made, node.first.astype(made.dtype))


def view(node: Node) -> None:
    [made] = node.run()
    np.testing.assert_array_equal(made.ravel(), node.first.ravel())


def turn(node: Node) -> None:
    [made] = node.run()
    np.testing.assert_array_equal(np.sort(made.ravel()), np.sort(node.first.ravel()))


def repeat(node: Node) -> None:
    [made] = node.run(node.numbered)
    assert set(made.ravel()) == set(node.numbered.ravel())


def take(node: Node) -> None:
    places = node.run(node.numbered)
    other = np.random.default_rng(0).permutation(node.numbered.ravel()).reshape(node.first.shape)
    for at, made in zip(places, node.run(other), strict=True):
        np.testing.assert_array_equal(made, other.ravel()[at.astype(int)])


def join(node: Node) -> None:
    [made] = node.run()
    given = np.concatenate([x.ravel() for x in node.inputs if x is not None])
    np.testing.assert_array_equal(np.sort(made.ravel()), np.sort(given))


def write(node: Node) -> None:
    [made] = node.run(node.numbered)
    new = node.inputs[2] if len(node.inputs) > 2 and node.inputs[2] is not None else np.zeros(1)
    allowed = [node.numbered.ravel(), new.ravel(), np.add.outer(node.numbered.ravel(), new.ravel()).ravel()]
    assert np.isin(made, np.concatenate(allowed).astype(made.dtype)).all()


def sizes(node: Node) -> None:
    for one, other in zip(node.run(), node.run(node.numbered), strict=True):
        np.testing.assert_array_equal(one, other)


def total(node: Node) -> None:
    [made] = node.run()
    np.testing.assert_allclose(made, sum(x for x in node.inputs if x is not None), rtol=1e-6)


def rank(node: Node) -> None:
    random = np.random.default_rng(1).permutation(node.numbered.ravel()).reshape(node.first.shape)
    *elements, places = node.run(random)
    np.testing.assert_array_equal(places, node.run(random * 3 + 1)[-1])  # of the order alone
    axis = [k for k, (a, b) in enumerate(zip(random.shape, places.shape, strict=False)) if a != b]
    if elements and len(axis) == 1:
        np.testing.assert_array_equal(elements[0], np.take_along_axis(random, places, axis[0]))


def whole(node: Node) -> None:
    [made] = node.run()
    assert (abs(made - node.first) < 1).all()
    np.testing.assert_array_equal(made, np.round(made))
    np.testing.assert_array_equal(node.run(made)[0], made)


def quantise(node: Node) -> None:
    [made] = node.run()
    step, zero = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    steps = made.astype(float) - (0 if zero is None else zero.astype(float))
    low, high = np.iinfo(made.dtype).min, np.iinfo(made.dtype).max
    inside = (made > low) & (made < high)
    assert step is not None
    assert (abs(node.first / step - steps)[inside] <= 0.5 + 1e-6).all()


def dequantise(node: Node) -> None:
    [made] = node.run()
    step, zero = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    assert step is not None
    steps = node.first.astype(float) - (0 if zero is None else zero.astype(float))
    np.testing.assert_allclose(made, steps * step, rtol=1e-6)


def jump(node: Node) -> None:
    assert not node.run(np.zeros_like(node.first))[0].any()


NUMBERS = (-50.0, -7.5, -2.0, -1.0, -0.5, -1e-30, 0.0, 1e-30, 0.5, 1.0, 2.0, 7.5, 50.0)
"""Among which a pole shows, whichever operator it is of, and nothing overflows."""


def pole(node: Node) -> None:
    assert any(polar(c) for c in CASES if c.op == node.case.op and c.opsets)


def polar(case: Case) -> bool:
    """Whether some finite number of an operand gives infinity, or no number."""
    node = Node(case)
    for i, array in enumerate(node.inputs):
        for number in NUMBERS if array is not None and array.dtype == np.float32 else ():
            made = node.given({i: np.full_like(array, number)})
            if not all(np.isfinite(a).all() for a in made if a.dtype.kind == "f"):
                return True
    return False


def jumps(case: Case) -> bool:
    """Whether it is not continuous at zero."""
    node = Node(case)
    tiny = np.full(node.first.shape, 1e-6, node.first.dtype)
    return bool(max(abs(node.run(near)[0]).max() for near in (tiny, -tiny)) > 1e-2)


LAWS: dict[Trait, Law] = {
    Trait.SAME: same,
    Trait.VIEW: view,
    Trait.TURN: turn,
    Trait.REPEAT: repeat,
    Trait.TAKE: take,
    Trait.JOIN: join,
    Trait.WRITE: write,
    Trait.SIZES: sizes,
    Trait.SUM: total,
    Trait.RANK: rank,
    Trait.WHOLE: whole,
    Trait.QUANTISE: quantise,
    Trait.DEQUANTISE: dequantise,
    Trait.JUMP: jump,
    Trait.POLE: pole,
}

WITH_TRAITS = [(c, t) for c in CASES for t in sorted(OPERATORS[c.op].traits) if c.opsets]


@pytest.mark.parametrize(("case", "trait"), WITH_TRAITS, ids=lambda x: getattr(x, "name", str(x)))
def test_an_operator_obeys_the_laws_of_its_traits(case: Case, trait: Trait) -> None:
    LAWS[trait](Node(case))


def test_functions_that_are_zero_at_zero_jump_there_where_their_row_says_so() -> None:
    zero = ("pointwise zero", "remainder")
    alone = [c for c in CASES if OPERATORS[c.op].treatment.startswith(zero) and c.opsets and real(c)]
    jumping = {c.op for c in alone if jumps(c)}
    assert (
        {"Sign", "Floor", "Ceil"}
        <= jumping
        <= {op for op, row in OPERATORS.items() if Trait.JUMP in row.traits}
    )


ELEMENTWISE = ("pointwise", "add", "multiply", "divide", "remainder", "select")


def test_elementwise_operators_have_poles_where_their_row_says_so() -> None:
    cases = [c for c in CASES if OPERATORS[c.op].treatment.startswith(ELEMENTWISE) and c.opsets]
    polar_ops = {c.op for c in cases if polar(c)}
    assert polar_ops <= {op for op, row in OPERATORS.items() if Trait.POLE in row.traits}


SINGLY = [c for c in CASES if OPERATORS[c.op].elementwise and c.opsets]


@pytest.mark.parametrize("case", SINGLY, ids=lambda case: str(case.name))
def test_a_result_of_an_elementwise_row_is_made_place_by_place(case: Case) -> None:
    node = Node(case)
    turned = {i: np.flip(x, -1) for i, x in enumerate(node.inputs) if x is not None and x.ndim}
    np.testing.assert_allclose(node.given(turned)[0], np.flip(node.run()[0], -1), rtol=1e-6)


def real(case: Case) -> bool:
    """Whether its first operand is fed, and holds real numbers."""
    return isinstance(case.inputs[0], Feed) and case.inputs[0].kind in ("real", "small", "positive")


def moved_whole(line: Line) -> bool:
    """Whether the labels of the first operand are those of the result, wherever they stand."""
    return Counter(names_of(line.inputs[0])) == Counter(names_of(line.outputs[0]))


BY_LINE: dict[Trait, Callable[[Line], bool]] = {
    Trait.TURN: moved_whole,
    Trait.REPEAT: lambda line: set(names_of(line.inputs[0])) <= set(names_of(line.outputs[0])),
    Trait.TAKE: lambda line: all(set(names_of(o)) <= set(names_of(line.inputs[0])) for o in line.outputs),
    Trait.JOIN: lambda line: all(
        Counter(names_of(o)) == Counter(names_of(line.outputs[0])) for o in line.inputs
    ),
}
"""The law of each trait by the line alone, for operators that onnxruntime lacks."""


def test_parts_of_fused_operators_obey_the_laws_of_their_traits_by_their_lines() -> None:
    seen = set()
    for case in FUSED_CASES:
        for instance in OneNode(case, case.opsets[0]).axes.instances:
            if instance.node.op.startswith("growc::"):
                for trait in instance.node.traits:
                    assert BY_LINE[trait](instance.line), (instance.node.op, trait, str(instance.line))
                    seen.add((instance.node.op, trait))
    stated = {(op, t) for op, row in OPERATORS.items() if op.startswith("growc::") for t in row.traits}
    counting = {REPEAT_OP, UNFOLD_OP}  # which growc puts in: tests/growth/test_single_heads.py
    assert {op for op, _ in stated - seen} <= counting


def test_every_trait_has_a_law_and_an_operator() -> None:
    theory = (Path(__file__).parents[2] / "docs/theory.md").read_text()
    assert all(f"| `{trait}` | {law} |" in theory for trait, law in WORDS.items())
    assert set(LAWS) == set(Trait) == set(WORDS)
    assert {t for row in OPERATORS.values() for t in row.traits} == set(Trait)
    assert len(Trait) <= 15


def test_every_operator_with_traits_has_a_case_for_them() -> None:
    cased = {c.op for c, _ in WITH_TRAITS}
    assert {op for op, row in OPERATORS.items() if row.traits and "::" not in op} == cased
