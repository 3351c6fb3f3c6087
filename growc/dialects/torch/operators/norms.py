"""Rows of norms. An omitted gain or bias is replaced by a constant of ones or zeros."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from growc.dialects.torch.operators.call import Call, CallOperand, CallSize, UnknownError


def layer_norm(
    at: Call,
    x: CallOperand,
    normalized_shape: Sequence[CallSize],
    weight: CallOperand,
    bias: CallOperand,
    eps: float,
) -> ir.Value:
    """LayerNormalization over the last axes."""
    gain = at.maybe(weight) or at.ones(normalized_shape, at.dtype, "weight")
    inputs = at.tensor(x), gain, at.maybe(bias)
    output = at.add("LayerNormalization", *inputs, axis=-len(normalized_shape), epsilon=eps)
    return at.follows(output, eps="epsilon")


def rms_norm(
    at: Call, x: CallOperand, normalized_shape: Sequence[CallSize], weight: CallOperand, eps: float | None
) -> ir.Value:
    """RMSNormalization over the last axes."""
    gain = at.maybe(weight) or at.ones(normalized_shape, at.dtype, "weight")
    epsilon = torch.finfo(at.dtype).eps if eps is None else eps
    output = at.add("RMSNormalization", at.tensor(x), gain, axis=-len(normalized_shape), epsilon=epsilon)
    return at.follows(output, eps="epsilon")


def _parameters(at: Call, x: CallOperand, weight: CallOperand, bias: CallOperand) -> list[ir.Value]:
    channels = [at.sizes(x)[1]]
    gain = at.maybe(weight) or at.ones(channels, at.dtype, "weight")
    return [gain, at.maybe(bias) or at.ones(channels, at.dtype, "bias", 0.0)]


def group_norm(
    at: Call, x: CallOperand, num_groups: int, weight: CallOperand, bias: CallOperand, eps: float
) -> ir.Value:
    """GroupNormalization: each group of channels by itself."""
    inputs = [at.tensor(x), *_parameters(at, x, weight, bias)]
    output = at.add("GroupNormalization", *inputs, num_groups=num_groups, epsilon=eps)
    return at.follows(output, num_groups="num_groups", eps="epsilon")


def batch_norm(
    at: Call,
    x: CallOperand,
    weight: CallOperand,
    bias: CallOperand,
    running_mean: CallOperand,
    running_var: CallOperand,
    training: bool,
    eps: float,
) -> ir.Value:
    """BatchNormalization by running statistics, or by the batch's own if there are none.

    Statistics over the rows are supported for one row only. They are those of instance normalization.
    """
    if training and running_mean is None and at.sizes(x)[0] == 1:
        return instance_norm(at, x, weight, bias, None, None, True, eps)
    if training or running_mean is None:
        raise UnknownError
    statistics = [at.tensor(running_mean), at.tensor(running_var)]
    inputs = [at.tensor(x), *_parameters(at, x, weight, bias), *statistics]
    return at.follows(at.add("BatchNormalization", *inputs, epsilon=eps), eps="epsilon")


def instance_norm(
    at: Call,
    x: CallOperand,
    weight: CallOperand,
    bias: CallOperand,
    running_mean: CallOperand,
    running_var: CallOperand,
    use_input_stats: bool,
    eps: float,
) -> ir.Value:
    """InstanceNormalization: each channel of each sample by itself."""
    if not use_input_stats:
        return batch_norm(at, x, weight, bias, running_mean, running_var, False, eps)
    inputs = [at.tensor(x), *_parameters(at, x, weight, bias)]
    return at.follows(at.add("InstanceNormalization", *inputs, epsilon=eps), eps="epsilon")


def weight_norm(at: Call, v: CallOperand, g: CallOperand, dim: int) -> ir.Value:
    """A weight scaled to given norms. Each is over all axes but `dim`, or over all axes for `dim` -1."""
    others = at.constant([k for k in range(at.rank(v)) if k != dim])
    direction = at.tensor(v)
    length = at.add("ReduceL2", direction, others, keepdims=1)
    return at.add("Mul", direction, at.add("Div", at.tensor(g), length))
