"""`match` as plain statements that lead from the model's current sizes to those of another model.

Needs: a resolved `match`, the sizes of both. Gives: `widen`, `subclone`, `stack` and `subclone layers` with
numbers in them. They have the number of the `match`, which is the key of their draws. Raises GrowError with
every difference for which the `match` has no clause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, cast

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.recipe.expression import Binary, Expr, Int, Name
from growc.recipe.layer_orders import DEEPER, SHALLOWER
from growc.recipe.option_rules import OPTIONS
from growc.recipe.syntax_tree import (
    LayerOrder,
    Match,
    NamedAxis,
    Option,
    RoleScope,
    Scope,
    Stack,
    Statement,
    Subclone,
    SubcloneLayers,
    Widen,
)
from growc.resolve.bound import Bound

ROLES = ("hidden", "kv_heads", "heads", "head_dim", "ffn", "experts", "channels", "vocab", "positions")
"""The axes that are matched, in this order. Layers come last, so that they are copies of resized layers."""

OUTSIDE = ("vocab", "positions")
"""Axes whose units inputs number. Where a model has none, there is nothing to match."""


@dataclass(frozen=True)
class SizesByPart:
    """The distinct sizes of each axis (and `layers`), by part of the model: "" is the whole model.

    grouped: whether `kv_heads` is a separate axis, and not another name of `heads`.
    """

    of: Mapping[str, Mapping[str, tuple[int, ...]]]
    grouped: bool = True

    def sizes(self, scope: str, role: str) -> tuple[int, ...]:
        """The sizes of a role in a part of the model; empty where it has none."""
        return self.of.get(scope, {}).get(role, ())

    @property
    def parts(self) -> tuple[str, ...]:
        """The named parts of the model."""
        return tuple(scope for scope in self.of if scope)


def matched(bound: Bound, today: SizesByPart, wanted: SizesByPart) -> list[Bound]:
    """The statements that a `match` stands for. Raises GrowError (G302, G303, G307, G309)."""
    expansion = _Expansion(bound, cast(Match, bound.statement), today, wanted)
    statements = [s for role in ROLES for s in expansion.statements(role)]
    statements += expansion.statements("layers")
    if expansion.problems:
        raise GrowError(*expansion.problems)
    return statements


class _Expansion:
    def __init__(self, bound: Bound, match: Match, today: SizesByPart, wanted: SizesByPart) -> None:
        self.bound, self.match, self.today, self.wanted = bound, match, today, wanted
        self.problems: list[Diagnostic] = []
        inner = [s.role for s in bound.scopes if isinstance(s, RoleScope)]
        self.scope = inner[-1] if inner else ""

    def statements(self, role: str) -> Iterator[Bound]:
        """Yield the statements on one role: for the whole model, or for each of its parts."""
        have, want = self.today.sizes(self.scope, role), self.wanted.sizes(self.scope, role)
        want = want or self.wanted.sizes("", role)
        if not want or self.lacks(role, have, want) or want == have:
            return
        if len(want) == 1 or (role != "layers" and proportion(have, want)):
            yield from self.one(role, have, want, self.bound.scopes)
            return
        parts = [p for p in self.today.parts if not self.scope and self.today.sizes(p, role)]
        if not parts or any(len(self.wanted.sizes(p, role)) != 1 for p in parts):
            sizes = " and ".join(map(str, want))
            self.report("G309", f"{self.file} has several sizes of `{role}`: {sizes}", PAIRING)
            return
        for part in parts:
            scope = RoleScope(cast(Literal["encoder", "decoder"], part), span=self.match.file.span)
            want = self.wanted.sizes(part, role)
            yield from self.one(role, self.today.sizes(part, role), want, (*self.bound.scopes, scope))

    def lacks(self, role: str, have: tuple[int, ...], want: tuple[int, ...]) -> bool:
        """Whether the model has no axis that could get this size. Reports it, unless that is expected."""
        absent = not have or (role == "kv_heads" and not self.today.grouped)
        heads = self.wanted.sizes(self.scope, "heads") or self.wanted.sizes("", "heads")
        if not absent or role in OUTSIDE or (role == "kv_heads" and want == heads):
            return absent
        sizes_of_model = self.today.sizes("", role)
        if sizes_of_model == want:
            return True
        if sizes_of_model and role != "kv_heads":
            message = f"`{role}` is {sizes_of_model[0]} here and {want[0]} in {self.file}"
            self.report("G307", f"{message}, and does not lie in the {self.scope} alone", OUTSIDE_IT)
            return True
        self.report("G302", f"{self.file} has {_amount(role, want[0])}, and the model has none", "")
        return True

    def one(
        self, role: str, have: tuple[int, ...], want: tuple[int, ...], scopes: tuple[Scope, ...]
    ) -> Iterator[Bound]:
        """Yield the statement that gives a role its size, or several sizes one factor, if they differ."""
        if have == want:
            return
        pairs = [(n, want[i] if len(want) > 1 else want[0]) for i, n in enumerate(have)]
        grows, shrinks = any(a < b for a, b in pairs), any(a > b for a, b in pairs)
        today, wanted = (", ".join(map(str, side)) for side in (have, want))
        if grows and shrinks:
            self.report("G303", f"`{role}` is {today} here and {wanted} in {self.file}", PAIRING)
        elif role == "layers":
            yield from self.layers(have, want[0], scopes, grows)
        elif shrinks and self.match.smaller is None:
            message = f"`{role}` would become smaller: it is {today} here and {wanted} in {self.file}"
            self.report("G303", message, "`smaller by RANKING` says which units stay")
        elif shrinks:
            assert self.match.smaller is not None
            axis = NamedAxis(role, span=self.match.smaller.span)
            yield self.put(Subclone(axis, self.size(role, have, want), self.match.smaller), scopes)
        else:
            axis = NamedAxis(role, span=self.match.fill.span)
            options = tuple(o for o in self.match.options if _fits(o, role))
            yield self.put(Widen(axis, self.size(role, have, want), self.match.fill, options), scopes)

    def layers(
        self, have: tuple[int, ...], size: int, scopes: tuple[Scope, ...], deeper: bool
    ) -> Iterator[Bound]:
        """Yield the statement that gives a model `size` layers."""
        order = self.match.order
        orders = DEEPER if deeper else SHALLOWER
        verb = "deepens" if deeper else "shortens"
        remedy = f"`layers by ORDER` {verb}; the orders are {', '.join(f'`{name}`' for name in orders)}"
        counts = f"there are {have[0]} here and {size} in {self.file}"
        if order is None:
            self.report("G303", f"the numbers of layers differ: {counts}", remedy)
        elif order.name not in orders:
            message = f"`layers by {order.name}` cannot make it {'more' if deeper else 'fewer'}: {counts}"
            self.report("G303", message, remedy, order)
        elif deeper:
            yield self.put(
                Stack(self.number(size), order, self.match.layer_fill, self.match.zero_outputs), scopes
            )
        else:
            yield self.put(SubcloneLayers(self.number(size), order), scopes)

    def put(self, statement: Statement, scopes: tuple[Scope, ...]) -> Bound:
        spanned = replace(statement, span=self.match.span)
        return replace(self.bound, statement=spanned, scopes=scopes)

    def number(self, size: int) -> Int:
        return Int(size, span=self.match.file.span)

    def size(self, role: str, have: tuple[int, ...], want: tuple[int, ...]) -> Expr:
        """The single wanted size, or the current size times the common ratio."""
        if len(want) == 1:
            return self.number(want[0])
        ratio = proportion(have, want)
        assert ratio is not None
        span = self.match.file.span
        grown = Binary("*", self.number(ratio.numerator), Name(role, span=span), span=span)
        return Binary("/", grown, self.number(ratio.denominator), span=span)

    @property
    def file(self) -> str:
        return f"`{self.match.file.value}`"

    def report(self, code: str, message: str, remedy: str, at: LayerOrder | None = None) -> None:
        span = self.match.file.span if at is None else at.span
        self.problems.append(Diagnostic(code, message, span, help=remedy))


def proportion(have: tuple[int, ...], want: tuple[int, ...]) -> Fraction | None:
    """The common ratio of several wanted sizes to as many current ones; None where there is none."""
    if len(have) != len(want):
        return None
    ratios = {Fraction(b, a) for a, b in zip(have, want, strict=True)}
    return ratios.pop() if len(ratios) == 1 else None


OUTSIDE_IT = "write the `match` outside of the scope"
PAIRING = 'statements on parts of the model (`in encoder`, `axis N of "GLOB"`) can give each its own size'


def _fits(option: Option, role: str) -> bool:
    """Whether an option of a `match` has a meaning on an axis. Blocks are runs of the stream."""
    rule = OPTIONS[option.name]
    axes = rule.in_match or rule.axes
    return not axes or role in axes


def _amount(role: str, size: int) -> str:
    return f"{size} layers" if role == "layers" else f"a `{role}` of {size}"
