"""Random edits of recipes in an editor: the server lives, and says in the end what a fresh look says.

PYTHONPATH=tests/editor python tests/editor/edits.py [--edits 10000] [--seed 0]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from client import Client
from lsprotocol import converters

from growc.editor.diagnostics import diagnostics
from growc.editor.positions import Positions
from growc.editor.reading import Reading
from growc.editor.server import address
from growc.errors.source import SourceText
from growc.grammar.parser import keywords
from growc.recipe.syntax_tree import ROLES

ROOT = Path(__file__).parents[2]
LONGEST = 8_000
"""Characters of a text; edits of a longer one take something away."""
CHECKED = 50
"""Edits between two looks at the diagnostics."""
QUESTIONS = ("completion", "hover", "definition", "formatting")

SNIPPETS = [
    *keywords().values(),
    *ROLES,
    *("\n", "\r\n", "\r", "\t", " ", "  ", "\f", "\v", "\u2028", "\0", "\ufeff", "\\\n"),
    *("🌱", "é", "e\u0301", "\ud800", "\udc00", "“", "–", "\u202e", "#", '"', "'", "(", ")", "{", "}"),
    *("1", "0.5", "1e-5", "355M", "1.0005K", "9" * 40, "x", "width", "a" * 300),
    'include "self.grow"\n',
    'include "other.grow"\n',
    'include "nosuch.grow"\n',
    "let width = 2 * hidden\n",
    "widen ffn to 4 * width with tail copy noise 0.01\n",
    "in layers 0..2 {\n",
    "# model: nosuch.onnx\n",
]


def edited(text: str, choose: random.Random) -> str:
    """A text with one edit: something put in, taken out, copied or exchanged."""
    start = choose.randint(0, len(text))
    end = min(len(text), start + int(choose.expovariate(0.1)))
    if len(text) > LONGEST:
        return text[:start] + text[start + len(text) // 4 :]
    match choose.randrange(4):
        case 0:
            return text[:start] + text[end:]
        case 1:
            return text[:end] + text[start:end] + text[end:]
        case _:
            return text[:start] + choose.choice(SNIPPETS) + text[end if choose.random() < 0.3 else start :]


def fresh(path: Path, text: str) -> list[dict[str, Any]]:
    """The diagnostics of a text that was never edited."""
    errors = diagnostics(Reading(SourceText(str(path), text)), "utf-16", address)
    return converters.get_converter().unstructure(errors)


def run(edits: int, seed: int, folder: Path) -> int:
    """Make so many edits; gives how often diagnostics were compared. Raises AssertionError."""
    choose, compared = random.Random(seed), 0
    texts = [path.read_bytes().decode() for path in sorted(ROOT.glob("examples/*/recipe.grow"))]
    other, recipe = folder / "other.grow", folder / "self.grow"
    other.write_text('let width = 8\ninclude "self.grow"\nwiden fnn to 8 with zero fill\n', encoding="utf-8")
    recipe.write_text("let depth = 2\n", encoding="utf-8")
    with Client() as client:
        text = choose.choice(texts)
        uri = client.open(recipe, text)
        for number in range(1, edits + 1):
            text = choose.choice(texts) if not choose.randrange(400) else edited(text, choose)
            client.change(uri, text)
            if not choose.randrange(5):
                ask(client, uri, text, choose)
            if number % CHECKED == 0 or number == edits:
                assert client.diagnostics(uri) == fresh(recipe, text), (number, seed)
                compared += 1
        assert client.messages == []
        assert client.ask("shutdown", None) is None
        client.tell("exit", None)
        assert client.process.wait(30) == 0
    return compared


def ask(client: Client, uri: str, text: str, choose: random.Random) -> None:
    """One question about a place, which may lie beyond the text; answers lie in the text."""
    places = Positions(text)
    question = choose.choice(QUESTIONS)
    if question == "formatting":
        options = {"tabSize": 4, "insertSpaces": True}
        client.ask("textDocument/formatting", {"textDocument": {"uri": uri}, "options": options})
        return
    place = places.position(choose.randint(0, len(text)))
    if not choose.randrange(10):
        place.line, place.character = choose.randrange(10**6), choose.randrange(10**6)
    answer = client.at(question, uri, place.line, place.character)
    end = places.position(len(text))
    for item in answer if question == "completion" else []:
        last = item["textEdit"]["range"]["end"]
        assert (last["line"], last["character"]) <= (end.line, end.character)


def main() -> None:
    parser = argparse.ArgumentParser(description="Random edits of recipes in an editor.")
    parser.add_argument("--edits", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        compared = run(options.edits, options.seed, Path(folder).resolve())
    seconds = time.perf_counter() - begun
    print(f"{options.edits:,} edits in {seconds:.0f} s, no crash; {compared} times as a fresh look says")


if __name__ == "__main__":
    main()
