"""`growc init`: a starter recipe is taken as it is, and so is every statement that it offers."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import MLP, STREAM, TINY, TOWERS, TRANSLATOR, save
from starter_sweep import judged, offered, uncommented

import growc
from growc import grammar
from growc.cli.main import main
from growc.errors.source import SourceText

NOTHING = """
m (float[b, 4] x) => (float[b, 4] y)
{
    y = Relu (x)
}
"""


@pytest.mark.parametrize(
    "graph", [MLP, STREAM, TRANSLATOR, TOWERS, NOTHING], ids=lambda graph: graph[:20].split()[0]
)
def test_a_starter_and_each_of_its_offers_is_taken_as_it_is(tmp_path: Path, graph: str) -> None:
    found = judged("model", save(tmp_path / "m.onnx", graph), tmp_path, True)
    assert found.faults == []
    assert found.accepted == found.offers


def test_a_starter_has_the_real_axes_and_sizes_in_canonical_form() -> None:
    recipe = growc.init(TINY)
    for line in ("# hidden: the residual stream, in every layer at once, 96 now. Exact.", "#untie head"):
        assert line in recipe.splitlines()
    assert "widen ffn to 2 * ffn with cyclic copy split random" in recipe.splitlines()
    assert recipe.endswith("\nexpect exact\n")
    assert grammar.format(grammar.parse(SourceText("starter", recipe))) == recipe
    assert recipe == growc.init(TINY)


def test_a_model_that_cannot_change_gets_a_starter_that_says_so(tmp_path: Path) -> None:
    recipe = growc.init(save(tmp_path / "m.onnx", NOTHING))
    assert "Nothing in this model can be changed." in recipe
    assert offered(recipe) == []


def test_an_offer_that_excludes_the_active_statement_says_so(tmp_path: Path) -> None:
    recipe = growc.init(TINY)
    text = offered(recipe)[0]
    assert text in uncommented(recipe, text).splitlines()


def test_hostile_names_of_files_and_weights_stay_in_their_comments(tmp_path: Path) -> None:
    path = save(tmp_path / "a\nwiden ffn to 3 with zero fill\u202e.onnx", MLP)
    recipe = growc.init(path)
    assert "\u202e" not in recipe
    assert "\nwiden ffn to 3" not in recipe
    growc.plan(recipe, path)


def test_frozen_axes_are_told_with_what_freezes_them(tmp_path: Path) -> None:
    graph = """
    m (float[b, 4] x) => (float[b, 8] y) <float[4, 8] w1>
    {
        h = MatMul (x, w1)
        y = com.example.Unknown (h)
    }
    """.replace("com.example.Unknown", "Hardmax")
    assert "expect exact" in growc.init(save(tmp_path / "m.onnx", graph))


def test_init_writes_a_file_once_and_replaces_it_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "m.onnx", MLP)
    assert main(["init", "m.onnx"]) == 0
    printed = capsys.readouterr().out
    assert main(["init", "m.onnx", "-o", "start.grow"]) == 0
    assert (tmp_path / "start.grow").read_text() == printed
    assert main(["init", "m.onnx", "-o", "start.grow"]) == 4
    assert "`--force` replaces it" in capsys.readouterr().err
    assert main(["init", "m.onnx", "-o", "start.grow", "--force"]) == 0
    assert main(["check", "start.grow"]) == 0
    assert main(["fmt", "--check", "start.grow"]) == 0
    assert main(["init", "nosuch.onnx"]) == 3
    assert main(["init", "m.onnx", "-o", "nosuch/start.grow"]) == 4
