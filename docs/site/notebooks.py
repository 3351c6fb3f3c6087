"""Notebooks as pages of the site: their text, their code, and what they showed when they last ran.

tests/site/test_notebooks.py runs them. mkdocs calls the functions that begin with `on`, each behind its
namesake in hooks.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hooks import DOCS, block
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

FOLDER = "notebooks"
AS_CODE = "0.68rem"
"""The size of characters in results, as in blocks of code."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site, with a page for each notebook."""
    for path in sorted((DOCS / FOLDER).glob("*.ipynb")):
        files.append(File.generated(config, f"{FOLDER}/{path.stem}.md", content=text_of(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A notebook's page with a link to the notebook, below its title."""
    path = Path(page.file.src_uri)
    if path.parent.as_posix() != FOLDER:
        return markdown
    title, _, text = markdown.partition("\n")
    return f"{title}\n\n[This page as a notebook]({path.stem}.ipynb)\n{text}"


def text_of(path: Path) -> str:
    """A notebook as Markdown."""
    return "\n\n".join(parts(json.loads(path.read_text(encoding="utf-8")))) + "\n"


def parts(book: dict[str, Any]) -> Iterator[str]:
    """The cells, each with its outputs: as markup where they have some, or as text."""
    for cell in book["cells"]:
        source = "".join(cell["source"])
        yield source if cell["cell_type"] == "markdown" else block(source, "python")
        for output in cell.get("outputs", ()):
            shown = output.get("data", {"text/plain": output.get("text", "")})
            if "text/html" in shown:
                yield f'<div style="font-size:{AS_CODE}">{"".join(shown["text/html"])}</div>'
            else:
                yield block("".join(shown["text/plain"]), "text")
