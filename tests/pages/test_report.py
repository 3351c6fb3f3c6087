"""The page of a report: its numbers are the plan's, and nothing in it is more than text."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import STREAM, save

from growc import api
from growc.algebra.indexmap import IndexMap
from growc.cli.main import main
from growc.errors.diagnostic import GrowError
from growc.reports.page.bands import bands_of
from growc.reports.page.selection import overlap
from growc.verification.difference import compare, worst

ROOT = Path(__file__).parents[2]
GPT = ROOT / "examples/models/tiny-gpt.onnx"
LLAMA = ROOT / "examples/models/tiny-llama.onnx"
CONV = ROOT / "examples/models/tiny-conv.onnx"
SUBCLONING = ROOT / "examples/24-subcloning/recipe.grow"
HOSTILE = "<img src=x onerror=alert(1)>"
INEXACT = "widen hidden to 128 with tail copy\nwiden heads to 8 with neighbor copy"


class Page(HTMLParser):
    """tags: every element with its attributes. words: all that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    @property
    def ids(self) -> list[str | None]:
        return [a["id"] for _, a in self.tags if "id" in a]


def row(page: Page, name: str) -> str:
    return re.sub(r"\s+", " ", page.words[page.words.index(name) :])[:90]


def test_the_numbers_are_those_of_the_plan() -> None:
    plan, page = api.plan(INEXACT, GPT), Page(api.report(INEXACT, GPT))
    assert f"{len(plan.certificate.gaps)} gaps, by cause" in page.words
    assert "484.4K" in row(page, "per model")
    assert "Not exact." in page.words
    for gap in plan.certificate.gaps:
        assert gap.cause in page.words
    named = {a["aria-label"] for _, a in page.tags if a.get("role") == "img"}
    assert "heads: unit 1 is copied from unit 0 of the source" in named
    wide = "transformer.h.0.attn.c_attn.weight makes it: 96 × 288 to 128 × 384"
    assert any(name and name.startswith("heads, 6 to 8 units; ") and wide in name for name in named)
    assert "hidden: units 96 to 127 are copied from units 64 to 95 of the source" in named


def test_every_gap_leads_to_an_element_and_every_node_is_named() -> None:
    plan, page = api.plan(INEXACT, GPT), Page(api.report(INEXACT, GPT))
    links = [a["href"] for tag, a in page.tags if tag == "a"]
    assert {link.removeprefix("#") for link in links if link} <= set(page.ids)
    assert any(link and link.startswith("#gap-") for link in links)
    assert len(page.ids) == len(set(page.ids))
    assert all(gap.node in page.words for gap in plan.certificate.gaps)


def test_what_is_dropped_is_a_gap_of_its_stream_its_layers_and_their_run() -> None:
    recipe = "subclone heads to 3 by magnitude\nsubclone hidden to 48 by magnitude\narrange layers as 0, 0, 2"
    gaps: dict[str, list[str]] = {}
    text, place = api.report(recipe, GPT), ""
    for heading, mark in re.findall(
        r"<h[34][^>]*>(.*?)</h|<div class=\"mark\".*?: (.*?)<(?:/div|details)", text, re.DOTALL
    ):
        place = heading or place
        gaps.setdefault(place, []).extend([mark.strip().split(", ")[0]] if mark else [])
    dropped = "subclone: 3 of 6 units of heads are dropped in each of 3 spaces"
    assert gaps["Residual streams"] == ["subclone: 48 of 96 units of hidden are dropped"]
    assert [gap.split(": ")[1] for gap in gaps["Layers"]] == ["layer 1 is left out", "layer 3 is left out"]
    assert (gaps["Layer 0"], gaps["Layer 2"]) == ([dropped], [dropped])
    assert gaps["Layer 1"] == ["LayerNormalization: layer 1 is layer 0 once more", dropped]
    assert gaps["Outside of layers"] == []


def test_the_report_alone_measures_nothing() -> None:
    words = Page(api.report(INEXACT, GPT)).words
    assert "Not measured" in words
    assert "No patterns" in words


def test_apply_shows_what_it_measured(tmp_path: Path) -> None:
    done = api.apply(INEXACT, GPT, tmp_path / "wide.onnx", report=tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert f"{done.verification.max_abs:.1e} absolute" in page.words
    assert "Largest difference by position on axis 1" in page.words
    assert "source, head 0" in page.words
    later = api.report(INEXACT, GPT, result=tmp_path / "wide.onnx")
    assert Page(later).words[200:] == page.words[200:]


def test_a_result_of_another_recipe_is_refused_by_the_tensor_that_differs(tmp_path: Path) -> None:
    other = api.apply("widen ffn to 400 with tail copy", GPT, tmp_path / "other.onnx", check=False).written
    for result, said in (
        (other, "and the recipe makes it"),
        (GPT.with_name("tiny-bert.onnx"), "has none of"),
    ):
        with pytest.raises(GrowError, match=said):
            api.report(INEXACT, GPT, result=result)


def test_copied_heads_attend_as_their_sources(tmp_path: Path) -> None:
    text = "widen heads to 8 with neighbor copy split random"
    api.apply(text, GPT, tmp_path / "wide.onnx", report=tmp_path / "report.html")
    words = Page((tmp_path / "report.html").read_text()).words
    apart = [float(found) for found in re.findall(r"result, head \d+([0-9.e-]+) apart", words)]
    assert len(apart) == 18  # three layers, four heads, of which two have a copy
    assert max(apart) < 1e-5


def test_scores_are_cut_where_the_recipe_says() -> None:
    words = Page(api.report(SUBCLONING, GPT)).words
    assert "hidden 0: 48 of 96 stay" in words
    assert "heads 1: 3 of 6 stay" in words
    assert "2 of 4 layers stay: 0, 3." in words


@pytest.mark.soak
def test_a_profile_that_was_measured_is_shown(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(GPT.read_bytes())
    data = ROOT / "examples/24-subcloning/calibration.npz"
    assert main(["measure", str(model), "--inputs", str(data), "--samples", "4", "--layers"]) == 0
    text = f'measure importance on "{data}" samples 4\nsubclone layers to 2 by importance'
    words = Page(api.report(text, model)).words
    assert "Profile of layers" in words
    assert words.count("attention 0.") == 4


@pytest.mark.parametrize("model", [GPT, LLAMA, CONV])
def test_the_same_recipe_gives_the_same_page(model: Path) -> None:
    axis = "channels" if model == CONV else "ffn"
    recipe = f"widen {axis} to 2 * {axis} with uniform copy"
    first = api.report(recipe, model)
    assert api.report(recipe, model) == first
    assert str(ROOT) not in first


def test_heads_that_change_groups_say_so() -> None:
    words = Page(api.report("widen kv_heads to heads with neighbor copy", LLAMA))
    named = {a["aria-label"] for _, a in words.tags if a.get("role") == "img"}
    assert "kv_heads: units 0 to 3: 4 put into other groups, from units 0 to 1 of the source" in named


def test_names_paths_and_comments_are_text(tmp_path: Path) -> None:
    model = save(tmp_path / f"{HOSTILE}.onnx", STREAM)
    proto = onnx.load(model)
    for tensor in proto.graph.initializer:
        renamed = f"{HOSTILE} {tensor.name} \u202e\x1b[2J"
        for node in proto.graph.node:
            node.input[:] = [renamed if name == tensor.name else name for name in node.input]
        tensor.name = renamed
    for node in proto.graph.node:
        node.name = f"</svg></style>{HOSTILE} {node.name}"
    onnx.save(proto, model)
    recipe = tmp_path / f"{HOSTILE}.grow"
    recipe.write_text(f"# {HOSTILE} </style> \u202e\nwiden hidden to 24 with tail copy\n")
    text = api.report(recipe, model)
    page = Page(text)
    assert page.words.count(HOSTILE) > 5
    assert not {"img", "script", "iframe", "object", "link"} & {tag for tag, _ in page.tags}
    assert not [a for _, a in page.tags if any(name.startswith("on") or name == "style" for name in a)]
    assert "\u202e" not in text
    assert "\x1b" not in text


def test_the_policy_lets_nothing_in_but_the_style_of_the_page() -> None:
    text = api.report(INEXACT, GPT)
    style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    policies = [
        a["content"] for tag, a in Page(text).tags if a.get("http-equiv") == "Content-Security-Policy"
    ]
    wanted = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert policies == [wanted]
    assert len(style) == 1
    assert "url(" not in style[0]
    assert "http" not in text.replace("http-equiv", "")


def test_errors_stand_at_their_line_and_the_status_is_that_of_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = ("widen heds to 8 with zero fill", "widen hidden to 7 with zero fill", f"{INEXACT}\nexpect exact")
    for recipe in wrong:
        status = main(["plan", "-e", recipe, str(GPT)])
        assert status
        assert main(["report", "-e", recipe, str(GPT)]) == status
        page = Page((tmp_path / "report.html").read_text())
        said = capsys.readouterr().err.split("\n")[0].partition(": ")[2]
        assert said.replace("`", "") in page.words
        assert "mark" in [tag for tag, _ in page.tags]
    assert "gaps, by cause" in page.words


def test_a_mark_stands_at_its_word_behind_tabs_too() -> None:
    text = api.report("\tin layers 0 {\twiden heds to 8 with zero fill }", GPT)
    assert "widen <mark>heds</mark> to 8" in text


def test_long_names_do_not_make_a_page_long(tmp_path: Path) -> None:
    model = save(tmp_path / "model.onnx", STREAM)
    proto = onnx.load(model)
    for node in proto.graph.node:
        node.name = f"{node.output[0]} {'x' * 10**6}"
    onnx.save(proto, model)
    text = api.report("widen hidden to 24 with tail copy", model)
    assert "norm" in text
    assert len(text) < 10**5


def test_only_pages_of_growc_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "report.html"
    own.write_text("<!doctype html>mine")
    asked = ["report", "-e", "widen ffn to 512 with cyclic copy", str(GPT)]
    assert main(asked) == 4
    assert own.read_text() == "<!doctype html>mine"
    assert main([*asked, "--force"]) == 0
    assert main(asked) == 0
    assert main([*asked, "-o", str(GPT)]) == 2
    assert main([*asked, "-o", "missing/report.html"]) == 4
    assert main([*asked, "-o", "/dev/null"]) == 4
    assert main(["apply", *asked[1:], "-o", "o.onnx", "--report", "o.onnx"]) == 2
    capsys.readouterr()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html"]


def test_bands_are_few_and_cover_all_units() -> None:
    made = IndexMap.of(3072, np.random.default_rng(0).integers(0, 3072, 4096))
    found = bands_of(made, 32)
    assert [b.first for b in found.bands[1:]] == [b.last for b in found.bands[:-1]]
    assert (found.bands[0].first, found.bands[-1].last, len(found.bands)) == (0, 4096, 32)
    assert sum(n for b in found.bands for _, n in b.counts) == 4096
    assert len(bands_of(IndexMap.identity(10**6), 32).bands) == 1
    assert bands_of(IndexMap.of(4, []), 32).bands == ()


def test_overlap_counts_shared_units() -> None:
    assert overlap([np.array([0, 1, 2]), np.array([2, 3, 4])]) == ((1.0, 1 / 3), (1 / 3, 1.0))


def test_differences_are_counted_by_size_and_place() -> None:
    source = np.zeros((2, 3, 4))
    result = source.copy()
    result[1, 2, 0], result[0, 1, 3] = 0.05, -3.0
    spread = worst([compare(source, result), compare(source, source)]).spread
    assert spread is not None
    assert spread.zeros == 46
    assert {d: n for d, n in zip(range(-12, 7), spread.decades, strict=True) if n} == {-2: 1, 0: 1}
    assert (spread.axis, spread.places) == (1, (0.0, 3.0, 0.05))


def test_places_of_a_large_output_are_found_over_blocks() -> None:
    source = np.zeros((2, 700, 1000), np.float32)
    result = source.copy()
    result[1, 40, 999], result[0, 699, 0] = 2.0, 1.0
    spread = compare(source, result).spread
    assert spread is not None
    assert (len(spread.places), spread.places[40], spread.places[255], sum(spread.places)) == (256, 2, 1, 3)
    assert compare(np.zeros((0, 3)), np.zeros((0, 3))).spread is not None
    assert compare(np.float32(1), np.float32(1)).spread is not None
