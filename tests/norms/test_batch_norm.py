"""BatchNormalization in training mode is a norm over all but the channels."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import save

from growc.api import apply, plan
from growc.errors.diagnostic import GrowError

STANDARDISED = """
m (float[N, 4, 6] x) => (float[N, 5, 6] y)
<float[8, 4, 1] w1, float[8] b1, float[5, 8, 1] w2, float[5] gain, float[5] bias, float[5] mean, float[5] var>
{
    h = Conv(x, w1, b1)
    r = Relu(h)
    flat = Constant <value_ints = [1, 5, -1]> ()
    f = Reshape(w2, flat)
    n, running_mean, running_var = BatchNormalization <training_mode = 1> (f, gain, bias, mean, var)
    back = Constant <value_ints = [5, -1, 1]> ()
    k = Reshape(n, back)
    y = Conv(r, k)
}
"""
"""The second convolution's weights are standardised over the channels that the first one makes."""
WEIGHTS = {"var": np.ones(5, np.float32)}


@pytest.mark.parametrize("fill", ["zero fill", "neighbor copy", "tail copy"])
def test_weights_standardised_over_what_grows_are_no_exact_growth(tmp_path, fill):
    path = save(tmp_path / "m.onnx", STANDARDISED, **WEIGHTS)
    done = apply(f"widen channels to 12 with {fill}", path)
    assert [gap.op for gap in done.plan.certificate.gaps][:1] == ["BatchNormalization"]
    assert done.verification is not None
    assert done.verification.relative > 1e-2


def test_channels_standardised_by_themselves_grow_exactly(tmp_path):
    path = save(
        tmp_path / "m.onnx",
        STANDARDISED.replace("[N, 5, 6] y)", "[N, 4, 6] z)")
        .replace("    y = Conv(r, k)", "    s = Conv(r, k)\n    q = Relu(s)\n    z = Conv(q, w3)")
        .replace("float[5] var>", "float[5] var, float[4, 5, 1] w3>"),
        **WEIGHTS,
    )
    done = apply('widen axis 0 of "w2" to 10 with neighbor copy', path)
    assert done.plan.certificate.exact


def test_statistics_that_are_read_leave_the_channels_as_they_are(tmp_path):
    read = STANDARDISED.replace(
        "k = Reshape(n, back)", "k0 = Reshape(n, back)\n    s = ReduceSum(running_var)\n    k = Mul(k0, s)"
    )
    path = save(tmp_path / "m.onnx", read, **WEIGHTS)
    with pytest.raises(GrowError) as error:
        plan('widen axis 0 of "w2" to 10 with neighbor copy', path)
    assert error.value.diagnostics[0].code == "G304"
