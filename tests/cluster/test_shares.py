"""Tensors shared out among processes: each row is somebody's, and what is on the disk is kept."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from growc.checkpoint.files.directory import WEIGHTS
from growc.checkpoint.files.process_shares import WriteShare, shared_out
from growc.checkpoint.files.safetensors_file import HeaderEntry
from growc.checkpoint.files.shards import TensorGroup, laid_out
from growc.plans.lazy_rows import stored

ROWS = (5, 1, 300, 0, 17, 40)


def part(number, count, *, whole=0, width=3, made=None):
    """A part of one tensor, counted up from its number; `made` is told of each that is made."""
    name = f"t{number}"
    array = (np.arange(count * width, dtype=np.float32) + 1000 * number).reshape(count, width)

    def make():
        if made is not None:
            made.append(name)
        return {name: stored(array)}

    return TensorGroup((HeaderEntry(name, "F32", (count, width)),), make, whole)


def joined(number, counts):
    """A part of several tensors that are made together."""
    arrays = {f"j{number}.{k}": np.full((n, 2), k, np.float32) for k, n in enumerate(counts)}
    entries = tuple(HeaderEntry(name, "F32", array.shape) for name, array in arrays.items())
    return TensorGroup(entries, lambda: {name: stored(array) for name, array in arrays.items()})


def entries_of(parts):
    return [entry for one in parts for entry in one.entries]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=8),
    st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=3), max_size=2),
    st.integers(1, 9),
)
def test_each_row_is_in_one_share(single, several, size):
    parts = [part(k, count, whole=int(whole)) for k, (count, whole) in enumerate(single)]
    parts += [joined(k, counts) for k, counts in enumerate(several)]
    found = {entry.name: [] for entry in entries_of(parts)}
    for shares in shared_out(parts, size):
        for share in shares:
            for name, rows in share.rows.items():
                found[name] += rows
    assert found == {entry.name: [*range(entry.shape[0])] for entry in entries_of(parts)}


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(1, 9))
def test_shares_differ_by_a_row_where_tensors_can_be_cut(counts, size):
    parts = [part(k, count) for k, count in enumerate(counts)]
    shares = [sum(len(r) for s in shares for r in s.rows.values()) for shares in shared_out(parts, size)]
    assert max(shares) - min(shares) <= 1


def test_tensors_that_are_made_together_belong_to_one_process():
    shares = shared_out([joined(0, (100, 100)), part(1, 10, whole=1)], 3)
    assert [[[*s.rows] for s in share] for share in shares] == [[["j0.0", "j0.1"]], [], [["t1"]]]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "notes").mkdir()
    return tmp_path


def parts_of(made=None):
    return [*(part(k, count, made=made) for k, count in enumerate(ROWS)), joined(0, (4, 5))]


def write(folder, size, *, ranks=None, made=None, changed=None):
    """Write as one of `size` processes does, for each of `ranks`; without `ranks`, for all."""
    parts = parts_of(made)
    places = laid_out(folder, entries_of(parts), {"format": "pt"}, 900)
    job = WriteShare(lambda: parts if changed is None else changed(parts), places, folder / "notes")
    return [job(rank, size) for rank in (range(size) if ranks is None else ranks)]


def weights(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob(WEIGHTS.replace(".", "*")))}


@pytest.mark.parametrize("size", [2, 3, 7])
def test_several_processes_write_the_bytes_of_one(folder, tmp_path_factory, size):
    alone = tmp_path_factory.mktemp("alone")
    (alone / "notes").mkdir()
    assert sum(write(folder, size)) == sum(write(alone, 1)) == sum(e.nbytes for e in entries_of(parts_of()))
    assert weights(folder) == weights(alone)
    assert len(weights(folder)) > 1


def test_tensors_in_the_notes_are_not_made_again(folder):
    made = []
    write(folder, 2, ranks=[0], made=made)
    first, before = [*made], weights(folder)
    write(folder, 2, ranks=[0], made=made)
    assert (made, weights(folder)) == (first, before)
    write(folder, 2, made=made)
    assert len(made) > len(first)


def test_a_tensor_with_another_digest_is_made_again(folder):
    write(folder, 2)
    whole = weights(folder)
    name = next(iter(whole))
    with (folder / name).open("r+b") as file:
        file.seek(-5, 2)
        file.write(b"?")
    assert weights(folder) != whole
    made = []
    write(folder, 2, made=made)
    assert weights(folder) == whole
    assert len(made) == 1


def test_half_a_line_of_what_is_done_is_none(folder):
    write(folder, 1)
    whole, notes = weights(folder), folder / "notes/0.jsonl"
    notes.write_text(notes.read_text()[:-20])
    made = []
    write(folder, 1, made=made)
    assert len(made) == 0  # the last part is made together, and not counted
    assert weights(folder) == whole


def test_a_file_of_another_header_is_begun_anew(folder):
    write(folder, 1)
    whole = weights(folder)
    for path in folder.glob("*.safetensors"):
        path.write_bytes(b"x" * path.stat().st_size)
    shutil.rmtree(folder / "notes")
    (folder / "notes").mkdir()
    write(folder, 1)
    assert weights(folder) == whole


def test_a_tensor_that_is_not_as_promised_is_no_result(folder):
    def changed(parts):
        return [replace(parts[0], make=lambda: {"t0": stored(np.zeros((5, 4), np.float32))}), *parts[1:]]

    with pytest.raises(AssertionError, match="was promised"):
        write(folder, 1, changed=changed)
