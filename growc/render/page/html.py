"""A page as text, from a template that escapes everything; its policy loads nothing and runs no script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from growc.errors.printable import printable, size_of
from growc.files.commit import PAGE
from growc.render.flops import amount, change_line
from growc.render.page import geometry
from growc.render.text import count, many, short
from growc.reports.page.bands import SINGLE
from growc.reports.page.network import DrawnNetwork, Mark
from growc.reports.page.page import Page
from growc.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

WORDS = {"kept": "kept", "copy": "copies", "zero": "copies with zero outputs", "new": "drawn anew"}
"""The kinds of blocks of layers, in words."""

LINKED = 20
"""The most places of one cause that are linked."""


def page_text(page: Page) -> str:
    """Return the page: the same bytes for the same page."""
    style = _read("style.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    template = _environment().get_template("report.html.jinja")
    return PAGE + template.render(page=page, style=style, digest=digest, version=__version__)


def gap_groups(network: DrawnNetwork) -> list[tuple[str, str, list[Mark]]]:
    """Return the gaps by cause: cause, remedy, and their places."""
    groups: dict[str, list[Mark]] = {}
    for mark in network.places.values():
        groups.setdefault(mark.cause, []).append(mark)
    return [(cause, next((m.help for m in own if m.help), ""), own) for cause, own in groups.items()]


def where(mark: Mark, network: DrawnNetwork) -> str:
    """Return the place of a gap: `LayerNormalization in layers 0 to 3`."""
    if mark in network.stream_marks:
        return "the residual streams"
    for series in network.series:
        scope = f" of {series.scope}" if series.scope else ""
        if mark in series.marks:
            return f"the layers{scope}"
        for block in series.blocks:
            if mark in block.marks:
                many_layers = "layer" if len(block.layers) == 1 else "layers"
                return f"{mark.op or 'node'} in {many_layers} {geometry.ranges(block.layers)}{scope}"
    return f"{mark.op} outside of layers" if mark.op else "the model"


def kept_of(kept: Sequence[bool]) -> list[int]:
    """Return the numbers of the units that stay."""
    return [k for k, stays in enumerate(kept) if stays]


def labels_of(kept: Sequence[bool]) -> list[str]:
    """Return the numbers below bars, if there is room for them."""
    return [str(k) if len(kept) <= SINGLE else "" for k in range(len(kept))]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    helpers: Mapping[str, object] = {
        "axis_shape": geometry.axis_shape,
        "column": geometry.column,
        "histogram": geometry.histogram,
        "by_place": geometry.by_place,
        "bars_of": geometry.bars_of,
        "curve": geometry.curve,
        "shades": geometry.shades,
        "ranges": geometry.ranges,
        "kept_of": kept_of,
        "labels_of": labels_of,
        "gap_groups": gap_groups,
        "where": where,
        "cut_short": geometry.cut_short,
        "sizes": geometry.sizes,
        "tip_lines": geometry.tip_lines,
        "count": count,
        "many": many,
        "short": short,
        "amount": amount,
        "change_line": change_line,
        "size_of": size_of,
        "words": WORDS,
        "linked": LINKED,
    }
    environment.globals.update(helpers)
    return environment


def _read(name: str) -> str:
    return files("growc.render.page").joinpath(name).read_text(encoding="utf-8")
