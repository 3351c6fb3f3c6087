"""Tensors that come to the same bytes as an earlier one, as those of a copied layer do.

Needs: tensors in the order in which they are written. Gives: for each repeat the earlier tensor. It is told
from sources and plans alone; no value is read or compared.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from growc.dialects.onnx.planned_tensor import PlannedTensor
from growc.plans.execute import read_beside


def repeats(tensors: Mapping[str, ir.TensorProtocol]) -> dict[str, str]:
    """For each tensor whose bytes are those of an earlier one, the name of the first of these."""
    sources = {key: _source(tensor) for key, tensor in tensors.items()}
    times = Counter(sources.values())
    first: dict[object, str] = {}
    originals: dict[str, str] = {}
    for key, tensor in tensors.items():
        if times[sources[key]] == 1 or tensor.dtype.bitwidth < 8:
            continue
        earlier = first.setdefault((sources[key], _change(tensor)), key)
        if earlier != key:
            originals[key] = earlier
    return originals


def _source(tensor: ir.TensorProtocol) -> object:
    """Equal only for tensors that are computed from the same stored one."""
    if isinstance(tensor, PlannedTensor):
        return _source(tensor.source)
    if isinstance(tensor, ir.ExternalTensor):
        return (str(tensor.path), tensor.offset, tensor.length, tensor.dtype, tuple(tensor.shape.numpy()))
    return tensor


def _change(tensor: ir.TensorProtocol) -> object:
    """Equal only for tensors that have the same values if they are computed from the same stored one."""
    if not isinstance(tensor, PlannedTensor):
        return ()
    plan = tensor.plan
    if plan.normed is not None or plan.literal is not None:
        return tensor
    steps = tuple(step.signature for step in plan.steps)
    digest = hashlib.blake2b()
    for part in _bytes((steps, plan.scale, plan.shift, plan.zero, plan.new, plan.after, plan.dtype)):
        digest.update(part)
    beside = tuple((name, _source(tensor.beside[name])) for name in sorted(read_beside(plan.steps)))
    inner = (_change(tensor.source), *(_change(tensor.beside[name]) for name, _ in beside))
    return digest.digest(), beside, inner


def _bytes(part: object) -> Iterator[bytes]:
    """Bytes that differ where tuples of tuples, bytes and other values differ."""
    if isinstance(part, tuple):
        yield b"(%d" % len(part)
        for one in part:
            yield from _bytes(one)
    else:
        value = part if isinstance(part, bytes) else repr(part).encode()
        yield b"%d:" % len(value)
        yield value
