"""The page of a report in a browser: it says nothing, asks for nothing, and can be used by everybody."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import PROGRAM, Tab, opened

from growc import api

ROOT = Path(__file__).parents[2]
GPT = ROOT / "examples/models/tiny-gpt.onnx"
RECIPES = {
    "neighbor copy": "widen heads to 8 with neighbor copy split random",
    "not exact": "widen hidden to 128 with tail copy\nstack layers to 8 by last",
    "magnitude": "subclone ffn to ffn / 2 by magnitude\nsubclone layers to 2 by middle",
    "hostile": "# <img src=x onerror=alert(1)>\nwiden ffn to 512 with cyclic copy",
    "wrong": "widen heads to 9 with zero fill\nwiden hidden to 7 with zero fill",
}

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no browser")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with opened(tmp_path_factory.mktemp("profile")) as found:
        yield found


def page(folder: Path, name: str) -> Path:
    path = folder / "report.html"
    path.write_text(api.report(RECIPES[name], GPT), encoding="utf-8")
    return path


def check(tab: Tab, path: Path, width: int, scheme: str) -> None:
    """Assert the claims that hold for every page."""
    tab.open(path, width=width, scheme=scheme)
    assert tab.said == []
    assert tab.asked == [path.resolve().as_uri()]
    assert tab.value("document.querySelectorAll('script, img, link, iframe, object').length") == 0
    assert tab.value("document.documentElement.scrollWidth") <= width
    broken = "[...document.querySelectorAll('a[href]')].filter(a => !document.getElementById("
    assert tab.value(broken + "a.getAttribute('href').slice(1))).length") == 0
    colour = tab.value("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(15, 19, 24)")


def test_a_page_loads_silently_and_its_gaps_lead_to_their_places(tab: Tab, tmp_path: Path) -> None:
    check(tab, page(tmp_path, "not exact"), 1000, "light")
    tab.value("document.querySelector('a[href^=\"#gap\"]').click()")
    assert tab.value("document.querySelector(':target').className") == "mark"
    assert 0 <= tab.value("document.querySelector(':target').getBoundingClientRect().top") < 800


@pytest.mark.soak
def test_units_say_what_they_are_once_they_have_the_focus(tab: Tab, tmp_path: Path) -> None:
    tab.open(page(tmp_path, "neighbor copy"))
    shown = "getComputedStyle(document.querySelectorAll('g.unit')[3].querySelector('.tip')).visibility"
    assert tab.value(shown) == "hidden"
    tab.value("document.querySelectorAll('g.unit')[3].focus()")
    assert tab.value(shown) == "visible"


@pytest.mark.soak
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(("width", "scheme"), [(1000, "light"), (1000, "dark"), (400, "light")])
def test_every_kind_of_page_fits_in_light_dark_and_narrow(
    tab: Tab, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    check(tab, page(tmp_path, name), width, scheme)


@pytest.mark.soak
@pytest.mark.skipif(importlib.util.find_spec("axe_core_python") is None, reason="axe-core is not installed")
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(tab: Tab, tmp_path: Path, name: str, scheme: str) -> None:
    found = importlib.util.find_spec("axe_core_python")
    assert found is not None
    assert found.origin is not None
    tab.open(page(tmp_path, name), scheme=scheme)
    tab.value((Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8") + "; 0")
    assert tab.value("axe.run().then(r => r.violations.map(v => [v.impact, v.id, v.nodes[0].html]))") == []
