"""Mixtures of experts by how their routers share out: what is chosen first, and what makes the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from graphs import save

E, K, H, F = 5, 2, 6, 7

CHOSEN = "w, i = TopK <axis = -1> (p, k)"
SOFTMAX = f"p = Softmax <axis = -1> (l)  {CHOSEN}"
SIGMOID = f"p = Sigmoid (l)  {CHOSEN}"
NORMED = "n = ReduceSum <keepdims = 1> (w, last)  v = Div (w, n)"
RAW = "v = Identity (w)"
LOOKED_UP = """
    u = Gather <axis = 0> (up, i)
    d = Gather <axis = 0> (down, i)
    r = Unsqueeze ({input}, ahead)
    h0 = MatMul (r, u)
    h = Gelu (h0)
    o0 = MatMul (h, d)
    w2 = Unsqueeze (v, last)
    w3 = Unsqueeze (w2, last)
    o = Mul (o0, w3)
    s0 = ReduceSum <keepdims = 0> (o, slots)
    s = Squeeze (s0, slots)
"""
MARKED = """
    marks = OneHot <axis = -1> (i, depth, onoff)
    vk = Unsqueeze (v, last)
    placed = Mul (marks, vk)
    gates = ReduceSum <keepdims = 0> (placed, slots)
    rows = Unsqueeze (x, first)
    h0 = MatMul (rows, up)
    h = Gelu (h0)
    o0 = MatMul (h, down)
    turned = Transpose <perm = [1, 0]> (gates)
    g = Unsqueeze (turned, last)
    o = Mul (o0, g)
    s = ReduceSum <keepdims = 0> (o, first)
"""
SCATTERED = f"""
    all = Shape (l)
    none = ConstantOfShape (all)
    gates = ScatterElements <axis = -1> (none, i, v)
    {MARKED[MARKED.index("rows") :]}
"""
BEFORE = """
    sw = Unsqueeze (v, last)
    xs = Unsqueeze (x, slots)
    scaled = Mul (xs, sw)
    u = Gather <axis = 0> (up, i)
    d = Gather <axis = 0> (down, i)
    r = Unsqueeze (scaled, two)
    h0 = MatMul (r, u)
    h = Gelu (h0)
    o0 = MatMul (h, d)
    s0 = ReduceSum <keepdims = 0> (o0, slots)
    s = Squeeze (s0, slots)
"""
BESIDE = LOOKED_UP.format(input="x")

ROUTERS = {
    "softmax, then the best": (SOFTMAX, RAW, BESIDE, True),
    "softmax, then the best, which sum to one": (SOFTMAX, NORMED, BESIDE, True),
    "softmax over the best": (
        "lw, i = TopK <axis = -1> (l, k)  w = Softmax <axis = -1> (lw)",
        RAW,
        BESIDE,
        True,
    ),
    "sigmoid of the best, which sum to one": (SIGMOID, NORMED, BESIDE, True),
    "sigmoid of the best": (SIGMOID, RAW, BESIDE, False),
    "sigmoid, with a number under the sum": (
        SIGMOID,
        "n0 = ReduceSum <keepdims = 1> (w, last)  n = Add (n0, small)  v = Div (w, n)",
        BESIDE,
        False,
    ),
    "softmax of the best, squared": (SOFTMAX, "v = Mul (w, w)", BESIDE, False),
    "softmax of the best, through a tangent": (SOFTMAX, "v = Tanh (w)", BESIDE, False),
    "scores chosen by others": (
        "p = Sigmoid (l)  b = Add (p, bias)  bw, i = TopK <axis = -1> (b, k)"
        "  w = GatherElements <axis = -1> (p, i)",
        NORMED,
        BESIDE,
        True,
    ),
    "what goes in is weighed, by a softmax": (SOFTMAX, RAW, BEFORE, False),
    "what goes in is weighed, by the most of all": (
        SOFTMAX,
        "n = ReduceMax <keepdims = 1> (p, last)  v = Div (w, n)",
        BEFORE,
        False,
    ),
    "logarithms of a softmax": (
        f"p = LogSoftmax <axis = -1> (l)  {CHOSEN.replace('w,', 'lw,')}  w = Abs (lw)",
        RAW,
        BESIDE,
        False,
    ),
    "sums of those that are chosen before": (SOFTMAX, "v = CumSum (w, one)", BESIDE, False),
    "shares beside others": (
        f"{SOFTMAX}  q0 = Sigmoid (l)  q = GatherElements <axis = -1> (q0, i)",
        "wk = Unsqueeze (w, last)  qk = Unsqueeze (q, last)  j = Concat <axis = -1> (wk, qk)"
        "  v = ReduceSum <keepdims = 0> (j, last)",
        BESIDE,
        False,
    ),
    "one-hot marks, all experts run": (SOFTMAX, NORMED, MARKED, True),
    "one-hot marks, by sigmoids": (SIGMOID, RAW, MARKED, False),
    "put among zeros, all experts run": (SOFTMAX, RAW, SCATTERED, True),
    "put among zeros, by sigmoids": (SIGMOID, RAW, SCATTERED, False),
    "scores chosen by others, put among zeros": (
        "p = Sigmoid (l)  b = Add (p, bias)  bw, i = TopK <axis = -1> (b, k)"
        "  w = GatherElements <axis = -1> (p, i)",
        NORMED,
        SCATTERED,
        True,
    ),
    "others are hidden, and a softmax": (
        "lw, i = TopK <axis = -1> (l, k)  low = Mul (l, zero)  hidden = Add (low, least)"
        "  seen = ScatterElements <axis = -1> (hidden, i, lw)  p = Softmax <axis = -1> (seen)"
        "  w = GatherElements <axis = -1> (p, i)",
        RAW,
        BESIDE,
        True,
    ),
    "their best two add up": (
        f"{SOFTMAX}  bw, bi = TopK <axis = -1> (p, k)  best = ReduceSum <keepdims = 1> (bw, last)",
        "v = Mul (w, best)",
        BESIDE,
        False,
    ),
    "their best one counts": (
        f"{SOFTMAX}  bw, bi = TopK <axis = -1> (p, slots)",
        "v = Div (w, bw)",
        BESIDE,
        False,
    ),
    "their best two of the scores add up": (
        f"{SIGMOID}  bw, bi = TopK <axis = -1> (l, k)  best = ReduceSum <keepdims = 1> (bw, last)",
        f"{NORMED.replace('v =', 'v0 =')}  v = Mul (v0, best)",
        BESIDE,
        False,
    ),
}
"""By name: how the router scores and chooses, how it weighs, what experts do, and whether twice as many
experts, of which twice as many are chosen, compute the same."""

NUMBERS = {
    "k": [K],
    "ahead": [1, 2],
    "last": [-1],
    "slots": [1],
    "first": [0],
    "two": [2],
    "one": 1,
    "depth": [E],
}
REALS = {"onoff": [0, 1], "small": 1e-2, "zero": 0, "least": -1e4}


def router(path: Path, name: str, scale: float = 1.0) -> Path:
    """The model of a router, with drawn weights; `scale`: of those of the router."""
    score, weigh, work, _ = ROUTERS[name]
    numbers = {n: np.array(v, dtype=np.int64) for n, v in NUMBERS.items()}
    numbers |= {n: np.array(v, dtype=np.float32) for n, v in REALS.items()}
    listed = ", ".join(
        f"{'int64' if v.dtype == np.int64 else 'float'}[{','.join(map(str, v.shape))}] {n}"
        for n, v in numbers.items()
    )
    random = np.random.default_rng(len(name))
    shapes = {"router": (H, E), "bias": (E,), "up": (E, H, F), "down": (E, F, H), "gain": (H,)}
    drawn = {n: random.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    drawn["router"] *= np.float32(scale)
    listed += "".join(f", float[{','.join(map(str, shape))}] {n}" for n, shape in shapes.items())
    text = f"""
mixture (float[N, {H}] ids) => (float[N, {H}] y)
<{listed}>
{{
    x = Mul (ids, gain)
    l = MatMul (x, router)
    {score}
    {weigh}
    {work}
    y = Add (x, s)
}}"""
    return save(path, text.replace("[] ", " "), opset=20, **numbers, **drawn)
