"""The fields that a pass has set, as lines of text: for people who work on growc.

A record is shown by its fields, without those at their default and those that `repr` leaves out; a collection
by its elements. `Text.form` has another form for types that read better in one. Types with a `__str__` use
that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from growc import grammar
from growc.algebra.indexmap import IndexMap
from growc.algebra.space import Size, Space, find
from growc.ir.graph import Graph, Node, Value
from growc.passes.axes.infer import Axes
from growc.passes.compilation import Source
from growc.plans.plan import AxisStep, Plan
from growc.recipe.syntax_tree import Item, RecipeTree, Scoped
from growc.recipe.words import Word
from growc.render.terminal import numbers_text, plan_lines, step_text
from growc.render.text import table
from growc.resolve.bound import Bound

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

WIDTH, MOST = 140, 6
"""The most characters of several things in one line, and the most elements of an array."""


def lines_after(name: str, state: Source, filled: Iterable[str]) -> list[str]:
    """Return a heading, and the fields that the pass of this name has set. A model shows in its graph."""
    values = vars(state)
    text = TextWriter(values.get("axes"))
    lines = [line for field in filled if field != "model" for line in entry(field, text.lines(values[field]))]
    return [f"After {name}:", *(f"  {line}".rstrip() for line in lines or ["nothing"]), ""]


def entry(label: str, lines: Sequence[str]) -> list[str]:
    """Return a label with lines: in its line if the first heads the others, else below; else nothing."""
    if not lines:
        return []
    if all(line.startswith("  ") for line in lines[1:]):
        return [f"{label}: {lines[0]}", *lines[1:]]
    return [f"{label}:", *(f"  {line}" for line in lines)]


def joined(parts: Sequence[Sequence[str]], opened: str, closed: str) -> str:
    """Return parts of one line each in one line; empty if that is too long, or if a part has more lines."""
    line = f"{opened}{', '.join(line for part in parts for line in part)}{closed}"
    return line if all(len(part) == 1 for part in parts) and len(line) <= WIDTH else ""


class TextWriter:
    """A writer of things as text. A space is a letter and a number, in the order of the graph."""

    def __init__(self, axes: Axes | None) -> None:
        self.numbers: dict[Space, int] = {}
        self.members: dict[Space, dict[str, None]] = {}
        for value, spaces in () if axes is None else ((v, axes.of(v)) for v in axes.graph.values()):
            for axis, space in enumerate(spaces):
                self.space(space)
                self.members.setdefault(find(space), {})[f"{value_text(value)}.{axis}"] = None

    def lines(self, thing: object) -> list[str]:
        """Return a thing in lines; none if it is empty."""
        if (form := self.form(thing)) is not None:
            return form.splitlines()
        if is_dataclass(thing) and not isinstance(thing, type):
            return self.record(thing)
        if isinstance(thing, Mapping):
            pairs = ((self.text(key), self.lines(value) or ["[]"]) for key, value in thing.items())
            parts, brackets = [entry(*pair) for pair in pairs], "{}"
        elif isinstance(thing, Collection):
            parts, brackets = [self.lines(element) or ["[]"] for element in thing], "[]"
            parts = sorted(parts) if isinstance(thing, Set) else parts
        else:
            return [str(thing)]
        together = joined(parts, *brackets) if parts else ""
        return [together] if together else [line for part in parts for line in part]

    def text(self, thing: object) -> str:
        """Return a thing in one line."""
        return " ".join(self.lines(thing))

    def record(self, thing: DataclassInstance) -> list[str]:
        """Return the type of a record, and its fields that are neither empty nor at their default."""
        values = {f.name: self.lines(vars(thing)[f.name]) for f in fields(thing) if f.repr}
        usual = {f.name: self.lines(default_of(f)) for f in fields(thing)}
        changed = {name: lines for name, lines in values.items() if lines and lines != usual[name]}
        name = type(thing).__name__
        together = joined(
            [[f"{k}={line}" for line in lines] for k, lines in changed.items()], f"{name}(", ")"
        )
        apart = [name, *(f"  {line}" for pair in changed.items() for line in entry(*pair))]
        return [together] if together else apart

    def form(self, thing: object) -> str | None:
        """Return a form that reads better than the fields or elements; None if there is none."""
        match thing:
            case Space():
                return self.space(thing)
            case Axes():
                return self.axes(thing)
            case Graph():
                return graph_text(thing)
            case Value():
                return value_text(thing)
            case Node():
                return names(thing.outputs)
            case IndexMap():
                return map_text(thing)
            case AxisStep():
                return f"{step_text(thing)} on {thing.axis}: {thing.layout.before} -> {thing.layout.after}"
            case Bound():
                return statement_text(thing)
            case Plan():
                return "\n".join(plan_lines(thing, everything=True))
            case Word():
                return thing.name
            case np.ndarray():
                few = thing.size <= MOST
                return str(thing.tolist()) if few else f"{thing.dtype}{list(thing.shape)}"
            case str():
                return thing
            case Source():
                return repr(thing)
        plain = type(thing).__str__ is object.__str__ or isinstance(thing, Collection)
        return None if plain else str(thing)

    def space(self, space: Space) -> str:
        """`s3`; `(s1 s2)` for a product, `(s1 + s2)` for a sum."""
        space = find(space)
        if space.kind == "atom":
            return f"s{self.numbers.setdefault(space, len(self.numbers))}"
        return f"({(' ' if space.kind == 'product' else ' + ').join(map(self.space, space.parts))})"

    def axes(self, axes: Axes) -> str:
        """Return every space, with its size and its axes; then every node with its line."""
        spaces = []
        for space, members in self.members.items():
            reasons = {"frozen": space.frozen, "addressed": space.addressed, "chosen": space.chosen}
            why = (f"({how}: {reason.cause})" for how, reason in reasons.items() if reason)
            spaces.append((self.space(space), size_text(space.size), " ".join([*members, *why])))
        nodes = (
            (
                names(i.node.outputs),
                i.node.op,
                str(i.line),
                " ".join(f"{label}={self.space(space)}" for label, space in i.spaces.items()),
            )
            for i in axes.instances
        )
        return "\n".join([*table(spaces), *table(nodes)])


def default_of(field: Field[object]) -> object:
    """Return a field's default; MISSING if it has none."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


def graph_text(graph: Graph) -> str:
    """Return stored tensors, and every node: its results, operands, treatment of maps, and sizes."""
    weights = (("weight", w.name, f"{w.dtype}{list(w.shape)}") for w in graph.weights)
    inputs = (("input", v.name, type_text(v)) for v in graph.inputs)
    nodes = (
        (names(n.outputs), "=", called(n), n.treatment, ", ".join(map(type_text, n.outputs)))
        for n in graph.nodes
    )
    outputs = (("output", v.name) for v in graph.outputs)
    return "\n".join(line for rows in (weights, inputs, nodes, outputs) for line in table(rows))


def called(node: Node) -> str:
    """Return an operator with its operands and attributes."""
    attributes = (f"{name}={attribute_text(value)}" for name, value in sorted(node.attributes.items()))
    return f"{node.op}({', '.join([names(node.inputs), *attributes])})"


def attribute_text(value: object) -> str:
    """Return a number or a text, cut if it is long; for other values their type."""
    text = str(value) if isinstance(value, int | float | str | tuple | list) else type(value).__name__
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}…"


def names(values: Iterable[Value | None]) -> str:
    """Return values by their names; `_` for None."""
    return ", ".join("_" if v is None else v.name for v in values)


def value_text(value: Value) -> str:
    """Return a value by its name; for a use of a weight also the results of its user."""
    if value.weight is None or not value.users:
        return value.name
    return f"{value.name}@{names(value.users[0][0].outputs)}"


def type_text(value: Value) -> str:
    """Return the type of a value, its sizes at the sample points, and its elements, as far as known."""
    sizes = "" if value.sizes is None else f"[{', '.join(map(size_text, value.sizes))}]"
    elements = [] if value.known is None else value.known[0].reshape(-1).tolist()
    more = ", …" if len(elements) > MOST else ""
    known = f" = {', '.join(map(str, elements[:MOST]))}{more}" if elements else ""
    return f"{value.dtype}{sizes}{known}"


def size_text(size: Size) -> str:
    """Return `8`, or `2|3|5` if the size differs between sample points."""
    return "|".join(map(str, size if len(set(size)) > 1 else size[:1]))


def statement_text(bound: Bound) -> str:
    """Return a statement in its scopes, as a recipe has it."""
    item: Item = bound.statement
    for scope in reversed(bound.scopes):
        item = Scoped(scope, (item,))
    return grammar.format(RecipeTree((item,))).rstrip()


def map_text(index_map: IndexMap) -> str:
    """Return the rows of a map in order: the unit that each one is, and its factor.

    `mean` is the mean of all units, `0` is zero, and `?` is no combination of units.
    """
    rows = zip(
        index_map.index.tolist(),
        index_map.weight.tolist(),
        index_map.mean.tolist(),
        index_map.junk.tolist(),
        strict=True,
    )
    kinds = groupby(rows, lambda row: (row[0] >= 0, *row[1:]))
    return ", ".join(_rows(kind, [row[0] for row in alike]) for kind, alike in kinds)


def _rows(kind: tuple[bool, float, float, bool], index: list[int]) -> str:
    copied, weight, mean, junk = kind
    times = f" x {len(index)}" if len(index) > 1 else ""
    if junk:
        return f"?{times}"
    terms = [numbers_text(index) if weight == 1 else f"{weight:g} of {numbers_text(index)}"] if copied else []
    terms += [("mean" if mean == 1 else f"{mean:g} of mean") + ("" if copied else times)] if mean else []
    return " + ".join(terms) or f"0{times}"
