"""The feed decides the sizes of an input, unless an output carries that input on; all else may grow."""

from __future__ import annotations

import pytest
from graphs import save

from growc.api import apply, inspect
from growc.api import compile as compiled
from growc.api import recipe as parsed
from growc.errors.diagnostic import GrowError

BLOCK = """
    n = LayerNormalization<axis = -1>(x, gain, bias)
    u = MatMul(n, up)
    r = Relu(u)
    d = MatMul(r, down)
    y = Add(x, d)
"""
WEIGHTS = "<float[8] gain, float[8] bias, float[8, 12] up, float[12, 8] down, float[20, 8] table>"
FED = f"fed (float[b, s, 8] embeds) => (float[b, s, 8] y) {WEIGHTS} {{ x = Identity(embeds) {BLOCK} }}"
PROMPTED = f"""
prompted (float[b, p, 8] prompt, int64[b, s] ids) => (float[b, t, 8] x, float[b, t, 8] y) {WEIGHTS}
{{ e = Gather(table, ids)  x = Concat<axis = 1>(prompt, e) {BLOCK} }}
"""
ECHO = f"""
echo (float[b, s, 8] embeds) => (float[b, s, 8] first, float[b, s, 8] y) {WEIGHTS}
{{ first = Identity(embeds)  x = Identity(embeds) {BLOCK} }}
"""
STEPS = """steps (float[b, 2, 8, 4] old, float[b, s, 6] new) => (float[b, 2, 8, 4] kept, float[b, 2, s, 8] y)
<float[6, 8] key, float[6, 8] query>
{
    split = Constant<value_ints = [0, -1, 2, 4]>()
    k = MatMul(new, key)
    kr = Reshape(k, split)
    kt = Transpose<perm = [0, 2, 1, 3]>(kr)
    both = Concat<axis = 2>(old, kt)
    from = Constant<value_ints = [-8]>()
    to = Constant<value_ints = [9223372036854775807]>()
    axis = Constant<value_ints = [2]>()
    kept = Slice(both, from, to, axis)
    q = MatMul(new, query)
    qr = Reshape(q, split)
    qt = Transpose<perm = [0, 2, 1, 3]>(qr)
    back = Transpose<perm = [0, 1, 3, 2]>(kept)
    y = MatMul(qt, back)
}
"""


@pytest.mark.parametrize("graph", [FED, PROMPTED, ECHO], ids=["fed", "prompted", "echo"])
def test_an_axis_fed_with_the_stream_is_fixed_and_the_refusal_says_what_to_do(tmp_path, graph):
    model = save(tmp_path / "model.onnx", graph)
    assert inspect(model).axes.states == []
    with pytest.raises(GrowError) as caught:
        compiled(parsed("widen hidden to 16 with cyclic copy"), model)
    (found,) = caught.value.diagnostics
    assert found.code == "G304"
    assert "together with what makes" in found.help
    assert apply("widen ffn to 18 with uniform copy", model, tmp_path / "grown.onnx").plan.certificate.exact


def test_a_sliding_window_is_a_state_that_does_not_grow(tmp_path):
    model = save(tmp_path / "model.onnx", STEPS)
    (state,) = inspect(model).axes.states
    assert (state.past.name, state.present.name, state.axes) == ("old", "kept", (1, 2, 3))
    recipe = 'widen axis 1 of "key" to 16 with cyclic copy\n'
    done = apply(recipe, model, tmp_path / "grown.onnx")
    assert done.verification is not None
    assert done.verification.notes == ()
    assert done.plan.certificate.exact
