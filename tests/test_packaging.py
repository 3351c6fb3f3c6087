"""pyproject.toml agrees with the tree."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from growc.cli.main import main
from growc.dialects.torch import tested_versions
from growc.dialects.torch.tested_versions import TESTED, untested

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE_DIR = {
    "growc": "growc",
    "growc.passes": "passes",
    "growc.grammar": "grammar",
    "growc.examples": "examples",
}


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


@pytest.mark.parametrize("extra", ["torch", "train"])
@pytest.mark.parametrize("package", sorted(TESTED))
def test_the_oldest_version_asked_for_is_the_first_tested(extra: str, package: str):
    first, _ = TESTED[package]
    assert f"{package}>={first}" in PROJECT["project"]["optional-dependencies"][extra]


@pytest.mark.parametrize("package", sorted(TESTED))
def test_versions_that_were_not_tested_are_warned_of(package: str, monkeypatch: pytest.MonkeyPatch):
    first, last = TESTED[package]
    known = {f"{first}.0": True, f"{last}.9+cpu": True, "1.99.0": False, "99.0.1": False}
    for installed, tested in known.items():
        monkeypatch.setattr(tested_versions, "version", lambda name, installed=installed: installed)
        assert [installed in warning for warning in untested(package)] == [True] * (not tested)


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
    monkeypatch.setattr("growc.formats.required_libraries.find_spec", lambda name: None)
    recipe = ["-e", "widen ffn to 8 with zero fill"] if command == "apply" else []
    assert main([command, *recipe, str(tmp_path)]) == 3
    assert "install `growc[torch]`" in capsys.readouterr().err


def test_types_are_shipped():
    shipped = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    assert "py.typed" in shipped
    assert (ROOT / "growc/py.typed").read_bytes() == b""


def test_the_source_tree_is_a_package_where_nothing_maps_it() -> None:
    """Python in the folder of a clone finds `growc/` before any installed growc, and its sibling folders."""
    code = "\n".join(
        (
            "import sys",
            "sys.meta_path = [f for f in sys.meta_path if 'editable' not in f.__module__]",
            "import growc, growc.grammar.reader, growc.passes.runner",
            "assert growc.recipes()",
            "print(growc.__file__, growc.passes.__path__[0])",
        )
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(ROOT / "growc/__init__.py"), str(ROOT / "passes")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the tree."""
    pytest.importorskip("setuptools", "77")
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for source in PACKAGE_DIR.values():
        if not (folder / source).exists():
            shutil.copytree(ROOT / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / done.stdout.split()[-1]


def test_the_wheel_has_the_mark_of_types_and_the_grammar(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        extension = ("package.json", "extension.js", "syntaxes/grow.tmLanguage.json")
        wanted = {"growc/py.typed", "growc/grammar/grow.lark"}
        wanted |= {f"growc/editor/vscode/{name}" for name in extension}
        assert wanted <= set(archive.namelist())


def test_the_wheel_has_every_recipe_and_no_model(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("growc/examples/")}
    assert {f"growc/{path.relative_to(ROOT)}" for path in ROOT.glob("examples/*/recipe.grow")} <= found
    assert {Path(name).suffix for name in found} == {".py", ".grow", ".md", ".npz"}


def test_an_installed_growc_lists_and_copies_its_recipes(wheel: Path, tmp_path: Path) -> None:
    """In an environment that has growc from its wheel and no repository; other packages are those here."""
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    [packages] = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = "import growc, growc.cli.main as m, sys; print(growc.__file__); sys.exit(m.main(sys.argv[1:]))"

    def run(*arguments: str) -> str:
        command = [str(home / "bin/python"), "-E", "-c", code, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(str(packages))
        return done.stdout

    assert len(run("recipes").splitlines()) == 1 + len(list(ROOT.glob("examples/*/recipe.grow")))
    run("recipes", "reorder", "-o", "sorted.grow")
    shipped, copied = (
        path.read_text(encoding="utf-8").splitlines()
        for path in (ROOT / "examples/26-reorder/recipe.grow", tmp_path / "sorted.grow")
    )
    changed = [new for old, new in zip(shipped, copied, strict=True) if old != new]
    assert changed == ["#   growc apply sorted.grow MODEL"]  # it names no path of the repository
    assert (tmp_path / "digits.npz").exists()
    assert "exact" in run("plan", "sorted.grow", str(ROOT / "examples/models/tiny-vit.onnx"))


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
