"""Products with weights, in many spellings, and weights that the graph computes on the way."""

from __future__ import annotations

import numpy as np

from hostile.net import Net

COMPUTED = {
    "stored": 70,
    "scaled": 3,
    "half": 3,
    "bf16": 2,
    "double": 2,
    "int8": 4,
    "normed": 3,
    "product": 3,
    "joined": 3,
    "cut": 2,
    "centred": 2,
    "turned": 3,
}
SPELLED = {
    "matmul": 60,
    "transposed": 12,
    "einsum": 7,
    "gemm": 7,
    "lora": 5,
    "dynamic": 3,
    "conv": 3,
    "fused": 3,
}


def matrix(n: Net, rows: int, columns: int, scale: float = 0.0) -> str:
    """A matrix, stored or computed from what is stored."""
    scale = scale or 1.2 / np.sqrt(rows)
    how = n.some("weight", COMPUTED)
    draw = n.rng.standard_normal((rows, columns)) * scale
    if how == "scaled":
        factor = n.normal(*n.pick.choice([(), (1,), (columns,), (rows, 1)]), scale=0.3, mean=1.0)
        return n.op("Mul", n.tensor(draw), factor)
    if how in ("half", "bf16", "double"):
        return n.cast(n.tensor(draw, {"half": "f16", "bf16": "bf16", "double": "f64"}[how]), n.kind)
    if how == "int8" and n.kind == "f32":
        return integers(n, draw)
    if how == "normed":
        axis = n.pick.choice([0, 1])
        w = n.tensor(draw)
        unit = n.op("Div", w, n.reduce("L2", w, axis))
        length = n.normal(*((1, columns) if axis == 0 else (rows, 1)), mean=1.0, scale=0.3)
        return n.op("Mul", unit, length)
    if how == "product":
        inner = n.pick.choice([2, 3])
        first, second = n.normal(rows, inner, scale=0.7), n.normal(inner, columns, scale=0.7)
        return n.op("MatMul", first, second)
    if how == "joined":
        axis = n.pick.choice([0, 1])
        cut = draw.shape[axis] // 2
        return n.op("Concat", *map(n.tensor, np.split(draw, [cut], axis)), axis=axis)
    if how == "cut":
        return n.slice(n.tensor(np.vstack([draw, draw[:2]])), 0, rows, 0)
    if how == "centred":
        w = n.tensor(draw)
        return n.op("Sub", w, n.reduce("Mean", w, n.pick.choice([0, 1])))
    if how == "turned":
        return n.transpose(n.tensor(draw.T), 1, 0)
    return n.tensor(draw)


def integers(n: Net, draw: np.ndarray) -> str:
    """A weight stored in eight bits."""
    axis = n.pick.choice([None, 0, 1])
    top = np.abs(draw).max() if axis is None else np.abs(draw).max(axis=1 - axis)
    scale = np.asarray(top / 127, dtype=np.float32)
    step = scale if axis is None else np.expand_dims(scale, 1 - axis)
    stored = n.tensor(np.clip(np.round(draw / step), -127, 127), "i8")
    zero = n.tensor(np.zeros(scale.shape), "i8")
    attributes = {} if axis is None else {"axis": axis}
    return n.op("DequantizeLinear", stored, n.tensor(scale, "f32"), zero, **attributes)


def product(n: Net, x: str, rows: int, columns: int, scale: float = 0.0, rank: int = 3) -> str:
    """x · W without a bias."""
    how = n.some("product", SPELLED)
    if how == "transposed":
        return n.op("MatMul", x, n.transpose(matrix(n, columns, rows, scale or 1.2 / np.sqrt(rows)), 1, 0))
    if how == "einsum":
        letters = "abcd"[: rank - 1]
        return n.op("Einsum", x, matrix(n, rows, columns, scale), equation=f"{letters}y,yz->{letters}z")
    if how == "gemm" and rank == 3:
        flat = n.reshape(x, -1, rows)
        gemm = n.op("Gemm", flat, matrix(n, columns, rows, scale), transB=1, alpha=n.pick.choice([1.0, 0.7]))
        shape = n.op("Slice", n.op("Shape", x), n.ints(0), n.ints(2), n.ints(0))
        return n.op("Reshape", gemm, n.op("Concat", shape, n.ints(columns), axis=0))
    if how == "lora":
        low = n.op("MatMul", n.op("MatMul", x, n.normal(rows, 2, scale=0.5)), n.normal(2, columns, scale=0.5))
        return n.op("Add", n.op("MatMul", x, matrix(n, rows, columns, scale)), low)
    if how == "dynamic" and n.kind == "f32":
        return dynamic(n, x, rows, columns)
    if how == "conv" and rank == 3:
        kernel = n.normal(columns, rows, 1, scale=1.2 / np.sqrt(rows))
        return n.transpose(n.op("Conv", n.transpose(x, 0, 2, 1), kernel), 0, 2, 1)
    if how == "fused" and n.kind == "f32":
        w = matrix(n, columns, rows, scale)
        return n.op("FusedMatMul", x, w, domain="com.microsoft", transB=1, alpha=0.9)
    return n.op("MatMul", x, matrix(n, rows, columns, scale))


def dynamic(n: Net, x: str, rows: int, columns: int) -> str:
    """A product in integers, of activations that are rounded to steps of their own range."""
    stored = n.tensor(n.rng.integers(-64, 64, (rows, columns)), "i8")  # x86 without VNNI saturates above
    zero = n.tensor(np.zeros(columns if n.chance(0.5) else ()), "i8")
    rounded, step, shift = n.ops("DynamicQuantizeLinear", x, outputs=3)
    whole = n.op("MatMulInteger", rounded, stored, shift, zero)
    factor = n.op("Mul", step, n.tensor(n.rng.uniform(0.005, 0.02, columns if n.chance(0.5) else ())))
    return n.op("Mul", n.cast(whole, "f32"), factor)


def linear(
    n: Net, x: str, rows: int, columns: int, scale: float = 0.0, bias: float = 0.7, rank: int = 3
) -> str:
    """x · W + b, where b is there with a probability."""
    products = product(n, x, rows, columns, scale, rank)
    if not n.chance(bias):
        return products
    b = n.normal(columns, scale=0.4)
    return n.op("Add", products, b) if n.chance(0.8) else n.op("Add", b, products)
