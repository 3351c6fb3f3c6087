"""New literals of calls, read from the operands and attributes that the literals became.

Nodes must remember their state in the source (`record_state`). The result gives, for every literal of a call
that changes, its place among the arguments and its new value. A change that no literal expresses is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.onnx.clones import Clone
from growc.dialects.torch.lowering.lower import OWNER
from growc.dialects.torch.operators.call import SITE, ArgumentPath, LiteralPlace
from growc.dialects.torch.operators.variances import VARIANCES, corrections
from growc.errors.diagnostic import Diagnostic, GrowError

BEFORE = "growc.before"
"""Key of a node's `meta`: its `SourceState`."""

REPEATED = {torch.ops.aten.layer_norm.default: 1, torch.ops.aten.rms_norm.default: 1}
"""Calls with an argument that repeats the last sizes of the first argument, with its position."""

LiteralElement = int | float | bool | ir.Value
"""An element of an operand: a number, or a value of one element."""


@dataclass(frozen=True)
class SourceState:
    """The attributes of a node in the source, and its operands that come from arguments of the call."""

    attributes: Mapping[str, Any]
    operands: Mapping[int, Sequence[LiteralElement]]

    def on(self, clone: Clone) -> SourceState:
        """Return the same record for a copy of the model."""
        entries = {i: [_on(entry, clone) for entry in listed] for i, listed in self.operands.items()}
        return SourceState(self.attributes, entries)


@dataclass(frozen=True, eq=False)
class Parameter:
    """A tensor for an omitted argument whose default, one number everywhere, no longer holds."""

    value: ir.Value


def _on(entry: LiteralElement, clone: Clone) -> LiteralElement:
    return clone.value(entry) if isinstance(entry, ir.Value) else entry


def record_state(nodes: Iterable[ir.Node]) -> None:
    """Record the attributes and operands of nodes, before they are changed for the first time."""
    for node in nodes:
        if SITE in node.meta and BEFORE not in node.meta:
            node.meta[BEFORE] = said(node)


def said(node: ir.Node) -> SourceState:
    """Return the current attributes and literal operands of a node."""
    taken = {place.where for place in node.meta[SITE].carried.values()}
    inputs = ((i, v) for i, v in enumerate(node.inputs) if v is not None)
    operands = {i: entries(v) for i, v in inputs if i in taken or _is_literal(v) or _is_size(v)}
    return SourceState({a.name: a.value for a in node.attributes.values()}, operands)


def _is_literal(value: ir.Value) -> bool:
    """Whether an operand is made of literals: constants of a call, possibly with sizes between them."""
    if value.const_value is not None:
        return bool(value.meta.get(OWNER) == "call")
    node = value.producer()
    return node is not None and node.op_type == "Concat" and any(v and _is_literal(v) for v in node.inputs)


def _is_size(value: ir.Value) -> bool:
    """Whether an operand is the shape of a tensor, which a change may replace."""
    node = value.producer()
    return node is not None and node.op_type == "Shape"


def entries(value: ir.Value) -> list[LiteralElement]:
    """Return the elements of an operand: numbers, and values of one element."""
    if value.const_value is not None:
        return list(value.const_value.numpy().reshape(-1).tolist())
    node = value.producer()
    if node is not None and node.op_type == "Concat":
        return [e for v in node.inputs if v is not None for e in entries(v)]
    if node is not None and node.op_type == "Slice" and SITE not in node.meta:
        whole, start = node.inputs[:2]
        assert whole is not None
        assert start is not None
        if not _is_size(whole):  # otherwise the slice is one size of a tensor
            return [entries(whole)[int(entries(start)[0])]]  # type: ignore[arg-type]
    return [value]


def changed(
    call: fx.Node, parts: Sequence[ir.Node], stored: Mapping[fx.Node, ir.Value]
) -> dict[ArgumentPath, Any]:
    """Return the new literals of a call. Elements that the graph computes are `ir.Value`s.

    stored: the current tensors of the module among the arguments of the call.

    Raises GrowError (G308) for a change that is neither a literal nor a size of these tensors.
    """
    literals: dict[ArgumentPath, Any] = {}
    for part in parts:
        carried = {place.where: (path, place) for path, place in part.meta[SITE].carried.items()}
        for where, old, new in _changes(part):
            if where not in carried:
                if where in part.meta[SITE].implied or _takes_one(part, new):
                    continue
                raise refusal(part, f"its {_label(where)} changes, which the call does not say")
            path, place = carried[where]
            current = argument(call, path)
            if isinstance(where, str):
                literals[path] = new
            elif isinstance(current, fx.Node) and current in stored:
                if new != [int(size) for size in stored[current].shape or ()]:  # type: ignore[arg-type]
                    raise refusal(part, f"its {_label(where)} is no longer the size of `{current.name}`")
            elif isinstance(current, (list, tuple, int, float)):
                literals[path] = _literal(part, current, place, old, new)
            elif set(old) != set(new):  # an omitted argument fits any size
                literals[path] = Parameter(part.inputs[where])  # type: ignore[arg-type]
    following = corrections if call.target in VARIANCES else _repeated
    return literals | dict(following(call, parts))


def _takes_one(part: ir.Node, sizes: object) -> bool:
    """Whether a constant tensor is only read at one index of each axis that changes size.

    All its elements are equal, so any element serves.
    """
    if part.op_type != "ConstantOfShape" or part.outputs[0].is_graph_output() or not isinstance(sizes, list):
        return False
    fixed_axes = [axis for axis, size in enumerate(sizes) if isinstance(size, int)]
    return all(_is_taken(user, fixed_axes, sizes) for user, _ in part.outputs[0].uses())


def _is_taken(user: ir.Node, axes: Sequence[int], sizes: Sequence[LiteralElement]) -> bool:
    index = user.inputs[1].const_value if user.op_type == "Gather" and user.inputs[1] is not None else None
    axis = user.attributes["axis"].as_int() if "axis" in user.attributes else 0
    if index is None or list(axes) != [axis % len(sizes)]:
        return False
    return index.numpy().ndim == 0 and int(index.numpy()) in (0, -1)


def argument(call: fx.Node, path: ArgumentPath) -> Any:
    """Return the argument at a path of a call, or None if it is omitted."""
    value: Any = call.args if isinstance(path[0], int) else call.kwargs
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else value[step]
    return value


def _changes(part: ir.Node) -> Iterator[tuple[int | str, Any, Any]]:
    """Yield (operand or attribute, old value, new value) for each change."""
    before: SourceState = part.meta[BEFORE]
    current = said(part)
    for name in before.attributes.keys() | current.attributes.keys():
        old, new = before.attributes.get(name), current.attributes.get(name)
        if not _same(old, new):
            yield name, old, new
    for i in range(len(part.inputs)):
        if i in before.operands and before.operands[i] != entries(part.inputs[i]):  # type: ignore[arg-type]
            yield i, before.operands[i], entries(part.inputs[i])  # type: ignore[arg-type]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, ir.TensorProtocol) and isinstance(b, ir.TensorProtocol):
        return bool(np.array_equal(a.numpy(), b.numpy()))
    return bool(a == b)


def _literal(
    part: ir.Node,
    literal: Any,
    place: LiteralPlace,
    old: Sequence[LiteralElement],
    new: Sequence[LiteralElement],
) -> Any:
    """Return a literal with its new numbers. Unchanged elements keep their form in the call."""
    old_numbers, new_numbers = (numbers[place.first :][: place.length] for numbers in (old, new))
    if isinstance(literal, (int, float)):
        return new_numbers[0] if len(set(new_numbers)) == 1 else list(new_numbers)
    if len(old_numbers) != len(new_numbers):
        raise refusal(part, f"its sizes become {len(new_numbers)}, and were {len(old_numbers)}")
    return [g if a == b else b for g, a, b in zip(literal, old_numbers, new_numbers, strict=False)]


def _repeated(call: fx.Node, parts: Sequence[ir.Node]) -> Iterator[tuple[ArgumentPath, list[int]]]:
    """Yield arguments that repeat sizes of another argument, with the sizes that the model now declares."""
    if call.target in REPEATED and parts:
        place = REPEATED[call.target]
        data, count = parts[0].inputs[0], len(call.args[place])  # type: ignore[arg-type]
        if data is not None and data.shape is not None:
            yield (place,), [int(d) for d in data.shape[-count:]]  # type: ignore[arg-type]


def _label(where: int | str) -> str:
    return f"attribute `{where}`" if isinstance(where, str) else f"operand {where}"


def refusal(node: ir.Node | None, reason: str) -> GrowError:
    """Return the error (G308) that a node of the result cannot be written as calls of torch."""
    name = "" if node is None else node.name or node.op_type
    kind = "" if node is None else f" ({node.op_type})"
    message = f"`{name}`{kind} cannot be written as a call of the module's graph"
    return GrowError(Diagnostic("G308", message, notes=(reason,)))
