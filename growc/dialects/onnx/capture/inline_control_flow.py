"""Bodies in line: the nodes of If, Loop and Scan stand among those of the graph around them.

Needs: an onnx-ir graph. Gives: `Step`s in topological order. In front of the body of a Loop or Scan stands a
`begin`, whose results are the body's inputs; behind the bodies of every one of them stands an `end`, whose
operands are the results of the bodies. growc.dialects.onnx.shapes.body_lines says what both do to axes and
sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

MADE_OF, STARTS = "made_of", "starts"
"""Attributes of the steps around a body. For each result the operands that become its elements: none where a
body changes what it is given. For the results that it carries, the operand that the body started from.
"""

Guard = tuple[ir.Value, bool]
"""The condition of an If, and for which of its values this branch is taken."""


@dataclass(eq=False)
class Step:
    """One node in line. `op` is `MatMul` for the default domain, `domain::Name` for others."""

    op: str
    node: ir.Node
    inputs: tuple[ir.Value | None, ...]
    outputs: tuple[ir.Value, ...]
    attributes: Mapping[str, Any]
    guards: tuple[Guard, ...] = ()
    first_place: int = 0
    places: tuple[tuple[ir.Graph, int], ...] = field(default=(), repr=False)
    """Of an end: the bodies' results, which stand among its operands, as (body, number of the result)."""

    @property
    def around_body(self) -> bool:
        """Whether it stands in front of a body or behind one."""
        return bool(self.places) or self.op.endswith(" begin")

    @property
    def deciding(self) -> tuple[int, ...]:
        """The operands that decide which body runs, or how often."""
        return {"If end": (0,), "Loop begin": (0, 1)}.get(self.op, ())

    def place(self, operand: int) -> tuple[ir.Graph, int]:
        """Of an end: which result of which body an operand is."""
        return self.places[operand - self.first_place]


def op_name(node: ir.Node) -> str:
    """`MatMul` for the default domain, `domain::Name` for others."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def flatten(graph: ir.Graph, guards: tuple[Guard, ...] = ()) -> Iterator[Step]:
    """All nodes of a graph in order, bodies in line."""
    for node in graph:
        op = op_name(node)
        if op == "If":
            yield from _branches(node, guards)
        elif op in ("Loop", "Scan") and len(node.attributes["body"].value.inputs) == len(node.inputs):
            yield from _iteration(op, node, guards)
        else:
            attributes = {a.name: a.value for a in node.attributes.values()}
            yield Step(op, node, tuple(node.inputs), tuple(node.outputs), attributes, guards)


def _branches(node: ir.Node, guards: tuple[Guard, ...]) -> Iterator[Step]:
    condition = node.inputs[0]
    assert condition is not None
    operands: list[ir.Value | None] = [condition]
    places: list[tuple[ir.Graph, int]] = []
    for name, taken in (("then_branch", True), ("else_branch", False)):
        constant = ir.convenience.get_const_tensor(condition)
        if constant is not None and bool(constant.numpy().all()) is not taken:
            continue  # it never runs
        body = node.attributes[name].value
        yield from flatten(body, guards if constant is not None else (*guards, (condition, taken)))
        operands += list(body.outputs)
        places += [(body, k) for k in range(len(body.outputs))]
    count = len(node.outputs)
    made = tuple(tuple(range(1 + k, len(operands), count)) for k in range(count))
    yield Step(
        "If end", node, tuple(operands), tuple(node.outputs), {MADE_OF: made}, guards, 1, tuple(places)
    )


def _iteration(op: str, node: ir.Node, guards: tuple[Guard, ...]) -> Iterator[Step]:
    body = node.attributes["body"].value
    attributes = {a.name: a.value for a in node.attributes.values() if a.name != "body"}
    if op == "Loop":
        attributes |= {"first": 2, "states": len(body.inputs) - 2}
    else:
        attributes |= {"first": 0, "states": len(body.inputs) - attributes["num_scan_inputs"]}
    leave = 1 if op == "Loop" else 0
    carried = range(attributes["states"])
    attributes["kept"] = [
        k for k in carried if body.outputs[leave + k] is body.inputs[attributes["first"] + k]
    ]
    first = attributes["first"]
    passed = {first + k for k in attributes["kept"]} | set(range(first + len(carried), len(body.inputs)))
    begin = attributes | {MADE_OF: tuple((k,) if k in passed else () for k in range(len(body.inputs)))}
    yield Step(f"{op} begin", node, tuple(node.inputs), tuple(body.inputs), begin, guards)
    yield from flatten(body, guards)
    operands = (*body.outputs, *body.inputs)
    places = tuple((body, k) for k in range(len(body.outputs)))
    results = len(body.outputs)
    starts = {k: results + first + k for k in carried}
    made = tuple((leave + k, starts[k]) if k in starts else (leave + k,) for k in range(len(node.outputs)))
    end = attributes | {"results": results, MADE_OF: made, STARTS: starts}
    yield Step(f"{op} end", node, operands, tuple(node.outputs), end, guards, 0, places)
