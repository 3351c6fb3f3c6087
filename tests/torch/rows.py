"""One call, or more, for every row of the table of ATen operators: what is computed, and of which inputs.

Inputs are written as sizes: `n 3` has any number of rows, `n 4:i9` holds whole numbers below 9, `n 4:b` is
true or false, `n 4:+` positive; inputs stand between semicolons.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

A = torch.ops.aten
Case = tuple[Callable[..., Any], str]


def unary(*names: str, inputs: str = "n 4") -> dict[str, Case]:
    """Operators of one operand."""
    return {f"aten.{n}.default": (getattr(A, n).default, inputs) for n in names}


def with_number(*keys: str, number: Any = 2) -> dict[str, Case]:
    """Operators of a tensor and a number."""
    return {f"aten.{k}": (partial(_second, _of(k), number), "n 4") for k in keys}


def _second(function: Callable[..., Any], number: Any, x: torch.Tensor) -> Any:
    return function(x, number)


def of_two(*keys: str, inputs: str = "n 4; n 4") -> dict[str, Case]:
    """Operators of two tensors."""
    return {f"aten.{k}": (_of(k), inputs) for k in keys}


def _of(key: str) -> Any:
    name, overload = key.split(".")
    return getattr(getattr(A, name), overload)


POINTWISE: dict[str, Case] = {
    **unary("alias", "clone", "contiguous", "detach", "lift_fresh_copy", "real", "_to_copy"),
    **unary(
        "abs", "atan", "celu", "cos", "cosh", "elu", "erf", "exp", "exp2", "expm1", "gelu", "hardsigmoid"
    ),
    **unary(
        "hardswish", "hardtanh", "isinf", "isnan", "leaky_relu", "log_sigmoid", "mish", "neg", "reciprocal"
    ),
    **unary(
        "relu", "relu6", "selu", "sigmoid", "sign", "silu", "sin", "sinh", "softplus", "square", "tan", "tanh"
    ),
    **unary("ceil", "floor", "round", "glu"),
    **unary("log", "log1p", "log2", "log10", "rsqrt", "sqrt", inputs="n 4:+"),
    **unary("acos", "asin", inputs="n 4:u"),
    **unary("bitwise_not", inputs="n 4:b"),
    **unary("logical_not", inputs="n 4:i3"),
    "aten.to.device": (lambda x: A.to.device(x, "cpu", torch.float64), "n 4"),
    "aten.to.dtype": (lambda x: A.to.dtype(x, torch.int64), "n 4"),
    "aten.to.dtype_layout": (lambda x: A.to.dtype_layout(x, dtype=torch.bool), "n 4:i2"),
    "aten.dropout.default": (lambda x: A.dropout.default(x, 0.3, False), "n 4"),
    "aten.alpha_dropout.default": (lambda x: A.alpha_dropout.default(x, 0.3, False), "n 4"),
    "aten.feature_dropout.default": (lambda x: A.feature_dropout.default(x, 0.3, False), "n 4"),
    "aten.copy.default": (A.copy.default, "n 4; 4:i5"),
    "aten.fill.Scalar": (lambda x: A.fill.Scalar(x, 3), "n 4"),
    "aten.fill.Tensor": (lambda x, y: A.fill.Tensor(x, y.sum()), "n 4; 3"),
    "aten.clamp.default": (lambda x: A.clamp.default(x, -0.5, None), "n 4"),
    "aten.clamp.Tensor": (A.clamp.Tensor, "n 4; 4:u; n 4:+"),
    "aten.clamp_min.default": (lambda x: A.clamp_min.default(x, 0.2), "n 4"),
    "aten.clamp_max.default": (lambda x: A.clamp_max.default(x, 0.2), "n 4"),
    "aten.fake_quantize_per_tensor_affine.default": (
        lambda x: A.fake_quantize_per_tensor_affine.default(x, 0.03, -7, -128, 127),
        "5 4",
    ),
    "aten.prelu.default": (A.prelu.default, "n 4 3; 4"),
    **of_two("__and__.Tensor", "__or__.Tensor", "__xor__.Tensor", inputs="n 4:b; 4:b"),
    **of_two("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor", inputs="n 4:i9; n 4:i9"),
    **of_two("logical_and.default", "logical_or.default", "logical_xor.default", inputs="n 4:i2; n 4:i2"),
    **of_two(
        "add.Tensor", "div.Tensor", "mul.Tensor", "sub.Tensor", "max.other", "min.other", inputs="n 4; 4"
    ),
    **of_two("maximum.default", "minimum.default", inputs="n 4; 4:i3"),
    **of_two(
        "eq.Tensor", "ge.Tensor", "gt.Tensor", "le.Tensor", "lt.Tensor", "ne.Tensor", inputs="n 4:i3; 4:i3"
    ),
    **of_two("floor_divide.default", "remainder.Tensor", inputs="n 4; 4:+"),
    **of_two("pow.Tensor_Tensor", inputs="n 4:+; 4"),
    **with_number("add.Scalar", "div.Scalar", "mul.Scalar", "sub.Scalar", "rsub.Scalar"),
    **with_number("eq.Scalar", "ge.Scalar", "gt.Scalar", "le.Scalar", "lt.Scalar", "ne.Scalar", number=0.1),
    **with_number("pow.Tensor_Scalar", number=3),
    **with_number("remainder.Scalar", number=0.7),
    "aten.pow.Scalar": (lambda x: A.pow.Scalar(2, x), "n 4"),
    "aten.div.Tensor_mode": (lambda x, y: A.div.Tensor_mode(x, y, rounding_mode="floor"), "n 4; 4:+"),
    "aten.addcmul.default": (lambda x, y, z: A.addcmul.default(x, y, z, value=0.5), "n 4; n 4; 4"),
    "aten.lerp.Tensor": (A.lerp.Tensor, "n 4; n 4; n 1"),
    "aten.lerp.Scalar": (lambda x, y: A.lerp.Scalar(x, y, 0.3), "n 4; n 4"),
    "aten.masked_fill.Scalar": (lambda x, m: A.masked_fill.Scalar(x, m, -1e9), "n 4; n 4:b"),
    "aten.masked_fill.Tensor": (lambda x, m, v: A.masked_fill.Tensor(x, m, v.sum()), "n 4; n 4:b; 2"),
    "aten.masked_scatter.default": (lambda x, m, s: A.masked_scatter.default(x, m, s), "n 4; n 1:b; n 4"),
    "aten.where.self": (A.where.self, "n 4:b; n 4; 4"),
    "aten.where.Scalar": (lambda c: A.where.Scalar(c, 1.0, -2.0), "n 4:b"),
    "aten.where.ScalarOther": (lambda c, x: A.where.ScalarOther(c, x, -2.0), "n 4:b; n 4"),
    "aten.where.ScalarSelf": (lambda c, x: A.where.ScalarSelf(c, 3, x), "n 4:b; n 4"),
}

CONTRACTIONS: dict[str, Case] = {
    "aten.addmm.default": (lambda b, x, w: A.addmm.default(b, x, w, beta=0.5, alpha=2), "3; n 4; 4 3"),
    "aten.baddbmm.default": (lambda b, x, w: A.baddbmm.default(b, x, w, beta=0.5), "n 5 3; n 5 4; n 4 3"),
    **of_two("bmm.default", inputs="n 5 4; n 4 3"),
    **of_two("dot.default", inputs="n; n"),
    **of_two("matmul.default", inputs="n 2 5 4; 4 3"),
    **of_two("mm.default", inputs="n 4; 4 3"),
    **of_two("mv.default", inputs="n 4; 4"),
    "aten.linear.default": (A.linear.default, "n 5 4; 3 4; 3"),
    "aten.bilinear.default": (A.bilinear.default, "n 4; n 5; 3 4 5; 3"),
    "aten.einsum.default": (lambda x, w: A.einsum.default("b i j, k j -> b k i", [x, w]), "n 5 4; 3 4"),
    "aten.conv1d.default": (lambda x, w: A.conv1d.default(x, w, None, [2], [1], [1], 2), "n 4 9; 6 2 3"),
    "aten.conv2d.default": (lambda x, w, b: A.conv2d.default(x, w, b, [2, 1], [1, 0]), "n 4 9 8; 6 4 3 2; 6"),
    "aten.conv3d.default": (A.conv3d.default, "n 2 4 5 6; 3 2 2 2 2; 3"),
    "aten.conv1d.padding": (lambda x, w: A.conv1d.padding(x, w, None, [1], "same", [2]), "n 4 9; 6 4 4"),
    "aten.conv2d.padding": (lambda x, w: A.conv2d.padding(x, w, None, [1, 1], "valid"), "n 4 9 8; 6 4 3 2"),
    "aten.conv_transpose1d.default": (
        lambda x, w: A.conv_transpose1d.default(x, w, None, [3], [1], [2], 2),
        "n 4 9; 4 3 4",
    ),
    "aten.conv_transpose2d.input": (
        lambda x, w, b: A.conv_transpose2d.input(x, w, b, [2, 2]),
        "n 4 5 6; 4 3 2 2; 3",
    ),
    "aten.scaled_dot_product_attention.default": (
        lambda q, k, v, m: A.scaled_dot_product_attention.default(q, k, v, m, scale=0.3, enable_gqa=True),
        "n 4 5 8; n 2 6 8; n 2 6 8; n 1 5 6",
    ),
    "aten.gru_cell.default": (A.gru_cell.default, "n 4; n 3; 9 4; 9 3; 9; 9"),
    "aten.lstm_cell.default": (
        lambda x, h, c, *w: A.lstm_cell.default(x, [h, c], *w),
        "n 4; n 3; n 3; 12 4; 12 3; 12; 12",
    ),
    "aten.rnn_relu_cell.default": (A.rnn_relu_cell.default, "n 4; n 3; 3 4; 3 3; 3; 3"),
    "aten.rnn_tanh_cell.default": (A.rnn_tanh_cell.default, "n 4; n 3; 3 4; 3 3"),
    "aten.lstm.input": (
        lambda x, h, c, *p: A.lstm.input(x, [h, c], list(p), True, 1, 0.0, False, False, True),
        "n 5 3; 1 n 4; 1 n 4; 16 3; 16 4; 16; 16",
    ),
    "aten.gru.input": (
        lambda x, h, *p: A.gru.input(x, h, list(p), False, 2, 0.0, False, True, False),
        "5 n 3; 4 n 4; 12 3; 12 4; 12 3; 12 4; 12 8; 12 4; 12 8; 12 4",
    ),
}

NORMS: dict[str, Case] = {
    "aten.layer_norm.default": (lambda x, w: A.layer_norm.default(x, [3, 4], w, None, 1e-3), "n 3 4; 3 4"),
    "aten.rms_norm.default": (lambda x, w: A.rms_norm.default(x, [4], w), "n 3 4; 4"),
    "aten.group_norm.default": (lambda x, w, b: A.group_norm.default(x, 2, w, b, 1e-3), "n 6 4 5; 6; 6"),
    "aten.batch_norm.default": (
        lambda x, w, b, m, v: A.batch_norm.default(x, w, b, m, v, False, 0.1, 1e-3, True),
        "n 6 4; 6; 6; 6; 6:+",
    ),
    "aten.instance_norm.default": (
        lambda x: A.instance_norm.default(x, None, None, None, None, True, 0.1, 1e-3, True),
        "n 6 4",
    ),
    "aten._weight_norm.default": (lambda v, g: A._weight_norm.default(v, g, 2), "4 3 5; 1 1 5"),
}

ALONG: dict[str, Case] = {
    "aten.all.default": (A.all.default, "n 4:b"),
    "aten.all.dim": (lambda x: A.all.dim(x, 1), "n 4:b"),
    "aten.any.default": (A.any.default, "n 4:b"),
    "aten.any.dim": (lambda x: A.any.dim(x, -1, True), "n 4:b"),
    "aten.amax.default": (lambda x: A.amax.default(x, [1], True), "n 4"),
    "aten.amin.default": (lambda x: A.amin.default(x, [0, 1]), "n 4"),
    "aten.argmax.default": (lambda x: A.argmax.default(x, -1), "n 4"),
    "aten.argmin.default": (lambda x: A.argmin.default(x), "n 4"),
    "aten.argsort.default": (lambda x: A.argsort.default(x, -1, True), "n 4"),
    "aten.sort.default": (lambda x: A.sort.default(x, 1), "n 4"),
    "aten.topk.default": (lambda x: A.topk.default(x, 2), "n 4"),
    "aten.cumsum.default": (lambda x: A.cumsum.default(x, 1), "n 4:i5"),
    "aten.linalg_vector_norm.default": (lambda x: A.linalg_vector_norm.default(x, 2, [-1], True), "n 4"),
    "aten.norm.ScalarOpt_dim": (lambda x: A.norm.ScalarOpt_dim(x, 1, [1]), "n 4"),
    "aten.log_softmax.int": (lambda x: A.log_softmax.int(x, -1), "n 4"),
    "aten.softmax.int": (lambda x: A.softmax.int(x, 1, torch.float64), "n 4"),
    "aten.logsumexp.default": (lambda x: A.logsumexp.default(x, [1]), "n 4"),
    "aten.max.default": (A.max.default, "n 4"),
    "aten.max.dim": (lambda x: A.max.dim(x, 1, True), "n 4"),
    "aten.min.default": (A.min.default, "n 4"),
    "aten.min.dim": (lambda x: A.min.dim(x, 0), "n 4"),
    "aten.mean.default": (A.mean.default, "n 4"),
    "aten.mean.dim": (lambda x: A.mean.dim(x, [-1], True), "n 4"),
    "aten.prod.dim_int": (lambda x: A.prod.dim_int(x, 1), "n 4"),
    "aten.std.correction": (lambda x: A.std.correction(x, [1], keepdim=True), "n 4"),
    "aten.std_mean.correction": (lambda x: A.std_mean.correction(x, [1]), "n 4"),
    "aten.var.correction": (lambda x: A.var.correction(x, [1], correction=0), "n 4"),
    "aten.var_mean.correction": (lambda x: A.var_mean.correction(x, [0, 1], correction=2), "3 4"),
    "aten.sum.default": (A.sum.default, "n 4:b"),
    "aten.sum.dim_IntList": (lambda x: A.sum.dim_IntList(x, [0]), "n 4:i5"),
    "aten.adaptive_avg_pool1d.default": (lambda x: A.adaptive_avg_pool1d.default(x, [1]), "n 4 6"),
    "aten.adaptive_avg_pool2d.default": (lambda x: A.adaptive_avg_pool2d.default(x, [3, 2]), "n 4 6 6"),
    "aten.adaptive_avg_pool3d.default": (lambda x: A.adaptive_avg_pool3d.default(x, [2, 3, 5]), "n 4 6 7 4"),
    "aten.adaptive_max_pool1d.default": (lambda x: A.adaptive_max_pool1d.default(x, [3])[0], "n 4 7"),
    "aten.adaptive_max_pool2d.default": (lambda x: A.adaptive_max_pool2d.default(x, [3, 2])[0], "n 4 6 6"),
    "aten.adaptive_max_pool3d.default": (
        lambda x: A.adaptive_max_pool3d.default(x, [1, 1, 1])[0],
        "n 2 3 4 5",
    ),
    "aten.avg_pool3d.default": (lambda x: A.avg_pool3d.default(x, [2, 2, 2], [1, 2, 1]), "n 2 4 5 6"),
    "aten.max_pool3d.default": (
        lambda x: A.max_pool3d.default(x, [2, 2, 2], [1, 2, 1], [1, 0, 1]),
        "n 2 4 5 6",
    ),
    "aten.max_pool1d_with_indices.default": (lambda x: A.max_pool1d_with_indices.default(x, [2])[0], "n 2 6"),
    "aten.max_pool2d_with_indices.default": (
        lambda x: A.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1])[0],
        "n 2 6 7",
    ),
    "aten.max_pool3d_with_indices.default": (
        lambda x: A.max_pool3d_with_indices.default(x, [2, 2, 2], [2, 2, 2])[0],
        "n 2 4 6 4",
    ),
    "aten.conv_transpose3d.input": (
        lambda x, w, b: A.conv_transpose3d.input(x, w, b, [2, 1, 2], [0, 1, 0], [1, 0, 1]),
        "n 4 3 4 5; 4 6 2 3 2; 6",
    ),
    "aten.channel_shuffle.default": (lambda x: A.channel_shuffle.default(x, 3), "n 6 4 5"),
    "aten.upsample_linear1d.vec": (lambda x: A.upsample_linear1d.vec(x, None, False, [2.0]), "n 2 5"),
    "aten.upsample_trilinear3d.vec": (
        lambda x: A.upsample_trilinear3d.vec(x, [5, 6, 7], True, None),
        "n 2 3 4 5",
    ),
    "aten.upsample_nearest3d.vec": (
        lambda x: A.upsample_nearest3d.vec(x, None, [2.0, 1.0, 3.0]),
        "n 2 3 4 5",
    ),
    "aten.avg_pool1d.default": (lambda x: A.avg_pool1d.default(x, [3], [2], [1]), "n 4 9"),
    "aten.avg_pool2d.default": (
        lambda x: A.avg_pool2d.default(x, [2, 2], [2, 2], [1, 1], False, False),
        "n 4 6 8",
    ),
    "aten.max_pool1d.default": (lambda x: A.max_pool1d.default(x, [3]), "n 4 9"),
    "aten.max_pool2d.default": (lambda x: A.max_pool2d.default(x, [3, 3], [2, 2], [1, 1]), "n 4 9 8"),
}

BY_NUMBER: dict[str, Case] = {
    "aten.embedding.default": (lambda w, i: A.embedding.default(w, i, 0), "7 4; n 5:i7"),
    "aten.gather.default": (lambda x, i: A.gather.default(x, 1, i), "n 4; n 2:i4"),
    "aten.take_along_dim.default": (lambda x, i: A.take_along_dim.default(x, i, 1), "3 4; 3 2:i4"),
    "aten.index.Tensor": (lambda x, i, j: A.index.Tensor(x, [None, i, j]), "n 4 5 3; 2 1:i4; 6:i5"),
    "aten.index_add.default": (lambda x, i, s: A.index_add.default(x, 1, i, s), "n 4; 6:i4; n 6"),
    "aten.index_copy.default": (lambda x, s: A.index_copy.default(x, 0, torch.tensor([2, 0]), s), "4 n; 2 n"),
    "aten.index_put.default": (lambda x, i, v: A.index_put.default(x, [i], v, True), "4 n; 6:i4; 6 n"),
    "aten.index_select.default": (lambda x, i: A.index_select.default(x, 1, i), "n 4; 3:i4"),
    "aten.nonzero.default": (lambda x: A.nonzero.default(x), "n 4:b"),
    "aten.where.default": (lambda x: A.where.default(x), "n 4:b"),
    "aten.one_hot.default": (lambda i: A.one_hot.default(i, 5), "n 3:i5"),
    "aten.scatter.src": (lambda x, s: A.scatter.src(x, 1, torch.tensor([[3, 0]]), s), "1 4; 1 2"),
    "aten.scatter.value": (lambda x, i: A.scatter.value(x, 1, i, 1.5), "n 4; n 2:i4"),
    "aten.scatter_add.default": (lambda x, i, s: A.scatter_add.default(x, 1, i, s), "n 4; n 6:i4; n 6"),
    "aten.select.int": (lambda x: A.select.int(x, 1, -1), "n 4"),
    "aten.select_scatter.default": (lambda x, y: A.select_scatter.default(x, y, 1, -2), "n 4; n"),
    "aten.slice_scatter.default": (lambda x, y: A.slice_scatter.default(x, y, 1, 1, 3), "n 4; n 2"),
    "aten.slice.Tensor": (lambda x: A.slice.Tensor(x, 0, 1, x.shape[0] - 1), "n 4"),
}

LAYOUT: dict[str, Case] = {
    "aten._unsafe_view.default": (lambda x: A._unsafe_view.default(x, [x.shape[0] * 2, 6]), "n 12"),
    "aten.view.default": (lambda x: A.view.default(x, [x.shape[0], 2, -1]), "n 12"),
    "aten.reshape.default": (lambda x: A.reshape.default(x, [-1, x.shape[0]]), "n 12"),
    "aten.broadcast_to.default": (lambda x: A.broadcast_to.default(x, [3, x.shape[0], 4]), "n 1"),
    "aten.expand.default": (lambda x: A.expand.default(x, [2, -1, 4]), "n 1"),
    "aten.cat.default": (lambda x, y: A.cat.default([x, y, torch.zeros(0)], 1), "n 4; n 3"),
    "aten.chunk.default": (lambda x: A.chunk.default(x, 3, -1), "n 9"),
    "aten.constant_pad_nd.default": (lambda x: A.constant_pad_nd.default(x, [1, 2, 0, 3], 0.5), "n 4 5"),
    "aten.pad.default": (lambda x: A.pad.default(x, [1, 2], "reflect"), "n 4 5"),
    "aten.flatten.using_ints": (lambda x: A.flatten.using_ints(x, 1, 2), "n 3 4 m"),
    "aten.flip.default": (lambda x: A.flip.default(x, [1, 0]), "n 4"),
    "aten.meshgrid.indexing": (lambda x, y: A.meshgrid.indexing([x, y], indexing="ij"), "n; m"),
    "aten.movedim.int": (lambda x: A.movedim.int(x, 0, 2), "n 3 4"),
    "aten.mT.default": (A.mT.default, "n 3 4"),
    "aten.numpy_T.default": (A.numpy_T.default, "n 3"),
    "aten.t.default": (A.t.default, "n 3"),
    "aten.permute.default": (lambda x: A.permute.default(x, [2, 0, -2]), "n 3 4"),
    "aten.im2col.default": (
        lambda x: A.im2col.default(x, [3, 2], [2, 1], [1, 2], [2, 3]),
        "n 3 7 6",
    ),
    "aten.pixel_shuffle.default": (lambda x: A.pixel_shuffle.default(x, 2), "n 8 3 5"),
    "aten.pixel_unshuffle.default": (lambda x: A.pixel_unshuffle.default(x, 2), "n 3 4 6"),
    "aten.repeat.default": (lambda x: A.repeat.default(x, [x.shape[0], 1, 3]), "n 4"),
    "aten.tile.default": (lambda x: A.tile.default(x, [3]), "n 4"),
    "aten.repeat_interleave.self_int": (lambda x: A.repeat_interleave.self_int(x, 3, 1), "n 4 5"),
    "aten.unfold.default": (lambda x: A.unfold.default(x, 2, 3, 2), "n 4 8 3"),
    "aten.roll.default": (lambda x: A.roll.default(x, [1, -2], [1, 2]), "n 4 5"),
    "aten.split.Tensor": (lambda x: A.split.Tensor(x, 3, 1), "n 9"),
    "aten.split.sizes": (lambda x: A.split.sizes(x, [3, 5], 1), "n 8"),
    "aten.split_with_sizes.default": (lambda x: A.split_with_sizes.default(x, [3, 5], 1), "n 8"),
    "aten.squeeze.default": (A.squeeze.default, "n 1 4 1"),
    "aten.squeeze.dim": (lambda x: A.squeeze.dim(x, 2), "n 1 4 1"),
    "aten.squeeze.dims": (lambda x: A.squeeze.dims(x, [1, 2]), "n 1 4 1"),
    "aten.stack.default": (lambda x, y: A.stack.default([x, y], -1), "n 4; n 4"),
    "aten.transpose.int": (lambda x: A.transpose.int(x, 0, -1), "n 3 4"),
    "aten.tril.default": (lambda x: A.tril.default(x, 1), "n 4"),
    "aten.triu.default": (lambda x: A.triu.default(x, -1), "n 4"),
    "aten.unbind.int": (lambda x: A.unbind.int(x, 1), "n 3"),
    "aten.unflatten.int": (lambda x: A.unflatten.int(x, 1, [2, -1]), "n 12 3"),
    "aten.unsafe_chunk.default": (lambda x: A.unsafe_chunk.default(x, 3, -1), "n 9"),
    "aten.unsafe_split.Tensor": (lambda x: A.unsafe_split.Tensor(x, 3, 1), "n 9"),
    "aten.unsafe_split_with_sizes.default": (
        lambda x: A.unsafe_split_with_sizes.default(x, [3, 5], 1),
        "n 8",
    ),
    "aten.unsqueeze.default": (lambda x: A.unsqueeze.default(x, -1), "n 3"),
    "aten.upsample_bilinear2d.vec": (lambda x: A.upsample_bilinear2d.vec(x, [6, 9], False, None), "n 3 4 5"),
    "aten.upsample_bicubic2d.vec": (lambda x: A.upsample_bicubic2d.vec(x, [6, 9], True, None), "n 3 4 5"),
    "aten.upsample_nearest1d.vec": (lambda x: A.upsample_nearest1d.vec(x, None, [2.0]), "n 3 4"),
    "aten.upsample_nearest2d.vec": (lambda x: A.upsample_nearest2d.vec(x, None, [2.0, 3.0]), "n 3 4 5"),
}

FROM_SIZES: dict[str, Case] = {
    "aten.arange.default": (lambda x: A.arange.default(x.shape[0]), "n 2"),
    "aten.arange.start": (lambda x: A.arange.start(-1, x.shape[0], dtype=torch.float32), "n 2"),
    "aten.arange.start_step": (lambda x: A.arange.start_step(0, x.shape[0] * 2, 2), "n 2"),
    "aten.empty.memory_format": (lambda x: A.zeros_like.default(A.empty.memory_format([x.shape[0]])), "n 2"),
    "aten.empty_like.default": (lambda x: A.zeros_like.default(A.empty_like.default(x)), "n 2"),
    "aten.eye.default": (lambda x: A.eye.default(x.shape[0]), "n 2"),
    "aten.full.default": (lambda x: A.full.default([x.shape[0], 3], -2.5), "n 2"),
    "aten.full_like.default": (lambda x: A.full_like.default(x, 7), "n 2"),
    "aten.linspace.default": (lambda x: x * A.linspace.default(0, 1, 4), "n 4"),
    "aten.ones.default": (lambda x: A.ones.default([x.shape[0]], dtype=torch.int64), "n 2"),
    "aten.ones_like.default": (A.ones_like.default, "n 2:i3"),
    "aten.scalar_tensor.default": (lambda x: x + A.scalar_tensor.default(2.5), "n 2"),
    "aten.zeros.default": (lambda x: A.zeros.default([2, x.shape[0]]), "n 2"),
    "aten.zeros_like.default": (A.zeros_like.default, "n 2"),
    "aten.sym_size.int": (lambda x: x.new_ones(A.sym_size.int(x, 0)), "n 2"),
    "_operator.add": (lambda x: x.new_ones(x.shape[0] + 2), "n 2"),
    "_operator.mul": (lambda x: x.new_ones(3 * x.shape[0]), "n 2"),
    "_operator.neg": (lambda x: x * -x.shape[0], "n 2"),
    "_operator.sub": (lambda x: x.new_ones(x.shape[0] - 2), "n 2"),
    "_operator.pow": (lambda x: x.new_ones(x.shape[0] ** 2), "n 2"),
    "_operator.truediv": (lambda x: x * (x.shape[0] / 3), "n 2"),
    "_operator.floordiv": (lambda x: x * (-x.shape[0] // 2), "n 2"),
    "_operator.mod": (lambda x: x * (x.shape[0] % 3), "n 2"),
    "torch.sym_float": (lambda x: x * torch.sym_float(x.shape[0]), "n 2"),
    "torch.sym_max": (lambda x, y: x.new_ones(torch.sym_max(x.shape[0], y.shape[0])), "n 2; m"),
    "torch.sym_min": (lambda x, y: x.new_ones(torch.sym_min(x.shape[0], y.shape[0])), "n 2; m"),
    "math.ceil": (lambda x: x.new_ones(math.ceil(x.shape[0] / 2)), "n 2"),
    "math.floor": (lambda x: x.new_ones(math.floor(x.shape[0] / 2)), "n 2"),
    "math.trunc": (lambda x: x.new_ones(math.trunc(x.shape[0] / 2)), "n 2"),
}

CASES: dict[str, Case] = POINTWISE | CONTRACTIONS | NORMS | ALONG | BY_NUMBER | LAYOUT | FROM_SIZES
"""At least one case for each row."""

MORE: tuple[tuple[str, Case], ...] = (
    (
        "a batch norm of one row by itself",
        (lambda x, w: A.batch_norm.default(x, w, None, None, None, True, 0.0, 1e-3, True), "1 6 4; 6"),
    ),
    ("the type of another tensor", (A.to.other, "n 4; 1:i3")),
    ("the type of another tensor, by its other name", (A.type_as.default, "n 4; 1:i3")),
    ("a number in the type of a tensor", (lambda x: A.new_full.default(x, [x.shape[0]], 3), "n 2")),
    ("ones in a type", (lambda x: A.new_ones.default(x, [x.shape[0]], dtype=torch.bool), "n 2")),
    ("zeros in the type of a tensor", (lambda x: A.new_zeros.default(x, [x.shape[0]]), "n 2")),
    (
        "an empty tensor of a type",
        (lambda x: A.zeros_like.default(A.new_empty.default(x, [x.shape[0]])), "n 2"),
    ),
    ("whole numbers are divided as real ones", (A.div.Tensor, "n 4:i9; 4:j9")),
    ("whole numbers are divided and rounded down", (A.floor_divide.default, "n 4:i9; 4:j9")),
    ("a factor of what is added", (lambda x, y: A.add.Tensor(x, y, alpha=3), "n 4; n 4")),
    ("a factor of what is taken away", (lambda x, y: A.sub.Tensor(x, y, alpha=-2), "n 4; 4:i3")),
    ("a whole tensor and a real number", (lambda x: A.mul.Tensor(x, 0.5), "n 4:i9")),
    ("a number of a tensor's sizes", (lambda x: x + x.shape[0], "n 4")),
    ("gelu by tanh", (lambda x: A.gelu.default(x, approximate="tanh"), "n 4")),
    ("softplus that is steep", (lambda x: A.softplus.default(x, 3.0), "n 4")),
    (
        "attention that looks back",
        (
            lambda q, k, v: A.scaled_dot_product_attention.default(q, k, v, None, 0.0, True),
            "n 2 5 8; n 2 5 8; n 2 5 8",
        ),
    ),
    (
        "attention with a mask of truth",
        (A.scaled_dot_product_attention.default, "n 2 5 8; n 2 6 8; n 2 6 8; n 1 5 6:B"),
    ),
    ("attention without heads", (A.scaled_dot_product_attention.default, "n 5 8; n 6 8; n 6 8")),
    ("a linear map without a bias", (A.linear.default, "n 4; 3 4")),
    ("a convolution without a batch", (lambda x, w: A.conv1d.default(x, w), "4 9; 6 4 3")),
    (
        "tensors of numbers on the first axes",
        (lambda x, i, j: A.index.Tensor(x, [i, j]), "4 5 n; 2 1:i4; 3:i5"),
    ),
    (
        "tensors of numbers on axes apart",
        (lambda x, i, j: A.index.Tensor(x, [i, None, j]), "4 n 5; 6:i4; 6:i5"),
    ),
    (
        "numbers put where a mask is true",
        (lambda x, m: A.index_put.default(x, [m], torch.tensor(2.0)), "n 4; n:b"),
    ),
    (
        "numbers put at pairs of places",
        (lambda x, i, j, v: A.index_put.default(x, [i, j], v), "4 5 n; 1:i4; 1:i5; n"),
    ),
    (
        "numbers put in each row at a place of its own",
        (lambda x, j, v: A.index_put.default(x, [A.arange.default(x.shape[0]), j], v), "n 5; n:i5; n"),
    ),
    ("a variance of the sample", (lambda x: A.var.correction(x, [0, 1], correction=1), "3 4")),
    (
        "an LSTM of two layers and ways",
        (
            lambda x, h, c, *p: A.lstm.input(x, [h, c], list(p), True, 2, 0.0, False, True, False),
            "5 n 3; 4 n 2; 4 n 2; 8 3; 8 2; 8; 8; 8 3; 8 2; 8; 8; 8 4; 8 2; 8; 8; 8 4; 8 2; 8; 8",
        ),
    ),
    ("every second element", (lambda x: A.slice.Tensor(x, 1, 1, 7, 2), "n 9")),
    (
        "written from the length of another tensor on",
        (lambda x, y: A.slice_scatter.default(torch.cat([y, x], 0), x * 2, 0, y.shape[0]), "n 4; m 4"),
    ),
    ("parts with a rest", (lambda x: A.chunk.default(x, 4, 1), "n 9")),
    ("fewer parts than asked for", (lambda x: A.chunk.default(x, 4, 1), "n 5")),
    ("parts of a size with a rest", (lambda x: A.split.Tensor(x, 4, -1), "n 9")),
    ("windows side by side, from the end", (lambda x: A.unfold.default(x, -1, 4, 4), "n 9")),
    ("all elements repeated", (lambda x: A.repeat_interleave.self_int(x, 2), "n 3")),
    (
        "elements repeated to a size that is said",
        (lambda x: A.repeat_interleave.self_int(x, 2, 1, output_size=6), "n 3"),
    ),
    ("as many zeros as make it whole", (lambda x: A.pad.default(x, [0, 0, 0, -x.shape[0] % 4]), "n 3")),
)
"""More of what rows do."""

WRITES: tuple[tuple[str, Case], ...] = (
    ("into the tensor itself", (lambda x, y: _then(x.clone(), lambda z: z.add_(y).mul_(2)), "n 4; n 4")),
    ("into a slice", (lambda x, y: _then(x.clone(), lambda z: z[:, 1:3].copy_(y)), "n 4; n 2")),
    ("into one element of an axis", (lambda x: _then(x.clone(), lambda z: z[:, -1].fill_(3.0)), "n 4")),
    (
        "through a view of a view",
        (lambda x, y: _then(x.clone(), lambda z: z.view(-1, 2, 2)[:, 1].add_(y)), "n 4; n 2"),
    ),
    (
        "into what is transposed",
        (lambda x, y: _then(x.clone(), lambda z: z.transpose(0, 1)[0].mul_(y)), "n 4; n"),
    ),
    ("behind the back of another view", (lambda x: _seen(x.clone()), "n 4")),
    (
        "into a copy, which changes nothing else",
        (lambda x: _then(x, lambda z: z.to(torch.float64).zero_()), "n 4"),
    ),
)
"""Calls that write into their argument."""


def _then(x: torch.Tensor, write: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    write(x)
    return x


def _seen(x: torch.Tensor) -> torch.Tensor:
    other = x[:, :2]
    x[:, 0].fill_(5.0)
    return other * 2


COMPOSITES: tuple[tuple[str, Case], ...] = (
    ("concat", (lambda x, y: torch.concat([x, y], dim=1), "n 4; n 3")),
    ("moveaxis", (lambda x: x.moveaxis(0, 2), "n 3 4")),
    ("swapaxes", (lambda x: x.swapaxes(0, 1), "n 3 4")),
    ("hstack", (lambda x, y: torch.hstack([x, y]), "n 4; n 3")),
    ("several parts", (lambda x: torch.tensor_split(x, 3, 1)[1] * 2, "n 7")),
    ("multiply", (lambda x: torch.multiply(x, 0.5), "n 4")),
    ("multiply, into the tensor itself", (lambda x: _then(x.clone(), lambda z: z.multiply_(2.0)), "n 4")),
    ("into a view by another name", (lambda x: _then(x.clone(), lambda z: z.swapaxes(0, 1).mul_(2)), "n 4")),
    ("standard deviation by its old signature", (lambda x: x.std(1), "n 4")),
    ("tensordot", (lambda x, y: torch.tensordot(x, y, dims=([1], [0])), "n 4; 4 5")),
    ("vecdot", (torch.linalg.vecdot, "n 4; n 4")),
    ("outer", (lambda x, y: torch.outer(x, y), "n; 4")),
    ("sizes of another tensor", (lambda x, y: x.flatten().reshape_as(y), "n 12; n 3 4")),
    ("a view of the sizes of another tensor", (lambda x, y: x.view_as(y), "n 12; n 3 4")),
    ("stretched as another tensor", (lambda x, y: x.expand_as(y), "n 1; n 4")),
    ("isfinite", (torch.isfinite, "n 4")),
)
"""Calls that the table lacks, and that torch makes of others."""
