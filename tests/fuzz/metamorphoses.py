"""The same model written in other ways, and what a plan makes of each weight whatever the way."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import helper, numpy_helper

from growc import api
from growc.errors.diagnostic import GrowError
from growc.plans.execute import execute

Names = dict[str, str]
"""The former names of initializers, by their names now."""

COMMUTATIVE = frozenset({"Add", "Mul"})


def outcome(path: Path, text: str, names: Names) -> object:
    """Digests of each version of each stored weight, by its former name; or the codes of the refusal."""
    try:
        done = api.compile(api.recipe(text), path)
    except GrowError as refusal:
        return sorted(d.code for d in refusal.diagnostics)
    digests: dict[str, set[str]] = {}
    stored = {weight.name: weight for weight in done.assembled.sources}
    for plan, weight in zip(done.assembled.weights, done.assembled.sources, strict=True):
        if weight.floating and weight.elements > 1:
            value = execute(plan, weight.read(), lambda name: stored[name].read())
            digest = hashlib.sha256(f"{value.dtype}{value.shape}".encode() + value.tobytes()).hexdigest()
            digests.setdefault(names.get(weight.name, weight.name), set()).add(digest)
    return done.plan.certificate.exact, len(done.plan.certificate.gaps), digests


def anonymised(model: onnx.ModelProto, dice: random.Random) -> Names:
    """Every name becomes a number, at random."""
    graph = model.graph
    old = sorted({name for n in graph.node for name in [*n.input, *n.output] if name})
    old = sorted(
        {*old, *(v.name for v in [*graph.input, *graph.output]), *(t.name for t in graph.initializer)}
    )
    fresh = [f"t{k}" for k in range(len(old))]
    dice.shuffle(fresh)
    renamed = dict(zip(old, fresh, strict=True))
    for k, node in enumerate(graph.node):
        node.name = f"node{k}"
        node.input[:] = [renamed.get(i, i) for i in node.input]
        node.output[:] = [renamed.get(o, o) for o in node.output]
    for named in [*graph.input, *graph.output, *graph.initializer, *graph.value_info]:
        named.name = renamed.get(named.name, named.name)
    return {new: was for was, new in renamed.items()}


def shuffled(model: onnx.ModelProto, dice: random.Random) -> Names:
    """Another order of the nodes in which each still follows what it reads."""
    nodes = list(model.graph.node)
    computed = {out for node in nodes for out in node.output}
    known: set[str] = set()
    order = []
    while nodes:
        ready = [n for n in nodes if all(i in known or i not in computed for i in n.input)]
        node = dice.choice(ready)
        nodes.remove(node)
        known.update(node.output)
        order.append(node)
    del model.graph.node[:]
    model.graph.node.extend(order)
    return {}


def swapped(model: onnx.ModelProto, dice: random.Random) -> Names:
    """Operands of sums and products change places."""
    for node in model.graph.node:
        if node.op_type in COMMUTATIVE and dice.random() < 0.7:
            node.input[:] = [node.input[1], node.input[0]]
    return {}


def padded(model: onnx.ModelProto, dice: random.Random) -> Names:
    """An Identity in front of some operands."""
    order = []
    for k, node in enumerate(model.graph.node):
        for i, name in enumerate(node.input):
            if name and node.domain == "" and dice.random() < 0.2:
                order.append(helper.make_node("Identity", [name], [f"{name}.same{k}.{i}"], f"same{k}.{i}"))
                node.input[i] = f"{name}.same{k}.{i}"
        order.append(node)
    del model.graph.node[:]
    model.graph.node.extend(order)
    return {}


def parted(model: onnx.ModelProto, dice: random.Random) -> Names:
    """Vectors and numbers that several nodes share are stored once for each."""
    stored = {t.name: t for t in model.graph.initializer if len(t.dims) < 2}
    seen: set[str] = set()
    names: Names = {}
    for k, node in enumerate(model.graph.node):
        for i, name in enumerate(node.input):
            if name in stored and name in seen:
                copy = numpy_helper.from_array(numpy_helper.to_array(stored[name]), f"{name}.{k}.{i}")
                model.graph.initializer.append(copy)
                node.input[i] = copy.name
                names[copy.name] = name
            seen.add(name)
    return names


def merged(model: onnx.ModelProto, dice: random.Random) -> Names:
    """Vectors and numbers with the same values are stored once."""
    kept: dict[tuple[object, ...], str] = {}
    instead: Names = {}
    for tensor in list(model.graph.initializer):
        if len(tensor.dims) < 2:
            values = numpy_helper.to_array(tensor)
            first = kept.setdefault((values.dtype, values.shape, values.tobytes()), tensor.name)
            if first != tensor.name:
                instead[tensor.name] = first
                model.graph.initializer.remove(tensor)
    for node in model.graph.node:
        node.input[:] = [instead.get(i, i) for i in node.input]
    return {}


def together(model: onnx.ModelProto, dice: random.Random) -> Names:
    """All that keeps names, and then other names."""
    for change in (swapped, padded, shuffled):
        change(model, dice)
    return anonymised(model, dice)


WAYS: tuple[Callable[[onnx.ModelProto, random.Random], Names], ...] = (
    anonymised,
    shuffled,
    swapped,
    padded,
    parted,
    merged,
    together,
)
