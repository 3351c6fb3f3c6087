"""Lengths of caches that a file declares apart are found to be one; cases have caches of several lengths."""

from __future__ import annotations

import onnx
import pytest
from caches.decoders import KINDS
from graphs import save

from growc.api import apply, inspect
from growc.dialects.onnx.shapes import sample_points as samples
from growc.dialects.onnx.shapes.simulate import simulate
from growc.errors.diagnostic import GrowError
from growc.verification.feeds import draw_cases


def declared_apart(path, out):
    """The same model with a symbol of its own for every axis of every input that has one."""
    model = onnx.load(path)
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param:
                dim.dim_param = f"{value.name}_{axis}"
    onnx.save(model, out)
    return out


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_symbols_that_must_agree_are_found_by_trial(decoder, tmp_path, kind):
    model = declared_apart(decoder(kind), tmp_path / "model.onnx")
    done = apply("widen heads to 2 * heads with cyclic copy", model, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.cases == 2


def test_lengths_of_another_memory_stay_apart(decoder, tmp_path):
    graph = inspect(declared_apart(decoder("cross"), tmp_path / "model.onnx")).graph
    sizes = {v.name: v.sizes for v in graph.inputs}
    lengths = [[sizes[f"past{i}"][2] for i in range(8) if i % 4 in chosen] for chosen in ((0, 1), (2, 3))]
    assert set(lengths[0]).isdisjoint(lengths[1])
    assert len(set(lengths[0])) == 1


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "slots"])
def test_a_cache_is_drawn_with_something_in_it_and_empty(decoder, kind):
    lengths = [
        case["past0"].shape[{"merged": 1, "latent": 1, "packed": 3}.get(kind, 2)]
        for case in draw_cases(decoder(kind))
    ]
    assert lengths[0] > 0
    assert lengths[1] == 0


def test_sizes_that_nothing_settles_are_given_up_soon(tmp_path, monkeypatch):
    """Sizes of images are not tried where lengths of text meet."""
    text = """
    g (float[N, S, 8] x, float[N, P, 8] past) => (float[N, S, 8] y)
    {
        k = Concat <axis = 1> (past, x)
        t = Transpose <perm = [0, 2, 1]> (k)
        s = MatMul(x, t)
        y = MatMul(s, x)
    }
    """
    tried = []
    monkeypatch.setattr(samples, "simulate", lambda *a, **k: tried.append(a) or simulate(*a, **k))
    with pytest.raises(GrowError, match="contradict each other"):
        inspect(save(tmp_path / "model.onnx", text))
    assert len(tried) < 500


TWO_SUMS = """
g (float[N, A, 6] picture, float[N, B, 6] text, float[C, 6] of_picture, float[D, 6] of_text)
=> (float[N, T, 8] y)
<float[6, 10] up, float[10, 8] down>
{
    tokens = Concat <axis = 1> (picture, text)
    places = Concat <axis = 0> (of_picture, of_text)
    x = Mul(tokens, places)
    a = MatMul(x, up)
    b = Relu(a)
    y = MatMul(b, down)
}
"""


def test_the_summands_of_two_lengths_that_meet_agree(tmp_path):
    """The places of pictures and of text, which inputs number, and their tokens."""
    model = save(tmp_path / "m.onnx", TWO_SUMS)
    sizes = {v.name: v.sizes for v in inspect(model).graph.inputs}
    tokens, places = (
        {sizes[name][-2] for name in names} for names in (("picture", "text"), ("of_picture", "of_text"))
    )
    assert tokens == places
    done = apply("widen ffn to 2 * ffn with neighbor copy", model, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
