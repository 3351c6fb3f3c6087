"""One call of an FX graph while it is lowered: what it was given, and the nodes that stand for it.

Rules (growc.dialects.torch.operators.table) are written with it. A literal of the call that becomes an
operand or an attribute stays traceable: the node that takes it remembers which argument it was
(`Site.carried`), so that a change of the operand can be written back into the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.onnx.capture.capture import ASSUMED
from growc.dialects.onnx.capture.fused_ops import Lowering
from growc.ir.walk import walk

SITE = "growc.fx"
"""Key of a node's `meta`: its `Site`."""

Path = tuple[int | str, ...]
"""Where a literal stands among the arguments of a call: (1,), or ("dim",)."""


Size = int | fx.Node
"""A size: a number, or the call that gives it."""

Extents = int | Sequence[int]
"""One for each axis of an image, or one for all of them."""

Dims = int | Sequence[int] | None
"""Numbers of axes, from the end where they are negative; None: all axes."""

Operand = fx.Node | float
"""A tensor, or a number."""

Given = Size | ir.Value
"""A size that an operand holds."""


class Place(NamedTuple):
    """Where a literal went: an operand or attribute of a node, its first element there, and how many it has;
    None: all that follow.
    """

    where: int | str
    first: int = 0
    length: int | None = None


@dataclass(eq=False)
class Site:
    """The call that a node comes from, and the literals of the call that it took.

    results: for outputs of the node, what they are in the FX graph: a call, or item `k` of it.
    operands: for operands of the node, the arguments of the call that they are.
    implied: operands and attributes that are sizes of the call's tensors: the call does not say them.
    """

    node: fx.Node
    carried: dict[Path, Place] = field(default_factory=dict)
    results: dict[int, list[tuple[fx.Node, int | None]]] = field(default_factory=dict)
    operands: dict[int, fx.Node] = field(default_factory=dict)
    implied: set[int | str] = field(default_factory=set)


TYPES: Mapping[torch.dtype, ir.DataType] = {
    torch.float32: ir.DataType.FLOAT,
    torch.float64: ir.DataType.DOUBLE,
    torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16,
    torch.complex64: ir.DataType.COMPLEX64,
    torch.complex128: ir.DataType.COMPLEX128,
    torch.int64: ir.DataType.INT64,
    torch.int32: ir.DataType.INT32,
    torch.int16: ir.DataType.INT16,
    torch.int8: ir.DataType.INT8,
    torch.uint8: ir.DataType.UINT8,
    torch.bool: ir.DataType.BOOL,
}

DTYPES = {kind: dtype for dtype, kind in TYPES.items()}

LAST = (1 << 63) - 1
"""Where a slice ends that takes everything."""


class UnknownError(Exception):
    """A call that the rule of its operator does not understand."""


@dataclass
class Call(Lowering):
    """A call: `node`, and its arguments by the names of the operator's schema."""

    node: fx.Node = field(kw_only=True)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    paths: Mapping[str, Path] = field(default_factory=dict)
    program: Any = None
    tracked: dict[ir.Value, tuple[Path, int, int | None]] = field(default_factory=dict)
    """Operands made of literals: the argument, the first element that is its, and how many are."""
    implied: set[ir.Value] = field(default_factory=set)
    """Operands with sizes of tensors in them, as numbers."""

    # ---------------------------------------------------------------- making nodes

    def several(self, op: str, *inputs: ir.Value | None, outputs: int, **attributes: Any) -> list[ir.Value]:
        """As in Lowering; the node remembers the call and the literals that are its operands.

        Operands that are None behind all others are left out.
        """
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        made = super().several(op, *inputs, outputs=outputs, **attributes)
        site = Site(self.node)
        values = {n: self.program.values.get(n) for n in self.node.all_input_nodes}
        given = {v: n for n, v in values.items() if isinstance(v, ir.Value)}
        for i, value in enumerate(inputs):
            if value is not None and value in self.tracked:
                path, first, count = self.tracked[value]
                site.carried[path] = Place(i, first, count)
            if value is not None and value in given:
                site.operands[i] = given[value]
            if value is not None and value in self.implied:
                site.implied.add(i)
        self.made[-1].meta[SITE] = site
        if len(self.made) > 1:
            self.made[-1].name = f"{self.name}.{len(self.made)}"
        return made

    def implies(self, value: ir.Value, attribute: str) -> None:
        """An attribute of the node that makes `value` is a size of the call's tensors."""
        node = value.producer()
        assert node is not None
        node.meta[SITE].implied.add(attribute)

    def follows(self, value: ir.Value, **arguments: str) -> ir.Value:
        """Arguments of the call (keys) follow attributes (by name) of the node that makes `value`."""
        node = value.producer()
        assert node is not None
        for argument, attribute in arguments.items():
            if argument in self.paths:
                node.meta[SITE].carried[self.paths[argument]] = Place(attribute)
        return value

    # ---------------------------------------------------------------- what is given

    @property
    def result(self) -> Any:
        """The fake value of the call."""
        return self.node.meta["val"]

    @property
    def dtype(self) -> torch.dtype:
        """The type of the result; of the first of several."""
        value = self.result[0] if isinstance(self.result, (list, tuple)) else self.result
        return dtype_of(value)

    def sizes(self, argument: Operand | None = None) -> list[int | torch.SymInt]:
        """The sizes of a tensor argument, or of the result: numbers and symbols."""
        node = self.node if argument is None else argument
        assert isinstance(node, fx.Node)
        return sizes_of(node.meta["val"])

    def rank(self, argument: Operand | None = None) -> int:
        """The number of axes of a tensor argument, or of the result."""
        return len(self.sizes(argument))

    def fixed(self, argument: Operand, axis: int) -> int:
        """A size that is a number. Raises UnknownError where it is a symbol."""
        size = self.sizes(argument)[axis]
        if not isinstance(size, int):
            raise UnknownError
        return size

    def axis(self, dim: object, argument: Operand | None = None, extra: int = 0) -> int:
        """A dim counted from the front."""
        if not isinstance(dim, int):
            raise UnknownError
        rank = self.rank(argument) + extra
        return dim % rank if rank else 0

    def axes(self, dims: Dims, argument: Operand) -> list[int]:
        """Dims counted from the front; all of them where none are given."""
        rank = self.rank(argument)
        if dims is None or dims == []:
            return list(range(rank))
        return [self.axis(d, argument) for d in ([dims] if isinstance(dims, int) else dims)]

    # ---------------------------------------------------------------- operands

    def tensor(self, argument: Operand, dtype: torch.dtype | None = None, name: str = "") -> ir.Value:
        """A tensor or number of the call as an operand, in a type where that is given.

        `name`: of the argument, so that a number is traceable.
        """
        if isinstance(argument, fx.Node):
            value: ir.Value = self.program.value(argument)
            given = argument.meta["val"]
            if not isinstance(given, torch.Tensor):
                value = self.add("Squeeze", value, self.constant([0]))
            own = dtype_of(given)
        else:
            own = dtype or (torch.float32 if isinstance(argument, float) else torch.int64)
            return self.took(self.constant(argument, own), name)
        if dtype is None or dtype is own:
            return value
        if dtype.is_complex or own.is_complex:
            return self.add("aten::to", value, to=element(dtype))
        return self.cast(value, dtype)

    def maybe(self, argument: Operand | None, dtype: torch.dtype | None = None) -> ir.Value | None:
        """As `tensor`; None stays."""
        return None if argument is None else self.tensor(argument, dtype)

    def cast(self, value: ir.Value, dtype: torch.dtype | None) -> ir.Value:
        """A value in another type."""
        return self.add("Cast", value, to=element(dtype))

    def constant(self, numbers: Any, dtype: torch.dtype = torch.int64) -> ir.Value:
        """A constant that is no literal of the call."""
        made: ir.Value = self.program.constant(np.asarray(numbers), dtype)
        return made

    def ints(self, numbers: Given | Sequence[Given], argument: str = "") -> ir.Value:
        """Numbers, symbols and sizes as one operand with one axis; `argument`: the call's, where they are."""
        items = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]
        parts: list[ir.Value] = []
        run: list[int] = []
        for item in [*items, None]:
            if isinstance(item, int):
                run.append(int(item))
                continue
            if run or (item is None and not parts):
                parts.append(self.constant(np.asarray(run, dtype=np.int64)))
                run = []
            if item is not None:
                parts.append(item if isinstance(item, ir.Value) else self.program.value(item))
        made = parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=0)
        if any(part in self.implied for part in parts):
            self.implied.add(made)
        return self.took(made, argument)

    def took(self, value: ir.Value, argument: str, first: int = 0, count: int | None = None) -> ir.Value:
        """An operand that has an argument of the call in it, in `count` elements from `first` on."""
        if argument in self.paths:
            self.tracked[value] = self.paths[argument], first, count
        return value

    def shape(self, value: ir.Value, start: int = 0, end: int | None = None) -> ir.Value:
        """Sizes of a value at run time; those of what is stored are numbers."""
        if is_stored(value) and value.shape is not None and value.shape.is_static():
            made = self.constant([int(d) for d in value.shape][start:end])  # type: ignore[arg-type]
            self.implied.add(made)
            return made
        return self.add("Shape", value, start=start, end=end)

    def fitting(self, *parts: ir.Value) -> ir.Value:
        """Sizes, end to end, that operands of one call must have to fit each other: it does not say them."""
        made = parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=0)
        self.implied.add(made)
        return made

    def size(self, argument: Operand, axis: int) -> int | ir.Value:
        """The size of one axis: its number, or what it is at run time."""
        size = self.sizes(argument)[axis]
        return size if isinstance(size, int) else self.shape(self.tensor(argument), axis, axis + 1)

    def ones(
        self, sizes: Sequence[object], dtype: torch.dtype, argument: str = "", fill: float = 1.0
    ) -> ir.Value:
        """A constant parameter in the place of one that the call leaves out."""
        known = [s for s in sizes if isinstance(s, int)]
        if len(known) < len(sizes):
            raise UnknownError
        made: ir.Value = self.program.constant(np.full(known, fill), dtype)
        made.meta[ASSUMED] = True
        return self.took(made, argument)


def is_stored(value: ir.Value) -> bool:
    """Whether a value is a stored tensor, or made of such alone."""

    def operands(made: ir.Value) -> Iterator[ir.Value]:
        node = made.producer()
        if made.const_value is None and node is not None:
            yield from (v for v in node.inputs if v is not None)

    behind = walk([value], operands)
    return all(v.const_value is not None or v.producer() is not None for v in behind)


def element(dtype: torch.dtype | None) -> int:
    """onnx's number of a type. Raises UnknownError where it has none."""
    if dtype is None or dtype not in TYPES:
        raise UnknownError
    return int(TYPES[dtype])


def sizes_of(value: torch.Tensor) -> list[int | torch.SymInt]:
    """The sizes of a fake tensor: numbers and symbols. A symbol that torch found to be one number is that."""
    fixed = (s if isinstance(s, int) else s.node.expr for s in value.shape)
    return [int(f) if getattr(f, "is_number", True) else s for f, s in zip(fixed, value.shape, strict=True)]


def dtype_of(value: object) -> torch.dtype:
    """The type of a fake value; symbols are whole numbers, or float64."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    return torch.float64 if isinstance(value, (float, torch.SymFloat)) else torch.int64


def promoted(given: Sequence[Any]) -> torch.dtype:
    """The type in which torch compares operands."""
    values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in given]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    if len(values) == 1 or not tensors:
        return dtype_of(values[0])
    first, second = (v if isinstance(v, torch.Tensor) else _example(v) for v in values)
    return torch.result_type(first, second)


def _example(value: Any) -> Any:
    return {torch.float64: 1.0, torch.bool: True}.get(dtype_of(value), 1)
