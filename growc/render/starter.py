"""A starter recipe as text: active statements, offers behind `#`, and frozen places with their reasons."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from growc import grammar
from growc.errors.printable import printable
from growc.errors.progress import Progress
from growc.errors.source import SourceText
from growc.passes.finish.assemble import count_parameters
from growc.passes.roles.why_tied import frozen_axes
from growc.render.inspection import node_text
from growc.render.progress import in_python
from growc.render.text import count
from growc.reports.starter import Offer, Starter, starter_of

if TYPE_CHECKING:
    from growc.reports.starter import Model

WIDTH = 80

SHOWN = 12
"""The most frozen places that are listed; `growc inspect --json` has all."""

MEANINGS = {
    "hidden": "the residual stream, in every layer at once",
    "heads": "heads of attention",
    "kv_heads": "heads of keys and values, which groups of `heads` share",
    "head_dim": "the width of a head",
    "ffn": "inner units of feed-forward blocks",
    "vocab": "entries of the table of tokens",
    "positions": "entries of the table of positions",
    "experts": "networks that a router chooses among",
    "channels": "channels of convolutions",
    "layers": "equal parts, one behind the other",
}
"""The meaning of each axis of docs/language.md."""


def init(model: Model, *, example_inputs: object = None, progress: Progress | None = None) -> str:
    """A commented recipe with all that a model can take, which `plan` and `apply` take as it is.

    `example_inputs` are as for `plan`, `progress` as for `apply`. Raises GrowError (G200, G3xx) for a model
    that cannot be read.

    >>> recipe = init("gpt2.onnx")  # doctest: +SKIP
    """
    with in_python(progress) as advance:
        return starter_text(starter_of(model, example_inputs=example_inputs, progress=advance))


def starter_text(starter: Starter) -> str:
    """Return the recipe in canonical form."""
    lines = [*_head(starter), *_axes(starter), *_parts(starter), *_frozen(starter), *_expectation(starter)]
    return grammar.format(grammar.parse(SourceText("<starter>", "\n".join(lines) + "\n")))


def _head(starter: Starter) -> Iterator[str]:
    c = starter.analysis
    parameters = count(count_parameters(c.axes, c.ties))
    yield from _told(f"A starter recipe for {c.path.name} ({parameters} parameters).")
    offers = [*starter.axes, *starter.unnamed, *starter.scoped, *starter.layers, *starter.head]
    if any(one.statement for one in offers):
        yield "#"
        yield from _told(
            "Statements behind a `#` without a space are offers: this model takes each of them as it is. "
            "Sizes are expressions or numbers. Axes in them mean the model before the statement."
        )
    else:
        yield "#"
        yield from _told("Nothing in this model can be changed. As it is, the recipe copies the model.")


def _axes(starter: Starter) -> Iterator[str]:
    for one in starter.axes:
        yield from _offer(one, _sized(one), starter.active)
    for one in starter.unnamed:
        yield from _offer(one, _sized(one), starter.active)
    if starter.more:
        yield ""
        yield from _told(f"… and {starter.more} more axes without a name.")


def _parts(starter: Starter) -> Iterator[str]:
    for one in starter.layers:
        yield from _offer(one, _sized(one), starter.active)
    for one in starter.scoped:
        yield from _offer(one, f"{one.axis} in one part of the model alone", starter.active)
    for one in starter.head:
        yield from _offer(one, "The head gets a weight of its own, apart from the table", starter.active)


def _offer(one: Offer, description: str, active: Offer | None) -> Iterator[str]:
    """Yield a comment of a few lines, then the statement, if there is one."""
    yield ""
    yield from _told(f"{description}. {_claim(one, active)}")
    if one.statement:
        own = active is not None and one.statement == active.statement
        yield one.statement if own else f"#{one.statement}"


def _sized(one: Offer) -> str:
    """Return `ffn: inner units of feed-forward blocks, 384 now`."""
    meaning = f": {MEANINGS[one.axis]}" if one.axis in MEANINGS else ""
    return f"{one.axis}{meaning}, {' and '.join(map(str, one.sizes))} now"


def _claim(one: Offer, active: Offer | None) -> str:
    """Return whether an offer is exact, and where it can stand."""
    if not one.statement:
        return f"Stays as it is: {one.verdict.cause}."
    exact = "Exact."
    if not one.verdict.exact:
        exact = f"Not exact: {one.verdict.cause}. It asks that `expect exact` is taken out."
    if one.beside:
        return exact
    assert active is not None
    return f"{exact} In the place of `{active.statement}`, not beside it."


def _frozen(starter: Starter) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for frozen in frozen_axes(starter.analysis.axes):
        place = f"axis {frozen.axis} of {frozen.weight}"
        groups.setdefault((node_text(frozen.node), frozen.cause), []).append(place)
    if groups:
        yield ""
        yield from _told("Frozen, with what freezes it:")
    for (node, cause), places in islice(groups.items(), SHOWN):
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield from _told(f"{places[0]}{more}: {cause} ({node}).", hanging="    ")
    if len(groups) > SHOWN:
        yield from _told(f"… {len(groups) - SHOWN} more (`growc inspect --json`)")


def _expectation(starter: Starter) -> Iterator[str]:
    yield ""
    inexact = [
        one
        for one in (*starter.axes, *starter.unnamed, *starter.scoped, *starter.layers)
        if one.statement and not one.verdict.exact
    ]
    if starter.active is not None or not inexact:
        yield from _told("Nothing is written unless the result computes the same function.")
        if inexact:
            yield from _told("Take this out for what is not exact.")
        yield "expect exact"


def _told(text: str, hanging: str = "") -> Iterable[str]:
    """Return a comment in lines that fit a terminal. Names in it may have any characters."""
    wide = WIDTH - 2
    lines = textwrap.wrap(printable(text), wide, subsequent_indent=hanging, break_on_hyphens=False)
    return [f"# {line}" for line in lines]
