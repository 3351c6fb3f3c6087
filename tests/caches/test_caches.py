"""Decoders that keep keys and values grow with their caches, and decode step by step as before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from caches.decoders import DEPTH, HEADS, KINDS, VOCAB, decode, export, pasts, shapes

from growc.api import apply, inspect, verify
from growc.api import compile as compiled
from growc.api import recipe as parsed
from growc.errors.diagnostic import GrowError
from growc.passes.finish.interface import ports_of
from growc.plans.unitmaps import StateMap

CHUNKS = (4, 1, 1, 2, 1)
RECIPES = {
    "heads x2 neighbor": "widen heads to 2 * heads with neighbor copy",
    "heads x1.5 uniform": "widen heads to 3 * heads / 2 with uniform copy split random",
    "heads x1.5 average": "widen heads to 3 * heads / 2 with average fill",
    "hidden x2": "widen hidden to 2 * hidden with cyclic copy",
    "ffn x1.5": "widen ffn to 3 * ffn / 2 with uniform copy",
}


def grown(past: np.ndarray, maps: Sequence[StateMap]) -> np.ndarray:
    for one in maps:
        past = one.extend(past)
    return past


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("kind", KINDS)
def test_decoding_step_by_step_equals_the_full_pass_of_the_source(decoder, tmp_path, kind, name):
    source, ids = decoder(kind), np.random.default_rng(0).integers(0, VOCAB, (2, sum(CHUNKS)))
    done = apply(RECIPES[name], source, tmp_path / "grown.onnx", check=False)
    assert done.plan.certificate.exact
    maps = ports_of(compiled(parsed(RECIPES[name]), source)).input_maps()
    start = pasts(source)
    mapped = [grown(past, maps.get(f"past{i}", ())) for i, past in enumerate(start)]
    at_once = CHUNKS if kind == "window" else (sum(CHUNKS),)  # a window forgets from step to step
    full, _ = decode(source, ids, at_once, start)
    steps, _ = decode(done.written, ids, CHUNKS, mapped)
    assert np.abs(full - steps).max() <= 2e-6 * np.abs(full).max()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_presents_are_the_source_s_through_the_map(decoder, tmp_path, kind):
    text = "widen heads to 2 * heads with neighbor copy\nwiden heads to 3 * heads / 2 with uniform copy"
    done = apply(text, decoder(kind), tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert len(done.verification.outputs) == 1 + 2 * len(shapes(kind))
    assert done.verification.notes == ()


def test_key_and_value_heads_become_as_many_as_query_heads(decoder, tmp_path):
    done = apply("widen kv_heads to heads with neighbor copy", decoder("grouped"), tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    declared = {v.name: v for v in onnx.load(done.written).graph.input}
    dims = [d.dim_param or d.dim_value for d in declared["past0"].type.tensor_type.shape.dim]
    assert dims == ["batch", HEADS, "past", DEPTH]


def test_query_heads_of_grouped_attention_leave_the_caches_alone(decoder):
    found = compiled(parsed("widen heads to 2 * heads with neighbor copy"), decoder("grouped"))
    assert ports_of(found).input_maps() == {}


def test_heads_of_a_cache_stand_where_the_fill_has_them(decoder):
    found = compiled(parsed("widen heads to 2 * heads with neighbor copy"), decoder("plain"))
    (one,) = ports_of(found).input_maps()["past0"]
    assert one.index.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_every_cache_is_a_pair(decoder, kind):
    states = inspect(decoder(kind)).axes.states
    assert [(s.past.name, s.present.name) for s in states] == [
        (f"past{i}", f"present{i}") for i in range(2 * len(shapes(kind)))
    ]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "grouped"])
def test_key_and_value_heads_that_become_means_leave_caches_of_as_many(decoder, tmp_path, kind):
    """The same as a decoder whose heads are equal in every group, and its caches the larger."""
    equal = export(kind, tmp_path / "equal.onnx", groups=2)
    done = apply("subclone kv_heads to 2 by mean", decoder(kind), tmp_path / "pooled.onnx", check=False)
    ids, start = np.random.default_rng(0).integers(0, VOCAB, (2, sum(CHUNKS))), pasts(equal)
    fewer = pasts(done.written)
    for i, (a, b) in enumerate(zip(start, fewer, strict=True)):
        axes = [k for k in range(a.ndim) if a.shape[k] != b.shape[k]]
        assert [a.shape[k] for k in axes] == [2 * b.shape[k] for k in axes]
        assert len(axes) == (kind != "latent")
        for k in axes if a.size else ():
            fewer[i] = np.take(a, np.arange(0, HEADS, 2), axis=k)
            start[i] = np.repeat(fewer[i], 2, axis=k)
    wanted, _ = decode(equal, ids, CHUNKS, start)
    found, _ = decode(done.written, ids, CHUNKS, fewer)
    assert np.abs(wanted - found).max() <= 2e-6 * np.abs(wanted).max()


def test_an_input_that_no_output_carries_on_is_fixed(decoder, tmp_path):
    model = onnx.load(decoder("plain"))
    kept = [v for v in model.graph.output if v.name != "present2"]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    onnx.save(model, tmp_path / "model.onnx")
    recipe = "widen heads to 8 with cyclic copy"
    [note] = compiled(parsed(recipe), tmp_path / "model.onnx").plan.notes
    assert "stay as they are" in note
    assert "input `past2`" in note
    with pytest.raises(GrowError, match="input `past2`"):
        compiled(parsed(f"in layers 1 {{ {recipe} }}"), tmp_path / "model.onnx")


@pytest.mark.sampled(7)
@pytest.mark.parametrize("kind", KINDS)
def test_a_grown_decoder_is_verified_with_its_caches(decoder, tmp_path, kind):
    done = apply(RECIPES["heads x1.5 uniform"], decoder(kind), tmp_path / "grown.onnx")
    assert done.verification is not None
    assert verify(decoder(kind), done.written).relative == done.verification.relative
