"""What pyproject.toml says about the tree is what the tree is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from growc.cli import main

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
    assert f'__version__ = "{PROJECT["project"]["version"]}"' in (ROOT / "growc/__init__.py").read_text()


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
    monkeypatch.setattr("growc.forms.find_spec", lambda name: None)
    recipe = ["-e", "widen ffn to 8 with zero fill"] if command == "apply" else []
    assert main([command, *recipe, str(tmp_path)]) == 3
    assert "install `growc[torch]`" in capsys.readouterr().err
