"""A module and its lowered program side by side, in torch and in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from growc.algebra.indexmap import Array
from growc.dialects.torch.capture.export import export
from growc.dialects.torch.lowering.lower import OPAQUE, lower
from growc.dialects.torch.model import reader

Feed = Mapping[str, torch.Tensor]
Axes = Mapping[str, Mapping[int, str]]


def lowered(module: nn.Module, feed: Feed, axes: Axes | None = None) -> ir.Model:
    """The lowered program of a module."""
    return lower(export(module, (), dict(feed), axes=axes), reader(module))


def opaque(model: ir.Model) -> list[str]:
    """The calls that no row understands."""
    return [node.op_type for node in model.graph if node.domain == OPAQUE]


def in_torch(module: nn.Module, feed: Feed) -> list[Array]:
    """The outputs of the module."""
    with torch.no_grad():
        outputs = module(**feed)
    return [value.numpy() for value in tree_flatten(outputs)[0] if isinstance(value, torch.Tensor)]


def in_onnxruntime(model: ir.Model, feed: Feed) -> list[Array]:
    """The outputs of the lowered program."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    content = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    wanted = {port.name for port in session.get_inputs()}
    return list(session.run(None, {n: v.numpy() for n, v in feed.items() if n in wanted}))


def difference(module: nn.Module, model: ir.Model, feed: Feed) -> float:
    """The largest difference of any number, relative to the largest one; types and sizes must agree."""
    worst = 0.0
    for a, b in zip(in_torch(module, feed), in_onnxruntime(model, feed), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        same = np.array_equal(a, b) or np.array_equal(np.isnan(a), np.isnan(b))
        assert same
        off = np.abs(np.nan_to_num(a.astype(np.float64)) - np.nan_to_num(b.astype(np.float64)))
        worst = max(
            worst, float(off.max(initial=0)) / max(1.0, float(np.abs(np.nan_to_num(a)).max(initial=0)))
        )
    return worst
