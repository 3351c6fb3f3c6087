"""Loops over what data hit: `for number in counts.nonzero()` runs over all numbers that there can be.

A forward that skips the experts that no token chose is captured with all of them: one that none chose works
on no rows. That this is the same is shown, and not assumed. Needs: a program with all numbers, and programs
of the same forward with fewer. Where a number is not hit, `where` of what it counts gives nothing, and adding
rows that are none does nothing: without that, the first program must be the other, operator by operator.
Whatever else a loop does is refused by its place.
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
    "every",
    "forget",
    "looped",
    "over",
    "require_idle",
    "taken",
    "unrolls",
]

Chosen = Callable[[int, int], bool]
"""Whether loops run over a number, of so many that there can be."""


def every(_number: int, _most: int) -> bool:
    """All numbers that there can be."""
    return True


SOME: tuple[Chosen, ...] = (
    lambda _number, _most: False,
    lambda number, most: number == 1 or (number % 2 == 1 and number < most - 1),
)
"""None, and some without the first and mostly the last: what a loop counts, or does for these, shows."""

LIBRARY: Any = torch.library.Library("growc", "DEF")
LIBRARY.define("hits(Tensor numbers, int most) -> ()")
LIBRARY.impl("hits", lambda numbers, most: None, "CompositeExplicitAutograd")
HITS = torch.ops.growc.hits.default
"""Says in a program that a loop ran over these numbers."""
has_side_effect(HITS)
RAN = "growc.hits"
"""Key of a program's `meta`: over how many numbers its loops ran, and where."""

aten = torch.ops.aten
FOUND = frozenset({aten.nonzero.default, aten.where.default})
"""What tells where a tensor is not zero."""
COMPARED = frozenset({aten.gt.Scalar, aten.greater.Scalar, aten.ne.Scalar, aten.not_equal.Scalar})
"""Comparisons: with zero they are false where a natural number is zero, and only there."""
TOTALS = frozenset({aten.sum.dim_IntList, aten.any.dim, aten.any.dims, aten.amax.default})
"""What is zero where all natural numbers along some axes are."""
MOVED = (SAME, VIEW, TURN, REPEAT)
"""Laws of operators that give every element that they are given."""


class NotIdleError(Exception):
    """A loop that cannot be shown to do nothing for what no data hit."""


@contextmanager
def over(chosen: Chosen = every) -> Iterator[None]:
    """Loops over numbers that data decide run over the chosen ones of all that there can be."""
    usual: Any = Tensor.__iter__
    plain: Any = Tensor.__format__

    def each(self: Tensor) -> Any:
        most = _most(self)
        if most is None:
            return usual(self)
        if get_proxy_mode() is not None:
            HITS(self, most)
        numbers = [number for number in range(most) if chosen(number, most)]
        return iter([torch.tensor([number] if self.ndim == 2 else number) for number in numbers])

    def spelt(self: Tensor, form: str) -> Any:
        known = isinstance(self, FakeTensor) and self.constant is not None and self.ndim == 0
        return format(self.item(), form) if known else plain(self, form)

    with mock.patch.object(Tensor, "__iter__", each), mock.patch.object(Tensor, "__format__", spelt):
        yield


def unrolls(program: ExportedProgram) -> bool:
    """Whether a loop over what data hit runs over all numbers in it."""
    return any(node.target is HITS for node in program.graph.nodes)


def require_idle(whole: ExportedProgram, part: ExportedProgram, chosen: Chosen) -> None:
    """Check that one program is the other where data hit only the chosen numbers.

    Raises NotIdleError with the place in the forward that differs.
    """
    graph, copied = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.output(graph.graph_copy(whole.graph, copied))
    stored = _stored(whole)
    ours_stored = {made: stored[node] for node, made in copied.items() if node in stored}
    _leave_out(graph, ours_stored, chosen)
    for one in (graph, part.graph):
        one.eliminate_dead_code(_stays)
    twins: dict[fx.Node, Any] = dict(ours_stored)
    theirs_stored: dict[fx.Node, Any] = dict(_stored(part))
    for ours, theirs in zip_longest(_calls(graph), _calls(part.graph)):
        if ours is None or theirs is None or _said(ours, twins) != _said(theirs, theirs_stored):
            place = _place(ours or theirs)
            raise NotIdleError(f"its loop over what is not zero does something where nothing is{place}")
        twins[ours] = theirs


def forget(program: ExportedProgram) -> None:
    """Drop what says that loops ran; `taken` tells it from then on."""
    ran = [node for node in program.graph.nodes if node.target is HITS]
    program.graph_module.meta[RAN] = tuple(dict.fromkeys((node.args[1], _place(node)) for node in ran))
    for node in ran:
        program.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def taken(program: ExportedProgram) -> tuple[str, ...]:
    """What a reader of a plan should know of loops that run over all numbers."""
    ran = program.graph_module.meta.get(RAN, ())
    said = "a loop over what is not zero runs over all of {}{}: the others do nothing"
    return tuple(said.format(*one) for one in ran)


def looped(program: ExportedProgram) -> frozenset[int]:
    """Over how many numbers its loops ran."""
    return frozenset(most for most, _ in program.graph_module.meta.get(RAN, ()))


def _most(tensor: Tensor) -> int | None:
    """How many numbers there can be, of a tensor that lists them; None for what is no such list."""
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
"""Of so many there is no loop: torch says it of those that have no known number."""


# ---------------------------------------------------------------------------------- what is not hit


def _leave_out(graph: fx.Graph, stored: Mapping[fx.Node, Stored], chosen: Chosen) -> None:
    """Take out what changes the elements that the numbers that are not hit would choose."""
    counts = [(node.args[1], *_counted(node)) for node in graph.nodes if node.target is HITS]
    empty: set[str] = set()
    for node in graph.nodes:
        if node.target in FOUND and (row := _row(node.args[0], stored)) is not None:
            *of, number = row
            if any(of == counted and not chosen(number, most) for most, *counted in counts):
                empty.add(_length(node))
    for node in [node for node in graph.nodes if _has(node, WRITE)]:  # what is empty is written nowhere
        beside = [one.meta["val"] for one in node.all_input_nodes if one is not node.args[0]]
        if any(str(size) in empty for one in beside for size in getattr(one, "shape", ())):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _length(found: fx.Node) -> str:
    made = found.meta["val"]
    return str((made[0] if isinstance(made, (list, tuple)) else made).shape[0])


def _counted(hits: Any) -> tuple[fx.Node, int]:
    """What a loop counts the elements of that are not zero, and along which axis. Raises NotIdleError."""
    found = _listed(hits.args[0])
    if found.target is not aten.nonzero.default:
        raise NotIdleError(f"its loop runs over numbers that data decide{_place(hits)}")
    node, axis = _compared(found.args[0]), 0
    while node.target in TOTALS:
        whole, dims, *kept = node.args
        wide = node.meta["val"].dtype in (torch.bool, torch.int64)
        if kept or node.kwargs.get("keepdim") or not wide or not _natural(whole):
            raise NotIdleError(f"its loop runs over totals that may be zero of what is not{_place(found)}")
        rank = whole.meta["val"].ndim
        gone = {dim % rank for dim in (dims if isinstance(dims, (list, tuple)) else [dims])}
        axis = [k for k in range(rank) if k not in gone][axis]
        node = _compared(whole)
    return node, axis


def _compared(node: Any) -> Any:
    """What is zero where a comparison with zero is false."""
    while node.target in COMPARED and node.args[1] == 0 and _natural(node.args[0]):
        node = node.args[0]
    return node


def _natural(node: Any) -> bool:
    """Whether no element is below zero, or no number."""
    if not isinstance(node, fx.Node) or not isinstance(node.meta.get("val"), Tensor):
        return isinstance(node, int) and node >= 0
    dtype = node.meta["val"].dtype
    if dtype in (torch.bool, torch.uint8) or node.target is aten.one_hot.default:
        return True
    if dtype.is_floating_point or dtype.is_complex:
        return False
    if node.target is aten.mul.Tensor:
        return all(_natural(one) for one in node.args[:2])
    kept = _has(node, *MOVED, TAKE) or node.target in TOTALS or node.target is aten.cumsum.default
    return kept and _natural(node.args[0])


def _row(node: Any, stored: Mapping[fx.Node, Stored]) -> tuple[fx.Node, int, int] | None:
    """Of what a tensor has the elements, along which axis they have one number, and that number.

    What compares them with zero is zero where they are.
    """
    while _has(node, *MOVED) or (node.target in COMPARED and node.args[1] == 0):
        node = node.args[0]
    if node.target is aten.select.int and isinstance(node.args[2], int):
        source, dim, number = node.args
        return source, dim % source.meta["val"].ndim, number
    if node.target is aten.index.Tensor:
        given = [(axis, one) for axis, one in enumerate(node.args[1]) if one is not None]
        value = _known(given[0][1], stored) if len(given) == 1 else None
        return None if value is None else (node.args[0], given[0][0], value)
    return None


def _known(node: fx.Node, stored: Mapping[fx.Node, Stored]) -> int | None:
    """The one number that a tensor of one element has."""
    if any(size != 1 for size in node.meta["val"].shape):
        return None
    held = stored.get(_listed(node))
    numbers = held.numbers if held is not None else None
    return None if numbers is None or len(numbers) != 1 else int(numbers[0])


def _listed(node: Any) -> Any:
    """What has the numbers of a list, in their order."""
    while _has(node, SAME, VIEW) or node.target is aten.select.int:
        node = node.args[0]
    return node


def _has(node: fx.Node, *traits: Trait) -> bool:
    """Whether one of these laws holds of what a call gives."""
    return node.op == "call_function" and TRAITS.get(key_of(node.target)) in traits


# ---------------------------------------------------------------------------------- the same program


@dataclass(frozen=True)
class Stored:
    """What a placeholder is: an input or tensor of the module by name, or numbers that its forward has."""

    kind: InputKind
    name: str
    numbers: tuple[float, ...] | None = None


def _stored(program: ExportedProgram) -> dict[fx.Node, Stored]:
    """The placeholders of a program, whatever they are called in it."""
    found: dict[fx.Node, Stored] = {}
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
            found[node] = Stored(spec.kind, kind, tuple(value.flatten().tolist()))
        else:
            found[node] = Stored(spec.kind, name)
    return found


def _stays(node: fx.Node) -> bool:
    """Whether a call that nothing reads matters: torch thinks so of all that could draw numbers."""
    writes = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
    return node.op in ("placeholder", "output") or node.target is HITS or writes


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op != "placeholder"]


def _said(node: fx.Node, names: Mapping[fx.Node, Any]) -> str:
    """A call with its operands; `names`: what is called otherwise."""
    given = fx.map_arg((node.args, node.kwargs), lambda one: names.get(one, one))
    return f"{node.op} {node.target} {given!r}"


def _place(node: fx.Node | None) -> str:
    """Where in the forward a call stands."""
    trace = str(node.meta.get("stack_trace", "")) if node is not None else ""
    found = re.findall(r'File "(.+?)", line (\d+), in (\w+)', trace)
    return f", at {Path(found[-1][0]).name}:{found[-1][1]} (`{found[-1][2]}`)" if found else ""
