"""What a grown model says of how it came to be, and its plan made once more from that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from growc import grammar
from growc.diagnostic import GrowError
from growc.expression import spell
from growc.output import METADATA
from growc.recipe import Blank, Comment, Include, Item, Recipe, Scoped, Subclone
from growc.resolve import Resolved, load
from growc.source import Source

if TYPE_CHECKING:
    from growc.compilation import Compilation
    from growc.verification import Verification

Ports = dict[str, tuple[int | None, ...]]
"""The declared sizes of inputs and outputs, None where one is not fixed."""


def provenance(
    sources: Sequence[Source], resolved: Resolved, c: Compilation, verification: Verification | None
) -> dict[str, Any]:
    """How the result came to be; nothing in it depends on time, place or machine."""
    certificate = c.plan.certificate
    return {
        "recipe": recipe_lines(sources, resolved),
        "parameters": {name: spell(value) for name, value in resolved.parameters.items()},
        "certificate": {
            "exact": certificate.exact,
            "gaps": [{"node": g.node, "cause": g.cause} for g in certificate.gaps],
        },
        "measured": None if verification is None else float(f"{verification.relative:.1e}"),
    }


def recipe_lines(sources: Sequence[Source], resolved: Resolved) -> list[str]:
    """The recipe in canonical form, with what it includes in its place, without comments."""
    included = iter(resolved.included)

    def expanded(body: Iterable[Item]) -> Iterator[Item]:
        for item in body:
            if isinstance(item, Include):
                yield from expanded(grammar.parse(next(included)).body)
            elif isinstance(item, Scoped):
                yield replace(item, body=tuple(expanded(item.body)))
            elif not isinstance(item, Comment | Blank):
                yield item

    return grammar.format(Recipe(tuple(expanded(grammar.parse(*sources).body)))).splitlines()


def planned_again(source: Path, result: Path) -> Compilation | None:
    """The compilation that made `result` from `source`, by the recipe in its metadata.

    None where both have the same inputs and outputs, and nothing shrank, so that none is needed; where
    `result` was not made by growc; and where its recipe does not make its inputs and outputs of this source.
    """
    from growc import api
    from growc.dialects.onnx.container import load as load_model

    grown = load_model(result)
    ports = _ports(grown)
    record = _record(grown)
    if record is None:
        return None
    try:
        text = Source("the recipe in the model", "\n".join(record["recipe"]))
        recipe = load([text], record["parameters"])
        shrinks = any(isinstance(bound.statement, Subclone) for bound in recipe.statements)
        if ports == _ports(load_model(source)) and not shrinks:
            return None
        found = api.compile(recipe, source)
    except GrowError:
        return None
    states = {s.present.name: s.past.name for s in found.axes.states}
    for (name, axis), state in found.outputs.items():
        for port in filter(None, (name, states.get(name))):
            sizes = ports.get(port, ())
            if axis >= len(sizes) or sizes[axis] not in (None, state.size):
                return None
    return found


def _record(model: ir.Model) -> dict[str, Any] | None:
    try:
        found = json.loads(model.metadata_props.get(METADATA, ""))
        return found if found["recipe"] and isinstance(found["parameters"], dict) else None
    except (ValueError, KeyError, TypeError):
        return None


def _ports(model: ir.Model) -> Ports:
    found: Ports = {}
    for value in (*model.graph.inputs, *model.graph.outputs):
        sizes = value.shape or ()
        found[value.name or ""] = tuple(d if isinstance(d, int) else None for d in sizes)
    return found
