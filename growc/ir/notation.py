"""What an operator does to axes: the notation of the operator tables, and one row instantiated at one node.

A row is a line of text:

    MatMul    ... m k, ... k n -> ... m n | k, ... k n -> ... n      contract

Same name: tied. Only on the left: contracted or reduced. `(g o)`: a row-major product. `(a + b)`: end to end.
`...`: any number of axes, broadcast from the right. `_`: opaque, the axis is frozen. `#`: addressed by
number, it may only be appended to. `1`: a single element that is stretched. `a!`: a label whose axis is
frozen. `a~`: one whose axis is read as a whole, though any order and choice of its units may pass. `?` behind
an operand: it may be absent. `|` separates variants; the first that fits the ranks is taken. The last column
is the *treatment*: what the operator does to maps (growc.passes.solving.treatments has one rule for each);
behind it stand its *traits* (growc.ir.traits). What depends on values (Reshape, Slice, …) is a function that
returns such a line, so that `growc explain` can always print one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from growc.algebra.indexmap import Array
from growc.algebra.space import Size
from growc.ir.graph import Node
from growc.ir.traits import Trait

Term = str | tuple[str, tuple["Term", ...]]
"""A label, `_`, `#`, `1`; or ("*", factors) or ("+", segments)."""

Axes = tuple[Term, ...]

TREATMENTS = {
    "layout": "moves elements; every map passes",
    "add": "linear in each operand",
    "multiply": "elementwise product",
    "divide": "elementwise quotient",
    "remainder": "elementwise remainder; zero by any number is zero",
    "pointwise": "f(x) on each element; copies pass",
    "pointwise zero": "f(0) = 0",
    "pointwise zero homogeneous": "f(0) = 0 and f(c·x) = c·f(x) for c > 0",
    "select": "chooses between its second and third operand",
    "contract": "sums products over the axes that only stand on the left",
    "attention": "softmax(q·k)·v of one operator",
    "lookup": "takes whole rows of a table",
    "mean": "mean over the axes that only stand on the left",
    "sum": "sum over them",
    "fold": "another reduction over them: the reduced axes are frozen outside a norm",
    "fold squares": "the same, and f(c·x) is not c·f(x)",
    "extreme": "maximum or minimum over them",
    "layer_norm": "(x − mean)/sqrt(var + eps) with gain and bias",
    "rms_norm": "x/sqrt(mean(x²) + eps) with its gain",
    "l2_norm": "x/‖x‖",
    "l1_norm": "x/Σ|x|",
    "recurrent": "gates of each unit by itself, which read the units of the last step",
    "per_channel": "each channel by itself, with parameters of its own",
    "opaque": "nothing is known",
}


def keeps_zero(treatment: str) -> bool:
    """Whether an elementwise operator maps zero to zero, whatever stands beside it."""
    return treatment.startswith("pointwise zero") or treatment == "remainder"


FACTORS = frozenset({"multiply", "divide"})
"""The treatments of factors."""

NORMS = frozenset({"layer_norm", "rms_norm", "l2_norm", "l1_norm", "per_channel"})
"""The treatments of norms."""


@dataclass(frozen=True)
class Line:
    """A row at one node: the terms of every operand and result (None: absent, or of unknown rank)."""

    inputs: tuple[Axes | None, ...]
    outputs: tuple[Axes | None, ...]
    treatment: str
    sizes: Mapping[str, Size] = field(default_factory=dict)
    over: tuple[str, ...] = ()
    """The labels that a norm runs over, as one row-major product."""
    alike: tuple[tuple[str, str], ...] = ()
    """Pairs of labels of one space, one of which reads what the other makes."""
    counted: tuple[str, ...] = ()
    """Labels that count something even where they have one element: there could be more."""
    because: str = ""
    """Why its opaque axes are frozen, where there is more to say than that they are read as a whole."""

    @property
    def slides(self) -> bool:
        """Whether it is a product with a kernel that slides along axes."""
        both = (*self.inputs[:2], *self.outputs)
        return self.treatment == "contract" and all(terms is not None and "_" in terms for terms in both)

    def __str__(self) -> str:
        left = ", ".join("?" if a is None else " ".join(map(spell, a)) for a in self.inputs)
        right = ", ".join("?" if a is None else " ".join(map(spell, a)) for a in self.outputs)
        return f"{left} -> {right}"


def spell(term: Term) -> str:
    """A term in the notation."""
    if isinstance(term, str):
        return term
    kind, parts = term
    return "(" + (" " if kind == "*" else " + ").join(map(spell, parts)) + ")"


def labels(term: Term) -> list[str]:
    """The labels in a term, left to right."""
    if isinstance(term, str):
        return [] if term in ("_", "#", "1") else [term.rstrip("!~")]
    return [name for part in term[1] for name in labels(part)]


def choosing(line: Line) -> list[str]:
    """The labels of axes that only orders and choices of units may act on."""
    terms = [t for operand in (*line.inputs, *line.outputs) for t in operand or () if isinstance(t, str)]
    return list(dict.fromkeys(t.rstrip("~") for t in terms if t.endswith("~")))


def names_of(terms: Sequence[Term] | None) -> list[str]:
    """The labels of an operand or result, left to right; none where it is absent."""
    return [name for term in terms or () for name in labels(term)]


@dataclass(frozen=True)
class Operand:
    """What a rule may ask of an operand or result: its sizes, and its value where that is known."""

    sizes: tuple[Size, ...] | None
    known: tuple[Array, ...] | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.sizes or ())


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

    def known(self, i: int) -> tuple[Array, ...] | None:
        """The value of operand i at every sample point, where it is known."""
        operand = self.inputs[i] if i < len(self.inputs) else None
        return None if operand is None else operand.known

    def static(self, i: int) -> Array | None:
        """The value of operand i where it is known and the same at every sample point."""
        found = self.known(i)
        if found is None or any(f.shape != found[0].shape or (f != found[0]).any() for f in found):
            return None
        return found[0]


Rule = Callable[[Site], Line]


@dataclass(frozen=True)
class Row:
    """One operator: its variants as parsed patterns, or a rule."""

    op: str
    treatment: str
    variants: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    rule: Rule | None = None
    traits: frozenset[Trait] = frozenset()
    partial: bool = False
    """Whether the rule can do with operands of unknown shape."""

    @property
    def elementwise(self) -> bool:
        """Whether the row says that each element of the result is made of those at its place."""
        operands = {operand for sides in self.variants for side in sides for operand in side}
        return bool(operands) and operands <= {"...", "...*"}

    def line(self, site: Site) -> Line:
        """The row at one node. What does not fit is opaque."""
        if not self.partial and any(o is not None and o.sizes is None for o in [*site.inputs, *site.outputs]):
            return opaque(site)
        if self.rule is not None:
            return self.rule(site)
        for left, right in self.variants:
            found = _instantiate(left, right, site, self.treatment)
            if found is not None:
                return found
        return opaque(site)


def opaque(site: Site) -> Line:
    """The line of an operator about which nothing is known: every axis is frozen."""

    def frozen(operand: Operand | None) -> Axes | None:
        return None if operand is None or operand.sizes is None else ("_",) * len(operand.sizes)

    return Line(tuple(map(frozen, site.inputs)), tuple(map(frozen, site.outputs)), "opaque")


def table(text: str, rules: Mapping[str, Rule]) -> dict[str, Row]:
    """Parse a table: one operator a line, columns two or more spaces apart; `name()` is a rule.

    Behind the treatment may stand traits, one space apart. `rules`: by their names.
    """
    rows: dict[str, Row] = {}
    for line in text.strip().splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        op, pattern, treatment, *laws = re.split(r"\s{2,}", line.strip())
        if treatment not in TREATMENTS:
            raise ValueError(f"{op}: no such treatment: {treatment}")
        traits = frozenset(Trait(word) for law in laws for word in law.split())
        rule = _with_treatment(rules[pattern[:-2]], treatment) if pattern.endswith("()") else None
        variants = () if rule else tuple(_variant(v) for v in pattern.split("|"))
        rows[op] = Row(op, treatment, variants, rule, traits)
    return rows


def _with_treatment(rule: Rule, treatment: str) -> Rule:
    def made(site: Site) -> Line:
        line = rule(site)
        return line if line.treatment else replace(line, treatment=treatment)

    return made


def _variant(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    left, right = text.split("->")
    return tuple(p.strip() for p in left.split(",")), tuple(p.strip() for p in right.split(","))


def parse_axes(pattern: str) -> list[Term]:
    """`b (g o) _ ...` -> terms; `...` stays as the label of an ellipsis."""
    tokens = re.findall(r"\.\.\.|[()+]|[\w#]+[!~]?", pattern)
    stack: list[list[Term]] = [[]]
    sums: list[bool] = []
    for token in tokens:
        if token == "(":
            stack.append([])
            sums.append(False)
        elif token == ")":
            inner = stack.pop()
            stack[-1].append(("+" if sums.pop() else "*", tuple(inner)))
        elif token == "+":
            sums[-1] = True
        else:
            stack[-1].append(token)
    return stack[0]


def _instantiate(left: Sequence[str], right: Sequence[str], site: Site, treatment: str) -> Line | None:
    """A pattern at a node, or None where the ranks do not fit."""
    ins = [parse_axes(p.rstrip("?")) for p in left]
    if len(ins) < len(site.inputs) and len(left) > 0 and left[-1].endswith("*"):
        ins += [parse_axes(left[-1].rstrip("*"))] * (len(site.inputs) - len(ins))
    if len(site.inputs) > len(ins) or any(
        not p.endswith("?")
        for p in left[len(site.inputs) :]  # a missing operand must be optional
    ):
        return None
    outs = [parse_axes(p) for p in right]
    pairs: list[tuple[list[Term], Operand | None]] = list(zip(ins, site.inputs, strict=False))
    pairs += list(zip(outs, site.outputs, strict=False))
    stretch = 0
    for terms, operand in pairs:
        if operand is None:
            continue
        extra = operand.rank - len([t for t in terms if t != "..."])
        if extra < 0 or (extra > 0 and "..." not in terms):
            return None
        stretch = max(stretch, extra)
    widest = _ellipsis_sizes(pairs, stretch)
    lines: list[Axes | None] = []
    for terms, operand in pairs:
        lines.append(None if operand is None else _expand(terms, operand, widest, stretch))
    n = len(site.inputs)
    results: list[Axes | None] = list(lines[n:])
    results += [None] * (len(site.outputs) - len(results))
    return Line(tuple(lines[:n]), tuple(results), treatment)


def _ellipsis_sizes(pairs: Sequence[tuple[list[Term], Operand | None]], stretch: int) -> list[Size | None]:
    """The broadcast size of every axis under the ellipsis, from the right."""
    widest: list[Size | None] = [None] * stretch
    for terms, operand in pairs:
        if operand is None or "..." not in terms:
            continue
        assert operand.sizes is not None
        at, extra = terms.index("..."), operand.rank - (len(terms) - 1)
        for i, size in enumerate(reversed(operand.sizes[at : at + extra])):
            if widest[i] is None or all(s == 1 for s in widest[i] or ()):
                widest[i] = size
    return widest


def _expand(terms: Sequence[Term], operand: Operand, widest: Sequence[Size | None], stretch: int) -> Axes:
    assert operand.sizes is not None
    if "..." not in terms:
        return tuple(terms)
    at, extra = list(terms).index("..."), operand.rank - (len(terms) - 1)
    middle: list[Term] = []
    for i in range(extra - 1, -1, -1):
        size = operand.sizes[at + extra - 1 - i]
        middle.append(broadcast_label(f"e{i}", size, widest[i]))
    return (*terms[:at], *middle, *terms[at + 1 :])


def broadcast_label(name: str, size: Size, widest: Size | None) -> Term:
    """One axis under broadcasting: its label, `1` where it is stretched, `_` where it cannot be told."""
    if size == widest:
        return name
    return "1" if all(s == 1 for s in size) else "_"
