"""`growc lsp` and an editor: what is wrong, what may stand somewhere, what it means, where it is defined."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client import Client
from edits import fresh, run
from graphs import STREAM, save

from growc import grammar
from growc.cli.main import main
from growc.editor import meanings
from growc.errors.source import SourceText
from growc.grammar.messages import FORMS
from growc.recipe.fills import FILLS
from growc.recipe.layer_orders import DEEPER, SHALLOWER
from growc.recipe.option_rules import GROWING, SHRINKING
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.syntax_tree import ROLES


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client() as made:
        yield made


def found(client: Client, path: Path, text: str) -> list[dict[str, Any]]:
    return client.diagnostics(client.open(path, text))


def ends(diagnostic: dict[str, Any]) -> list[int]:
    start, end = diagnostic["range"]["start"], diagnostic["range"]["end"]
    return [start["line"], start["character"], end["line"], end["character"]]


def labels(client: Client, path: Path, text: str, place: str = "|") -> list[str]:
    """The completions that are offered at a `|` of a text."""
    before, after = text.split(place)
    uri = client.open(path, before + after)
    line = before.count("\n")
    items = client.at("completion", uri, line, len(before.rpartition("\n")[2]))
    return [item["label"] for item in items]


def meaning(client: Client, uri: str, line: int, character: int) -> str:
    answer = client.at("hover", uri, line, character)
    return answer["contents"]["value"] if answer else ""


# Diagnostics ----------------------------------------------------------------------------------------------


def test_a_mistake_has_a_code_and_a_range_in_units_of_utf_16(client, tmp_path):
    text = '\r\n# 🌱🌱\r\nin "🌱" { widen ffn to 8 with tial copy }\r\n'
    (one,) = found(client, tmp_path / "r.grow", text)
    assert ends(one) == [2, 30, 2, 34]
    assert (one["code"], one["source"], one["severity"]) == ("G103", "growc", 1)
    assert one["message"] == "`tial` is no fill\nhelp: did you mean `tail`?"


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 32), ("utf-16", 30), ("utf-32", 29)])
def test_columns_are_counted_as_the_editor_asks(tmp_path, encoding, column):
    with Client({"general": {"positionEncodings": [encoding]}}) as client:
        assert client.server["capabilities"]["positionEncoding"] == encoding
        text = 'in "🌱" { widen ffn to 8 with tial copy }'
        (one,) = found(client, tmp_path / "r.grow", text)
        assert ends(one)[1] == column
        uri = (tmp_path / "r.grow").as_uri()
        assert meaning(client, uri, 0, column).startswith("`tail copy`")


def test_a_range_may_end_in_another_line(client, tmp_path):
    (one,) = found(client, tmp_path / "r.grow", "widen ffn to (3 -\r\n 8) with tail copy\r\n")
    assert ends(one) == [0, 14, 1, 2]


def test_a_related_place_goes_along(client, tmp_path):
    (one,) = found(client, tmp_path / "r.grow", "let a = 1\nlet a = 2\n")
    (related,) = one["relatedInformation"]
    assert related["message"] == "the first one"
    assert related["location"]["range"]["start"] == {"line": 0, "character": 4}


def test_edits_are_checked_and_closed_recipes_are_forgotten(client, tmp_path):
    uri = client.open(tmp_path / "r.grow", "widen fnn to 8 with tail copy\n")
    assert len(client.diagnostics(uri)) == 1
    client.change(uri, "widen ffn to 8 with tail copy\n")
    assert client.diagnostics(uri) == []
    client.change(uri, "widen")
    assert len(client.diagnostics(uri)) == 1
    client.tell("textDocument/didClose", {"textDocument": {"uri": uri}})
    assert client.at("hover", uri, 0, 0) is None
    assert client.published[uri]["diagnostics"] == []


def test_a_recipe_without_a_file_is_checked(client):
    document = {"uri": "untitled:Untitled-1", "languageId": "grow", "version": 1, "text": "untie haed"}
    client.versions[document["uri"]] = 1
    client.tell("textDocument/didOpen", {"textDocument": document})
    assert [one["code"] for one in client.diagnostics(document["uri"])] == ["G103"]


# Includes -------------------------------------------------------------------------------------------------


def test_a_mistake_in_an_included_recipe_stands_at_the_include(client, tmp_path):
    folder = tmp_path / "päth with spaces"
    folder.mkdir()
    (folder / "deep.grow").write_text("\nwiden fnn to 8 with tail copy\n")
    (folder / "part.grow").write_text('include "deep.grow"\n')
    (one,) = found(client, folder / "r.grow", 'untie head\ninclude "part.grow"\n')
    assert ends(one) == [1, 8, 1, 19]
    assert one["relatedInformation"][0]["location"]["uri"] == (folder / "deep.grow").as_uri()
    assert one["relatedInformation"][0]["location"]["range"]["start"] == {"line": 1, "character": 6}


def test_an_included_recipe_is_read_as_it_is_open(client, tmp_path):
    (tmp_path / "part.grow").write_text("let width = 8\n")
    uri = client.open(tmp_path / "r.grow", 'include "part.grow"\nwiden ffn to width with tail copy\n')
    assert client.diagnostics(uri) == []
    part = client.open(tmp_path / "part.grow", "let with_ = 8\n")
    client.published.clear()
    assert [one["code"] for one in client.diagnostics(uri)] == ["G201"]
    client.published.clear()
    client.change(part, "let width = 8\n")
    assert client.diagnostics(uri) == []


def test_saving_a_recipe_checks_its_includes_again(client, tmp_path):
    uri = client.open(tmp_path / "r.grow", 'include "part.grow"\n')
    assert [one["code"] for one in client.diagnostics(uri)] == ["G207"]
    (tmp_path / "part.grow").write_text("let width = 8\n")
    client.published.clear()
    client.tell("textDocument/didSave", {"textDocument": {"uri": client.open(tmp_path / "s.grow", "")}})
    assert client.diagnostics(uri) == []


def test_a_circle_of_includes_is_told(client, tmp_path):
    (tmp_path / "a.grow").write_text('include "r.grow"\n')
    (one,) = found(client, tmp_path / "r.grow", 'include "a.grow"\n')
    assert (one["code"], ends(one)) == ("G208", [0, 8, 0, 16])


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [("r.txt", b"\xff\xfe\x00", "G207"), ("nosuch.grow", None, "G207"), ("zero\0.grow", None, "G207")],
)
def test_an_include_that_is_no_text_is_told(client, tmp_path, name, data, code):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    problems = found(client, tmp_path / "r.grow", f'include "{name}"\n')
    assert problems[0]["code"] == code


def test_no_text_of_a_file_that_is_no_recipe_is_shown(client, tmp_path):
    (tmp_path / "shadow").write_text("# fine\nroot:secret\n")
    (one,) = found(client, tmp_path / "r.grow", 'include "shadow"\n')
    assert "secret" not in json.dumps(one)
    place = one["relatedInformation"][0]["location"]["range"]
    assert place["start"] == place["end"]


# Completion -----------------------------------------------------------------------------------------------


def spelled(*tables: dict[str, Any]) -> list[str]:
    return [word.spelling for table in tables for word in table.values()]


WIDTHS = [role for role in ROLES if role != "layers"]
AXIS = 'axis NUMBER of "PARAMETER"'


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("widen |", [AXIS, *ROLES, "to"]),
        ("reorder hid|", [AXIS, *ROLES]),
        ("widen ffn to 8 with |", spelled(FILLS)),
        ("widen ffn to 8 with neighbor c|", ["copy"]),
        ("widen ffn to (8 + \n 2) # ( \nwiden ffn to 8 with |", spelled(FILLS)),
        ("widen ffn to 8 with \\\n |", spelled(FILLS)),
        ("widen ffn to 8 with tail copy no|", spelled(GROWING)),
        ("subclone ffn to 8 by |", spelled(RANKINGS)),
        ("subclone ffn to 8 by magnitude |", spelled(SHRINKING)),
        ("stack layers to 8 by |", spelled(DEEPER)),
        ("subclone layers to 8 by |", spelled(SHALLOWER)),
        ("in |", ["encoder", "decoder", "layers RANGE"]),
        ("in encoder { reorder ffn by |}", spelled(RANKINGS)),
        ("measure |", ["importance"]),
        ("widen ffn to 8 |", ["with"]),
        ("let |", []),
        ("# widen |", []),
        ("widen ffn to 8 # with |", []),
        ('in "|', []),
        ('widen axis 0 of "|', []),
        ("widen widen |", []),
    ],
)
def test_completions_are_the_words_that_the_grammar_takes(client, tmp_path, text, offered):
    assert labels(client, tmp_path / "r.grow", text) == offered


def test_every_statement_is_offered_with_its_form(client, tmp_path):
    uri = client.open(tmp_path / "r.grow", "untie head\nw")
    items = client.at("completion", uri, 1, 1)
    assert [item["label"] for item in items] == list(FORMS)
    widen = next(item for item in items if item["label"] == "widen")
    assert widen["detail"] == "widen AXIS to SIZE with FILL [OPTION…]"
    assert ": the axis grows." in widen["documentation"]
    assert widen["textEdit"]["range"] == {
        "start": {"line": 1, "character": 0},
        "end": {"line": 1, "character": 1},
    }


def test_names_are_offered_where_they_are_known(client, tmp_path):
    (tmp_path / "part.grow").write_text("let far = 8\n")
    text = 'let a = 1\nin encoder { let b = 2 }\ninclude "part.grow"\nlet c = |\nlet d = 3\n'
    offered = labels(client, tmp_path / "r.grow", text)
    assert offered == [*ROLES, "a", "far", "min(A, B)", "max(A, B)"]


def test_files_are_offered_in_strings_that_are_paths(client, tmp_path):
    (tmp_path / "parts").mkdir()
    for name in ("parts/deep.grow", "parts/b.onnx", "part.grow", "a.onnx", ".hidden.grow"):
        (tmp_path / name).write_text("")
    assert labels(client, tmp_path / "r.grow", 'include "|') == ["part.grow", "parts/"]
    assert labels(client, tmp_path / "r.grow", 'include "parts/d|') == ["deep.grow"]
    assert labels(client, tmp_path / "r.grow", 'match "|') == ["a.onnx", "part.grow", "parts/"]
    assert labels(client, tmp_path / "r.grow", 'match "nosuch/|') == []


def test_only_an_editor_that_takes_stops_is_sent_them(client, tmp_path):
    text = "widen ffn to 8 with tail copy "
    uri = client.open(tmp_path / "r.grow", text)
    noise = next(i for i in client.at("completion", uri, 0, len(text)) if i["label"] == "noise S")
    assert (noise["textEdit"]["newText"], noise["insertTextFormat"]) == ("noise ${1:S}", 2)
    with Client({"general": {}}) as plain:
        uri = plain.open(tmp_path / "r.grow", text)
        noise = next(i for i in plain.at("completion", uri, 0, len(text)) if i["label"] == "noise S")
        assert noise["textEdit"]["newText"] == "noise S"
        assert "insertTextFormat" not in noise


# Hover ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wi|den ffn to 8 with tail copy", "the axis grows"),
        ("widen f|fn to 8 with tail copy", "`ffn`: the inner units of feed-forward networks"),
        ("widen ffn to 8 with tail c|opy", "d − 1 − ((D − 1 − j) mod d)"),
        ("widen ffn to 8 with tail copy n|oise 0.1 balanced", "`noise S balanced`: "),
        ("subclone ffn to 8 by m|agnitude", "L2 over all making and reading weights"),
        ("subclone layers to 8 by l|ast", "`last` (shallower)"),
        ("stack layers to 8 by l|ast", "`last` (deeper)"),
        ('match "a" with zero fill layers by m|iddle', "(deeper)"),
        ("let a = 3 * 4\nexpect ffn == a|", "`let a = 12`"),
        ("in en|coder { untie head }", "`in encoder` or `in decoder`"),
        ("expect ex|act", "the compiler proved"),
        ("widen f|fn to", "`ffn`"),
        ("wid|en ffn to", "the axis grows"),
        ("# wid|en", ""),
        ("widen ffn to 8|23 with tail copy", "the axis grows"),
        ("|", ""),
    ],
)
def test_a_word_is_told(client, tmp_path, text, said):
    before, after = text.split("|")
    uri = client.open(tmp_path / "r.grow", before + after)
    answer = meaning(client, uri, before.count("\n"), len(before.rpartition("\n")[2]))
    assert said in answer
    assert bool(answer) == bool(said)


def test_every_word_of_the_language_has_a_meaning():
    for verb in FORMS:
        assert meanings.VERBS[verb]
        assert ": " in meanings.of_verb(verb) or verb == "in"
    for kind, tables in meanings.TABLES.items():
        for name in (name for table in tables for name in table):
            assert len(meanings.of_word(kind, name)) > len(name) + 8


def awaited(client: Client, uri: str, line: int, character: int) -> str:
    """The hover text of an axis once its model is read."""
    deadline = time.monotonic() + 60
    while "growc is reading" in (said := meaning(client, uri, line, character)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return said


def test_an_axis_has_its_size_in_the_model_that_the_recipe_names(client, tmp_path):
    save(tmp_path / "stream.onnx", STREAM)
    text = "# any first line\n#  model: stream.onnx \nwiden ffn to 2 * experts with tail copy\n"
    uri = client.open(tmp_path / "r.grow", text)
    assert "growc is reading `stream.onnx`" in meaning(client, uri, 2, 7)
    assert awaited(client, uri, 2, 7).endswith("12 in `stream.onnx`")
    assert awaited(client, uri, 2, 18).endswith("`stream.onnx` has no `experts`")
    assert "ffn 12" in awaited(client, uri, 1, 5)
    save(tmp_path / "stream.onnx", STREAM.replace("12", "20"))
    assert "growc is reading" in meaning(client, uri, 2, 7)
    assert awaited(client, uri, 2, 7).endswith("20 in `stream.onnx`")


def test_a_model_that_is_not_there_or_refused_is_told(client, tmp_path):
    uri = client.open(tmp_path / "r.grow", "# model: nosuch.onnx\nreorder ffn by magnitude\n")
    assert meaning(client, uri, 1, 9).endswith("there is no `nosuch.onnx`")
    (tmp_path / "bad.onnx").write_bytes(b"no model at all")
    client.change(uri, "# model: bad.onnx\nreorder ffn by magnitude\n")
    said = awaited(client, uri, 1, 9)
    assert "growc refuses `bad.onnx`: " in said
    assert said.endswith("[G310]")


# Formatting and definitions -------------------------------------------------------------------------------


def formatted(client: Client, uri: str) -> Any:
    options = {"tabSize": 2, "insertSpaces": False}
    return client.ask("textDocument/formatting", {"textDocument": {"uri": uri}, "options": options})


def test_formatting_is_that_of_growc_fmt(client, tmp_path):
    text = "# 🌱\r\nwiden   ffn to 2*ffn with tail copy # 🌱"
    uri = client.open(tmp_path / "r.grow", text)
    (edit,) = formatted(client, uri)
    assert edit["newText"] == grammar.format(grammar.parse(SourceText("r", text)))
    assert edit["range"]["end"] == {"line": 1, "character": 40}
    client.change(uri, edit["newText"])
    assert formatted(client, uri) == []


def test_a_recipe_with_mistakes_is_not_formatted(client, tmp_path):
    assert formatted(client, client.open(tmp_path / "r.grow", "widen   fnn")) is None


def test_definitions_of_names_and_includes_are_found(client, tmp_path):
    (tmp_path / "part.grow").write_text("\nlet far = 8\n")
    uri = client.open(tmp_path / "r.grow", 'include "part.grow"\nlet a = far\nwiden ffn to a with\n')
    part = (tmp_path / "part.grow").as_uri()

    def places(line: int, character: int) -> tuple[str, int, int] | None:
        place = client.at("definition", uri, line, character)
        return place and (place["uri"], *place["range"]["start"].values())

    assert places(0, 12) == (part, 0, 0)
    assert places(1, 9) == (part, 1, 4)
    assert places(2, 13) == (uri, 1, 4)
    assert places(1, 4) == (uri, 1, 4)
    assert places(2, 7) is None


# Failures -----------------------------------------------------------------------------------------------


def test_malformed_messages_do_not_end_the_server(client, tmp_path):
    client.send(b'{"jsonrpc": "2.0", "method": "\xff\xfe"}')
    client.send(b"no json")
    client.send(b'{"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": 3}}')
    client.send(b'{"jsonrpc": "2.0", "method": "nosuch/method", "params": {}}')
    assert len(found(client, tmp_path / "r.grow", "untie haed")) == 1
    assert client.at("hover", "file:///nosuch.grow", 0, 0) is None
    assert client.at("completion", "file:///nosuch.grow", 0, 0) == []
    assert formatted(client, "file:///nosuch.grow") is None


def test_huge_lines_and_texts_are_survived(client, tmp_path):
    text = "widen ffn to " + "1 + " * 20_000 + "1 with tail copy"
    uri = client.open(tmp_path / "r.grow", text)
    assert [one["code"] for one in client.diagnostics(uri)] == ["G107"]
    assert "the axis grows" in meaning(client, uri, 0, 2)
    client.change(uri, "🌱" * 1_000_001)
    assert [one["code"] for one in client.diagnostics(uri)] == ["G107"]
    client.change(uri, "widen\n" * 3_000)
    assert 0 < len(client.diagnostics(uri)) <= 1_001


@pytest.mark.parametrize("ended", ["closed", "exit", "terminated"])
def test_a_server_ends_with_its_editor(tmp_path, ended):
    with Client() as client:
        client.diagnostics(client.open(tmp_path / "r.grow", "untie haed"))
        if ended == "closed":
            client.process.stdin.close()
        elif ended == "exit":
            client.ask("shutdown", None)
            client.tell("exit", None)
        else:
            client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(30) == (0 if ended != "terminated" else 130)


def test_a_client_that_breaks_off_amid_a_message_ends_the_server():
    with Client() as client:
        client.process.stdin.write(b"Content-Length: 100\r\n\r\n{")
        client.process.stdin.close()
        assert client.process.wait(30) == 0


def test_nothing_but_messages_is_printed_between_messages(tmp_path):
    code = "import growc.editor.server as s, growc.cli.main as m\nold = s.serve\n"
    code += "def serve(i, o):\n    print('stray', flush=True)\n    old(i, o)\n"
    code += "s.serve = serve\nm.program()"
    command = (sys.executable, "-c", code, "lsp")
    with Client(command=command) as client:
        assert len(found(client, tmp_path / "r.grow", "untie haed")) == 1


def test_without_pygls_it_is_told_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("growc.cli.commands.lsp.find_spec", lambda name: None)
    assert main(["lsp"]) == 2
    assert "install `growc[editor]`" in capsys.readouterr().err


def test_random_edits_end_in_the_diagnostics_of_a_fresh_look(tmp_path):
    assert run(300, 0, tmp_path) >= 6


def test_a_fresh_look_sees_something(tmp_path):
    assert [one["code"] for one in fresh(tmp_path / "r.grow", "untie haed")] == ["G103"]
