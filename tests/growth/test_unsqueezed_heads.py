"""One head that Unsqueeze puts in and Squeeze leaves out becomes several: the view becomes a reshape."""

from __future__ import annotations

import onnx
import pytest
from graphs import ONE_KEY, one_key_head
from judging import judge

from growc import api
from growc.errors.diagnostic import GrowError


@pytest.mark.parametrize("keys", ONE_KEY)
@pytest.mark.parametrize("fill", ["neighbor copy", "cyclic copy"])
def test_a_shared_head_grows_wherever_it_is_put_in(keys, fill, tmp_path):
    path = one_key_head(tmp_path / "m.onnx", keys)
    judge(f"widen kv_heads to 3 with {fill}", path, tmp_path / "out.onnx").assert_exact()


@pytest.mark.parametrize("opened", ["Reshape(q0, shape)", "Unsqueeze(q0, two)"])
@pytest.mark.parametrize("closed", ["Reshape(c1, back)", "Squeeze(c1, two)"])
@pytest.mark.parametrize("keys", ["reshaped", "unsqueezed in front of channels"])
def test_one_head_in_all_grows_however_it_comes_and_goes(opened, closed, keys, tmp_path):
    path = one_key_head(tmp_path / "m.onnx", keys, 1, opened, closed)
    for recipe in ("widen heads to 3 with neighbor copy", "widen heads to 2 with zero fill"):
        judge(recipe, path, tmp_path / "out.onnx").assert_exact()
    written = {node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node}
    assert written.isdisjoint({"Squeeze", "Unsqueeze"})


def test_a_view_stays_where_its_one_element_does(tmp_path):
    path = one_key_head(tmp_path / "m.onnx", "reshaped", 1, "Unsqueeze(q0, two)", "Squeeze(c1, two)")
    judge("widen hidden to 16 with cyclic copy", path, tmp_path / "out.onnx").assert_exact()
    assert {"Squeeze", "Unsqueeze"} <= {n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node}


def test_a_head_that_is_left_out_in_front_of_positions_stays_one(tmp_path):
    path = one_key_head(tmp_path / "m.onnx", "reshaped", 1, "Reshape(q0, shape)", "Squeeze(c0, one)")
    with pytest.raises(GrowError, match="there is one, and nothing counts it"):
        api.plan("widen heads to 3 with neighbor copy", path)
