"""Edits of a model give another one: how often it is copied and analysed, and what the source stays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx_ir as ir
import pytest
from graphs import STREAM, save
from test_printed_passes import ATTENTION

from growc import api
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.model import OnnxModel, opened
from growc.formats.compiler import outside
from growc.formats.onnx_file import OnnxFile
from growc.ir.graph import Graph
from growc.passes import PIPELINE, run
from growc.passes.compilation import Result, Source

STACKED = "stack layers to 3 by last with zero outputs"
MEANS = "subclone kv_heads to 2 by mean"


def compiled(model: OnnxModel, recipe: str, counts: Counter[str] | None = None) -> Result:
    """A compilation; how often each pass runs is counted."""
    seen = Counter[str]() if counts is None else counts

    def after(name: str, made: object, filled: object) -> None:
        seen[name] += 1

    return run(
        PIPELINE, Source(Path("model.onnx"), model, outside(), api.recipe(recipe).statements, after=after)
    )


def text_of(model: ir.Model) -> bytes:
    """All that a model says."""
    return ir.serde.serialize_model(model).SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("graph", "recipe", "edits"),
    [
        (STREAM, "widen hidden to 16 with cyclic copy", 0),
        (STREAM, "widen ffn to 20 with zero fill\nsubclone vocab to 12 by first", 0),
        (STREAM, STACKED, 1),
        (
            STREAM,
            f"{STACKED}\nstack layers to 4 by last with zero outputs",
            1,
        ),
        (ATTENTION, "widen head_dim to 4 with zero fill", 0),
        (ATTENTION, MEANS, 1),
    ],
)
def test_a_plan_analyses_once_and_once_more_after_each_edit(graph, recipe, edits, tmp_path, monkeypatch):
    counts, copies, of = Counter[str](), [], Clone.of
    monkeypatch.setattr(Clone, "of", staticmethod(lambda source: copies.append(source) or of(source)))
    compiled(OnnxModel.open(save(tmp_path / "m.onnx", graph, opset=23)), recipe, counts)
    assert len(copies) == edits
    assert [counts[name] for name in ("capture", "simulate", "spaces", "roles")] == [1 + edits] * 4


@pytest.mark.parametrize(
    ("graph", "recipe"),
    [(STREAM, STACKED), (ATTENTION, MEANS), (STREAM, "untie head")],
)
def test_a_model_is_compiled_any_number_of_times(graph, recipe, tmp_path):
    model = OnnxModel.open(save(tmp_path / "m.onnx", graph, opset=23))
    model.capture()  # fused operators are taken apart once
    before, first = text_of(model.source), compiled(model, recipe)
    again = compiled(model, recipe)
    assert first.plan.weights
    assert [w.name for w in first.plan.weights] == [w.name for w in again.plan.weights]
    assert text_of(opened(first.graph).source) == text_of(opened(again.graph).source)
    assert text_of(model.source) == before


def test_a_copy_shares_all_tensors(tmp_path):
    source = OnnxModel.open(save(tmp_path / "m.onnx", STREAM)).source
    made = Clone.of(source).model
    pairs = zip(source.graph.initializers.values(), made.graph.initializers.values(), strict=True)
    assert all(one is not other and one.const_value is other.const_value for one, other in pairs)
    assert text_of(made) == text_of(source)


@pytest.mark.parametrize(
    ("graph", "recipe"),
    [
        (STREAM, "widen hidden to 16 with cyclic copy"),
        (STREAM, STACKED),
        (STREAM, "untie head"),
        (ATTENTION, MEANS),
        (ATTENTION, "subclone heads to 2 by first"),
    ],
)
def test_a_compilation_is_written_any_number_of_times(graph, recipe, tmp_path):
    model = OnnxModel.open(save(tmp_path / "m.onnx", graph, opset=23))
    captured = model.capture()
    before, c = text_of(model.source), compiled(model, recipe)
    rebuilt = text_of(opened(c.graph).source)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        OnnxFile().write(c, tmp_path / name, tmp_path / "grown.onnx", lambda *_: None)
    first, second = ((tmp_path / name / "grown.onnx").read_bytes() for name in ("first", "second"))
    assert first == second
    assert text_of(opened(c.graph).source) == rebuilt
    assert text_of(model.source) == before
    assert _nodes(model.capture()) == _nodes(captured)


def _nodes(graph: Graph) -> list[tuple[str, ...]]:
    """The operators of a graph, with the names of what they read and give."""
    return [
        (node.op, *("" if v is None else v.name for v in (*node.inputs, *node.outputs)))
        for node in graph.nodes
    ]
