"""The settings of a config: what may be a size, and what is none."""

from __future__ import annotations

from growc.dialects.transformers.config.fields import settings


def test_numbers_that_name_classes_are_no_sizes():
    labels = {f"LABEL_{k}": k for k in (*range(2, 12), 0, 1)}
    config = {"hidden": 8, "label2id": labels, "inner": {"label2id": labels, "depths": [2, 3]}}
    found = [path for path, _ in settings(config)]
    depths = ("inner", "depths")
    assert found == [("hidden",), (*depths, 0), (*depths, 1), depths]


def test_a_few_sizes_from_nought_on_are_sizes():
    config = {"kernel": {"stride": 1, "size": 2, "padding": 0}}
    assert [path for path, _ in settings(config)] == [("kernel", key) for key in config["kernel"]]


def test_sizes_without_a_gap_are_sizes_where_they_do_not_start_at_nought():
    config = {"widths": {f"stage{k}": k + 1 for k in range(8)}}
    assert len(list(settings(config))) == 8
