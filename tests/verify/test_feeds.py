import numpy as np
import pytest

from growc.dialects.onnx.files.signature import read_signature
from growc.errors.diagnostic import GrowError
from growc.verification.feeds import complete, draw_cases, read_inputs

MASKED = """g (int64[b, s] ids, int64[b, s] mask) => (float[b, s, 4] y) {
    e = Gather(table, ids)  m = Cast<to = 1>(mask)  n = Unsqueeze(m, last)  y = Mul(e, n) }"""


def table(rows=11, width=4):
    return np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)


def shapes(cases, name):
    return [case[name].shape for case in cases]


@pytest.fixture
def masked(onnx_file):
    return onnx_file(MASKED, table=table(), last=np.array([2]))


def test_two_batch_and_sequence_sizes_are_drawn_and_right_padding_once(masked):
    cases = draw_cases(masked)
    assert shapes(cases, "ids") == [(2, 7), (3, 12), (3, 12)]
    assert [case["mask"].all() for case in cases] == [True, True, False]


def test_right_padding_leaves_one_row_whole_and_closes_the_ends_of_the_others(masked):
    mask = draw_cases(masked)[-1]["mask"]
    lengths = mask.sum(axis=1)
    assert lengths.tolist() == [12, 9, 6]
    assert all(
        row[:length].all() and not row[length:].any() for row, length in zip(mask, lengths, strict=True)
    )


def test_ids_stay_inside_the_table_and_reach_far(masked):
    ids = np.concatenate([case["ids"].ravel() for case in draw_cases(masked)])
    assert ids.min() >= 0
    assert 8 <= ids.max() < 11


def test_the_same_is_drawn_each_time(masked):
    first, again = draw_cases(masked), draw_cases(masked)
    assert all(np.array_equal(a["ids"], b["ids"]) for a, b in zip(first, again, strict=True))


def test_fixed_sizes_stay_and_are_drawn_twice(onnx_file):
    path = onnx_file("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }")
    cases = draw_cases(path)
    assert shapes(cases, "x") == [(2, 3), (2, 3)]
    assert not np.array_equal(cases[0]["x"], cases[1]["x"])


def test_lengths_stay_below_a_short_position_table(onnx_file):
    path = onnx_file(
        """g (int64[b, s] ids) => (float[b, s, 4] y) {
            e = Gather(table, ids)  n = Shape<start = 1, end = 2>(ids)  n0 = Squeeze(n)
            r = Range(zero, n0, one)  p = Gather(positions, r)  y = Add(e, p) }""",
        table=table(),
        positions=table(4),
        zero=np.int64(0),
        one=np.int64(1),
    )
    assert shapes(draw_cases(path), "ids") == [(2, 3), (3, 4)]


def test_a_length_that_is_baked_into_the_graph_is_found(onnx_file):
    path = onnx_file(
        "g (float[b, s, 4] x) => (float[b, 64] y) { y = Reshape(x, baked) }", baked=np.array([-1, 64])
    )
    short = onnx_file(
        "g (float[b, s, 4] x) => (float[b, 16, 4] y) { a = Reshape(x, baked)  y = Add(a, bias) }",
        "short.onnx",
        baked=np.array([-1, 16, 4]),
        bias=np.zeros((2, 16, 4), np.float32),
    )
    assert draw_cases(path)
    assert shapes(draw_cases(short), "x")[0] == (2, 16, 4)


def test_an_unusual_height_and_width_is_found_that_is_baked_into_the_graph(onnx_file):
    text = "g (float[b, 1, h, w] x) => (float[b, 2] y) { f = Flatten(x)  y = MatMul(f, weight) }"
    path = onnx_file(text, weight=np.ones((28 * 28, 2), np.float32))
    assert shapes(draw_cases(path), "x") == [(2, 1, 28, 28), (3, 1, 28, 28)]


def test_unnamed_dimensions_that_must_agree_are_made_to(onnx_file):
    path = onnx_file(
        "g (float[?, ?] x, float[?, ?] z, int64[?, ?] ids) => (float[?, ?] y)"
        " { e = Gather(table, ids)  f = Squeeze(e, last)  a = Add(x, z)  y = Add(a, f) }",
        table=table(5, 1),
        last=np.array([2]),
    )
    cases = draw_cases(path)
    assert all(case["x"].shape == case["z"].shape == case["ids"].shape for case in cases)
    assert cases[0]["x"].shape != cases[1]["x"].shape


def test_named_dimensions_that_must_agree_are_made_to(onnx_file):
    path = onnx_file("g (float[a, c] x, float[d, e] z) => (float[a, c] y) { y = Add(x, z) }")
    cases = draw_cases(path)
    assert all(case["x"].shape == case["z"].shape for case in cases)


def test_named_lengths_that_need_not_agree_differ(onnx_file):
    path = onnx_file(
        "g (int64[b, s] x, int64[b, t] z) => (float[b, n, 4] y)"
        " { c = Gather(table, x)  d = Gather(table, z)  y = Concat<axis = 1>(c, d) }",
        table=table(),
    )
    case = draw_cases(path)[0]
    assert case["x"].shape[1] != case["z"].shape[1]


def test_a_length_may_be_a_sum_of_two(onnx_file):
    from growc.dialects.onnx.files.signature import Input, Role
    from growc.verification import feed_sizes

    ports = [
        Input("past", np.dtype(np.float32), ("batch", 2, "past_len", 4), Role.STATE, time=2),
        Input("mask", np.dtype(np.int64), ("batch", "past_len + seq"), Role.MASK),
        Input("ids", np.dtype(np.int64), ("batch", "seq"), Role.IDS),
    ]
    sizes = next(feed_sizes.assignments(feed_sizes.symbols(ports), feed_sizes.FIRST))
    assert feed_sizes.evaluate("past_len + seq", sizes) == sizes["past_len"] + sizes["seq"]
    assert feed_sizes.names("batch-size") == ("batch-size",)
    assert feed_sizes.evaluate("2 * seq // 2 - 1", {"seq": 4}) == 3


def test_a_mask_is_as_long_as_the_cache_and_what_is_new(onnx_file):
    path = onnx_file(
        """g (int64[b, s] ids, int64[bm, t] mask, float[b, 2, p, 4] past) => (float[b, 2, t, 4] y) {
            e = Gather(table, ids)  r = Reshape(e, split)  new = Transpose<perm = [0, 2, 1, 3]>(r)
            present = Concat<axis = 2>(past, new)  m = Cast<to = 1>(mask)  n = Unsqueeze(m, axes)
            y = Mul(present, n) }""",
        table=table(11, 8),
        split=np.array([0, 0, 2, 4]),
        axes=np.array([1, 3]),
    )
    cases = draw_cases(path)
    for case in cases:
        assert case["mask"].shape[0] == case["past"].shape[0]
        assert case["mask"].shape[1] == case["past"].shape[2] + case["ids"].shape[1]
    assert cases[0]["past"].shape[2] > 0
    assert cases[1]["past"].shape[2] == 0


def test_a_bias_of_scores_is_closed_where_it_is_padded(onnx_file):
    path = onnx_file(
        "g (float[b, s, s] bias, float[b, s, s] h) => (float[b, s, s] y)"
        " { q = MatMul(h, h)  d = Add(q, bias)  y = Softmax(d) }"
    )
    whole, _, padded = draw_cases(path)
    assert np.abs(whole["bias"]).max() < 10
    assert padded["bias"].min() == -1e4


def test_positions_count_up(onnx_file):
    path = onnx_file("g (int64[b, s] x) => (float[b, s] y) { a = Cast<to = 1>(x)  y = Sin(a) }")
    assert draw_cases(path)[0]["x"][1].tolist() == list(range(7))


def test_a_model_that_takes_no_drawn_input_says_how_to_go_on(onnx_file):
    path = onnx_file(
        "g (float[b, s] x) => (float[b, t] y) { a = Reshape(x, baked)  y = Add(a, bias) }",
        baked=np.array([1, 1013]),
        bias=np.zeros((7, 1013), np.float32),
    )
    with pytest.raises(GrowError) as caught:
        draw_cases(path)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "G403"
    assert "--inputs" in diagnostic.help
    assert diagnostic.notes


def test_an_input_that_only_the_grown_model_has_is_sized_by_its_symbols(onnx_file):
    path = onnx_file(
        "g (float[b, 2, p, 4] first, float[b, 2, p, 4] second, float[b, 2, 1, 4] new)"
        " => (float[b, 2, t, 4] y) { a = Add(first, second)  y = Concat<axis = 2>(a, new) }"
    )
    given = {"first": np.zeros((3, 2, 5, 4), np.float32), "new": np.zeros((3, 2, 1, 4), np.float32)}
    assert complete(read_signature(path), given)["second"].shape == (3, 2, 5, 4)


# Inputs from a file


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "inputs.npz", **arrays)
        return tmp_path / "inputs.npz"

    return write


def test_the_rows_of_a_file_are_run_a_few_at_a_time(masked, save):
    ids = np.arange(20 * 5).reshape(20, 5) % 11
    cases = read_inputs(save(ids=ids, mask=np.ones((20, 5), np.int64), labels=np.zeros(20)), masked)
    assert shapes(cases, "ids") == [(8, 5), (8, 5), (4, 5)]
    assert np.array_equal(np.concatenate([case["ids"] for case in cases]), ids)
    assert "labels" not in cases[0]


def test_numbered_names_are_cases(masked, save):
    arrays = {f"in{i}.{name}": np.ones((i + 1, 3), np.int64) for i in range(2) for name in ("ids", "mask")}
    assert shapes(read_inputs(save(**arrays), masked), "ids") == [(1, 3), (2, 3)]


def test_an_input_without_rows_goes_to_every_case(masked, save):
    cases = read_inputs(save(ids=np.zeros((10, 3), np.int64), mask=np.ones((1, 3), np.int64)), masked)
    assert shapes(cases, "mask") == [(1, 3), (1, 3)]


def test_integers_and_wider_floats_are_cast_to_what_the_model_takes(onnx_file, save):
    path = onnx_file("g (float[b, 3] x) => (float[b, 3] y) { y = Relu(x) }")
    assert read_inputs(save(x=np.ones((2, 3), np.float64)), path)[0]["x"].dtype == np.float32
    assert read_inputs(save(x=np.ones((2, 3), np.uint8)), path)[0]["x"].dtype == np.float32


def test_one_array_is_enough_for_one_input(onnx_file, tmp_path):
    path = onnx_file("g (float[b, 3] x) => (float[b, 3] y) { y = Relu(x) }")
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    assert shapes(read_inputs(tmp_path / "x.npy", path), "x") == [(2, 3)]


def test_a_fixed_batch_is_kept(onnx_file, save):
    path = onnx_file("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }")
    assert shapes(read_inputs(save(x=np.ones((6, 3), np.float32)), path), "x") == [(2, 3)] * 3
    with pytest.raises(GrowError, match="5 rows"):
        read_inputs(save(x=np.ones((5, 3), np.float32)), path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"ids": np.zeros((2, 3), np.int64), "maks": np.zeros((2, 3), np.int64)}, "did you mean `maks`"),
        ({"ids": np.zeros((2, 3, 1), np.int64), "mask": np.zeros((2, 3), np.int64)}, "3 axes instead of 2"),
        ({"ids": np.zeros((2, 3)), "mask": np.zeros((2, 3), np.int64)}, "float64, the model takes int64"),
    ],
    ids=["a missing input", "another rank", "another type"],
)
def test_a_file_that_does_not_fit_says_why(masked, save, arrays, message):
    with pytest.raises(GrowError, match=message) as caught:
        read_inputs(save(**arrays), masked)
    assert caught.value.diagnostics[0].code == "G403"


def test_a_file_that_is_no_archive_is_refused(masked, tmp_path):
    for text in (b"PK no archive", b"PK\x03\x04 no archive"):  # numpy opens the second one as an archive
        (tmp_path / "inputs.npz").write_bytes(text)
        with pytest.raises(GrowError, match="cannot be read as a"):
            read_inputs(tmp_path / "inputs.npz", masked)
    with pytest.raises(GrowError, match="cannot be read as a"):
        read_inputs(tmp_path / "missing.npz", masked)
