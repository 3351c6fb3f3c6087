"""Names from elsewhere reach a terminal as plain text, and a program as they are."""

from __future__ import annotations

import json
import unicodedata

import onnx
import pytest
from graphs import STREAM, save

from growc.errors.diagnostic import Diagnostic, GrowError, render
from growc.errors.printable import UNPRINTABLE, printable
from growc.errors.source import SourceText, Span

EVIL = "\x1b[2J\x1b]0;title\x07\u202egnp\u200b\x9b\x7f\r\nCertificate: exact.\u2028\U000e0001"


def unsafe(text: str) -> set[str]:
    return {c for c in text if c != "\n" and unicodedata.category(c) in UNPRINTABLE}


@pytest.fixture
def evil(tmp_path) -> str:
    """A model whose names all hold such characters."""
    path = save(tmp_path / "evil.onnx", STREAM)
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = f"node{EVIL}{node.output[0]}"
        for names in (node.input, node.output):
            names[:] = [name and EVIL + name for name in names]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = EVIL + value.name
    onnx.save(model, path)
    return path.name


COMMANDS = {
    "plan": ["-e", "widen ffn to 24 with tail copy", "-e", "widen hidden to 12 with tail copy"],
    "apply": ["-e", "widen ffn to 24 with tail copy"],
    "explain": ["ffn"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_names_of_a_model_are_shown_as_plain_text(growc, evil, command, form):
    if command == "explain":
        if form:
            pytest.skip("it has no JSON")
        ran = growc("explain", evil, *COMMANDS[command])
    else:
        ran = growc(command, *COMMANDS[command], evil, *form)
    assert not unsafe(ran.out + ran.err)
    assert "\nCertificate: exact.\\u" not in ran.out + ran.err
    assert "\\u001b[2J" in ran.out + ran.err
    if form:
        assert any(EVIL in text for text in texts(ran.json))


def texts(data: object) -> list[str]:
    if isinstance(data, dict):
        return [t for key, value in data.items() for t in (key, *texts(value))]
    if isinstance(data, list):
        return [t for value in data for t in texts(value)]
    return [data] if isinstance(data, str) else []


def test_an_operator_that_is_not_known_is_shown_as_plain_text(growc, evil):
    model = onnx.load(evil)
    model.graph.node[1].op_type = f"Strange{EVIL}"
    onnx.save(model, evil)
    ran = growc("inspect", evil)
    assert not unsafe(ran.out)
    assert "Strange\\u001b" in ran.out
    assert any(EVIL in text for text in texts(growc("inspect", evil, "--json").json))


def test_words_of_a_recipe_are_shown_as_plain_text(growc, tmp_path):
    (tmp_path / "r.grow").write_text(f'widen axis 0 of "{EVIL.split(chr(13))[0]}" to 4 with zero fill\n')
    for form in ([], ["--json"]):
        for command in (
            ["plan", "r.grow", "stream.onnx"],
            ["check", "r.grow"],
            ["inspect", EVIL.split("\r")[0]],
        ):
            ran = growc(*command, *form)
            assert not unsafe(ran.out + ran.err)


def test_every_part_of_a_diagnostic_is_shown_as_plain_text():
    source = SourceText(f"{EVIL}.grow", f"{EVIL}\nwords")
    span = Span(source, 0, 4)
    found = Diagnostic("G310", EVIL, span, EVIL, (EVIL,), EVIL, ((Span(source, 1, 2), EVIL),))
    assert not unsafe(render(found))
    assert not unsafe(str(GrowError(found)))
    assert render(found).count("\nCertificate") == 0


def test_json_stays_the_same_json():
    data = {EVIL: [EVIL, "\ud800", "plain"]}
    shown = printable(json.dumps(data, ensure_ascii=False))
    assert json.loads(shown) == data
    assert not unsafe(shown)
