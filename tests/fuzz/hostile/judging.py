"""Source and result in onnxruntime, on the files as they are: how far apart, and how far they may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

SCALES = (0.1, 1.0, 10.0)
FLOOR = 1e-5
FINE = 1e-9
ROUNDINGS = 50
ulps = {TensorProto.FLOAT: 2.0**-24, TensorProto.DOUBLE: 2.0**-53, TensorProto.FLOAT16: 2.0**-11}
AT_ZERO = {"div": 1, "pow": 0}
"""The operand of a quotient and of a power at whose zeros they have their poles."""
Feed = dict[str, Any]
Results = list[np.ndarray]

ort.set_default_logger_severity(4)


def session(model: onnx.ModelProto | str, optimised: bool = False) -> ort.InferenceSession:
    """A session of one thread, which computes what the file says."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    source = model if isinstance(model, str) else model.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def feeds(inputs: Sequence[tuple[str, str, Sequence[Any]]], seed: int, vocab: int) -> list[Feed]:
    """One case for each scale; where the model allows, of other sizes each."""
    rng = np.random.default_rng([seed, 5])
    cases = []
    for scale, (batch, steps) in zip(SCALES, ((2, 5), (3, 4), (2, 6)), strict=True):
        sizes = {"B": batch, "S": steps}
        case = {}
        for name, kind, shape in inputs:
            dims = [sizes[s] if isinstance(s, str) else s for s in shape]
            if kind == "i64":
                case[name] = rng.integers(0, max(vocab, 1), dims)
            else:
                typed = {"f32": np.float32, "f64": np.float64, "f16": np.float16}[kind]
                case[name] = (scale * rng.standard_normal(dims)).astype(typed)
        cases.append(case)
    return cases


def run(made: ort.InferenceSession, cases: Sequence[Feed], names: Sequence[str]) -> list[Results]:
    """The outputs for every case."""
    return [[np.asarray(value) for value in made.run(list(names), case)] for case in cases]


def apart(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, against the largest value; infinity where they differ in kind."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.size == 0:
        return 0.0
    if a.dtype.kind in "iub":
        return 0.0 if bool((a == b).all()) else float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    fine = np.isfinite(a)
    if (fine != np.isfinite(b)).any() or not np.array_equal(
        np.sign(a[~fine]), np.sign(b[~fine]), equal_nan=True
    ):
        return float("inf")
    if not fine.any():
        return 0.0
    top = np.abs(a[fine]).max()
    gap = np.abs(a - b)[fine].max()
    return float(gap / top) if top > 1e-30 else float(gap)


def shaken(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The model with every floating weight moved by half a unit in its last place; halves by one.

    Whole numbers stay: a power of two and a bit is another function.
    """
    rng = np.random.default_rng(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    tensors = list(copy.graph.initializer)
    tensors += [a.t for node in copy.graph.node if node.op_type == "Constant" for a in node.attribute]
    for tensor in tensors:
        if tensor.data_type in ulps:
            array = onnx.numpy_helper.to_array(tensor)
            if array.size == 1 and float(array.flat[0]).is_integer():
                continue
            sign = rng.choice([-1.0, 1.0], array.shape)
            moved = array.astype(np.float64) * (1 + sign * ulps[tensor.data_type] * 1.01)
            tensor.raw_data = moved.astype(array.dtype).tobytes()
        elif tensor.data_type == TensorProto.BFLOAT16:
            array = np.frombuffer(tensor.raw_data, ml_dtypes.bfloat16).astype(np.float64)
            moved = array * (1 + rng.choice([-1.0, 1.0], array.shape) * 2.0**-8)
            tensor.raw_data = moved.astype(ml_dtypes.bfloat16).tobytes()
    return copy


def rounding(
    model: onnx.ModelProto, cases: Sequence[Feed], names: Sequence[str], source: list[Results], shakes: int
) -> np.ndarray:
    """The source's own rounding: cases × outputs. Infinite where a last bit decides what is finite."""
    largest = np.zeros((len(cases), len(names)))
    for seed in range(shakes):
        other = run(session(shaken(model, seed)), cases, names)
        for i, (a, b) in enumerate(zip(source, other, strict=True)):
            largest[i] = np.maximum(largest[i], [apart(x, y) for x, y in zip(a, b, strict=True)])
    return largest


def is_too_large(operand: np.ndarray, result: np.ndarray) -> bool:
    """Whether infinite results stand away from the pole that is at the zeros of an operand.

    An operand that is as small as a rounding error may be a zero.
    """
    at = np.broadcast_to(operand, result.shape)[np.isinf(result)]
    return bool((np.abs(at) > FLOOR).all())


def degenerate(source: list[Results]) -> bool:
    """Whether an output says nothing: not finite, the same everywhere, or hardly anything at all."""
    for results in source[:2]:
        for value in results:
            if value.size == 0:
                return True
            if value.dtype.kind in "iub":
                continue
            wide = value.astype(np.float64)
            if not np.isfinite(wide).all() or np.abs(wide).max() > 1e6:
                return True
            if wide.size > 1 and np.ptp(wide) < 1e-4 * max(1e-3, np.abs(wide).max()):
                return True
    return False


def compared(
    source: list[Results], result: list[Results], names: Sequence[str], maps: Mapping[str, Sequence[Any]]
) -> np.ndarray:
    """How far the result is from the source: cases × outputs, through the maps of outputs that grew."""
    distances = np.zeros((len(source), len(names)))
    for i, (a, b) in enumerate(zip(source, result, strict=True)):
        for j, name in enumerate(names):
            x, y = a[j], b[j]
            for mapped in maps.get(name, ()):
                x, y = mapped.restrict(x, y)
            distances[i, j] = apart(x, y.astype(x.dtype))
    return distances
