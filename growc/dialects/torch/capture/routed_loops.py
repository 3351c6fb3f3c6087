"""Data-dependent loops: `for number in counts.nonzero()` is unrolled over all possible numbers.

A forward that skips experts without tokens is captured with all experts. An expert without tokens works on no
rows. The two programs are shown to be equal, by a program with all numbers and programs of the same forward
with fewer. For a number that is not hit, `where` on its counts is empty, and adding no rows changes nothing.
Without such nodes the first program must equal the other, operator by operator. A loop that does anything
else is refused, and the refusal names its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.node import has_side_effect

from growc.dialects.torch.operators.table import TRAITS, key_of
from growc.ir.traits import REPEAT, SAME, TAKE, TURN, VIEW, WRITE, Trait

__all__ = [
    "SOME",
    "Chosen",
    "NotIdleError",
    "drop_loop_marks",
    "every",
    "over",
    "require_idle",
    "taken",
    "unrolled_loop_sizes",
    "unrolls",
]

Chosen = Callable[[int, int], bool]
"""Whether loops run over a number. Arguments: the number, and how many numbers are possible."""


def every(_number: int, _most: int) -> bool:
    """Choose all possible numbers."""
    return True


SOME: tuple[Chosen, ...] = (
    lambda _number, _most: False,
    lambda number, most: number == 1 or (number % 2 == 1 and number < most - 1),
)
"""Two choices: no number, and some without the first and mostly without the last.

They reveal a loop that counts its rounds, or treats these numbers in a special way.
"""

LIBRARY: Any = torch.library.Library("growc", "DEF")
LIBRARY.define("routed_loop(Tensor numbers, int most) -> ()")
LIBRARY.impl("routed_loop", lambda numbers, most: None, "CompositeExplicitAutograd")
ROUTED_LOOP = torch.ops.growc.routed_loop.default
"""The node that marks in a program that a loop ran over these numbers."""
has_side_effect(ROUTED_LOOP)
RAN = "growc.routed_loop"
"""The key of a program's `meta` for its loops: how many numbers each ran over, and where it stands."""

aten = torch.ops.aten
FOUND = frozenset({aten.nonzero.default, aten.where.default})
"""Operators that find the non-zero elements of a tensor."""
COMPARED = frozenset({aten.gt.Scalar, aten.greater.Scalar, aten.ne.Scalar, aten.not_equal.Scalar})
"""Comparisons that, against zero, are false exactly where a natural number is zero."""
TOTALS = frozenset({aten.sum.dim_IntList, aten.any.dim, aten.any.dims, aten.amax.default})
"""Reductions of natural numbers that are zero exactly where all numbers along the axes are zero."""
MOVED = (SAME, VIEW, TURN, REPEAT)
"""Traits of operators that keep every element of their input."""


class NotIdleError(Exception):
    """A loop that cannot be shown to do nothing for numbers that are not hit."""


@contextmanager
def over(chosen: Chosen = every) -> Iterator[None]:
    """Let data-dependent loops run over the chosen ones of all possible numbers."""
    usual: Any = Tensor.__iter__
    plain: Any = Tensor.__format__

    def each(self: Tensor) -> Any:
        most = _most(self)
        if most is None:
            return usual(self)
        if get_proxy_mode() is not None:
            ROUTED_LOOP(self, most)
        numbers = [number for number in range(most) if chosen(number, most)]
        return iter([torch.tensor([number] if self.ndim == 2 else number) for number in numbers])

    def spelt(self: Tensor, form: str) -> Any:
        known = isinstance(self, FakeTensor) and self.constant is not None and self.ndim == 0
        return format(self.item(), form) if known else plain(self, form)

    with mock.patch.object(Tensor, "__iter__", each), mock.patch.object(Tensor, "__format__", spelt):
        yield


def unrolls(program: ExportedProgram) -> bool:
    """Whether a program has an unrolled data-dependent loop."""
    return any(node.target is ROUTED_LOOP for node in program.graph.nodes)


def require_idle(whole: ExportedProgram, part: ExportedProgram, chosen: Chosen) -> None:
    """Check that two programs are equal if data hit only the chosen numbers.

    Raises NotIdleError with the place in the forward where they differ.
    """
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.output(graph.graph_copy(whole.graph, copies))
    stored = _stored(whole)
    ours_stored = {copy: stored[node] for node, copy in copies.items() if node in stored}
    _leave_out(graph, ours_stored, chosen)
    for program_graph in (graph, part.graph):
        program_graph.eliminate_dead_code(_stays)
    twins: dict[fx.Node, Any] = dict(ours_stored)
    theirs_stored: dict[fx.Node, Any] = dict(_stored(part))
    for ours, theirs in zip_longest(_calls(graph), _calls(part.graph)):
        if ours is None or theirs is None or _said(ours, twins) != _said(theirs, theirs_stored):
            place = _place(ours or theirs)
            raise NotIdleError(f"its loop over what is not zero does something where nothing is{place}")
        twins[ours] = theirs


def drop_loop_marks(program: ExportedProgram) -> None:
    """Remove the marks of loops; `taken` and `unrolled_loop_sizes` report them from then on."""
    marks = [node for node in program.graph.nodes if node.target is ROUTED_LOOP]
    program.graph_module.meta[RAN] = tuple(dict.fromkeys((node.args[1], _place(node)) for node in marks))
    for node in marks:
        program.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def taken(program: ExportedProgram) -> tuple[str, ...]:
    """Return the notes of a plan on loops that run over all numbers."""
    loops = program.graph_module.meta.get(RAN, ())
    note = "a loop over what is not zero runs over all of {}{}: the others do nothing"
    return tuple(note.format(*loop) for loop in loops)


def unrolled_loop_sizes(program: ExportedProgram) -> frozenset[int]:
    """Return how many numbers the loops of a program ran over."""
    return frozenset(most for most, _ in program.graph_module.meta.get(RAN, ()))


def _most(tensor: Tensor) -> int | None:
    """Return how many numbers are possible in a data-dependent list, or None for any other tensor."""
    if not isinstance(tensor, FakeTensor) or tensor.dtype is not torch.int64 or tensor.ndim not in (1, 2):
        return None
    length = tensor.shape[0]
    if isinstance(length, int) or (tensor.ndim == 2 and tensor.shape[1] != 1):
        return None
    environment, symbol = length.node.shape_env, length.node.expr
    if symbol not in environment.var_to_range or length.node.has_hint():
        return None
    most = environment.var_to_range[symbol].upper
    return int(most) if most.is_Integer and most < MANY else None


MANY = 1 << 16
"""The bound from which a length counts as unknown. torch gives such bounds to lengths without a known limit.
"""


# ---------------------------------------------------------------------------------- numbers that are not hit


def _leave_out(graph: fx.Graph, stored: Mapping[fx.Node, PlaceholderIdentity], chosen: Chosen) -> None:
    """Remove the writes to elements that belong to numbers that are not hit."""
    counts = [(node.args[1], *_counted(node)) for node in graph.nodes if node.target is ROUTED_LOOP]
    empty: set[str] = set()
    for node in graph.nodes:
        if node.target in FOUND and (row := _row(node.args[0], stored)) is not None:
            *source, number = row
            if any(source == counted and not chosen(number, most) for most, *counted in counts):
                empty.add(_length(node))
    for node in [
        node for node in graph.nodes if _has(node, WRITE)
    ]:  # writing an empty tensor changes nothing
        values = [one.meta["val"] for one in node.all_input_nodes if one is not node.args[0]]
        if any(str(size) in empty for one in values for size in getattr(one, "shape", ())):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _length(node: fx.Node) -> str:
    value = node.meta["val"]
    return str((value[0] if isinstance(value, (list, tuple)) else value).shape[0])


def _counted(mark: Any) -> tuple[fx.Node, int]:
    """Return the tensor whose non-zero elements a loop runs over, and the axis. Raises NotIdleError."""
    nonzero = _listed(mark.args[0])
    if nonzero.target is not aten.nonzero.default:
        raise NotIdleError(f"its loop runs over numbers that data decide{_place(mark)}")
    node, axis = _compared(nonzero.args[0]), 0
    while node.target in TOTALS:
        whole, dims, *keepdim = node.args
        wide = node.meta["val"].dtype in (torch.bool, torch.int64)
        if keepdim or node.kwargs.get("keepdim") or not wide or not _natural(whole):
            raise NotIdleError(f"its loop runs over totals that may be zero of what is not{_place(nonzero)}")
        rank = whole.meta["val"].ndim
        reduced = {dim % rank for dim in (dims if isinstance(dims, (list, tuple)) else [dims])}
        axis = [k for k in range(rank) if k not in reduced][axis]
        node = _compared(whole)
    return node, axis


def _compared(node: Any) -> Any:
    """Return the tensor that is zero where a comparison with zero is false."""
    while node.target in COMPARED and node.args[1] == 0 and _natural(node.args[0]):
        node = node.args[0]
    return node


def _natural(node: Any) -> bool:
    """Whether all elements, or a plain number, are at least zero."""
    if not isinstance(node, fx.Node) or not isinstance(node.meta.get("val"), Tensor):
        return isinstance(node, int) and node >= 0
    dtype = node.meta["val"].dtype
    if dtype in (torch.bool, torch.uint8) or node.target is aten.one_hot.default:
        return True
    if dtype.is_floating_point or dtype.is_complex:
        return False
    if node.target is aten.mul.Tensor:
        return all(_natural(one) for one in node.args[:2])
    passes_elements = _has(node, *MOVED, TAKE) or node.target in TOTALS or node.target is aten.cumsum.default
    return passes_elements and _natural(node.args[0])


def _row(node: Any, stored: Mapping[fx.Node, PlaceholderIdentity]) -> tuple[fx.Node, int, int] | None:
    """Return the source of a tensor that has the elements at one number of an axis, the axis and the number.

    A comparison of these elements with zero counts as the elements, since it is zero where they are.
    """
    while _has(node, *MOVED) or (node.target in COMPARED and node.args[1] == 0):
        node = node.args[0]
    if node.target is aten.select.int and isinstance(node.args[2], int):
        source, dim, number = node.args
        return source, dim % source.meta["val"].ndim, number
    if node.target is aten.index.Tensor:
        indices = [(axis, index) for axis, index in enumerate(node.args[1]) if index is not None]
        value = _known(indices[0][1], stored) if len(indices) == 1 else None
        return None if value is None else (node.args[0], indices[0][0], value)
    return None


def _known(node: fx.Node, stored: Mapping[fx.Node, PlaceholderIdentity]) -> int | None:
    """Return the number that a tensor of one element holds, or None if it is unknown."""
    if any(size != 1 for size in node.meta["val"].shape):
        return None
    identity = stored.get(_listed(node))
    numbers = identity.numbers if identity is not None else None
    return None if numbers is None or len(numbers) != 1 else int(numbers[0])


def _listed(node: Any) -> Any:
    """Return the node that a list of numbers comes from, with the same numbers in the same order."""
    while _has(node, SAME, VIEW) or node.target is aten.select.int:
        node = node.args[0]
    return node


def _has(node: fx.Node, *traits: Trait) -> bool:
    """Whether the operator of a call has one of these traits."""
    return node.op == "call_function" and TRAITS.get(key_of(node.target)) in traits


# ---------------------------------------------------------------------------------- the same program


@dataclass(frozen=True)
class PlaceholderIdentity:
    """The identity of a placeholder: the name of an input or tensor, or the numbers of a constant."""

    kind: InputKind
    name: str
    numbers: tuple[float, ...] | None = None


def _stored(program: ExportedProgram) -> dict[fx.Node, PlaceholderIdentity]:
    """Return the identities of a program's placeholders, independent of their names in it."""
    identities: dict[fx.Node, PlaceholderIdentity] = {}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = specs[node.name]
        name = str(spec.target or spec.arg.name)
        value = program.constants.get(name) if spec.kind is InputKind.CONSTANT_TENSOR else None
        value = value.constant if isinstance(value, FakeTensor) else value
        if isinstance(value, Tensor) and not value.is_meta:
            kind = f"{value.dtype} {tuple(value.shape)}"
            identities[node] = PlaceholderIdentity(spec.kind, kind, tuple(value.flatten().tolist()))
        else:
            identities[node] = PlaceholderIdentity(spec.kind, name)
    return identities


def _stays(node: fx.Node) -> bool:
    """Whether an unread call matters. torch would also keep all calls that could draw random numbers."""
    writes = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
    return node.op in ("placeholder", "output") or node.target is ROUTED_LOOP or writes


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op != "placeholder"]


def _said(node: fx.Node, names: Mapping[fx.Node, Any]) -> str:
    """Return a call with its operands as text. `names` holds replacements for nodes."""
    operands = fx.map_arg((node.args, node.kwargs), lambda one: names.get(one, one))
    return f"{node.op} {node.target} {operands!r}"


def _place(node: fx.Node | None) -> str:
    """Return the place of a call in the forward, as a suffix of a message."""
    trace = str(node.meta.get("stack_trace", "")) if node is not None else ""
    places = re.findall(r'File "(.+?)", line (\d+), in (\w+)', trace)
    return f", at {Path(places[-1][0]).name}:{places[-1][1]} (`{places[-1][2]}`)" if places else ""
