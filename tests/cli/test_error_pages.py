"""The pages of errors: what they show as wrong is refused, with the code of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from graphs import ROOT

import growc

PAGES = (ROOT / "growc/errors/pages.md").read_text(encoding="utf-8")
PAGE = re.compile(r"^## (?P<code>G\d+): .*?\n(?P<text>.*?)(?=^## |\Z)", re.S | re.M)
BLOCK = re.compile(r"(?:^    .*\n)+", re.M)
MODELS = ("tiny-gpt", "tiny-llama", "tiny-mixture")
ELSEWHERE = ("G203", "G208", "G303", "G318")
"""A command, a file that includes itself, an axis that is smaller than the tiny models', and a class."""


def wrong() -> Iterator[tuple[str, str]]:
    """Each code with a recipe that its page calls wrong: the lines of the block up to that one."""
    for page in PAGE.finditer(PAGES):
        for block in BLOCK.findall(page["text"]):
            above: list[str] = []
            for line in block.splitlines():
                code, _, remark = line.strip().partition("#")
                if remark.strip().startswith("wrong"):
                    yield page["code"], "\n".join([*above, code.strip()])
                elif not remark:
                    above.append(code.strip())


SHOWN = [(code, recipe) for code, recipe in wrong() if code not in ELSEWHERE]


@pytest.mark.parametrize(("code", "recipe"), SHOWN, ids=[f"{code}-{k}" for k, (code, _) in enumerate(SHOWN)])
def test_a_recipe_that_a_page_calls_wrong_has_its_code(code: str, recipe: str) -> None:
    codes = set[str]()
    for model in MODELS:
        try:
            growc.plan(recipe, ROOT / f"examples/models/{model}.onnx")
        except growc.GrowError as error:
            codes |= {diagnostic.code for diagnostic in error.diagnostics}
    assert code in codes
