"""Tensors that transformers joins of parts: their rows, and what of the joining is taken on trust."""

import numpy as np
import pytest
import torch
import transformers
from checkpoints import tiny_config
from hypothesis import given
from hypothesis import strategies as st
from transformers.core_model_loading import SplitModulelist

from growc.checkpoint.classes.on_disk import CheckpointOnDisk
from growc.checkpoint.files.views import Uncopied, rows_of_parts, together, views

CUTS = {
    "each": lambda t: t.unbind(0),
    "halves": lambda t: [one.contiguous() for one in t.chunk(2, dim=1)],
    "each half": lambda t: [half for one in t.unbind(0) for half in one.chunk(2, dim=0)],
    "turned": lambda t: [one.transpose(0, 1).clone() for one in t.unbind(0)],
    "pairs": lambda t: t.split(2, dim=0),
    "last": lambda t: t.split([1, t.shape[2] - 1], dim=2),
}


@given(st.tuples(st.integers(1, 5), st.sampled_from([2, 4, 6]), st.integers(2, 4)), st.sampled_from([*CUTS]))
def test_parts_and_wholes_are_those_of_torch(shape, cut):
    whole = torch.arange(float(np.prod(shape))).reshape(shape)
    meta = torch.empty(shape, device="meta")
    with Uncopied():
        made = {str(k): part for k, part in enumerate(CUTS[cut](meta))}
    found = views(made, {"whole": meta})
    assert found is not None
    parts = {str(k): part.contiguous().numpy() for k, part in enumerate(CUTS[cut](whole))}
    for group in together(found["whole"]):
        block = whole.numpy()[slice(*group[0].ranges[0])]
        for view in group:
            assert np.array_equal(view.of(block), parts[view.name])
    rows = rows_of_parts(found["whole"], shape, np.dtype(np.float32), parts.__getitem__)
    some = np.arange(shape[0])[::-1]
    assert np.array_equal(rows.read(some), whole.numpy()[some])


@pytest.mark.parametrize(
    "cut",
    [
        lambda t: {"a": t[:, ::2], "b": t[:, 1::2]},
        lambda t: {"a": t[0]},
        lambda t: {"a": t.reshape(-1)},
        lambda t: {"a": t + 0},
    ],
    ids=["steps", "a part", "flat", "computed"],
)
def test_a_cut_that_is_no_range_of_the_whole_is_no_part(cut):
    meta = torch.empty((2, 4, 3), device="meta")
    assert views(cut(meta), {"whole": meta}) is None


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    transformers.MixtralForCausalLM(tiny_config("Mixtral")).save_pretrained(folder)
    return folder


def test_experts_are_read_one_by_one(mixture):
    names = CheckpointOnDisk.open(mixture).names
    assert len(names.parted) == 4
    read = []
    names._read, own = lambda name: read.append(name) or own(name), names._read
    for name in names.parted:
        read.clear()
        rows = names.rows(name)
        found = rows.read(np.array([1]))
        assert {part.split(".experts.")[1][0] for part in read} == {"1"}
        assert np.array_equal(found, names.read(name)[1:2])


def test_parts_that_loading_joins_in_another_way_are_joined_by_it(mixture, monkeypatch):
    own = SplitModulelist.convert

    def swapped(self, *given, **named):
        made = own(self, *given, **named)
        return dict(zip(made, [*made.values()][::-1], strict=True))

    monkeypatch.setattr(SplitModulelist, "convert", swapped)
    assert CheckpointOnDisk.open(mixture).names.parted == {}
