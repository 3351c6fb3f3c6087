"""Functionalization of graphs: a write to a tensor becomes a new value.

torch can do this too, but decomposes whole operators on the way. Writes to buffers stay: they are running
statistics and counters of training.

A write to a view is a write to its base. The new value is put back from view to view. Any other view is
taken again once it is read. torch's own functionalization works the same way.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from itertools import pairwise, takewhile
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._ops import OpOverload

__all__ = [
    "NoOperatorError",
    "NotFunctionalError",
    "functionalise",
    "put_back",
    "put_part",
    "spelt_out",
    "without_write",
    "written_tensors",
]

aten = torch.ops.aten

STATISTICS = {aten.batch_norm.default: (3, 4), aten.instance_norm.default: (3, 4)}
"""Operators that update statistics in training, which their schemas do not say; the places of these."""
WITH_STATISTICS = 5
"""The place of the operand that says whether they do."""

OperatorCall = tuple[Any, tuple[object, ...]]
"""An operator and its arguments."""


class NotFunctionalError(Exception):
    """A write of an unknown kind."""


class NoOperatorError(NotFunctionalError):
    """A write that no other operator expresses, for any sizes."""


def functionalise(graph: fx.Graph, buffers: Collection[str]) -> None:
    """Replace writes by new values. Writes to the placeholders named in `buffers` stay.

    Raises NotFunctionalError for a write that no other operators express.
    """
    if writes(graph):
        _Rewriting(graph, buffers).run()


def written_tensors(graph: fx.Graph) -> set[fx.Node]:
    """Return the tensors that a run changes. A view counts as the tensor that it may show."""
    first = _first_tensors(graph)
    kept = [
        node.args[k]
        for node in graph.nodes
        if node.target in STATISTICS and node.args[WITH_STATISTICS]
        for k in STATISTICS[node.target]
    ]
    return {first[node] for node in (*writes(graph), *kept) if isinstance(node, fx.Node)}


def writes(graph: fx.Graph) -> list[fx.Node]:
    """Return the nodes that a graph writes to. After `functionalise` these are buffers, in evaluation too."""
    return [target for node in graph.nodes if (target := _target(node)) is not None]


class _Rewriting:
    """One pass over a graph, in order. A tensor is represented by the node that made it.

    shows: the tensor that a view shows.
    taken: the node that a view is taken from. For the parts of a split it is the list of parts.
    same: for a node that returns a given tensor, that tensor.
    now: the node that has a tensor's latest value, if it is another node.
    writes: the number of writes to a tensor that is no view.
    read: for a view, the number of these writes when it was last taken.
    written: the first tensors of the chains of views that some write may reach.
    first: for each node, the first tensor of the longest chain of views that it may belong to.
    trace: the place in the forward that inserted nodes belong to.
    """

    def __init__(self, graph: fx.Graph, buffers: Collection[str]) -> None:
        self.graph, self.buffers = graph, buffers
        self.shows: dict[fx.Node, fx.Node] = {}
        self.taken: dict[fx.Node, fx.Node] = {}
        self.same: dict[fx.Node, fx.Node] = {}
        self.now: dict[fx.Node, fx.Node] = {}
        self.writes: Counter[fx.Node] = Counter()
        self.read: dict[fx.Node, int] = {}
        self.first = _first_tensors(graph)
        self.written = {self.first[target] for target in writes(graph)}
        self.trace: object = None

    def run(self) -> None:
        written = []
        for node in list(self.graph.nodes):
            target, source = _target(node), self._source(node)
            self.trace = node.meta.get("stack_trace")
            with self.graph.inserting_before(node):
                node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), self._by_now)
            if target is not None:
                tensor = self.same[node] = self._tensor(target)
                if self._chain(tensor)[-1].name not in self.buffers:
                    self._write(node, tensor)
                    written.append(node)
            elif source is not None:
                self.taken[node] = self._tensor(source)
                self.shows[node] = self.shows[source] if _is_part(node) else self._tensor(source)
                self.read[node] = self.writes[self._chain(node)[-1]]
        for node in reversed(written):
            self.graph.erase_node(node)

    def _source(self, node: fx.Node) -> fx.Node | None:
        """Return the node that a view is taken from. A part is a view if the list of parts is one.

        Views that no write reaches do not count: to tell whether they are views, torch must run them again.
        """
        if self.first[node] not in self.written:
            return None
        if not _is_part(node):
            return _source(node)
        return _node(node.args[0]) if node.args[0] in self.shows else None

    def _tensor(self, node: fx.Node) -> fx.Node:
        return self.same.get(node, node)

    def _by_now(self, node: fx.Node) -> fx.Node:
        """Return the node with a tensor's current value. A view is taken again if its base was written to."""
        tensor = self._tensor(node)
        if tensor in self.shows and self.read[tensor] != (writes := self.writes[self._chain(tensor)[-1]]):
            source = self._by_now(self.taken[tensor])
            self.now[tensor] = self._insert(tensor.target, (source, *tensor.args[1:]), tensor)
            self.read[tensor] = writes
        return self.now.get(tensor, tensor)

    def _chain(self, tensor: fx.Node) -> list[fx.Node]:
        """Return a tensor, the tensor that it shows, and so on to the base."""
        chain = [tensor]
        while chain[-1] in self.shows:
            chain.append(self.shows[chain[-1]])
        return chain

    def _write(self, node: fx.Node, tensor: fx.Node) -> None:
        chain = self._chain(tensor)
        with self.graph.inserting_before(node):
            value = self.now[tensor] = self._as_written(node)
            if aten.detach_.default is node.target:
                return
            for view, shown in pairwise(chain):
                value = self.now[shown] = self._insert(*_restored(view, self._by_now(shown), value))
        self.writes[chain[-1]] += 1
        self.read |= dict.fromkeys(chain[:-1], self.writes[chain[-1]])

    def _as_written(self, node: fx.Node) -> fx.Node:
        """Return the value after a write, in the shape and dtype of the tensor that is written to."""
        before = _node(node.args[0])
        if node.target is aten.copy_.default:
            value = _node(node.args[1])
            if value.meta["val"].shape != before.meta["val"].shape:
                value = self._insert(aten.expand_as.default, (value, before))
        else:
            assert isinstance(node.target, OpOverload), "what writes is an operator"
            value = self._insert(
                without_write(node.target), spelt_out(node.target, node.args, node.kwargs), node
            )
        if value.meta["val"].dtype != before.meta["val"].dtype:
            value = self._insert(aten.to.dtype, (value, before.meta["val"].dtype))
        return value

    def _insert(self, target: Any, args: tuple[Any, ...], like: fx.Node | None = None) -> fx.Node:
        call = self.graph.call_function(target, args, dict(like.kwargs) if like else {})
        call.meta["val"] = _value(call)
        call.meta["stack_trace"] = self.trace
        return call


def _target(node: fx.Node) -> fx.Node | None:
    """Return the node that a node writes to, or None. Raises NotFunctionalError."""
    if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
        return None
    arguments = node.target._schema.arguments
    values_by_name = {a.name: value for a, value in zip(arguments, node.args, strict=False)} | node.kwargs
    written = [
        values_by_name[a.name]
        for a in arguments
        if a.alias_info and a.alias_info.is_write and a.name in values_by_name
    ]
    if len(written) != 1 or written[0] is not node.args[0]:
        raise NotFunctionalError(f"`{node.target}` writes to more than its first argument")
    return _node(written[0])


def _first_tensors(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Return, for each node, the first tensor of the longest chain of views that it may belong to."""
    first: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        source = _possible_source(node)
        first[node] = node if source is None else first[source]
    return first


def _is_part(node: fx.Node) -> bool:
    return node.target is operator.getitem


def _possible_source(node: fx.Node) -> fx.Node | None:
    """Return the tensor whose memory the result of a node may show, or None."""
    arguments = node.target._schema.arguments if isinstance(node.target, OpOverload) else ()
    shows = _is_part(node) or (arguments and arguments[0].alias_info is not None)
    return node.args[0] if shows and isinstance(node.args[0], fx.Node) else None


def _source(node: fx.Node) -> fx.Node | None:
    """Return the tensor that a view is taken from, or None.

    An operator that may return a view returned one if the memory is the same.
    """
    source = None if _target(node) is not None else _possible_source(node)
    if source is None:
        return None
    result = _value(node)
    result = result[0] if isinstance(result, (list, tuple)) else result
    memory = source.meta["val"].untyped_storage()._cdata
    return source if result.untyped_storage()._cdata == memory else None


def _node(value: Any) -> fx.Node:
    if not isinstance(value, fx.Node):
        raise NotFunctionalError(f"`{value}` is no tensor of the graph")
    return value


def _value(node: fx.Node) -> Any:
    """Return the result of a node, computed on fake tensors."""
    if _is_part(node):
        return _node(node.args[0]).meta["val"][node.args[1]]
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
    mode = detect_fake_mode([n.meta["val"] for n in node.all_input_nodes])
    with mode or nullcontext():  # constants of a forward may have values
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _restored(view: fx.Node, shown: fx.Node, value: fx.Node) -> OperatorCall:
    """Return the call that puts a view's new value into the tensor that it shows."""
    if not _is_part(view):
        return put_back(view.target, view.args[1:], shown, value)
    parts = _node(view.args[0])
    return put_part(parts.target, (parts.args, parts.kwargs), parts.meta["val"], view.args[1], shown, value)


def without_write(target: OpOverload) -> Any:
    """Return the operator that computes the value after a write, without writing. Raises NoOperatorError."""
    if target is aten.zero_.default:
        return aten.zeros_like.default
    name = target._schema.name.removeprefix("aten::")
    plain = name.replace("__i", "__", 1) if name.startswith("__i") else name.removesuffix("_")
    reshapes = torch.Tag.inplace_view in target.tags and target is not aten.detach_.default
    packets = [getattr(aten, known, None) for known in (plain, f"{plain}_functional")]
    others = (getattr(packet, overload) for packet in packets if packet for overload in packet.overloads())
    match = next((other for other in others if _takes(other) == _takes(target)), None)
    if match is None or plain == name or reshapes:
        raise NoOperatorError(f"`{target}` has no operator without a write")
    return match


def spelt_out(target: OpOverload, args: Sequence[object], kwargs: Collection[str]) -> tuple[object, ...]:
    """Return the positional arguments, with omitted ones filled in.

    The operator without a write may require them.
    """
    left_out = target._schema.arguments[len(args) :]
    defaults = takewhile(lambda one: not one.kwarg_only and one.name not in kwargs, left_out)
    return (*args, *(one.default_value for one in defaults))


def _takes(target: OpOverload) -> list[tuple[str, str]]:
    """Return the names and types of an operator's arguments.

    The first one has no name: it is `self` of `dropout_`, and `input` of `dropout`.
    """
    first, *others = target._schema.arguments
    return [("", str(first.type)), *((one.name, str(one.type)) for one in others)]


def put_back(target: Any, rest: tuple[Any, ...], shown: object, value: object) -> OperatorCall:
    """Return the call that puts the new value of a view into the tensor that it shows.

    target, rest: the operator that takes the view, and its arguments after the first. Raises
    NotFunctionalError for an operator whose views cannot be put back.
    """
    if target is aten.slice.Tensor:
        whole = _shape(value) == _shape(shown)
        return (
            (aten.alias.default, (value,)) if whole else (aten.slice_scatter.default, (shown, value, *rest))
        )
    if target is aten.select.int:
        return aten.select_scatter.default, (shown, value, *rest)
    if target in (aten.transpose.int, aten.t.default):
        return target, (value, *rest)
    if target is aten.permute.default:
        order = [axis % len(rest[0]) for axis in rest[0]]
        return aten.permute.default, (value, [order.index(axis) for axis in range(len(order))])
    if target in IN_ORDER:
        return aten.reshape_as.default, (value, shown)
    raise NotFunctionalError(f"a view by `{target}` is written to")


def _shape(tensor: Any) -> list[str]:
    return [str(size) for size in (tensor.meta["val"] if isinstance(tensor, fx.Node) else tensor).shape]


def put_part(target: Any, called: Any, sizes: Any, number: Any, shown: Any, value: object) -> OperatorCall:
    """Return the call that puts the new value of one part into the tensor that was split.

    sizes: the parts as tensors. Raises NotFunctionalError.
    """
    assert isinstance(target, OpOverload)
    args, kwargs = called
    values_by_name = dict(zip((a.name for a in target._schema.arguments), args, strict=False)) | kwargs
    dim: object = values_by_name.get("dim", 0)
    if target is aten.unbind.int:
        return aten.select_scatter.default, (shown, value, dim, number)
    ends = [0]
    for part in sizes[: number + 1]:
        ends.append(ends[-1] + part.shape[dim])
    if target not in PARTS or not all(isinstance(end, int) for end in ends):
        raise NotFunctionalError(f"a part by `{target}` is written to")
    return aten.slice_scatter.default, (shown, value, dim, *ends[-2:])


PARTS = frozenset({aten.chunk.default, aten.split.Tensor, aten.split.sizes, aten.split_with_sizes.default})
"""Operators that split a tensor along an axis."""

IN_ORDER = frozenset(
    {
        aten.alias.default,
        aten.contiguous.default,
        aten.detach.default,
        aten.flatten.using_ints,
        aten.reshape.default,
        aten.squeeze.dim,
        aten.to.dtype,
        aten.unflatten.int,
        aten.unsqueeze.default,
        aten.view.default,
        aten.view_as.default,
    }
)
"""Views that show all elements in the same order."""
