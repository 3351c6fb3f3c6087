"""Stacks of blocks on a stream, as ONNX text: every letter is a block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from graphs import save

WIDTH = 8

Block = tuple[str, dict[str, str]]
"""Nodes from `{x}` to `{b}`, and the shapes of weights by name."""

ATTENTION: Block = (
    """
    {p}q = MatMul({x}, {p}wq)
    {p}k = MatMul({x}, {p}wk)
    {p}v = MatMul({x}, {p}wv)
    {p}t = Transpose <perm = [0, 2, 1]> ({p}k)
    {p}s = MatMul({p}q, {p}t)
    {p}m = Add({p}s, mask)
    {p}p = Softmax <axis = -1> ({p}m)
    {p}c = MatMul({p}p, {p}v)
    {b} = MatMul({p}c, {p}wo)
    """,
    {"wq": "8, 6", "wk": "8, 6", "wv": "8, 6", "wo": "6, 8"},
)


def feed_forward(width: int) -> Block:
    """Up, down, and a bias."""
    nodes = """
    {p}u = MatMul({x}, {p}up)
    {p}r = Relu({p}u)
    {p}d = MatMul({p}r, {p}down)
    {b} = Add({p}d, {p}bias)
    """
    return nodes, {"up": f"8, {width}", "down": f"{width}, 8", "bias": "8"}


CONVOLUTION: Block = (
    """
    {p}t = Transpose <perm = [0, 2, 1]> ({x})
    {p}v = Conv <pads = [1, 1]> ({p}t, {p}kernel)
    {b} = Transpose <perm = [0, 2, 1]> ({p}v)
    """,
    {"kernel": "8, 8, 3"},
)

MIXER: Block = (
    """
    {p}t = Transpose <perm = [0, 2, 1]> ({x})
    {p}s = MatMul({x}, {p}t)
    {p}p = Softmax <axis = -1> ({p}s)
    {b} = MatMul({p}p, {x})
    """,
    {},
)

BLOCKS: dict[str, Block] = {
    "A": ATTENTION,
    "M": MIXER,
    "F": feed_forward(12),
    "G": feed_forward(20),
    "C": CONVOLUTION,
}

Around = Callable[[str, str, str, str], tuple[str, str]]
"""(number, value of the stream, nodes of the block, its result) -> (nodes, new value of the stream)."""


def pre_norm(p: str, x: str, nodes: str, b: str) -> tuple[str, str]:
    """A norm before the block."""
    norm = f"{p}n = LayerNormalization <axis = -1> ({x}, {p}gain, {p}shift)"
    return f"{norm}{nodes.format(x=f'{p}n', b=b, p=p)}{p}x = Add({x}, {b})\n", f"{p}x"


def swapped(p: str, x: str, nodes: str, b: str) -> tuple[str, str]:
    """The stream as the second operand of the sum, and a cast behind it."""
    norm = f"{p}n = LayerNormalization <axis = -1> ({x}, {p}gain, {p}shift)"
    sums = f"{p}a = Add({b}, {x})\n    {p}x = Cast <to = 1> ({p}a)\n"
    return f"{norm}{nodes.format(x=f'{p}n', b=b, p=p)}{sums}", f"{p}x"


def post_norm(p: str, x: str, nodes: str, b: str) -> tuple[str, str]:
    """A norm behind the sum."""
    sums = f"{p}a = Add({x}, {b})\n    {p}x = LayerNormalization <axis = -1> ({p}a, {p}gain, {p}shift)\n"
    return f"{nodes.format(x=x, b=b, p=p)}{sums}", f"{p}x"


def branch_norm(p: str, x: str, nodes: str, b: str) -> tuple[str, str]:
    """A norm on the branch, behind the block, and a factor."""
    sums = f"""
    {p}n = LayerNormalization <axis = -1> ({b}, {p}gain, {p}shift)
    {p}h = Mul({p}n, half)
    {p}x = Add({x}, {p}h)
    """
    return f"{nodes.format(x=x, b=b, p=p)}{sums}", f"{p}x"


def parallel(p: str, x: str, nodes: str, b: str) -> tuple[str, str]:
    """Two branches on one norm, in one sum of three."""
    norm = f"{p}n = LayerNormalization <axis = -1> ({x}, {p}gain, {p}shift)"
    more, _ = feed_forward(12)
    inner = nodes.format(x=f"{p}n", b=b, p=p) + more.format(x=f"{p}n", b=f"{p}second", p=f"{p}z")
    return f"{norm}{inner}{p}x = Sum({b}, {x}, {p}second)\n", f"{p}x"


def stack(path: Path, blocks: str, around: Around = pre_norm, begin: str = "x0 = MatMul(x, start)") -> Path:
    """A model of these blocks; `b3_up` is the weight `up` of the fourth block."""
    text, shapes, x = "", ["float[4, 8] start", "float[8, 5] head"], "x0"
    for i, letter in enumerate(blocks):
        nodes, weights = BLOCKS[letter]
        p = f"b{i}_"
        more, x = around(p, x, nodes, f"{p}out")
        text += more
        norm = {"gain": "8", "shift": "8"}
        wanted = weights | norm | {f"z{n}": s for n, s in BLOCKS["F"][1].items() if around is parallel}
        shapes += [f"float[{shape}] {p}{name}" for name, shape in wanted.items() if f"{p}{name}" in text]
    graph = f"""
    stack (float[N, S, 4] x, float[N, 1, S] mask) => (float[N, S, 5] y)
    <{", ".join(shapes)}>
    {{
    half = Constant <value_float = 0.5> ()
    {begin}
    {text}
    last = Relu({x})
    y = MatMul(last, head)
    }}
    """
    return save(path, graph)
