"""The pages show what happens: commands, plans, links, and the recipe in four lines."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from graphs import DEMO, ROOT, TINY

from growc import api
from growc.cli.main import main
from growc.render.flops import change_line
from growc.render.terminal import plan_lines
from growc.reports.flops import before_and_after

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")])


def test_the_commands_of_the_readme_work(tmp_path, monkeypatch, capsys):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ growc (.+)$", README, re.M)
    assert len(commands) >= 5
    for command in commands:
        assert main(shlex.split(command)) == 0, capsys.readouterr().err


def test_the_plan_of_the_readme_is_the_plan_of_the_demo(request):
    compilation = api.compile(api.recipe(DEMO), TINY)
    *lines, tally = plan_lines(compilation.plan)
    cost = change_line(*before_and_after(compilation))
    shown = "\n".join([*lines, cost, f"{tally} Nothing was written."])
    if request.config.getoption("--update-golden"):
        updated = re.sub(
            r"(<!-- plan -->\n```\n).*?```", lambda found: f"{found[1]}{shown}\n```", README, flags=re.S
        )
        (ROOT / "README.md").write_text(updated, encoding="utf-8")
        return
    assert f"<!-- plan -->\n```\n{shown}\n```" in README


def test_the_four_lines_of_the_readme_are_an_exact_recipe():
    [recipe] = re.findall(r"```\n(widen hidden.*?)```", README, re.S)
    assert len(recipe.splitlines()) == 4
    assert api.plan(recipe, TINY).certificate.exact


def test_the_module_of_the_readme_grows_exactly():
    [code] = re.findall(r"```python\n(.*?)```", README, re.S)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["large"].plan.certificate.exact
    assert names["large"].verification.relative < 1e-5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_of_a_page_exist(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / link).exists(), link
    for path in re.findall(r"`((?:growc|passes|grammar|tests|examples|docs)/[\w/.-]+)`", text):
        assert (ROOT / Path(path)).exists(), path
