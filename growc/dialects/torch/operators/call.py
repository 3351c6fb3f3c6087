"""One call of an FX graph while it is lowered, with its arguments and the nodes that replace it.

Rules (growc.dialects.torch.operators.table) are written with it. A literal of the call that becomes an
operand or an attribute stays traceable. The node that takes it records the argument it comes from
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
from torch.utils._pytree import tree_leaves

from growc.dialects.onnx.capture.capture import ASSUMED
from growc.dialects.onnx.capture.fused_ops import Lowering
from growc.ir.walk import walk

SITE = "growc.fx"
"""Key of a node's `meta`: its `CallOrigin`."""

ArgumentPath = tuple[int | str, ...]
"""The path of a literal among the arguments of a call: (1,), or ("dim",)."""


CallSize = int | fx.Node
"""A size: a number, or the call that gives it."""

Extents = int | Sequence[int]
"""One number for each axis of an image, or one for all of them."""

AxisNumbers = int | Sequence[int] | None
"""Axis numbers, counted from the end if negative. None stands for all axes."""

CallOperand = fx.Node | float
"""A tensor, or a number."""

GivenSize = CallSize | ir.Value
"""A size that an operand holds."""


class LiteralPlace(NamedTuple):
    """The place of a literal: an operand or attribute of a node, its first element there, and its length.

    A length of None stands for all following elements.
    """

    where: int | str
    first: int = 0
    length: int | None = None


@dataclass(eq=False)
class CallOrigin:
    """The call that a node comes from, and the literals of the call that the node holds.

    carried: for paths of literals, their places in the node.
    results: for outputs of the node, their counterparts in the FX graph: a call, or item `k` of it.
    operands: for operands of the node, the arguments of the call that they come from.
    implied: operands and attributes that are sizes of the call's tensors. No argument states them.
    """

    node: fx.Node
    carried: dict[ArgumentPath, LiteralPlace] = field(default_factory=dict)
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
"""The end of a slice that takes everything: the largest int64."""


class UnknownError(Exception):
    """A call that the rule of its operator does not support."""


@dataclass
class Call(Lowering):
    """A call: its `node`, and its arguments by the names in the operator's schema."""

    node: fx.Node = field(kw_only=True)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    paths: Mapping[str, ArgumentPath] = field(default_factory=dict)
    program: Any = None
    tracked: dict[ir.Value, tuple[ArgumentPath, int, int | None]] = field(default_factory=dict)
    """Operands that contain literals, with the argument, its first element there, and its length."""
    implied: set[ir.Value] = field(default_factory=set)
    """Operands that contain sizes of tensors as numbers."""

    # ---------------------------------------------------------------- making nodes

    def several(self, op: str, *inputs: ir.Value | None, outputs: int, **attributes: Any) -> list[ir.Value]:
        """Add a node as in Lowering. The node records the call, and the literals among its operands.

        Trailing operands that are None are omitted. Raises UnknownError for an attribute that is a size of
        the inputs.
        """
        if any(isinstance(leaf, fx.Node) for leaf in tree_leaves(attributes)):
            raise UnknownError
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        results = super().several(op, *inputs, outputs=outputs, **attributes)
        site = CallOrigin(self.node)
        values = {n: self.program.values.get(n) for n in self.node.all_input_nodes}
        node_of_value = {v: n for n, v in values.items() if isinstance(v, ir.Value)}
        for i, value in enumerate(inputs):
            if value is not None and value in self.tracked:
                path, first, count = self.tracked[value]
                site.carried[path] = LiteralPlace(i, first, count)
            if value is not None and value in node_of_value:
                site.operands[i] = node_of_value[value]
            if value is not None and value in self.implied:
                site.implied.add(i)
        self.nodes[-1].meta[SITE] = site
        if len(self.nodes) > 1:
            self.nodes[-1].name = f"{self.name}.{len(self.nodes)}"
        return results

    def implies(self, value: ir.Value, attribute: str) -> None:
        """Record that an attribute of the node that makes `value` is a size of the call's tensors."""
        node = value.producer()
        assert node is not None
        node.meta[SITE].implied.add(attribute)

    def follows(self, value: ir.Value, **arguments: str) -> ir.Value:
        """Link arguments of the call (keys) to attributes (values) of the node that makes `value`."""
        node = value.producer()
        assert node is not None
        for argument, attribute in arguments.items():
            if argument in self.paths:
                node.meta[SITE].carried[self.paths[argument]] = LiteralPlace(attribute)
        return value

    # ---------------------------------------------------------------- arguments

    @property
    def result(self) -> Any:
        """The fake value of the call."""
        return self.node.meta["val"]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the result, or of the first of several results."""
        value = self.result[0] if isinstance(self.result, (list, tuple)) else self.result
        return dtype_of(value)

    def sizes(self, argument: CallOperand | None = None) -> list[int | torch.SymInt]:
        """Return the sizes of a tensor argument, or of the result: numbers and symbols."""
        node = self.node if argument is None else argument
        assert isinstance(node, fx.Node)
        return sizes_of(node.meta["val"])

    def rank(self, argument: CallOperand | None = None) -> int:
        """Return the number of axes of a tensor argument, or of the result."""
        return len(self.sizes(argument))

    def fixed(self, argument: CallOperand, axis: int) -> int:
        """Return a size as a number. Raises UnknownError if it is a symbol."""
        size = self.sizes(argument)[axis]
        if not isinstance(size, int):
            raise UnknownError
        return size

    def axis(self, dim: object, argument: CallOperand | None = None, extra: int = 0) -> int:
        """Return a dim counted from the front. `extra` counts axes that the call adds."""
        if not isinstance(dim, int):
            raise UnknownError
        rank = self.rank(argument) + extra
        return dim % rank if rank else 0

    def axes(self, dims: AxisNumbers, argument: CallOperand) -> list[int]:
        """Return dims counted from the front, or all dims if none are given."""
        rank = self.rank(argument)
        if dims is None or dims == []:
            return list(range(rank))
        return [self.axis(d, argument) for d in ([dims] if isinstance(dims, int) else dims)]

    # ---------------------------------------------------------------- operands

    def tensor(self, argument: CallOperand, dtype: torch.dtype | None = None, name: str = "") -> ir.Value:
        """Return a tensor or number of the call as an operand, cast to `dtype` if that is given.

        name: the argument's name, by which a number stays traceable.
        """
        if isinstance(argument, fx.Node):
            value: ir.Value = self.program.value(argument)
            fake = argument.meta["val"]
            if not isinstance(fake, torch.Tensor):
                value = self.add("Squeeze", value, self.constant([0]))
            current = dtype_of(fake)
        else:
            current = dtype or (torch.float32 if isinstance(argument, float) else torch.int64)
            return self.took(self.constant(argument, current), name)
        if dtype is None or dtype is current:
            return value
        if dtype.is_complex or current.is_complex:
            return self.add("aten::to", value, to=element(dtype))
        return self.cast(value, dtype)

    def maybe(self, argument: CallOperand | None, dtype: torch.dtype | None = None) -> ir.Value | None:
        """Return an argument as `tensor` does, or None for None."""
        return None if argument is None else self.tensor(argument, dtype)

    def cast(self, value: ir.Value, dtype: torch.dtype | None) -> ir.Value:
        """Return a value cast to another dtype."""
        return self.add("Cast", value, to=element(dtype))

    def constant(self, numbers: Any, dtype: torch.dtype = torch.int64) -> ir.Value:
        """Return a constant that is no literal of the call."""
        value: ir.Value = self.program.constant(np.asarray(numbers), dtype)
        return value

    def ints(self, numbers: GivenSize | Sequence[GivenSize], argument: str = "") -> ir.Value:
        """Return numbers, symbols and sizes as one 1-D operand. `argument` is the argument that they are."""
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
        joined = parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=0)
        if any(part in self.implied for part in parts):
            self.implied.add(joined)
        return self.took(joined, argument)

    def took(self, value: ir.Value, argument: str, first: int = 0, count: int | None = None) -> ir.Value:
        """Record that `count` elements of an operand, from `first` on, are an argument of the call."""
        if argument in self.paths:
            self.tracked[value] = self.paths[argument], first, count
        return value

    def shape(self, value: ir.Value, start: int = 0, end: int | None = None) -> ir.Value:
        """Return the sizes of a value at run time. Those of a stored tensor are numbers."""
        if is_stored(value) and value.shape is not None and value.shape.is_static():
            sizes = self.constant([int(d) for d in value.shape][start:end])  # type: ignore[arg-type]
            self.implied.add(sizes)
            return sizes
        return self.add("Shape", value, start=start, end=end)

    def fitting(self, *parts: ir.Value) -> ir.Value:
        """Join sizes that follow from other operands of the call. No argument states them."""
        joined = parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=0)
        self.implied.add(joined)
        return joined

    def size(self, argument: CallOperand, axis: int) -> int | ir.Value:
        """Return the size of one axis: a number, or a value at run time."""
        size = self.sizes(argument)[axis]
        return size if isinstance(size, int) else self.shape(self.tensor(argument), axis, axis + 1)

    def ones(
        self, sizes: Sequence[object], dtype: torch.dtype, argument: str = "", fill: float = 1.0
    ) -> ir.Value:
        """Return a constant parameter in place of one that the call omits."""
        known = [s for s in sizes if isinstance(s, int)]
        if len(known) < len(sizes):
            raise UnknownError
        parameter: ir.Value = self.program.constant(np.full(known, fill), dtype)
        parameter.meta[ASSUMED] = True
        return self.took(parameter, argument)


def is_stored(value: ir.Value) -> bool:
    """Whether a value is a stored tensor, or computed from stored tensors alone."""

    def operands(computed: ir.Value) -> Iterator[ir.Value]:
        node = computed.producer()
        if computed.const_value is None and node is not None:
            yield from (v for v in node.inputs if v is not None)

    ancestors = walk([value], operands)
    return all(v.const_value is not None or v.producer() is not None for v in ancestors)


def element(dtype: torch.dtype | None) -> int:
    """Return the ONNX number of a dtype. Raises UnknownError if there is none."""
    if dtype is None or dtype not in TYPES:
        raise UnknownError
    return int(TYPES[dtype])


def sizes_of(value: torch.Tensor) -> list[int | torch.SymInt]:
    """Return the sizes of a fake tensor: numbers and symbols.

    A symbol that torch has fixed to a number is returned as that number.
    """
    fixed = (s if isinstance(s, int) else s.node.expr for s in value.shape)
    return [int(f) if getattr(f, "is_number", True) else s for f, s in zip(fixed, value.shape, strict=True)]


def dtype_of(value: object) -> torch.dtype:
    """Return the dtype of a fake value. Symbols are bool, int64 or float64."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    return torch.float64 if isinstance(value, (float, torch.SymFloat)) else torch.int64


def promoted(operands: Sequence[Any]) -> torch.dtype:
    """Return the dtype in which torch compares operands."""
    values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in operands]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    if len(values) == 1 or not tensors:
        return dtype_of(values[0])
    first, second = (v if isinstance(v, torch.Tensor) else _example(v) for v in values)
    return torch.result_type(first, second)


def _example(value: Any) -> Any:
    return {torch.float64: 1.0, torch.bool: True}.get(dtype_of(value), 1)
