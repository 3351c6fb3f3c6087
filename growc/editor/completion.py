"""Completion at a place in a recipe: the words that the grammar accepts there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lsprotocol.types import CompletionItemKind

from growc.editor import meanings
from growc.editor.reading import Reading
from growc.errors.source import RECIPE_SUFFIX, SourceText
from growc.grammar.messages import FORMS, SyntaxKind, folded
from growc.grammar.parser import expected_behind, keywords
from growc.grammar.reader import line_before
from growc.recipe.syntax_tree import ROLES
from growc.recipe.words import FILE, HOLES

WORD = re.compile(r"\w*\Z")
PLACEHOLDER = re.compile(r'"?[A-Z]+"?')
"""A placeholder in a spelling, for a part that the user writes."""

GLOBS = ("OF", "IN")
"""Words in front of strings that are no paths."""

MANY = 500
"""Largest number of file names offered from one folder."""


@dataclass(frozen=True)
class Completion:
    """One completion: its words, its kind, and its meaning."""

    text: str
    kind: CompletionItemKind = CompletionItemKind.Keyword
    detail: str = ""
    meaning: str = ""

    @property
    def snippet(self) -> str:
        """The words, with a tab stop at each part that is still to be written."""
        parts, stops = [], 0
        for word in self.text.split(" "):
            if PLACEHOLDER.fullmatch(word):
                stops += 1
                inner = word.strip('"')
                parts.append(word.replace(inner, f"${{{stops}:{inner}}}"))
            else:
                parts.append(word.replace("$", r"\$").replace("}", r"\}"))
        return " ".join(parts)


def started(source: SourceText, offset: int) -> int:
    """The start of the word at an offset, or of the last part of a path in a string."""
    line = line_before(source, offset)
    if line and line[-1].type == "OPEN_STRING":
        begin = (line[-1].start_pos or 0) + 1
        return begin + source.text[begin:offset].rfind("/") + 1
    word = WORD.search(source.text, 0, offset)
    return word.start() if word else offset


def choices(reading: Reading, offset: int) -> list[Completion]:
    """The completions at an offset where a word or path begins (see `started`)."""
    line = line_before(reading.source, offset)
    if line is None:
        return []
    if line and line[-1].type == "OPEN_STRING":
        if "STRING" not in expected_behind(line[:-1]) or line[-2].type in GLOBS:
            return []
        path_start = (line[-1].start_pos or 0) + 1
        ending = RECIPE_SUFFIX if line[0].type == "INCLUDE" else ""
        return list(_files(reading.source.folder, reading.source.text[path_start:offset], ending))
    expected = expected_behind(line)
    kinds, rest = folded(expected)
    verb = str(line[0]) if line else ""
    completions = [choice for kind in kinds for choice in _of_kind(kind)]
    if "ROLE" in expected:
        roles = [role for role in ROLES if role != "layers" or "LAYERS" in expected]
        completions += [
            Completion(r, CompletionItemKind.Variable, "axis", meanings.of_axis(r)) for r in roles
        ]
    if {"NAME", "INT"} <= expected:  # an expression
        values = reading.resolved.parameters
        completions += [
            Completion(name, CompletionItemKind.Constant, "let", meanings.of_let(name, values))
            for name in reading.lets(line[0].start_pos or 0)
        ]
        completions += [Completion(f"{keywords()[name]}(A, B)") for name in ("MIN", "MAX")]
    words = [keywords().get(name, "") for name in rest]
    completions += [Completion(word, detail=verb) for word in words if word.isalpha()]
    return list({choice.text: choice for choice in completions}.values())


def _of_kind(kind: SyntaxKind) -> Iterator[Completion]:
    for text in kind.choices:
        if text in FORMS:
            yield Completion(text, CompletionItemKind.Keyword, FORMS[text], meanings.of_verb(text))
        elif kind.name in meanings.TABLES:
            name = " ".join(word for word in text.split() if word not in HOLES)
            meaning = meanings.of_word(kind.name, name)
            yield Completion(text, CompletionItemKind.EnumMember, kind.name, meaning)
        elif text[0].islower() and text not in ROLES:
            yield Completion(text, CompletionItemKind.Keyword, kind.name)


def _files(folder: Path, begun: str, ending: str) -> Iterator[Completion]:
    """The folders, and the files with an ending, to which a partial path may lead."""
    try:
        entries = sorted(Path(folder, begun.rpartition("/")[0]).iterdir())[:MANY]
    except (OSError, ValueError):
        return
    for entry in entries:
        if entry.name.startswith(".") or FILE[0] in entry.name or not entry.name.isprintable():
            continue
        if entry.is_dir():
            yield Completion(f"{entry.name}/", CompletionItemKind.Folder)
        elif entry.name.endswith(ending):
            yield Completion(entry.name, CompletionItemKind.File)
