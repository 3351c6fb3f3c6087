"""Layers start where the module's layers start: a count that is right does not show it, names do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import zoo

from growc import api


@pytest.mark.parametrize("name", ["falcon", "qwen3", "mpt", "olmo2"])
def test_the_nodes_of_a_layer_bear_its_number(files, name):
    named = Path(str(files(name)).replace(".anon.", "."))
    [run] = api.inspect(named).layers.runs
    assert (len(run.layers),) == zoo.ZOO[name].facts.layers
    for number, layer in enumerate(run.layers):
        numbers = [re.search(r"\.(\d+)/", node.name) for node in layer.nodes]
        assert {int(found[1]) for found in numbers if found} == {number}
