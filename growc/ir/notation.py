"""The notation of the operator tables: the effect of an operator on axes.

A row is a line of text:

    MatMul    ... m k, ... k n -> ... m n | k, ... k n -> ... n      contract

- Axes with one name are tied. Names that stand only on the left are contracted or reduced.
- `(g o)`: a row-major product. `(a + b)`: segments end to end.
- `...`: any number of axes, broadcast from the right.
- `_`: an opaque axis, which is frozen.
- `#`: an axis whose units are addressed by number; it may only grow at its end.
- `1`: a single element that is broadcast.
- `a!`: a label whose axis is frozen.
- `a~`: a label whose axis is read as a whole, though its units may be reordered or chosen from.
- `?` after an operand: it may be absent.
- `|` separates variants; the first that fits the ranks is taken.

The last column is the *treatment*: the effect of the operator on maps (growc.passes.solving.treatments has
one rule for each). Its *traits* follow (growc.ir.traits). For an operator that depends on values (Reshape,
Slice, …), a function returns such a line, so that `growc explain` can always print one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from growc.algebra.indexmap import Array
from growc.algebra.space import Size

Term = str | tuple[str, tuple["Term", ...]]
"""A label, `_`, `#`, `1`; or ("*", factors) or ("+", segments)."""

AxisTerms = tuple[Term, ...]

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
    """Whether an elementwise operator maps zero to zero, for any other operands."""
    return treatment.startswith("pointwise zero") or treatment == "remainder"


FACTORS = frozenset({"multiply", "divide"})
"""The treatments of factors."""

NORMS = frozenset({"layer_norm", "rms_norm", "l2_norm", "l1_norm", "per_channel"})
"""The treatments of norms."""


class Place(NamedTuple):
    """An axis at a node. number: the number of the operand or the result that has it."""

    number: int
    axis: int
    result: bool = False


@dataclass(frozen=True)
class Product:
    """Two factors that a node multiplies and sums. left, right: the operands that each factor is made of.

    over: the axes whose sizes, multiplied, are the number of multiplications.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    over: tuple[Place, ...]


@dataclass(frozen=True)
class Line:
    """A row at one node: the terms of every operand and result (None: absent, or of unknown rank)."""

    inputs: tuple[AxisTerms | None, ...]
    outputs: tuple[AxisTerms | None, ...]
    treatment: str
    sizes: Mapping[str, Size] = field(default_factory=dict)
    over: tuple[str, ...] = ()
    """The labels that a norm runs over, as one row-major product."""
    alike: tuple[tuple[str, str], ...] = ()
    """Pairs of labels of one space, as where one label reads the units that the other makes."""
    counted: tuple[str, ...] = ()
    """Labels that count units even where they have one element: there could be more."""
    because: str = ""
    """The cause why its opaque axes are frozen, if it is another than that they are read as a whole."""
    sums: tuple[Product, ...] = ()
    """The products that it sums, where the labels of the first two operands do not show them."""

    @property
    def products(self) -> tuple[Product, ...]:
        """The products that the node sums; empty where it sums none."""
        if self.sums or self.treatment != "contract":
            return self.sums
        result, left = self.outputs[0] or (), self.inputs[0] or ()
        kept = set(names_of(result))
        summed = [
            Place(0, axis) for axis, term in enumerate(left) if labels(term) and kept.isdisjoint(labels(term))
        ]
        over = (*(Place(0, axis, result=True) for axis in range(len(result))), *summed)
        return (Product((0,), (1,), over),) if summed else ()

    @property
    def slides(self) -> bool:
        """Whether the operator is a convolution: a product with a kernel that slides along axes."""
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


@cache
def labels(term: Term) -> tuple[str, ...]:
    """The labels in a term, left to right."""
    if isinstance(term, str):
        return () if term in ("_", "#", "1") else (term.rstrip("!~"),)
    return tuple(name for part in term[1] for name in labels(part))


def is_whole(term: Term) -> bool:
    """Whether an operator reads an axis as a whole, as a softmax reads the axis that it normalises."""
    return isinstance(term, str) and (term == "_" or term.endswith("~"))


def choosing(line: Line) -> list[str]:
    """The labels of axes whose units may only be reordered or chosen from."""
    terms = [t for operand in (*line.inputs, *line.outputs) for t in operand or () if isinstance(t, str)]
    return list(dict.fromkeys(t.rstrip("~") for t in terms if t.endswith("~")))


def names_of(terms: Sequence[Term] | None) -> list[str]:
    """The labels of an operand or result, left to right; none where it is absent."""
    return [name for term in terms or () for name in labels(term)]


class Operand(NamedTuple):
    """An operand or result as a rule sees it: its sizes, and its value where that is known."""

    sizes: tuple[Size, ...] | None
    known: tuple[Array, ...] | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.sizes or ())

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes, which must be known. They are in all rules of rows that are not `partial`."""
        assert self.sizes is not None
        return self.sizes


def parse_axes(pattern: str) -> list[Term]:
    """Parse `b (g o) _ ...` into terms. `...` stays as the label of an ellipsis."""
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
