"""The picture of a model's streams: as people see it, in eighty columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import STREAM, TINY, TOWERS, TRANSLATOR, save

from growc import api
from growc.render.picture import WIDTH, picture_lines

GOLDEN = Path(__file__).parent / "golden"
GRAPHS = {"stream": STREAM, "translator": TRANSLATOR, "towers": TOWERS}


@pytest.mark.parametrize("name", [*GRAPHS, "tiny"])
def test_a_picture_shows_what_hangs_on_each_stream(name, golden, tmp_path):
    model = TINY if name == "tiny" else save(tmp_path / f"{name}.onnx", GRAPHS[name])
    lines = list(picture_lines(api.inspect(model)))
    assert max(map(len, lines)) <= WIDTH
    golden(GOLDEN / "pictures" / f"{name}.txt", "\n".join(lines) + "\n")
