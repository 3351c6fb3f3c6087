"""The documentation site: it builds without a warning, its blocks run, and its sentences are short."""

from __future__ import annotations

import ast
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from graphs import ROOT, TINY
from hub_server import Repository, ask, serving

from growc import api
from growc.cli.main import main
from growc.errors.codes import CODES

DOCS = ROOT / "docs"
WALKED = [f"how-to/{name}.md" for name in ("onnx", "module", "refused", "which-recipe", "hostile")]
WALKED += ["index.md", "report.md", "editor.md"]
"""Pages whose blocks run one after the other in a folder that holds the examples."""
SLOWLY_WALKED = ["tutorial.md", "how-to/checkpoint.md"]
"""More of them, which take longer."""

SHORT = ["README.md", "docs/tour.md", "docs/tutorial.md", "docs/index.md", "docs/exact.md"]
SHORT += ["docs/report.md", "docs/hub.md", "docs/editor.md", "docs/subclone.md", "docs/savings.md"]
SHORT += [f"docs/how-to/{path.name}" for path in sorted((DOCS / "how-to").glob("*.md"))]
MOST = 30
"""Words in a sentence of these pages."""

ENVIRONMENT = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
BLOCK = re.compile(r'^```(?P<kind>\w*)(?: title="(?P<file>[^"]+)")?\n(?P<text>.*?)^```$', re.S | re.M)
COMMAND = re.compile(r"^\$ growc (.+)\n((?:(?!\$ ).*\n)*)", re.M)
"""A command, and what is shown of what it says."""
COMPARED = re.compile(r"^(?P<code>\S.*?)  # (?P<value>True|False|\d+|\(.*\))$")


def loaded(name: str) -> ModuleType:
    """A module of docs/site, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"site/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def walk(page: Path) -> None:
    """Do what a page says, in the working directory, and compare what it says of values."""
    names: dict[str, Any] = {}
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["kind"] == "grow" and block["file"]:
            Path(block["file"]).write_text(block["text"])
        elif block["kind"] == "console":
            for command, shown in COMMAND.findall(block["text"]):
                run(command, shown.splitlines())
        elif block["kind"] == "toml":
            tomllib.loads(block["text"])
        elif block["kind"] == "python":
            for code in statements(block["text"]):
                exec(compile(code, str(page), "exec"), names)
                if compared := COMPARED.match(code):
                    assert eval(compared["code"], names) == ast.literal_eval(compared["value"]), code


def run(command: str, shown: list[str]) -> None:
    """A command of growc, which says each line that is shown, apart from `…`, and fails where an error is."""
    told = io.StringIO()
    with redirect_stdout(told), redirect_stderr(told):
        status = main(shlex.split(command))
    codes = [match[1] for line in shown if (match := re.match(r"error\[(G\d+)\]", line))]
    assert status == (CODES[codes[0]].status if codes else 0), f"{command}: {told.getvalue()}"
    assert [line for line in shown if line not in ("…", *told.getvalue().splitlines())] == []


def statements(text: str) -> Iterator[str]:
    """The statements of a block, each with the comment on its last line."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        yield "\n".join(lines[node.lineno - 1 : node.end_lineno])


@pytest.fixture
def beside_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("beside_the_examples")
@pytest.mark.parametrize(
    "page", WALKED + [pytest.param(page, marks=pytest.mark.soak) for page in SLOWLY_WALKED]
)
def test_the_blocks_of_a_page_run_one_after_the_other(page: str):
    walk(DOCS / page)


@pytest.mark.usefixtures("beside_the_examples")
def test_the_blocks_of_the_page_on_the_hub_run_against_a_stand_in(tmp_path: Path, monkeypatch):
    from transformers import GPT2Config, GPT2LMHeadModel

    monkeypatch.setattr("growc.checkpoint.check.compare._exported", lambda *_: {})
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 48, "n_positions": 32}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "source")
    repository = Repository.of(tmp_path / "source", **{"onnx/model.onnx": TINY.read_bytes()})
    with serving(name=repository) as hub:
        ask(monkeypatch, hub.address, tmp_path / "cache")
        walk(DOCS / "hub.md")
    assert set(hub.fetched()) >= {"config.json", "model.safetensors", "model.onnx"}


@pytest.mark.usefixtures("beside_the_examples")
def test_the_recipes_of_the_tour_are_taken_by_a_model():
    Path("calibration.npz").symlink_to(ROOT / "examples/24-subcloning/calibration.npz")
    recipes = [b["text"] for b in BLOCK.finditer((DOCS / "tour.md").read_text()) if b["kind"] == "grow"]
    assert len(recipes) >= 7
    for recipe in recipes:
        Path("recipe.grow").write_text(recipe)
        api.plan(Path("recipe.grow"), TINY)


@pytest.mark.parametrize("page", SHORT)
def test_sentences_have_at_most_thirty_words(page: str):
    for sentence in sentences((ROOT / page).read_text(encoding="utf-8")):
        assert len(sentence.split()) <= MOST, sentence


def sentences(markdown: str) -> Iterator[str]:
    """The sentences of a page: of its text, its lists, and the cells of its tables."""
    text = BLOCK.sub("\n\n", markdown)
    text = re.sub(r"<!--.*?-->|\]\([^)]*\)|[`*\[\]]", "", text)
    for part in re.split(r"\n\s*\n|\n(?=[-|#]|\d+\. )", text):
        for cell in part.split("|") if part.startswith("|") else [part]:
            yield from re.split(r"(?<=[.!?:;])\s+", " ".join(cell.split()))


def test_the_picture_is_what_a_report_draws(golden):
    golden(DOCS / "growth.svg", loaded("picture").picture())


def test_the_site_builds_without_a_warning_and_with_its_formulas(tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",  # with `--quiet`, mkdocs does not count warnings
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/repository/passes/solving/treatments.py.html").exists()
    errors = (tmp_path / "site/errors.html").read_text()
    assert [code for code in CODES if f'id="{code.lower()}"' not in errors] == []
    assert 'href="../errors.html#g302"' in (tmp_path / "site/how-to/refused.html").read_text()
    assert 'href="../errors.html#g304"' in (tmp_path / "site/notebooks/stranger.html").read_text()
    assert "Certificate: exact" in (tmp_path / "site/notebooks/grow.html").read_text()
    assert (tmp_path / "site/notebooks/grow.ipynb").exists()
    assert (
        "The plan for a tiny model" in (tmp_path / "site/repository/examples/14-lemon/index.html").read_text()
    )
    theory = (tmp_path / "site/theory.html").read_text()
    assert theory.count("<math ") > 250
    assert "arithmatex" not in theory
    assert not re.search(r"<m\w[^>]*>[^<]*\\", theory), "a command that latex2mathml does not know"
