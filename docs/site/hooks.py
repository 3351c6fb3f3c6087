"""Hooks that show the rest of the repository in the documentation, as pages of the site.

Files that a page links to, or names in backticks, become pages under `repository/`, so that every rule leads
to its code. A recipe's page has its text and its plan. mkdocs calls the functions that begin with `on`.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from growc.errors.codes import CODES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MADE = {
    "changes.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "errors.md": "growc/errors/pages.md",
    "papers.md": "examples/README.md",
}
"""Pages of the site that stand elsewhere in the repository."""

FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)[ \t]*$", re.S | re.M)
LINK = re.compile(r"(?<!!)\[(?P<text>[^]]*)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
NAMED = re.compile(
    r"(?<![\[`\w])`(?P<path>(?:growc|passes|grammar|tests|examples|benchmarks)/[\w./-]+)`(?!\])"
)
FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.S)
"""A formula of a page, as pymdownx.arithmatex hands it on."""

ERRORS = "errors.md"
ERROR = re.compile(r"^## (?P<code>G\d{3}): .*$", re.M)
"""The title of an error on their page. The code alone is its anchor, which stays when the title changes."""
MENTIONED = re.compile(r"^#.*$|\[[^]]*\]\([^)]*\)|(?P<tick>`+)(?:.+?)(?P=tick)|\bG\d{3}\b", re.M)
"""A code, or a text that is no place for a link: a title, a link, what stands in backticks."""
TYPES = {
    ".py": "python",
    ".md": "markdown",
    ".lark": "text",
    ".toml": "toml",
    ".json": "json",
    ".yml": "yaml",
}
LARGEST = 200_000
"""Bytes of a file that is shown."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site, with those of the repository that its pages lead to."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    waiting += [ROOT / source for source in MADE.values()]
    seen = set(waiting)
    while waiting:
        source = waiting.pop()
        address = address_of(source)
        if address is not None and files.get_file_from_path(address) is None:
            files.append(File.generated(config, address, content=text_of(source)))
        if source.suffix == ".md":
            found = {path for path in linked(source, source.read_text(encoding="utf-8")) if shown(path)}
            waiting += sorted(found - seen)
            seen |= found
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page whose links into the repository lead to pages of the site."""
    source = source_of(page.file.src_uri)
    if source is None or source.suffix != ".md":
        return markdown

    def address(path: Path) -> str | None:
        found = address_of(path)
        known = found is not None and files.get_file_from_path(found) is not None
        return os.path.relpath(str(found), Path(page.file.src_uri).parent) if known else None

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        at = address(resolved(source, target))
        return match["text"] if at is None else f"[{match['text']}]({at}{match['anchor'] or ''})"

    def named(match: re.Match[str]) -> str:
        at = address(ROOT / match["path"])
        return match[0] if at is None else f"[`{match['path']}`]({at})"

    def error(match: re.Match[str]) -> str:
        code = match[0].strip("`")
        at = os.path.relpath(ERRORS, Path(page.file.src_uri).parent)
        return f"[{match[0]}]({at}#{code.lower()})" if code in CODES else match[0]

    if page.file.src_uri == ERRORS:
        markdown = ERROR.sub(lambda match: f"{match[0]} {{ #{match['code'].lower()} }}", markdown)
    return "".join(
        part if fenced else MENTIONED.sub(error, NAMED.sub(named, LINK.sub(link, part)))
        for fenced, part in parts(markdown)
    )


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page whose formulas are MathML: browsers show it as it is, so that nothing is fetched or run."""

    def formula(match: re.Match[str]) -> str:
        shown = "block" if match["tag"] == "div" else "inline"
        made = convert(html.unescape(match["latex"]), display=shown)
        return made.replace(' mathvariant="bold"', ' style="font-weight: bold"')  # browsers heed the style

    return FORMULA.sub(formula, content)


def parts(markdown: str) -> Iterator[tuple[bool, str]]:
    """A page in pieces: whether each is a block of code, and its text."""
    end = 0
    for match in FENCE.finditer(markdown):
        yield False, markdown[end : match.start()]
        yield True, match[0]
        end = match.end()
    yield False, markdown[end:]


def linked(source: Path, markdown: str) -> Iterator[Path]:
    """The files of the repository that a page links to or names."""
    for fenced, part in parts(markdown):
        if not fenced:
            targets = (match["target"] for match in LINK.finditer(part))
            yield from (resolved(source, target) for target in targets if target and "://" not in target)
            yield from (ROOT / match["path"] for match in NAMED.finditer(part))


def resolved(source: Path, target: str) -> Path:
    """The file that a relative link means; of a folder, its page."""
    path = Path(os.path.normpath(source.parent / target))
    return path / "README.md" if path.is_dir() else path


def shown(path: Path) -> bool:
    """Whether a file is a text of the repository that a page can show."""
    inside = path.is_relative_to(ROOT) and path.is_file() and path.stat().st_size <= LARGEST
    return inside and (path.suffix in TYPES or path.suffix in (".txt", ".grow") or path.name == "Makefile")


def address_of(path: Path) -> str | None:
    """Where the site has a file of the repository."""
    if path.is_relative_to(DOCS):
        page = path.with_suffix(".md") if path.suffix == ".ipynb" else path
        return page.relative_to(DOCS).as_posix() if page.suffix == ".md" else None
    if not path.is_relative_to(ROOT):
        return None
    name = path.relative_to(ROOT).as_posix()
    made = next((page for page, source in MADE.items() if source == name), None)
    return made or f"repository/{name}" + ("" if path.suffix == ".md" else ".md")


def source_of(address: str) -> Path | None:
    """The file that a page of the site shows."""
    if address in MADE:
        return ROOT / MADE[address]
    if not address.startswith("repository/"):
        return DOCS / address
    name = address.removeprefix("repository/")
    return next((p for p in (ROOT / name, ROOT / name.removesuffix(".md")) if p.is_file()), None)


def text_of(path: Path) -> str:
    """The page of a file: of a recipe's README with the recipe and its plan, of code as a block."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".md":
        return f"# `{path.relative_to(ROOT).as_posix()}`\n\n{block(text, TYPES.get(path.suffix, 'text'))}"
    for title, name in (("The recipe", "recipe.grow"), ("The plan for a tiny model", "plan.txt")):
        if (beside := path.parent / name).is_file() and path.name == "README.md":
            text += f"\n## {title}\n\n{block(beside.read_text(encoding='utf-8'), 'text')}"
    return text


def block(text: str, language: str) -> str:
    """A block of code, whose fence is longer than any in it."""
    longest = max(map(len, re.findall(r"~+", text)), default=0)
    fence = "~" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"
