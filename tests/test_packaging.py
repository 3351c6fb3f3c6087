"""What pyproject.toml says about the tree is what the tree is."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from growc.cli.main import main

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE_DIR = {"growc": "growc", "growc.passes": "passes", "growc.grammar": "grammar"}


def packages_under(name: str, folder: str) -> set[str]:
    """The dotted names of every folder under `folder` that holds Python files."""
    folders = {path.parent for path in (ROOT / folder).rglob("*.py")}
    return {".".join((name, *path.relative_to(ROOT / folder).parts)) for path in folders}


def test_every_folder_of_modules_is_a_listed_package():
    found = set.union(*(packages_under(name, folder) for name, folder in PACKAGE_DIR.items()))
    assert PROJECT["tool"]["setuptools"]["package-dir"] == PACKAGE_DIR
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found


def test_every_package_has_an_init_module():
    for name, folder in PACKAGE_DIR.items():
        for package in packages_under(name, folder):
            path = ROOT.joinpath(folder, *package.removeprefix(name).split("."))
            assert (path / "__init__.py").exists(), package


def test_the_link_tree_of_the_type_checkers_leads_back_to_the_sources():
    for link, target in {
        "__init__.py": "growc/__init__.py",
        "passes": "passes",
        "grammar": "grammar",
    }.items():
        assert (ROOT / ".types/growc" / link).resolve() == (ROOT / target).resolve()


def test_the_version_is_one():
    assert f'__version__ = "{PROJECT["project"]["version"]}"' in (ROOT / "growc/version.py").read_text()


def test_every_direct_dependency_is_pinned():
    pinned = re.findall(r"^([a-z0-9-]+)==\S+$", (ROOT / "constraints.txt").read_text(), re.M)
    project = PROJECT["project"]
    wanted = [
        *project["dependencies"],
        *(r for group in project["optional-dependencies"].values() for r in group),
    ]
    assert {re.split(r"[^a-z0-9-]", requirement)[0] for requirement in wanted} <= set(pinned)


@pytest.mark.parametrize("name", ["passes", "grammar"])
def test_no_module_imports_a_second_copy(name):
    pattern = re.compile(rf"^\s*(from|import) {name}\b", re.M)
    sources = [
        path for folder in ("growc", "passes", "grammar", "tests") for path in (ROOT / folder).rglob("*.py")
    ]
    assert [str(path) for path in sources if pattern.search(path.read_text())] == []


@pytest.mark.parametrize("command", ["inspect", "apply"])
def test_a_folder_without_torch_is_refused_with_what_to_install(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("growc.formats.compiler.find_spec", lambda name: None)
    recipe = ["-e", "widen ffn to 8 with zero fill"] if command == "apply" else []
    assert main([command, *recipe, str(tmp_path)]) == 3
    assert "install `growc[torch]`" in capsys.readouterr().err


def test_types_are_shipped():
    shipped = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    assert "py.typed" in shipped
    assert (ROOT / "growc/py.typed").read_bytes() == b""


def test_the_wheel_has_the_mark_of_types_and_the_grammar(tmp_path):
    pytest.importorskip("setuptools", "77")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("growc", "passes", "grammar"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        extension = ("package.json", "extension.js", "syntaxes/grow.tmLanguage.json")
        wanted = {"growc/py.typed", "growc/grammar/grow.lark"}
        wanted |= {f"growc/editor/vscode/{name}" for name in extension}
        assert wanted <= set(wheel.namelist())


@pytest.mark.parametrize(
    "line", ["import growc", "import growc.api, growc.cli.main", "import growc; dir(growc)"]
)
def test_an_import_warns_of_nothing(line):
    done = subprocess.run([sys.executable, "-W", "error", "-c", line], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_version_of_the_command_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    found = importlib.metadata.version(PROJECT["project"]["name"])
    assert capsys.readouterr().out == f"growc {found}\n"
