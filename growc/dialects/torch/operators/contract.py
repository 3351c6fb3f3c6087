"""Rows of contractions: matrix products, convolutions, attention."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from growc.dialects.torch.operators.call import Call, CallOperand, Extents, UnknownError


def linear(at: Call, x: CallOperand, weight: CallOperand, bias: CallOperand | None = None) -> ir.Value:
    """A product with a matrix stored as (out, in), plus a bias."""
    transposed = at.tensor(weight)
    if at.rank(weight) == 2:
        transposed = at.add("Transpose", transposed, perm=[1, 0])
    product = at.add("MatMul", at.tensor(x), transposed)
    return product if bias is None else at.add("Add", product, at.tensor(bias))


def addmm(
    at: Call,
    x: CallOperand,
    mat1: CallOperand,
    mat2: CallOperand,
    beta: CallOperand = 1,
    alpha: CallOperand = 1,
) -> ir.Value:
    """beta · x + alpha · a·b."""
    product = at.add("MatMul", at.tensor(mat1), at.tensor(mat2))
    if alpha != 1:
        product = at.add("Mul", product, at.tensor(alpha, at.dtype, "alpha"))
    if beta == 0:
        return product
    bias = at.tensor(x)
    if beta != 1:
        bias = at.add("Mul", bias, at.tensor(beta, at.dtype, "beta"))
    return at.add("Add", product, bias)


def bilinear(
    at: Call, input1: CallOperand, input2: CallOperand, weight: CallOperand, bias: CallOperand | None = None
) -> ir.Value:
    """A product of two vectors and a tensor."""
    left = at.add("Einsum", at.tensor(input1), at.tensor(weight), equation="...i,oij->...oj")
    product = at.add("Einsum", left, at.tensor(input2), equation="...oj,...j->...o")
    return product if bias is None else at.add("Add", product, at.tensor(bias))


def einsum(at: Call, equation: str, tensors: Sequence[CallOperand]) -> ir.Value:
    """Einsum."""
    return at.add("Einsum", *map(at.tensor, tensors), equation=equation.replace(" ", ""))


def conv(
    at: Call,
    x: CallOperand,
    weight: CallOperand,
    bias: CallOperand | None = None,
    stride: Extents = 1,
    padding: Extents | str = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> ir.Value:
    """A convolution."""
    space = at.rank(weight) - 2
    kernel = [at.fixed(weight, k + 2) for k in range(space)]
    strides, dilations = spread(stride, space), spread(dilation, space)
    pads = _pads(padding, kernel, dilations)
    value, unbatched = at.tensor(x), at.rank(x) == space + 1
    if unbatched:
        value = at.add("Unsqueeze", value, at.constant([0]))
    options = {"strides": strides, "pads": pads, "dilations": dilations, "kernel_shape": kernel}
    output = at.add("Conv", value, at.tensor(weight), at.maybe(bias), group=groups, **options)
    at.follows(output, groups="group")
    return at.add("Squeeze", output, at.constant([0])) if unbatched else output


def _pads(padding: Extents | str, kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    if padding == "same":
        totals = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
        return [t // 2 for t in totals] + [t - t // 2 for t in totals]
    return [0] * 2 * len(kernel) if padding == "valid" else spread(padding, len(kernel)) * 2


def spread(extents: Extents | str, count: int) -> list[int]:
    """Return one number per axis, from one number for all axes or one for each."""
    items = [extents] if isinstance(extents, int) else extents
    numbers = [n for n in items if isinstance(n, int)]
    if len(numbers) < len(items):
        raise UnknownError
    return numbers * count if len(numbers) == 1 else numbers


def conv_transpose(
    at: Call,
    x: CallOperand,
    weight: CallOperand,
    bias: CallOperand | None = None,
    stride: Extents = 1,
    padding: Extents = 0,
    output_padding: Extents = 0,
    groups: int = 1,
    dilation: Extents = 1,
) -> ir.Value:
    """A transposed convolution."""
    space = at.rank(weight) - 2
    if at.rank(x) != space + 2:
        raise UnknownError
    output = at.add(
        "ConvTranspose",
        at.tensor(x),
        at.tensor(weight),
        at.maybe(bias),
        strides=spread(stride, space),
        pads=spread(padding, space) * 2,
        output_padding=spread(output_padding, space),
        dilations=spread(dilation, space),
        group=groups,
        kernel_shape=[at.fixed(weight, k + 2) for k in range(space)],
    )
    return at.follows(output, groups="group")


def attention(
    at: Call,
    query: CallOperand,
    key: CallOperand,
    value: CallOperand,
    attn_mask: CallOperand | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: CallOperand | None = None,
    enable_gqa: bool = False,
) -> ir.Value:
    """softmax(q·k·scale + mask)·v. Grouped heads need `enable_gqa`."""
    if dropout_p or not (scale is None or isinstance(scale, float)):
        raise UnknownError
    rank = at.rank(query)
    if rank not in (3, 4) or any(at.rank(a) != rank for a in (key, value)):
        raise UnknownError
    if not enable_gqa and rank == 4 and len({str(at.sizes(a)[1]) for a in (query, key, value)}) > 1:
        raise UnknownError  # torch would broadcast the heads
    operands = [at.tensor(a) for a in (query, key, value)]
    mask = at.maybe(attn_mask)
    if rank == 3:
        operands = [at.add("Unsqueeze", v, at.constant([1])) for v in operands]
        if mask is not None and at.rank(attn_mask) == 3:
            mask = at.add("Unsqueeze", mask, at.constant([1]))
    output = at.add("Attention", *operands, mask, scale=scale, is_causal=int(is_causal))
    at.follows(output, scale="scale")
    return at.add("Squeeze", output, at.constant([1])) if rank == 3 else output
