"""The colours of words for editors that read TextMate grammars, derived from the language's own words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from growc.errors.json_data import Json
from growc.grammar.messages import FORMS
from growc.grammar.parser import grammar, keywords
from growc.recipe.syntax_tree import ROLES


def textmate() -> str:
    """The text of `grow.tmLanguage.json`."""
    names = {name for name in keywords().values() if name.isidentifier()}
    verbs = [*FORMS]
    functions = [keywords()[name] for name in ("MIN", "MAX")]
    words = sorted(names - {*verbs, *functions, *ROLES})
    patterns: list[Json] = [
        _match("comment.line.number-sign.grow", r"#[^\r\n]*"),
        _match("string.quoted.double.grow", _pattern("STRING")),
        _match("invalid.illegal.unclosed.grow", _pattern("OPEN_STRING")),
        {
            "match": rf"\b(let)[ \t\f]+({_pattern('NAME')})",
            "captures": {
                "1": {"name": "keyword.control.grow"},
                "2": {"name": "entity.name.variable.grow"},
            },
        },
        _match("keyword.control.grow", _one_of(verbs)),
        _match("support.type.axis.grow", _one_of(ROLES)),
        _match("support.function.grow", _one_of(functions)),
        _match("keyword.other.grow", _one_of(words)),
        _match("constant.numeric.grow", rf"(?:{_pattern('FLOAT')})|(?:{_pattern('INT')})"),
        _match("keyword.operator.grow", rf"{_pattern('RELATION')}|\.\.|[-+*/=]"),
        _match("variable.other.grow", _pattern("NAME")),
    ]
    data: dict[str, Json] = {
        "name": "grow",
        "scopeName": "source.grow",
        "fileTypes": ["grow"],
        "patterns": patterns,
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _match(name: str, pattern: str) -> dict[str, Json]:
    return {"name": name, "match": pattern}


def _one_of(words: Iterable[str]) -> str:
    """A pattern that matches whole words; longer words come first."""
    return rf"\b(?:{'|'.join(map(re.escape, sorted(words, key=lambda word: (-len(word), word))))})\b"


def _pattern(terminal: str) -> str:
    """The pattern of a terminal of the grammar."""
    return next(str(item.pattern.value) for item in grammar().terminals if item.name == terminal)
