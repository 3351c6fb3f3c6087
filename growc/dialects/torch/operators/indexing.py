"""Rows of operators that read or write elements by index."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from growc.dialects.torch.operators.call import LAST, Call, CallOperand, CallSize, UnknownError


def select(at: Call, x: CallOperand, dim: int, index: CallOperand) -> ir.Value:
    """One element of an axis."""
    number = at.tensor(index, torch.int64, "index")
    return at.add("Gather", at.tensor(x), number, axis=at.axis(dim, x))


def slice_(
    at: Call,
    x: CallOperand,
    dim: int = 0,
    start: CallSize | None = None,
    end: CallSize | None = None,
    step: int = 1,
) -> ir.Value:
    """Elements from a start to an end."""
    begin, stop = 0 if start is None else start, LAST if end is None else end
    whole = isinstance(begin, int) and begin == 0 and isinstance(stop, int) and stop >= LAST - 1
    if whole and step == 1:
        return at.tensor(x)
    bounds = [at.ints(begin, "start"), at.ints(stop, "end"), at.constant([at.axis(dim, x)])]
    return at.add("Slice", at.tensor(x), *bounds, *([] if step == 1 else [at.ints(step)]))


def gather(at: Call, x: CallOperand, dim: int, index: CallOperand) -> ir.Value:
    """One element of an axis for each element of an index tensor."""
    if at.rank(x) == 0:
        raise UnknownError
    return at.add("GatherElements", at.tensor(x), at.tensor(index), axis=at.axis(dim, x))


def take_along_dim(at: Call, x: CallOperand, indices: CallOperand, dim: int) -> ir.Value:
    """Gather, provided that the other sizes agree."""
    axis = at.axis(dim, x)
    pairs = enumerate(zip(at.sizes(x), at.sizes(indices), strict=True))
    if any(str(a) != str(b) for k, (a, b) in pairs if k != axis):
        raise UnknownError
    return gather(at, x, dim, indices)


def index(at: Call, x: CallOperand, indices: Sequence[fx.Node | None]) -> ir.Value:
    """Elements by index tensors for some axes."""
    index_of_axis = {k: i for k, i in enumerate(indices) if i is not None}
    if any(i.meta["val"].dtype is torch.bool for i in index_of_axis.values()):
        raise UnknownError
    if len(index_of_axis) == 1:
        [(axis, numbers)] = index_of_axis.items()
        return at.add("Gather", at.tensor(x), at.tensor(numbers, torch.int64), axis=axis)
    axes = list(index_of_axis)
    rest = [k for k in range(at.rank(x)) if k not in index_of_axis]
    value = at.tensor(x)
    if axes != list(range(len(axes))):
        value = at.add("Transpose", value, perm=[*axes, *rest])
    gathered = at.add("GatherND", value, numbered(at, list(index_of_axis.values())))
    adjacent = axes == list(range(axes[0], axes[-1] + 1))
    if not adjacent or axes[0] == 0:
        return gathered
    indexed_rank = at.rank() - len(rest)  # torch puts the indexed axes where adjacent indices stood
    order = [
        *range(indexed_rank, indexed_rank + axes[0]),
        *range(indexed_rank),
        *range(indexed_rank + axes[0], at.rank()),
    ]
    return at.add("Transpose", gathered, perm=order)


def numbered(at: Call, indices: Sequence[fx.Node]) -> ir.Value:
    """Return index tensors, broadcast to one another and stacked on a last axis."""
    values = [at.tensor(i, torch.int64) for i in indices]
    ranks = [at.rank(i) for i in indices]
    if len({tuple(map(str, at.sizes(i))) for i in indices}) > 1:
        total = values[0]
        for value in values[1:]:
            total = at.add("Add", total, value)
        common_shape = at.shape(total)
        values = [at.add("Expand", v, common_shape) for v in values]
    last_axis = at.constant([max(ranks)])
    columns = [at.add("Unsqueeze", v, last_axis) for v in values]
    return columns[0] if len(columns) == 1 else at.add("Concat", *columns, axis=max(ranks))


def index_put(
    at: Call, x: CallOperand, indices: Sequence[fx.Node | None], values: CallOperand, accumulate: bool = False
) -> ir.Value:
    """Replace, or add to, the elements at index tensors for the first axes."""
    index_tensors = [i for i in indices if i is not None]
    if any(i is None for i in indices[: len(index_tensors)]):
        raise UnknownError
    if len(index_tensors) == 1 and index_tensors[0].meta["val"].dtype is torch.bool:
        if at.rank(values) or accumulate:
            raise UnknownError
        mask = at.tensor(index_tensors[0])
        trailing = list(range(at.rank(index_tensors[0]), at.rank(x)))
        mask = at.add("Unsqueeze", mask, at.constant(trailing)) if trailing else mask
        return at.add("Where", mask, at.tensor(values, at.dtype), at.tensor(x))
    if any(i.meta["val"].dtype is torch.bool for i in index_tensors):
        raise UnknownError
    places = numbered(at, index_tensors)
    data = at.tensor(x)
    lead = at.shape(places, 0, -1)
    trailing_shape = [at.shape(data, len(index_tensors))] if len(index_tensors) < at.rank(x) else []
    updates = at.add("Expand", at.tensor(values, at.dtype), at.fitting(lead, *trailing_shape))
    return at.add("ScatterND", data, places, updates, reduction="add" if accumulate else "none")


def scatter(
    at: Call, x: CallOperand, dim: int, index: CallOperand, src: CallOperand, reduction: str = "none"
) -> ir.Value:
    """Replace, or add to, one element of an axis for each element of an index tensor."""
    numbers, updates = at.tensor(index), at.tensor(src, at.dtype)
    if not isinstance(src, fx.Node):
        updates = at.add("Expand", updates, at.fitting(at.shape(numbers)))
    elif list(map(str, at.sizes(src))) != list(map(str, at.sizes(index))):
        updates = at.add("Slice", updates, at.constant([0] * at.rank(index)), at.fitting(at.shape(numbers)))
    return at.add(
        "ScatterElements", at.tensor(x), numbers, updates, axis=at.axis(dim, x), reduction=reduction
    )


def masked_scatter(at: Call, x: CallOperand, mask: fx.Node, source: fx.Node) -> ir.Value:
    """Replace the vectors where a mask is true by those of another tensor, in order.

    The mask has one number per vector, which may be expanded along the vector.
    """
    places = mask
    while places.target is torch.ops.aten.expand.default:
        places = places.all_input_nodes[0]
    if at.sizes(places)[-1] != 1 or at.rank(places) != at.rank(x):
        raise UnknownError
    replacements = at.tensor(source, at.dtype)
    in_vectors = str(at.sizes(source)[-1]) == str(at.sizes(x)[-1])  # symbols cannot be compared
    if at.rank(source) != 2 or not in_vectors:
        like, axis = (replacements, at.rank(source) - 1) if in_vectors else (at.tensor(x), at.rank(x) - 1)
        replacements = at.add("Reshape", replacements, at.fitting(at.constant([-1]), at.shape(like, axis)))
    ones = at.add("Cast", at.tensor(places), to=ir.DataType.INT64)
    counts = at.add("CumSum", at.add("Reshape", ones, at.constant([-1])), at.constant(0))
    number = at.add("Max", at.add("Sub", counts, at.constant(1)), at.constant(0))
    rows = at.add("Reshape", number, at.shape(at.tensor(places), 0, -1))
    vectors = at.add("Gather", replacements, rows, axis=0)
    return at.add("Where", at.tensor(mask, torch.bool), vectors, at.tensor(x))


def put_along(
    at: Call, x: CallOperand, dim: int, index: CallOperand, source: CallOperand, reduction: str = "none"
) -> ir.Value:
    """Replace, or add to, the elements of an axis at a list of indices."""
    axis = at.axis(dim, x)
    order = [axis, *(k for k in range(at.rank(x)) if k != axis)]
    data, updates = at.tensor(x), at.tensor(source, at.dtype)
    if axis:
        data, updates = (at.add("Transpose", v, perm=order) for v in (data, updates))
    places = at.add("Unsqueeze", at.tensor(index, torch.int64), at.constant([1]))
    written = at.add("ScatterND", data, places, updates, reduction=reduction)
    if not axis:
        return written
    return at.add("Transpose", written, perm=[order.index(k) for k in range(len(order))])


def nonzero(at: Call, x: CallOperand) -> ir.Value:
    """Indices of non-zero elements, one row per element."""
    return at.add("Transpose", _nonzero(at, x), perm=[1, 0])


def nonzero_numbers(at: Call, condition: CallOperand) -> list[ir.Value]:
    """Indices of non-zero elements, one tensor per axis."""
    indices = _nonzero(at, condition)
    return [at.add("Gather", indices, at.constant(k), axis=0) for k in range(at.rank(condition))]


def _nonzero(at: Call, x: CallOperand) -> ir.Value:
    if at.rank(x) == 0:
        raise UnknownError
    return at.add("NonZero", at.tensor(x))


def one_hot(at: Call, x: CallOperand, num_classes: int) -> ir.Value:
    """One-hot vectors."""
    if num_classes < 0:
        raise UnknownError
    count = at.ints([num_classes], "num_classes")
    return at.add("OneHot", at.tensor(x), count, at.constant([0, 1]), axis=-1)


def select_scatter(at: Call, x: CallOperand, src: CallOperand, dim: int, index: CallOperand) -> ir.Value:
    """Replace one element of an axis."""
    axis, whole = at.axis(dim, x), at.sizes(x)[at.axis(dim, x)]
    if not isinstance(index, int) or (index < 0 and not isinstance(whole, int)):
        raise UnknownError
    start = index % int(whole) if index < 0 else index
    part = at.add("Unsqueeze", at.tensor(src, at.dtype), at.constant([axis]))
    return _between(at, x, axis, start, start + 1, part)


def slice_scatter(
    at: Call,
    x: CallOperand,
    src: CallOperand,
    dim: int = 0,
    start: CallSize | None = None,
    end: CallSize | None = None,
    step: int = 1,
) -> ir.Value:
    """Replace the elements from a start to an end."""
    axis, whole = at.axis(dim, x), at.sizes(x)[at.axis(dim, x)]
    begin, stop = 0 if start is None else start, LAST if end is None else end
    if step != 1 or not isinstance(stop, int):
        raise UnknownError
    if not isinstance(begin, int):
        if stop < LAST - 1 or not _counts(begin):
            raise UnknownError
    elif isinstance(whole, int):
        begin, stop, _ = slice(begin, stop).indices(whole)
    elif begin < 0 or stop < 0:
        raise UnknownError
    return _between(at, x, axis, begin, stop, at.tensor(src, at.dtype), ("start", "end"))


def _counts(size: CallSize) -> bool:
    """Whether a symbolic size is known to be non-negative."""
    value = size.meta["val"] if isinstance(size, fx.Node) else size
    return isinstance(value, torch.SymInt) and statically_known_true(value >= 0)


def _between(
    at: Call,
    x: CallOperand,
    axis: int,
    start: CallSize,
    stop: int,
    part: ir.Value,
    arguments: tuple[str, str] = ("", ""),
) -> ir.Value:
    """Return a tensor with a part of one axis replaced. arguments: those of the call that are its ends."""
    parts, data = [part], at.tensor(x)
    if start:
        ends = at.constant([0]), at.ints(start, arguments[0]), at.constant([axis])
        parts.insert(0, at.add("Slice", data, *ends))
    if stop < LAST - 1 and stop != at.sizes(x)[axis]:
        ends = at.ints(stop, arguments[1]), at.constant([LAST]), at.constant([axis])
        parts.append(at.add("Slice", data, *ends))
    return parts[0] if len(parts) == 1 else at.add("Concat", *parts, axis=axis)
