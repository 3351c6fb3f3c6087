"""Rows of operators that move elements: reshapes, permutations, joins, splits, padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import onnx_ir as ir

from growc.dialects.torch.operators.call import (
    LAST,
    AxisNumbers,
    Call,
    CallOperand,
    CallSize,
    UnknownError,
    sizes_of,
)


def reshape(at: Call, x: CallOperand, size: Sequence[CallSize]) -> ir.Value:
    """A tensor in the given shape."""
    return at.add("Reshape", at.tensor(x), at.ints(size, "size"))


def flatten(at: Call, x: CallOperand, start_dim: int, end_dim: int) -> ir.Value:
    """Merge a range of axes into one."""
    start, end, rank = at.axis(start_dim, x), at.axis(end_dim, x), at.rank(x)
    if rank == 0:
        return at.add("Reshape", at.tensor(x), at.constant([1]))
    if start == end:
        return at.tensor(x)
    trailing = [at.shape(at.tensor(x), end + 1)] if end + 1 < rank else []
    return at.add("Reshape", at.tensor(x), at.ints([*[0] * start, -1, *trailing]))


def unflatten(at: Call, x: CallOperand, dim: int, sizes: Sequence[CallSize]) -> ir.Value:
    """Split one axis into several."""
    axis = at.axis(dim, x)
    trailing = [at.shape(at.tensor(x), axis + 1)] if axis + 1 < at.rank(x) else []
    shape = at.took(at.ints([*[0] * axis, *sizes, *trailing]), "sizes", axis, len(sizes))
    return at.add("Reshape", at.tensor(x), shape)


def expand(at: Call, x: CallOperand, size: Sequence[CallSize]) -> ir.Value:
    """Expand axes of one element. -1 is an axis that stays."""
    return at.add("Expand", at.tensor(x), at.ints([1 if s == -1 else s for s in size], "size"))


def transpose(at: Call, x: CallOperand, dim0: int, dim1: int) -> ir.Value:
    """Swap two axes."""
    order = list(range(at.rank(x)))
    if not order:
        return at.tensor(x)
    a, b = at.axis(dim0, x), at.axis(dim1, x)
    order[a], order[b] = b, a
    return at.add("Transpose", at.tensor(x), perm=order)


def turn(at: Call, x: CallOperand) -> ir.Value:
    """Reverse the order of all axes."""
    return at.add("Transpose", at.tensor(x), perm=list(range(at.rank(x)))[::-1])


def permute(at: Call, x: CallOperand, dims: Sequence[int]) -> ir.Value:
    """Axes in another order."""
    return at.add("Transpose", at.tensor(x), perm=[at.axis(d, x) for d in dims])


def movedim(at: Call, x: CallOperand, source: int, destination: int) -> ir.Value:
    """Move one axis to another position."""
    a, b = at.axis(source, x), at.axis(destination, x)
    order = [k for k in range(at.rank(x)) if k != a]
    order.insert(b, a)
    return at.add("Transpose", at.tensor(x), perm=order)


def squeeze(at: Call, x: CallOperand, dim: AxisNumbers = None) -> ir.Value:
    """Remove axes of one element. Other axes stay."""
    removed = [a for a in at.axes(dim, x) if at.sizes(x)[a] == 1]
    return at.add("Squeeze", at.tensor(x), at.constant(removed)) if removed else at.tensor(x)


def unsqueeze(at: Call, x: CallOperand, dim: int) -> ir.Value:
    """A new axis of one element."""
    return at.add("Unsqueeze", at.tensor(x), at.constant([at.axis(dim, x, extra=1)]))


def cat(at: Call, tensors: Sequence[CallOperand], dim: int = 0) -> ir.Value:
    """Concatenate tensors. Empty 1-D ones are skipped; empty ones of full rank stay, since they may grow."""
    rank = at.rank(at.node)
    joined = [t for t in tensors if at.rank(t) == rank]
    inputs = [at.tensor(t, at.dtype) for t in joined]
    return inputs[0] if len(inputs) == 1 else at.add("Concat", *inputs, axis=at.axis(dim, joined[0]))


def stack(at: Call, tensors: Sequence[CallOperand], dim: int = 0) -> ir.Value:
    """Stack tensors on a new axis."""
    axis = at.axis(dim, tensors[0], extra=1)
    inputs = [at.add("Unsqueeze", at.tensor(t, at.dtype), at.constant([axis])) for t in tensors]
    return at.add("Concat", *inputs, axis=axis)


def split_sizes(at: Call, x: CallOperand, split_sizes: Sequence[CallSize], dim: int = 0) -> list[ir.Value]:
    """Parts of given sizes."""
    sizes = at.ints(split_sizes, "split_sizes")
    return at.several("Split", at.tensor(x), sizes, outputs=len(at.result), axis=at.axis(dim, x))


def equal_parts(at: Call, x: CallOperand, of: CallOperand, dim: int = 0) -> list[ir.Value]:
    """Split into parts of one symbolic size. Splits of known sizes are rewritten at capture.

    of: the number of parts, or their size. Both are known from the results.
    """
    axis, parts = at.axis(dim, x), len(at.result)
    sizes = [sizes_of(part)[axis] for part in at.result]
    if any(s != sizes[0] for s in sizes):
        raise UnknownError
    return at.several("Split", at.tensor(x), outputs=parts, axis=axis, num_outputs=parts)


def unbind(at: Call, x: CallOperand, dim: int = 0) -> list[ir.Value]:
    """The elements of an axis, one by one."""
    axis = at.axis(dim, x)
    return [at.add("Gather", at.tensor(x), at.constant(k), axis=axis) for k in range(len(at.result))]


def repeat(at: Call, x: CallOperand, repeats: Sequence[CallSize]) -> ir.Value:
    """Repeat a whole tensor along each axis."""
    times, lead = list(repeats), len(repeats) - at.rank(x)
    if lead < 0:
        times, lead = [*[1] * -lead, *times], 0
    value = at.tensor(x)
    if lead:
        value = at.add("Unsqueeze", value, at.constant(list(range(lead))))
    return at.add("Tile", value, at.ints(times, "repeats" if len(times) == len(repeats) else ""))


def repeat_interleave(at: Call, x: CallOperand, repeats: CallSize, dim: int | None = None) -> ir.Value:
    """Repeat every element several times in place."""
    value, rank = at.tensor(x), at.rank(x)
    axis = 0 if dim is None else at.axis(dim, x)
    if dim is None and rank != 1:
        value, rank = at.add("Reshape", value, at.constant([-1])), 1
    unsqueezed = at.add("Unsqueeze", value, at.constant([axis + 1]))
    times = at.ints([*[1] * (axis + 1), repeats, *[1] * (rank - axis - 1)])
    times = at.took(times, "repeats", axis + 1, 1)
    repeated = at.add("Expand", unsqueezed, times)
    trailing = [at.shape(value, axis + 1)] if axis + 1 < rank else []
    return at.add("Reshape", repeated, at.ints([*[0] * axis, -1, *trailing]))


def roll(at: Call, x: CallOperand, shifts: Sequence[CallSize], dims: Sequence[int]) -> ir.Value:
    """Shift elements along axes, with wrap-around."""
    value = at.tensor(x)
    if not dims:
        raise UnknownError
    for shift, dim in zip(shifts, dims, strict=True):
        axis = at.axis(dim, x)
        if not isinstance(shift, int):
            raise UnknownError
        whole = at.sizes(x)[axis]
        cut = -shift % whole if isinstance(whole, int) and whole else -shift
        ends = ((cut, LAST), (0, cut))
        parts = [at.add("Slice", value, *(at.constant([n]) for n in (*e, axis))) for e in ends]
        value = at.add("Concat", *parts, axis=axis)
    return value


def flip(at: Call, x: CallOperand, dims: Sequence[int]) -> ir.Value:
    """Reverse the elements along axes."""
    axes = [at.axis(d, x) for d in dims]
    bounds = ([-1] * len(axes), [-LAST] * len(axes), axes, [-1] * len(axes))
    return at.add("Slice", at.tensor(x), *map(at.constant, bounds))


def meshgrid(at: Call, tensors: Sequence[CallOperand], indexing: str) -> list[ir.Value]:
    """Coordinates of a grid."""
    if indexing != "ij":
        raise UnknownError
    values = [at.add("Reshape", at.tensor(t), at.constant([-1])) for t in tensors]
    shape = at.add("Concat", *(at.shape(v) for v in values), axis=0)
    grids = []
    for k, value in enumerate(values):
        others = [a for a in range(len(values)) if a != k]
        unsqueezed = at.add("Unsqueeze", value, at.constant(others)) if others else value
        grids.append(at.add("Expand", unsqueezed, shape))
    return grids


def pad(
    at: Call,
    x: CallOperand,
    pad: Sequence[CallSize],
    mode: str = "constant",
    value: CallOperand | None = None,
) -> ir.Value:
    """Pad axes. Amounts are given for the last axis first."""
    count = len(pad) // 2
    axes = [at.rank(x) - 1 - k for k in range(count)]
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    amounts = at.ints([*pad[::2], *pad[1::2]])
    filler = at.tensor(value or 0, at.dtype, "value")
    return at.add("Pad", at.tensor(x), amounts, filler, at.constant(axes), mode=modes[mode])


def triangle(at: Call, x: CallOperand, diagonal: int, upper: int) -> ir.Value:
    """A triangle of the last two axes."""
    return at.add("Trilu", at.tensor(x), at.constant(diagonal), upper=upper)


def pixel_shuffle(at: Call, x: CallOperand, upscale_factor: int) -> ir.Value:
    """Move channels into pixels."""
    return at.add("DepthToSpace", at.tensor(x), blocksize=upscale_factor, mode="CRD")


def pixel_unshuffle(at: Call, x: CallOperand, downscale_factor: int) -> ir.Value:
    """Move pixels into channels, in the order (c r s). SpaceToDepth would give (r s c)."""
    r = downscale_factor
    if at.rank(x) != 4:
        raise UnknownError
    height, width = (at.fixed(x, axis) for axis in (2, 3))
    value = at.add("Reshape", at.tensor(x), at.constant([0, 0, height // r, r, width // r, r]))
    value = at.add("Transpose", value, perm=[0, 1, 3, 5, 2, 4])
    return at.add("Reshape", value, at.constant([0, -1, height // r, width // r]))


def channel_shuffle(at: Call, x: CallOperand, groups: int) -> ir.Value:
    """Interleave groups of channels: the first channel of each group, then the second, and so on."""
    value, rank = at.tensor(x), at.rank(x)
    places = [at.shape(value, 2)] if rank > 2 else []
    sizes = at.took(at.ints([0, groups, -1, *places]), "groups", 1, 1)
    grouped = at.add("Reshape", value, sizes)
    interleaved = at.add("Transpose", grouped, perm=[0, 2, 1, *range(3, rank + 1)])
    return at.add("Reshape", interleaved, at.ints([0, -1, *places]))


def unfold(at: Call, x: CallOperand, dimension: int, size: int, step: int) -> ir.Value:
    """Return the windows of an axis, with the places in a window on a new last axis."""
    axis, new_axis, value = at.axis(dimension, x), at.rank(x), at.tensor(x)
    parts: list[ir.Value] = []
    for place in range(size):
        cuts = ([place], [(place - size + 1) or LAST], [axis], [step])
        part = at.add("Slice", value, *map(at.constant, cuts))
        parts.append(at.add("Unsqueeze", part, at.constant([new_axis])))
    return at.add("Concat", *parts, axis=new_axis)


def im2col(
    at: Call,
    x: CallOperand,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> ir.Value:
    """Return the windows of an image as (channels · places in a window, windows)."""
    if at.rank(x) != 4:
        raise UnknownError
    (high, wide), (down, right), (top, left) = kernel_size, dilation, padding
    value, parts = at.tensor(x), list[ir.Value]()
    if top or left:
        value = at.add("Pad", value, at.constant([0, 0, top, left] * 2), at.tensor(0, at.dtype))
    for row, column in product(range(high), range(wide)):
        starts = [row * down, column * right]
        behind = [(row - high + 1) * down, (column - wide + 1) * right]
        cuts = (starts, [end or LAST for end in behind], [2, 3], list(stride))
        part = at.add("Slice", value, *map(at.constant, cuts))
        parts.append(at.add("Unsqueeze", part, at.constant([2])))
    stacked = at.add("Concat", *parts, axis=2)
    merged = at.add("Reshape", stacked, at.ints([0, -1, at.shape(stacked, 3)]))
    return at.add("Reshape", merged, at.constant([0, 0, -1]))


def upsample(
    at: Call,
    x: CallOperand,
    output_size: Sequence[CallSize] | None,
    scale_factors: Sequence[float],
    mode: str,
    align_corners: bool = False,
) -> ir.Value:
    """Resize an image."""
    transformation = "align_corners" if align_corners else "asymmetric" if mode == "nearest" else "half_pixel"
    if transformation == "half_pixel":
        transformation = "pytorch_half_pixel"
    options: dict[str, str | float] = {
        "mode": mode,
        "coordinate_transformation_mode": transformation,
        "cubic_coeff_a": -0.75,
    }
    if mode == "nearest":
        options["nearest_mode"] = "floor"
    value = at.tensor(x)
    if output_size is not None:
        sizes = at.ints([at.size(x, 0), at.size(x, 1), *output_size])
        return at.add("Resize", value, None, None, at.took(sizes, "output_size", 2), **options)
    import torch

    scales = at.constant([1.0, 1.0, *scale_factors], torch.float32)
    return at.add("Resize", value, None, scales, **options)
