"""A module and the file that torch exports of it are understood alike, but for what the exporter did."""

from __future__ import annotations

import pytest
from agreement import RECIPES, compared, differences
from export import NotExportableError, export
from zoo import ZOO

QUICK = {
    "own_multi_query": "",
    "own_alibi": "computes once what equal calls",
    "own_separable": "folds batch norms",
}
"""The reasons why these differ."""

names = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.soak) for n in ZOO]
)


@pytest.mark.sampled(4)
@names
@pytest.mark.filterwarnings("ignore")  # of exporters
def test_what_is_said_differently_has_a_reason(name, tmp_path):
    path = tmp_path / "model.onnx"
    try:
        export(name, "dynamo", path)
    except NotExportableError:
        pytest.skip("there is no file")
    found = compared(name, path, [r for r in RECIPES if name not in QUICK or "hidden" in r])
    assert bool(found["reasons"]) == any(differences(found)), list(differences(found))
    if name in QUICK:
        assert QUICK[name] in "".join(found["reasons"])
        assert bool(QUICK[name]) == bool(found["reasons"])
