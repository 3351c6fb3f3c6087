"""The documentation is true: its examples run, its diffs fit the tree, and what it names is there."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from graphs import ROOT, STREAM, save

from growc.system.limits import LIMITS

ARCHITECTURE, CONTRIBUTING, THEORY = "docs/architecture.md", "CONTRIBUTING.md", "docs/theory.md"
LANGUAGE, DETAILS = "docs/language.md", "docs/language-details.md"
MAP, TRAINING = "docs/map.md", "docs/training.md"
RELIABILITY = "docs/reliability.md"
FOLDERS = "growc|grammar|passes|tests|docs|examples|benchmarks"
GUIDES = [f"docs/how-to/add-{part}.md" for part in ("operator", "fill", "norm", "pass")]
"""Pages with one diff each, and the commands that judge it."""
CODE = r"`([\w.]+)`\s+in\s+`([\w/]+\.py)`"
"""A function, a class or a name, and the file that it stands in."""
PROSE = ("What is not exact", "Papers")
"""Sections of the theory without rules."""
HUNK = r"^@@ -\d+,(\d+) \+\d+,(\d+) @@\n(.*?)(?=^@@|\Z)"
SUFFIXES = "py|lark|md|toml|txt|grow|onnx"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text_of(page), re.S | re.M)


def created(page: str) -> set[str]:
    """Files that the page's diffs make."""
    heads = r"^--- /dev/null\n\+\+\+ b/(\S+)"
    return {name for diff in blocks(page, "diff") for name in re.findall(heads, diff, re.M)}


@pytest.mark.parametrize("page", [THEORY, ARCHITECTURE, LANGUAGE, TRAINING])
def test_the_examples_of_a_page_run(page, tmp_path):
    code = re.sub(r"^```\w*$", "", text_of(page), flags=re.M)
    found = doctest.DocTestParser().get_doctest(
        code, {"model": save(tmp_path / "stream.onnx", STREAM)}, page, page, 0
    )
    assert len(found.examples) > 3
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(found, out=report.append)
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING, THEORY, DETAILS, *GUIDES])
def test_the_paths_of_a_page_exist(page):
    text = text_of(page)
    named = set(re.findall(rf"(?<![\w./-])((?:{FOLDERS})/[\w./-]*\w)", text.replace("\\_", "_")))
    named |= set(re.findall(rf"`([\w.-]+\.(?:{SUFFIXES}))`", text))
    assert named
    assert [name for name in sorted(named - created(page)) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING, THEORY, TRAINING])
def test_the_modules_of_a_page_can_be_imported(page):
    made = {"growc." + name.removesuffix(".py").replace("/", ".") for name in created(page)}
    for name in set(re.findall(r"(?<![\w./])growc(?:\.[A-Za-z_]\w*)+", text_of(page))) - made:
        assert resolves(name), name


def test_every_rule_of_the_theory_names_its_code():
    rows = re.findall(r"^\| (.+) \|$", text_of(THEORY).partition("| rule |")[2].partition("\n\n")[0], re.M)
    assert len(rows) > 15
    sections = [
        part for part in re.split(r"^## ", text_of(THEORY), flags=re.M)[1:] if not part.startswith(PROSE)
    ]
    assert [rule.splitlines()[0] for rule in [*rows[1:], *sections] if not re.search(CODE, rule)] == []


@pytest.mark.parametrize("page", [THEORY, ARCHITECTURE])
def test_names_that_a_page_gives_a_file_are_in_it(page):
    named = re.findall(CODE, text_of(page))
    assert named
    assert [(name, file) for name, file in named if name not in defined(ROOT / file)] == []


def defined(file: Path) -> set[str]:
    """The functions, classes, methods and names of a module."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)
            }
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        owner, _, last = name.rpartition(".")
        return hasattr(importlib.import_module(owner), last)
    return True


def module_map() -> Iterator[str]:
    """The page of the map: each folder with its docstring's first line, and each module of it likewise."""
    yield "# Every module\n\nMade of docstrings: `pytest tests/test_docs.py --update-golden` renews it.\n"
    for package in sorted(
        path for top in ("growc", "passes", "grammar") for path in (ROOT / top).rglob("__init__.py")
    ):
        folder = package.parent
        yield f"\n## {folder.relative_to(ROOT).as_posix()}\n\n{subject(package)}\n\n"
        for path in sorted(folder.glob("*.py")):
            if not path.name.startswith("__"):
                yield f"- `{path.stem}`: {subject(path)}\n"


def subject(path: Path) -> str:
    """The first paragraph of a docstring, in one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def pass_table() -> Iterator[str]:
    """The passes in order, by what each says of itself."""
    from growc.passes import PIPELINE

    yield "| pass | takes | gives | fills in | does | in |\n| --- | --- | --- | --- | --- | --- |\n"
    for one in PIPELINE:
        types = " | ".join(f"`{kind}`" for kind in one.function.__annotations__.values())
        filled = ", ".join(f"`{name}`" for name in one.ensures)
        file = one.function.__module__.removeprefix("growc.").replace(".", "/")
        yield f"| {one.name} | {types} | {filled} | {one.does} | `{file}.py` |\n"


def limit_table() -> Iterator[str]:
    """The limits in order, by what each counts."""
    yield "| limit | counts | default |\n| --- | --- | --- |\n"
    for name, limit in LIMITS.items():
        yield f"| `{name}` | {limit.counts} | {limit.default:,} |\n"


@pytest.mark.parametrize(
    ("page", "pattern", "made"),
    [
        (MAP, r".*", module_map),
        (ARCHITECTURE, r"^\| pass \|.*?(?=^$)", pass_table),
        (RELIABILITY, r"^\| limit \|.*?(?=^$)", limit_table),
    ],
)
def test_generated_parts_of_pages_are_up_to_date(page, pattern, made, request: pytest.FixtureRequest) -> None:
    text = re.sub(pattern, lambda found: "".join(made()), text_of(page), count=1, flags=re.S | re.M)
    if request.config.getoption("--update-golden"):
        (ROOT / page).write_text(text, encoding="utf-8")
    assert text_of(page) == text


def diff_of(page: str) -> str:
    """The one diff of a page."""
    [diff] = blocks(page, "diff")
    return diff


def patched(page: str) -> Iterator[tuple[str, str]]:
    """(file, text with the page's diff applied) for every file of it; what is applied already stays."""
    hunks = r"^--- (\S+)\n\+\+\+ b/(\S+)\n(.*?)(?=^--- |\Z)"
    for old, new, body in re.findall(hunks, diff_of(page), re.S | re.M):
        text = "" if old == "/dev/null" else text_of(new)
        for before, after, hunk in re.findall(HUNK, body, re.S | re.M):
            lines = hunk.splitlines(keepends=True)
            there = "".join(line[1:] for line in lines if line[0] in " -")
            wanted = "".join(line[1:] for line in lines if line[0] in " +")
            counts = there.count("\n"), wanted.count("\n")
            assert (int(before), int(after)) == counts, (
                f"a hunk of {new} has other numbers of lines: {counts}"
            )
            if wanted in text:
                continue
            fits = old == "/dev/null" or text.count(there) == 1
            assert fits, f"the diff of {new} in {page} no longer fits: bring it up to date"
            text = text.replace(there, wanted, 1) if there else wanted
        yield new, text


@pytest.mark.parametrize("page", GUIDES)
def test_the_diff_of_a_page_fits_the_tree_and_is_short(page):
    made = dict(patched(page))
    assert made
    for name, text in made.items():
        if name.endswith(".py"):
            ast.parse(text, name)
    assert len(re.findall(r"^\+(?!\+\+ )", diff_of(page), re.M)) < 20


@pytest.mark.skipif(shutil.which("patch") is None, reason="there is no `patch` here")
@pytest.mark.parametrize("page", GUIDES)
def test_patch_takes_the_diff_of_a_page(page, tmp_path):
    made = dict(patched(page))
    if is_applied(made):
        return  # by someone who tries it
    for name in made:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if name not in created(page):
            (tmp_path / name).write_text(text_of(name), encoding="utf-8")
    patch(diff_of(page), tmp_path)
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in made} == made


def is_applied(made: dict[str, str]) -> bool:
    """Whether the tree has all that a diff makes."""
    return all((ROOT / name).exists() and text_of(name) == text for name, text in made.items())


def patch(diff: str, folder: Path) -> None:
    subprocess.run(["patch", "-p1", "--batch", "--silent"], input=diff.encode(), cwd=folder, check=True)


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("patch") is None, reason="there is no `patch` here")
@pytest.mark.parametrize("page", GUIDES)
def test_the_commands_of_a_page_take_what_its_diff_adds(page, tmp_path):
    folder = tmp_path / "growc"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
    for name in ("passes", "grammar"):  # as the wheel has them, and before those of the installed tree
        (folder / "growc" / name).symlink_to(folder / name)
    if not is_applied(dict(patched(page))):
        patch(diff_of(page), folder)
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(folder)}
    env = {name: value for name, value in os.environ.items() if name != "CI"} | paths
    commands = [line[2:] for block in blocks(page, "console") for line in block.splitlines()]
    assert commands
    for command in commands:
        done = subprocess.run(
            shlex.split(command), cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
