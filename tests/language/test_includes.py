"""The files that an include may lead to, and the text of them that is shown."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from growc.api import recipe
from growc.errors.diagnostic import GrowError, error_object
from growc.formats.provenance import recipe_of

SECRETS = (
    "root:$6$secret:19000",
    "secret = hunter2",
    "widen secret to 4",
    "let secret = ffn / 0.5",
    '"secret',
)


def including(folder: Path, name: str) -> GrowError:
    (folder / "r.grow").write_text(f'include "{name}"\nwiden ffn to 24 with tail copy\n')
    with pytest.raises(GrowError) as caught:
        recipe(folder / "r.grow")
    assert caught.value.exit_status == 2
    return caught.value


@pytest.mark.parametrize("text", SECRETS)
@pytest.mark.parametrize("link", [False, True])
def test_a_mistake_in_a_file_that_is_no_recipe_is_told_without_its_text(tmp_path, text, link):
    (tmp_path / "shadow").write_text(f"# fine\n{text}\n")
    (tmp_path / "link.grow").symlink_to(tmp_path / "shadow")
    error = including(tmp_path, "link.grow" if link else "shadow")
    shown = str(error) + json.dumps(error_object(error))
    assert "secret" not in shown
    assert "$6$" not in shown
    first = error_object(error)["errors"][-1]
    assert first["line"] == 2
    assert first["column"] >= 1
    assert (first["end_line"], first["end_column"]) == (first["line"], first["column"])
    assert any("r.grow:1:9" in note for note in first["notes"])


def test_a_mistake_of_sense_in_a_file_that_is_no_recipe_is_told_without_its_text(tmp_path):
    (tmp_path / "words.txt").write_text('widen axis 1 of "secret" to 4 with zero fill noise 0.1 noise 0.2\n')
    error = including(tmp_path, "words.txt")
    assert "secret" not in str(error)
    assert error.diagnostics[0].span.line == 1


def test_the_text_of_an_included_recipe_is_shown(tmp_path):
    (tmp_path / "own.grow").write_text("widen fnn to 4 with tail copy\n")
    assert "widen fnn to 4" in str(including(tmp_path, "own.grow"))


def test_a_well_formed_file_of_another_suffix_is_included(tmp_path):
    (tmp_path / "words.txt").write_text("widen ffn to 48 with tail copy\n")
    (tmp_path / "r.grow").write_text('include "words.txt"\n')
    assert len(recipe(tmp_path / "r.grow").statements) == 1


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large"])
def test_only_a_regular_file_of_moderate_size_is_included(tmp_path, kind):
    place = tmp_path / "i.grow"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    elif kind == "folder":
        place.mkdir()
    else:
        place.write_text("#" * 1_000_001)
    error = including(tmp_path, "i.grow")
    assert [d.code for d in error.diagnostics] == ["G207"]


def test_includes_that_multiply_come_to_an_end(tmp_path):
    (tmp_path / "0.grow").write_text("# nothing\n")
    for k in range(40):
        (tmp_path / f"{k + 1}.grow").write_text(f'include "{k}.grow"\n' * 2)
    start = time.monotonic()
    error = including(tmp_path, "40.grow")
    assert error.diagnostics[-1].code == "G107"
    assert "10,000 statements" in str(error)
    assert time.monotonic() - start < 60


def test_a_long_recipe_is_refused_before_it_is_read(tmp_path):
    (tmp_path / "long.grow").write_text("let a = 1\n" * 10_001)
    assert [d.code for d in including(tmp_path, "long.grow").diagnostics] == ["G107"]


def test_the_record_in_a_model_includes_no_files(tmp_path):
    (tmp_path / "i.grow").write_text("widen ffn to 24 with tail copy\n")
    with pytest.raises(GrowError, match="G207"):
        recipe_of({"recipe": [f'include "{tmp_path}/i.grow"'], "parameters": {}})
