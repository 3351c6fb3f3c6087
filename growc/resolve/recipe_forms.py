"""A recipe in each form in which a caller may give one: a text, a file, sources, or one built in Python."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError, wrong
from growc.errors.regular_files import irregular
from growc.errors.source import SourceText
from growc.resolve.bound import Resolved, ResolvedTexts
from growc.resolve.builder import Recipe
from growc.resolve.resolve import as_text, load, read_some

Recipes = str | Path | Recipe | Sequence[SourceText] | ResolvedTexts
"""A recipe: its text, a `.grow` file, a recipe built in Python, sources, or the result of reading these."""


def recipe(text: Recipes, params: Mapping[str, str] | None = None) -> Resolved:
    """A resolved recipe. Raises GrowError (G1xx, G2xx) with every mistake in it."""
    return reading_of(text, params).recipe


def reading_of(text: Recipes, params: Mapping[str, str] | None = None) -> ResolvedTexts:
    """A recipe with the texts in which it was given. Raises GrowError (G1xx, G2xx) with all its mistakes."""
    if isinstance(text, ResolvedTexts):
        return text
    sources = sources_of(text)
    return ResolvedTexts(tuple(sources), load(sources, parameters_of(params)))


def parameters_of(params: Mapping[str, str] | None) -> Mapping[str, str]:
    """The values for `let`s. Raises GrowError (G200) if `params` is no mapping."""
    if params is not None and not isinstance(params, Mapping):
        raise wrong("`params` is no mapping", 'it sets `let`s by name, as in `{"width": "1024"}`')
    return {name: str(value) for name, value in (params or {}).items()}


def sources_of(text: Recipes) -> list[SourceText]:
    """The sources in which a recipe was given. Raises GrowError (G200) if it is no recipe."""
    if isinstance(text, ResolvedTexts):
        return list(text.sources)
    if isinstance(text, Path):
        return [read_source(text)]
    if isinstance(text, str) and re.fullmatch(r"\S+[./]\S+", text):
        remedy = f"a file is given as `pathlib.Path({text!r})`; the recipe comes first, and then the model"
        raise wrong(f"`{text[:60]}` is no recipe, but looks like a path", remedy)
    if isinstance(text, str | Recipe):
        return [SourceText("<recipe>", str(text))]
    sources = (
        [source for source in text if isinstance(source, SourceText)] if isinstance(text, Sequence) else []
    )
    if not isinstance(text, Sequence) or len(sources) < len(text):
        remedy = "it is a text, the path of a `.grow` file, or a growc.Recipe"
        raise wrong(f"`{str(text)[:60]}` is no recipe", remedy)
    return sources


def read_source(path: Path) -> SourceText:
    """The source in a recipe file. Raises GrowError (G213) if it cannot be read."""
    if kind := irregular(path):
        raise GrowError(Diagnostic("G213", f"the recipe `{path}` is {kind}, and no file"))
    try:
        return decoded(str(path), read_some(path))
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise GrowError(Diagnostic("G213", f"the recipe `{path}` cannot be read: {problem}")) from error


def decoded(name: str, data: bytes) -> SourceText:
    """The source in the bytes of a recipe. Raises GrowError (G213) if they are no text."""
    try:
        if b"\0" in data:
            raise GrowError(Diagnostic("G213", f"the recipe `{name}` is no text, but a file of bytes"))
        return SourceText(name, as_text(data))
    except UnicodeDecodeError as error:
        raise GrowError(Diagnostic("G213", f"the recipe `{name}` is not text in UTF-8")) from error
