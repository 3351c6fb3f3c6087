import numpy as np
import pytest

from growc.dialects.onnx.files.signature import Role, read_signature
from growc.errors.diagnostic import GrowError


def role(path, name="x"):
    return next(port.role for port in read_signature(path) if port.name == name)


def bounds(path, name="x"):
    return next((port.low, port.high) for port in read_signature(path) if port.name == name)


def test_an_integer_that_picks_rows_is_bounded_by_the_table(onnx_file, random):
    path = onnx_file("g (int64[b, s] x) => (float[b, s, 4] y) { y = Gather(table, x) }", table=random(11, 4))
    assert role(path) is Role.IDS
    assert bounds(path) == (0, 11)


def test_the_smallest_of_several_tables_bounds_an_id(onnx_file, random):
    path = onnx_file(
        "g (int64[s] x) => (float[s, 4] y) { a = Gather(big, x)  b = Gather<axis = 1>(small, x)"
        "  c = Transpose(b)  y = Add(a, c) }",
        big=random(11, 4),
        small=random(4, 5),
    )
    assert bounds(path) == (0, 5)


def test_ids_are_followed_through_layout_casts_and_offsets(onnx_file, random):
    path = onnx_file(
        "g (int32[b, s] x) => (float[t, 4] y) { a = Cast<to = 7>(x)  c = Add(a, two)  d = Reshape(c, flat)"
        "  e = Identity(d)  f = Unsqueeze(e, zero)  h = Squeeze(f, zero)  i = Slice(h, zero, end)"
        "  j = Identity(table)  y = Gather(j, i) }",
        two=np.int64(2),
        flat=np.array([-1]),
        zero=np.array([0]),
        end=np.array([100]),
        table=random(11, 4),
    )
    assert role(path) is Role.IDS
    assert bounds(path) == (0, 9)


def test_a_subtracted_offset_leads_to_rows_that_are_counted_from_the_end(onnx_file, random):
    path = onnx_file(
        "g (int64[s] x) => (float[s, 4] y) { a = Sub(x, three)  y = Gather(table, a) }",
        three=np.int64(3),
        table=random(11, 4),
    )
    assert bounds(path) == (0, 14)


def test_an_id_into_a_table_of_unknown_size_stays_small(onnx_file):
    path = onnx_file("g (float[n, 4] h, int64[k] x) => (float[k, 4] y) { y = Gather(h, x) }")
    assert role(path) is Role.IDS
    assert bounds(path) == (0, 2)


def test_the_ids_of_a_fused_embedding_are_bounded(onnx_file, random):
    path = onnx_file(
        "g (int32[b, s] x, int32[b, s] t) => (float[b, s, 4] y) {"
        " y, m = com.microsoft.EmbedLayerNormalization(x, t, words, places, kinds, gain, bias) }",
        words=random(11, 4),
        places=random(8, 4),
        kinds=random(2, 4),
        gain=random(4),
        bias=random(4),
    )
    assert bounds(path, "x") == (0, 11)
    assert bounds(path, "t") == (0, 2)


def test_an_integer_that_is_not_looked_up_is_a_mask(onnx_file):
    path = onnx_file(
        "g (int64[b, s] x, float[b, s] h) => (float[b, s] y) { a = Cast<to = 1>(x)  b1 = Sub(one, a)"
        "  c = Mul(b1, low)  d = Add(h, c)  y = Softmax(d) }",
        one=np.float32(1),
        low=np.float32(-1e9),
    )
    assert role(path) is Role.MASK
    assert role(path, "h") is Role.BIAS


def test_a_mask_whose_running_sum_is_looked_up_is_a_mask(onnx_file, random):
    path = onnx_file(
        "g (int64[b, s] x) => (float[b, s, 4] y) { a = CumSum(x, axis)  y = Gather(table, a) }",
        axis=np.int64(1),
        table=random(20, 4),
    )
    assert role(path) is Role.MASK


@pytest.mark.parametrize(
    "way",
    ["a = Sub(one, x)  c = Mul(a, low)", "a = Greater(x, one)  c = Where(a, one, low)"],
    ids=["multiplied with a huge constant", "compared"],
)
def test_a_real_input_that_closes_places_is_a_mask(onnx_file, way):
    path = onnx_file(
        f"g (float[b, s] x, float[b, s] h) => (float[b, s] y) {{ {way}  d = Add(h, c)  y = Softmax(d) }}",
        one=np.float32(1),
        low=np.float32(-1e9),
    )
    assert role(path) is Role.MASK


def test_an_integer_that_becomes_an_angle_is_a_position(onnx_file, random):
    path = onnx_file(
        "g (int64[b, s] x) => (float[b, s, 4] y) { a = Cast<to = 1>(x)  c = Unsqueeze(a, last)"
        "  d = MatMul(c, frequencies)  y = Cos(d) }",
        last=np.array([2]),
        frequencies=random(1, 4),
    )
    assert role(path) is Role.POSITIONS


def test_an_integer_picture_is_data(onnx_file, random):
    path = onnx_file(
        "g (uint8[b, 3, 8, 8] x) => (float[b, 4, 7, 7] y)"
        " { a = Cast<to = 1>(x)  c = Div(a, top)  y = Conv(c, w) }",
        top=np.float32(255),
        w=random(4, 3, 2, 2),
    )
    assert role(path) is Role.DATA


def test_an_appended_input_is_a_state_and_says_along_which_axis(onnx_file):
    path = onnx_file(
        "g (float[b, 2, p, 4] x, float[b, s, 2, 4] new) => (float[b, 2, t, 4] y)"
        " { n = Transpose<perm = [0, 2, 1, 3]>(new)  c = Cast<to = 1>(x)  y = Concat<axis = -2>(c, n) }"
    )
    (state,) = (port for port in read_signature(path) if port.name == "x")
    assert state.role is Role.STATE
    assert state.time == 2


def test_a_real_input_that_meets_a_weight_is_data_whatever_stands_before(onnx_file, random):
    path = onnx_file(
        "g (float[b, 4] x) => (float[b, 4] y) { a = Greater(x, zero)  c = Cast<to = 1>(a)"
        "  d = MatMul(x, w)  y = Mul(c, d) }",
        zero=np.float32(0),
        w=random(4, 4),
    )
    assert role(path) is Role.DATA


def test_an_input_with_a_default_need_not_be_fed(onnx_file):
    path = onnx_file(
        "g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", w=np.zeros(2, np.float32)
    )
    assert [port.name for port in read_signature(path)] == ["x"]


def test_functions_are_looked_into(tmp_path, random):
    import onnx
    import onnx.parser

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
        "g (int64[s] x) => (float[s, 4] y) <float[3, 4] table = {0,0,0,0,0,0,0,0,0,0,0,0}>"
        " { y = own.embed(table, x) }\n"
        '<domain: "own", opset_import: ["" : 17]> embed (t, i) => (e) { e = Gather(t, i) }'
    )
    onnx.save(model, tmp_path / "model.onnx")
    assert bounds(tmp_path / "model.onnx") == (0, 3)


def test_text_cannot_be_fed(onnx_file):
    path = onnx_file("g (string[s] x) => (string[s] y) { y = Identity(x) }")
    with pytest.raises(GrowError) as caught:
        read_signature(path)
    assert caught.value.diagnostics[0].code == "G403"


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"no model at all")
    with pytest.raises(GrowError) as caught:
        read_signature(tmp_path / "model.onnx")
    assert caught.value.diagnostics[0].code == "G310"


def test_an_id_that_is_shifted_in_two_ways_stays_inside_both_tables(onnx_file, random):
    path = onnx_file(
        "g (int64[s] x) => (float[t, 4] y) { a = Add(x, two)  b1 = Add(x, five)"
        "  c = Concat<axis = 0>(a, b1)  y = Gather(table, c) }",
        two=np.int64(2),
        five=np.int64(5),
        table=random(11, 4),
    )
    assert bounds(path) == (0, 6)
