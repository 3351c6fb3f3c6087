"""How a stream begins, what stands on it between layers, and what becomes of it at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hostile.feeds import quantised
from hostile.linear import linear
from hostile.net import Net
from hostile.norms import norm

VOCAB = [7, 9, 11]
PLACES = 8


@dataclass
class Start:
    """A stream that begins: its value, the inputs of the model, and tables that a head may share."""

    value: str
    inputs: list[tuple[str, str, list[object]]] = field(default_factory=list)
    table: str = ""
    vocab: int = 0


def start(n: Net, size: int) -> Start:
    """The beginning of a stream of (b, s, size)."""
    kinds = {"tokens": 10, "floats": 16, "both": 3, "bare": 1, "one hot": 1, "patches": 2}
    how = n.some("start", kinds)
    begun = Start("")
    if how in ("tokens", "both", "one hot"):
        _tokens(n, begun, size, how == "one hot")
    if how == "bare":
        begun.inputs.append(("x", n.kind, [n.batch, n.steps, size]))
        begun.value = "x"
    elif how == "patches":
        begun.inputs.append(("x", n.kind, [n.batch, 3, n.steps]))
        kernel = n.normal(size, 3, 3, scale=0.5)
        bias = [n.normal(size, scale=0.3)] if n.chance(0.6) else []
        begun.value = n.transpose(n.op("Conv", "x", kernel, *bias, pads=[1, 1]), 0, 2, 1)
    elif how in ("floats", "both"):
        width = n.pick.choice([3, 4, 5])
        begun.inputs.append(("x", n.kind, [n.batch, n.steps, width]))
        value = linear(n, "x", width, size, scale=0.8)
        begun.value = n.op("Add", begun.value, value) if begun.value else value
    if n.chance(0.4):
        begun.value = _placed(n, begun.value, size)
    how = n.some("stem", {"none": 14, "norm": 3, "scale": 2, "relu": 1, "tanh": 1, "gain": 1})
    begun.value = {
        "none": lambda: begun.value,
        "norm": lambda: norm(n, begun.value, size),
        "scale": lambda: n.op("Mul", begun.value, n.number(np.sqrt(size))),
        "relu": lambda: n.op("Relu", begun.value),
        "tanh": lambda: n.op("Tanh", begun.value),
        "gain": lambda: n.op("Mul", begun.value, n.normal(size, mean=1.0, scale=0.3)),
    }[how]()
    return begun


def _tokens(n: Net, made: Start, size: int, hot: bool) -> None:
    made.vocab = n.pick.choice(VOCAB)
    made.inputs.append(("tokens", "i64", [n.batch, n.steps]))
    kind = n.some("table", {"stored": 12, "half": 1, "unit rows": 1, "bf16": 1, "scaled": 1, "narrow": 1})
    draw = n.rng.standard_normal((made.vocab, size))
    numbers = "tokens"
    if n.chance(0.12):
        n.tag("computed numbers")
        back = n.op("Neg" if n.chance(0.4) else "Identity", numbers)
        numbers = n.op("Mod", n.op("Add", back, n.number(made.vocab, "i64")), n.number(made.vocab, "i64"))
        if n.chance(0.3):
            numbers = n.op("Sub", numbers, n.number(made.vocab, "i64"))
    if kind in ("half", "bf16"):
        stored = n.tensor(draw, "f16" if kind == "half" else "bf16", "table")
        made.value = n.cast(n.op("Gather", stored, numbers, axis=0), n.kind)
        made.table = n.cast(stored, n.kind)
        return
    made.table = n.tensor(draw, stem="table")
    if kind == "unit rows":
        made.table = n.op("Div", made.table, n.reduce("L2", made.table, -1))
    elif kind == "scaled":
        made.table = n.op("Mul", made.table, n.normal(size, mean=1.0, scale=0.3))
    if kind == "narrow":
        stored = n.normal(made.vocab, 3, stem="table")
        made.value = n.op("MatMul", n.op("Gather", stored, numbers, axis=0), n.normal(3, size))
        made.table = ""
    elif hot:
        limits = n.tensor([0.0, 1.0])
        row = n.op("OneHot", numbers, n.number(made.vocab, "i64"), limits, axis=-1)
        made.value = n.op("MatMul", row, made.table)
    else:
        made.value = n.op("Gather", made.table, numbers, axis=0)


def _placed(n: Net, x: str, size: int) -> str:
    """Positions: learned and cut, learned and looked up, or computed."""
    how = n.some("places", {"cut": 3, "looked up": 2, "angles": 2, "offset": 1, "reversed": 1})
    steps = n.op("Slice", n.op("Shape", x), n.ints(1), n.ints(2), n.ints(0))
    one = n.op("Squeeze", steps, n.ints(0))
    if how == "angles":
        places = n.cast(n.op("Range", n.number(0, "i64"), one, n.number(1, "i64")), n.kind)
        rates = n.normal(size, scale=0.4)
        angles = n.op("Mul", n.op("Unsqueeze", places, n.ints(1)), rates)
        return n.op("Add", x, n.op("Tanh", angles))
    table = n.normal(PLACES + 2, size, stem="places")
    if how == "cut":
        return n.op("Add", x, n.op("Slice", table, n.ints(0), steps, n.ints(0)))
    places = n.op("Range", n.number(0, "i64"), one, n.number(1, "i64"))
    if how == "offset":
        places = n.op("Add", places, n.number(2, "i64"))
    elif how == "reversed":
        places = n.op("Sub", n.number(-1, "i64"), places)
    return n.op("Add", x, n.op("Gather", table, places, axis=0))


def between(n: Net, x: str, size: int) -> str:
    """An operation on the stream itself; most often there is none."""
    kinds = {
        "nothing": 50, "half": 2, "bf16": 1, "double": 1, "whole": 1, "quantised": 2, "clip": 2, "relu": 2,
        "max": 1, "where": 1, "mod": 1, "abs": 1, "number": 2, "gain": 1, "norm": 2, "shift": 1, "turned": 1,
        "permuted": 1, "cut": 1, "padded": 1, "bias": 1, "loop": 1, "if": 1, "dropout": 1,
    }  # fmt: skip
    how = n.some("stream", kinds)
    if how in ("loop", "if"):
        return _body(n, x, how)
    operations = {
        "half": lambda: n.cast(n.cast(x, "f16"), n.kind),
        "bf16": lambda: n.cast(n.cast(x, "bf16"), n.kind),
        "double": lambda: n.cast(n.cast(x, "f64"), n.kind),
        "whole": lambda: n.cast(n.cast(n.op("Mul", x, n.number(8.0)), "i32"), n.kind),
        "quantised": lambda: quantised(n, x),
        "clip": lambda: n.op("Clip", x, n.number(-2.0), n.number(2.5)),
        "relu": lambda: n.op("Relu", x),
        "max": lambda: n.op("Max", x, n.number(n.pick.choice([-1.0, 0.2]))),
        "where": lambda: n.op("Where", n.op("Less", x, n.number(-1.0)), n.number(-1.0), x),
        "mod": lambda: n.op("Mod", x, n.number(5.0), fmod=1),
        "abs": lambda: n.op("Abs", x),
        "number": lambda: n.op("Mul", x, n.number(0.8)),
        "gain": lambda: n.op("Mul", x, n.normal(size, mean=1.0, scale=0.3)),
        "bias": lambda: n.op("Add", x, n.normal(size, scale=0.3)),
        "norm": lambda: norm(n, x, size),
        "shift": lambda: n.op("Add", x, n.number(0.3)),
        "turned": lambda: n.transpose(n.transpose(x, 0, 2, 1), 0, 2, 1),
        "permuted": lambda: n.op("Gather", x, n.ints(*n.pick.sample(range(size), size)), axis=2),
        "cut": lambda: n.op("Concat", *n.split(x, [size // 2, size - size // 2], 2), axis=-1),
        "padded": lambda: n.slice(n.op("Pad", x, n.ints(0, 0, 0, 0, 0, 2)), 0, size, 2),
        "dropout": lambda: n.ops("Dropout", x, outputs=1)[0],
    }
    return operations[how]() if how in operations else x


def _body(n: Net, x: str, how: str) -> str:
    """A body of its own: run several times, or one of two."""
    from onnx import helper

    from hostile.net import TYPES

    inner, result = n.name("carried"), n.name("left")
    typed = TYPES[n.kind]
    node = helper.make_node("Tanh", [inner if how == "loop" else x], [result])
    if how == "loop":
        keep_in, keep, turn = n.name("keep"), n.name("keep"), n.name("turn")
        body = helper.make_graph(
            [node, helper.make_node("Identity", [keep_in], [keep])], "body",
            [
                helper.make_tensor_value_info(turn, TYPES["i64"], []),
                helper.make_tensor_value_info(keep_in, TYPES["bool"], []),
                helper.make_tensor_value_info(inner, typed, None),
            ],
            [
                helper.make_tensor_value_info(keep, TYPES["bool"], []),
                helper.make_tensor_value_info(result, typed, None),
            ],
        )  # fmt: skip
        return n.op("Loop", n.number(2, "i64"), n.number(1, "bool"), x, body=body)
    other = n.name("left")
    branches = [
        helper.make_graph([last], "branch", [], [helper.make_tensor_value_info(last.output[0], typed, None)])
        for last in (node, helper.make_node("Neg", [x], [other]))
    ]
    long = n.op("Greater", n.op("Size", x), n.number(40, "i64"))
    return n.op("If", long, then_branch=branches[0], else_branch=branches[1])


def end(n: Net, x: str, size: int, begun: Start) -> None:
    """Outputs made from the stream."""
    if n.chance(0.6):
        x = norm(n, x, size)
    kinds = {
        "head": 12, "tied": 14 if begun.table else 0, "stream": 3, "pooled": 4,
        "cosines": 3 if begun.table else 0, "look-up": 3, "softmax": 1, "numbers": 2, "first": 2, "cross": 1,
    }  # fmt: skip
    how = n.some("end", kinds)
    classes = n.pick.choice([3, 5])
    if how == "stream":
        n.give(x, "y")
    elif how in ("tied", "cosines"):
        _tied(n, x, size, begun, how == "cosines")
    elif how == "pooled":
        pooled = n.reduce(n.pick.choice(["Mean", "Max", "Sum"]), x, 1, keep=0)
        n.give(linear(n, pooled, size, classes, rank=2), "y")
    elif how == "look-up":
        table = begun.table or n.normal(6, size, stem="codes")
        scores = n.op("Softmax", n.op("MatMul", x, n.transpose(table, 1, 0)), axis=-1)
        n.give(linear(n, n.op("MatMul", scores, table), size, classes), "y")
    elif how == "softmax":
        n.give(linear(n, n.op("Softmax", x, axis=-1), size, classes), "y")
    elif how == "numbers":
        which = n.pick.choice(["Mean", "Max", "Min", "L2", "L1", "Sum", "LogSumExp", "SumSquare"])
        n.tag(f"number:{which}")
        if which in ("L2", "L1", "SumSquare") and n.kind != "f32":
            which = "Max"
        n.give(n.reduce(which, x, -1, keep=0), "y")
    elif how == "first":
        n.give(linear(n, n.op("Gather", x, n.number(0, "i64"), axis=1), size, classes, rank=2), "y")
    elif how == "cross":
        n.give(n.op("MatMul", x, n.transpose(x, 0, 2, 1)), "y")
    else:
        n.give(linear(n, x, size, classes), "y")
    if n.chance(0.12):
        n.tag("second output")
        n.give(n.op("Softmax", linear(n, x, size, classes), axis=-1), "z")


def _tied(n: Net, x: str, size: int, begun: Start, cosine: bool) -> None:
    table = begun.table
    if cosine:
        x = n.op("Div", x, n.reduce("L2", x, -1))
        table = n.op("Div", table, n.reduce("L2", table, -1))
    scores = n.op("MatMul", x, n.transpose(table, 1, 0))
    if n.chance(0.25):
        scores = n.op("Mul", scores, n.number(0.6))
    if n.chance(0.25):
        scores = n.op("Add", scores, n.normal(begun.vocab, scale=0.5))
    n.give(scores, "y")
