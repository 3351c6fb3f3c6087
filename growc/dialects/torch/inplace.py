"""Calls that write into their argument, as calls that give a new value.

What a call writes into is from then on what it gives; so is every tensor that it is a view of, with the
elements of the view in their place, and every other view of that tensor is made anew when it is read. What
the schemas of operators say of aliases tells what is a view and what is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.torch.call import LAST, Call, UnknownError

Rewrite = Callable[[fx.Node, Callable[[Call], ir.Value] | None], None]


def functional(key: str) -> str:
    """The name of the operator that gives a new value: `aten.add.Tensor` for `aten.add_.Tensor`."""
    namespace, _, rest = key.partition(".")
    name, dot, overload = rest.partition(".")
    if namespace == "aten" and name.endswith("_") and not name.startswith("__"):
        return f"{namespace}.{name[:-1]}{dot}{overload}"
    return key


def _aliased(node: fx.Node, written: bool) -> fx.Node | None:
    """The argument that the result is a view of (or that is written into)."""
    schema = getattr(node.target, "_schema", None)
    for argument, value in zip([] if schema is None else schema.arguments, node.args, strict=False):
        alias = argument.alias_info
        if alias is not None and alias.is_write is written and isinstance(value, fx.Node):
            return value
    return None


def _copied(node: fx.Node, base: fx.Node) -> bool:
    """Whether a call that may give a view gives a copy: in another type, or in another order in memory."""
    before, after = base.meta["val"], node.meta["val"]
    if isinstance(after, torch.Tensor) and before.dtype != after.dtype:
        return True
    return "contiguous" in str(node.target) and not before.is_contiguous()


class Views:
    """Which values are views of which, and which of them are out of date."""

    def __init__(self, rewrite: Rewrite) -> None:
        self.rewrite = rewrite
        self.base: dict[fx.Node, fx.Node] = {}
        self.made: dict[fx.Node, list[fx.Node]] = {}
        self.stale: set[fx.Node] = set()
        self.busy: set[fx.Node] = set()

    def ran(self, node: fx.Node) -> None:
        """A call is lowered: note what it is a view of, and what it wrote."""
        target = _aliased(node, written=True)
        if target is not None:
            self.rewrite(target, lambda at: at.program.value(node))
            self._view(node, target)
            self._changed(target, node)
            return
        base = _aliased(node, written=False)
        if base is not None and not _copied(node, base):
            self._view(node, base)

    def _view(self, node: fx.Node, base: fx.Node) -> None:
        self.base[node] = base
        self.made.setdefault(base, []).append(node)

    def _changed(self, node: fx.Node, source: fx.Node) -> None:
        """A value is another now: what it is a view of follows, and all its other views are out of date."""
        for view in self.made.get(node, []):
            if view is not source:
                self._outdate(view)
        base = self.base.get(node)
        if base is not None:
            self.rewrite(base, lambda at: _put(at, node))
            self._changed(base, node)

    def _outdate(self, node: fx.Node) -> None:
        self.stale.add(node)
        for view in self.made.get(node, []):
            self._outdate(view)

    def refresh(self, node: fx.Node) -> None:
        """Make a value anew if it is a view that is out of date."""
        if node in self.stale:
            self.stale.discard(node)
            written = _aliased(node, written=True)
            if written is not None:
                self.rewrite(node, lambda at: at.program.value(written))
            else:
                self.rewrite(node, None)


def _put(at: Call, view: fx.Node) -> ir.Value:
    """The tensor of which `view` is a view, with the view's elements in their place."""
    name = str(view.target).split(".")[1]
    new: ir.Value = at.program.value(view)
    old: ir.Value = at.program.values[at.node]
    if name.endswith("_"):  # what was written into is what came out
        return new
    try:
        return _BACK.get(name, _unknown)(at, view, old, new)
    except UnknownError:
        return _unknown(at, view, old, new)


def _unknown(at: Call, view: fx.Node, old: ir.Value, new: ir.Value) -> ir.Value:
    return at.add("aten::written", old, new)


def _same_sizes(at: Call, view: fx.Node, old: ir.Value, new: ir.Value) -> ir.Value:
    if "reshape" in str(view.target) and not at.result.is_contiguous():
        raise UnknownError  # a view, or a copy
    return at.add("Reshape", new, at.shape(old))


def _same(at: Call, view: fx.Node, old: ir.Value, new: ir.Value) -> ir.Value:
    return new


def _transposed(at: Call, view: fx.Node, old: ir.Value, new: ir.Value) -> ir.Value:
    order = list(range(at.rank()))
    a, b = (at.axis(d) for d in view.args[1:3])
    order[a], order[b] = b, a
    return at.add("Transpose", new, perm=order)


def _permuted(at: Call, view: fx.Node, old: ir.Value, new: ir.Value) -> ir.Value:
    dims: Any = view.args[1]
    order = [at.axis(d) for d in dims]
    return at.add("Transpose", new, perm=[order.index(k) for k in range(len(order))])


def _selected(at: Call, view: fx.Node, old: ir.Value, new: ir.Value) -> ir.Value:
    axis, number = at.axis(view.args[1]), view.args[2]
    whole = at.sizes()[axis]
    if not isinstance(number, int) or (number < 0 and not isinstance(whole, int)):
        raise UnknownError
    start = number % whole if number < 0 else number
    return _between(at, axis, start, start + 1, old, at.add("Unsqueeze", new, at.constant([axis])))


def _sliced(at: Call, view: fx.Node, old: ir.Value, new: ir.Value) -> ir.Value:
    given: list[Any] = [*view.args[1:], *[0, None, None, 1][len(view.args) - 1 :]]
    dim, start, end, step = given
    axis, whole = at.axis(dim), at.sizes()[at.axis(dim)]
    start = 0 if start is None else start
    if step != 1 or not isinstance(start, int) or not (end is None or isinstance(end, int)):
        raise UnknownError
    stop = LAST if end is None else end
    if isinstance(whole, int):
        start, stop, _ = slice(start, stop).indices(whole)
    elif start < 0 or stop < 0:
        raise UnknownError
    return new if start == 0 and stop >= LAST else _between(at, axis, start, stop, old, new)


def _between(at: Call, axis: int, start: int, stop: int, old: ir.Value, new: ir.Value) -> ir.Value:
    """`old` with `new` in the place of a part of one axis."""
    whole = at.sizes()[axis]
    parts = [new]
    if start:
        parts.insert(0, at.add("Slice", old, *(at.constant([n]) for n in (0, start, axis))))
    if stop < LAST and stop != whole:
        parts.append(at.add("Slice", old, *(at.constant([n]) for n in (stop, LAST, axis))))
    return parts[0] if len(parts) == 1 else at.add("Concat", *parts, axis=axis)


_BACK: dict[str, Callable[[Call, fx.Node, ir.Value, ir.Value], ir.Value]] = {
    **dict.fromkeys(
        ("view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "_unsafe_view"), _same_sizes
    ),
    **dict.fromkeys(("alias", "detach", "contiguous", "to"), _same),
    "transpose": _transposed,
    "permute": _permuted,
    "select": _selected,
    "slice": _sliced,
}
"""How the elements of a view come back to the tensor that they are of."""
