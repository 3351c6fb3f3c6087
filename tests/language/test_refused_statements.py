"""A statement that is refused leaves the axes as they were for those behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import TOWERS, TRANSLATOR, save

from growc import api
from growc.errors.diagnostic import GrowError

FIRST = "widen ffn to 16 with uniform copy"  # of two sizes, one is larger
LATER = [
    ("widen ffn to 24 with uniform copy", ["G303"]),
    ("widen ffn to 2 * ffn with uniform copy", ["G303"]),
    ("widen ffn to 14 with uniform copy", ["G303", "G303"]),
    ("subclone ffn to 4 by first", ["G303"]),
    ("reorder ffn by magnitude", ["G303"]),
    ("widen hidden to 16 with cyclic copy", ["G303"]),
]


@pytest.mark.parametrize("graph", [TRANSLATOR, TOWERS])
@pytest.mark.parametrize(("later", "codes"), LATER)
def test_later_statements_are_judged_without_it(
    tmp_path: Path, graph: str, later: str, codes: list[str]
) -> None:
    model = save(tmp_path / "m.onnx", graph)
    with pytest.raises(GrowError) as found:
        api.plan(f"{FIRST}\n{later}", model)
    assert [d.code for d in found.value.diagnostics] == codes
    assert "it is 20 now" in found.value.diagnostics[0].message
