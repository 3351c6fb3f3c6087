"""Rows of operator tables: parsed, and instantiated at one node."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from growc.algebra.indexmap import Array
from growc.algebra.space import Size
from growc.ir.graph import Node
from growc.ir.notation import TREATMENTS, AxisTerms, Line, Operand, Term, parse_axes
from growc.ir.traits import Trait


@dataclass(frozen=True)
class Site:
    """A node as a rule sees it."""

    node: Node
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand, ...]
    opset: int

    def attribute(self, name: str, default: object = None) -> object:
        """An attribute of the node."""
        return self.node.attributes.get(name, default)

    def input(self, i: int) -> Operand | None:
        """Operand i, or None where it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    def operand(self, i: int) -> Operand:
        """Operand i of an operator that requires it."""
        operand = self.inputs[i]
        assert operand is not None, i
        return operand

    def known(self, i: int) -> tuple[Array, ...] | None:
        """The value of operand i at every sample point, where it is known."""
        operand = self.input(i)
        return None if operand is None else operand.known

    def static(self, i: int) -> Array | None:
        """The value of operand i where it is known and the same at every sample point."""
        values = self.known(i)
        if values is None or any(f.shape != values[0].shape or (f != values[0]).any() for f in values):
            return None
        return values[0]


LineRule = Callable[[Site], Line]

AxisSizes = tuple[Size, ...]
"""The sizes of all axes of an operand."""


@dataclass(frozen=True)
class Row:
    """One operator: its variants as parsed patterns, or a rule."""

    op: str
    treatment: str
    variants: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    rule: LineRule | None = None
    traits: frozenset[Trait] = frozenset()
    partial: bool = False
    """Whether the rule accepts operands of unknown shape."""

    @property
    def elementwise(self) -> bool:
        """Whether each element of the result is made of the operands' elements at its place."""
        operands = {operand for sides in self.variants for side in sides for operand in side}
        return bool(operands) and operands <= {"...", "...*"}

    def line(self, site: Site) -> Line:
        """The row at one node. A node that does not fit is opaque."""
        if not self.partial and any(o is not None and o.sizes is None for o in [*site.inputs, *site.outputs]):
            return opaque(site)
        if self.rule is not None:
            return self.rule(site)
        for left, right in self.variants:
            line = _instantiate(left, right, _sizes(site.inputs), _sizes(site.outputs), self.treatment)
            if line is not None:
                return line
        return opaque(site)


def opaque(site: Site) -> Line:
    """The line of an operator about which nothing is known: every axis is frozen."""

    def frozen(operand: Operand | None) -> AxisTerms | None:
        return None if operand is None or operand.sizes is None else ("_",) * len(operand.sizes)

    return Line(tuple(map(frozen, site.inputs)), tuple(map(frozen, site.outputs)), "opaque")


def columns(text: str) -> Iterator[list[str]]:
    """Yield the columns of each line of a table; columns are two or more spaces apart.

    Empty lines and lines that begin with `#` are left out.
    """
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield re.split(r"\s{2,}", line.strip())


def table(text: str, rules: Mapping[str, LineRule]) -> dict[str, Row]:
    """Parse a table: one operator a line, columns two or more spaces apart; `name()` is a rule.

    Traits, one space apart, may follow the treatment. `rules`: the rules by name. Raises ValueError for an
    unknown treatment.
    """
    rows: dict[str, Row] = {}
    for op, pattern, treatment, *laws in columns(text):
        if treatment not in TREATMENTS:
            raise ValueError(f"{op}: no such treatment: {treatment}")
        traits = frozenset(Trait(word) for law in laws for word in law.split())
        rule = _with_treatment(rules[pattern[:-2]], treatment) if pattern.endswith("()") else None
        variants = () if rule else tuple(_variant(v) for v in pattern.split("|"))
        rows[op] = Row(op, treatment, variants, rule, traits)
    return rows


def _with_treatment(rule: LineRule, treatment: str) -> LineRule:
    def made(site: Site) -> Line:
        line = rule(site)
        return line if line.treatment else replace(line, treatment=treatment)

    return made


def _variant(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    left, right = text.split("->")
    return tuple(p.strip() for p in left.split(",")), tuple(p.strip() for p in right.split(","))


def _sizes(operands: Sequence[Operand | None]) -> tuple[AxisSizes | None, ...]:
    return tuple(None if operand is None else operand.sizes for operand in operands)


@lru_cache(maxsize=1 << 12)  # most nodes are one of a few kinds
def _instantiate(
    left: tuple[str, ...],
    right: tuple[str, ...],
    inputs: tuple[AxisSizes | None, ...],
    outputs: tuple[AxisSizes | None, ...],
    treatment: str,
) -> Line | None:
    """A pattern at operands and results of these sizes (None: absent), or None where the ranks do not fit."""
    ins = [parse_axes(p.rstrip("?")) for p in left]
    if len(ins) < len(inputs) and len(left) > 0 and left[-1].endswith("*"):
        ins += [parse_axes(left[-1].rstrip("*"))] * (len(inputs) - len(ins))
    if len(inputs) > len(ins) or any(
        not p.endswith("?")
        for p in left[len(inputs) :]  # a missing operand must be optional
    ):
        return None
    outs = [parse_axes(p) for p in right]
    pairs: list[tuple[list[Term], AxisSizes | None]] = list(zip(ins, inputs, strict=False))
    pairs += list(zip(outs, outputs, strict=False))
    stretch = 0
    for terms, sizes in pairs:
        if sizes is None:
            continue
        extra = len(sizes) - len([t for t in terms if t != "..."])
        if extra < 0 or (extra > 0 and "..." not in terms):
            return None
        stretch = max(stretch, extra)
    widest = _ellipsis_sizes(pairs, stretch)
    terms_of_operands: list[AxisTerms | None] = []
    for terms, sizes in pairs:
        terms_of_operands.append(None if sizes is None else _expand(terms, sizes, widest))
    n = len(inputs)
    results: list[AxisTerms | None] = list(terms_of_operands[n:])
    results += [None] * (len(outputs) - len(results))
    return Line(tuple(terms_of_operands[:n]), tuple(results), treatment)


def _ellipsis_sizes(pairs: Sequence[tuple[list[Term], AxisSizes | None]], stretch: int) -> list[Size | None]:
    """The broadcast size of every axis under the ellipsis, from the right."""
    widest: list[Size | None] = [None] * stretch
    for terms, sizes in pairs:
        if sizes is None or "..." not in terms:
            continue
        start, extra = terms.index("..."), len(sizes) - (len(terms) - 1)
        for i, size in enumerate(reversed(sizes[start : start + extra])):
            if widest[i] is None or all(s == 1 for s in widest[i] or ()):
                widest[i] = size
    return widest


def _expand(terms: Sequence[Term], sizes: AxisSizes, widest: Sequence[Size | None]) -> AxisTerms:
    if "..." not in terms:
        return tuple(terms)
    start, extra = list(terms).index("..."), len(sizes) - (len(terms) - 1)
    middle: list[Term] = []
    for i in range(extra - 1, -1, -1):
        size = sizes[start + extra - 1 - i]
        middle.append(broadcast_label(f"e{i}", size, widest[i]))
    return (*terms[:start], *middle, *terms[start + 1 :])


def broadcast_label(name: str, size: Size, widest: Size | None) -> Term:
    """The term of one axis under broadcasting: its label, `1` where it is stretched, `_` where unknown."""
    if size == widest:
        return name
    return "1" if all(s == 1 for s in size) else "_"
