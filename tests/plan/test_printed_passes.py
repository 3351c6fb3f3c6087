"""The result of each pass on a small model, as `--print-after` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import MLP, STREAM, save

from growc import api
from growc.passes import PIPELINE
from growc.passes.compilation import Source
from growc.render.passes import TextWriter, lines_after

FLAT = """
flat (float[N, 2, 3] x) => (float[N, 5] y)
<int64[2] shape, float[6, 8] up, float[8, 5] down>
{
    a = Reshape(x, shape)
    b = MatMul(a, up)
    y = MatMul(b, down)
}
"""

CUT = """
cut (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, int64[2] shape, float[6, 3] down>
{
    a = MatMul(x, up)
    b = Reshape(a, shape)
    y = MatMul(b, down)
}
"""

RMS = """
rms (float[N, 4] x) => (float[N, 4] y)
<float eps, float[4] gain>
{
    square = Mul(x, x)
    mean = ReduceMean <axes = [-1], keepdims = 1> (square)
    sum = Add(mean, eps)
    root = Sqrt(sum)
    z = Div(x, root)
    y = Mul(z, gain)
}
"""

TIED = """
tied (int64[N] tokens) => (float[N, 16] logits)
<float[16, 8] table>
{
    x = Gather(table, tokens)
    head = Transpose <perm = [1, 0]> (table)
    logits = MatMul(x, head)
}
"""

ATTENTION = """
attention (float[1, 5, 8] x) => (float[1, 5, 8] y)
<float[8, 8] wq, float[8, 8] wk, float[8, 8] wv, float[8, 8] wo>
{
    q = MatMul(x, wq)
    k = MatMul(x, wk)
    v = MatMul(x, wv)
    a = Attention <q_num_heads = 4, kv_num_heads = 4> (q, k, v)
    y = MatMul(a, wo)
}
"""

LONG = ["Finding", "  where: [7]", "  more:", f"    a: {'x' * 99}", f"    b: {'y' * 99}"]
"""A record that one line does not hold."""

WIDEN = "widen hidden to 16 with cyclic copy"


@dataclass(frozen=True)
class Case:
    """A model and a recipe."""

    graph: str
    recipe: str = ""
    opset: int = 17
    weights: dict[str, Any] = field(default_factory=dict)


CASES = {
    "capture": Case(MLP),
    "simulate": Case(FLAT, weights={"shape": np.array([-1, 6])}),
    "norms": Case(RMS, weights={"eps": np.float32(1e-5)}),
    "spaces": Case(MLP),
    "ties": Case(TIED),
    "roles": Case(STREAM),
    "layers": Case(STREAM),
    "edit": Case(ATTENTION, "subclone kv_heads to 2 by mean", 23),
    "match": Case(
        STREAM, 'in layers 0 {\n    widen ffn to 14 with zero fill\n}\nmatch "other.onnx" with cyclic copy'
    ),
    "depth": Case(STREAM, "stack layers to 3 by last with zero outputs"),
    "lower": Case(STREAM, f"{WIDEN}\nwiden ffn to 18 with average fill\nsubclone vocab to 12 by first"),
    "solve": Case(STREAM, f"{WIDEN}\nwiden ffn to 14 with random fill"),
    "repair_shapes": Case(
        CUT,
        'widen axis 1 of "up" to 9 with zero fill',
        weights={"shape": np.array([-1, 6]), "up": np.ones((4, 6), np.float32)},
    ),
    "assemble": Case(STREAM, WIDEN),
    "certify": Case(STREAM, WIDEN),
    "fit_config": Case(STREAM, WIDEN),
}


def printed(case: Case, name: str, folder: Path) -> str:
    """The printed result of a pass, each time that it runs."""
    lines: list[str] = []

    def after(done: str, made: Source, filled: Sequence[str]) -> None:
        if done == name:
            lines.extend(lines_after(name, made, filled))

    save(folder / "other.onnx", STREAM.replace("12", "20"))
    model = save(folder / "model.onnx", case.graph, opset=case.opset, **case.weights)
    api.compile(api.recipe(case.recipe.replace("other.onnx", str(folder / "other.onnx"))), model, after=after)
    shown = str(model)[-80:]  # a repr shows the end of a long path
    return "\n".join(lines).replace(shown, "FOLDER/model.onnx").replace(str(folder), "FOLDER")


@dataclass(frozen=True)
class Finding:
    """A record that no printer knows."""

    where: tuple[int, ...]
    hidden: str = field(default="secret", repr=False)
    usual: int = 3
    more: dict[str, object] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("thing", "lines"),
    [
        (Finding((1, 2)), ["Finding(where=[1, 2])"]),
        (Finding((), usual=4), ["Finding(usual=4)"]),
        (Finding((), more={"a": Finding((1,)), "b": []}), ["Finding(more={a: Finding(where=[1]), b: []})"]),
        (Finding((7,), more={"a": "x" * 99, "b": "y" * 99}), LONG),
        (frozenset({"b", "a"}), ["[a, b]"]),
        (np.arange(3), ["[0, 1, 2]"]),
        (np.arange(30), ["int64[30]"]),
        ((), []),
    ],
    ids=lambda case: type(case).__name__,
)
def test_a_record_is_printed_by_its_fields(thing, lines):
    assert TextWriter(None).lines(thing) == lines


def test_every_pass_is_printed():
    assert [*CASES] == [one.name for one in PIPELINE]


@pytest.mark.parametrize("name", CASES)
def test_the_printed_result_of_a_pass_is_as_agreed(name, tmp_path, golden):
    golden(Path(__file__).parent / "golden/passes" / f"{name}.txt", printed(CASES[name], name, tmp_path))


def test_printed_results_do_not_depend_on_addresses(tmp_path):
    for name, case in CASES.items():
        text = printed(case, name, tmp_path)
        assert " at 0x" not in text
        assert text == printed(case, name, tmp_path)
