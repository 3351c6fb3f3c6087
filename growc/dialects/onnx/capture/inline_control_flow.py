"""Control flow in line: the nodes of If, Loop and Scan bodies stand among those of the graph around them.

Needs: an onnx-ir graph. Gives: `InlinedNode`s in topological order. A `begin` stands in front of the body of
a Loop or Scan; its results are the body's inputs. An `end` stands behind the bodies of each If, Loop and
Scan; its operands are the results of the bodies. growc.dialects.onnx.shapes.body_lines describes what both do
to axes and sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

MADE_OF, STARTS = "made_of", "starts"
"""Attributes of the steps around a body.

MADE_OF: for each result, the operands whose elements it takes; none if a body changes them. STARTS: for each
result that an iteration carries, the operand with its initial value.
"""

Guard = tuple[ir.Value, bool]
"""The condition of an If, and its value for which this branch runs."""


@dataclass(eq=False)
class InlinedNode:
    """One node in line. `op` is `MatMul` for the default domain, `domain::Name` for others."""

    op: str
    node: ir.Node
    inputs: tuple[ir.Value | None, ...]
    outputs: tuple[ir.Value, ...]
    attributes: Mapping[str, Any]
    guards: tuple[Guard, ...] = ()
    first_place: int = 0
    places: tuple[tuple[ir.Graph, int], ...] = field(default=(), repr=False)
    """Of an end: the results of the bodies among its operands, as (body, index of the result)."""

    @property
    def around_body(self) -> bool:
        """Whether it stands in front of or behind a body."""
        return bool(self.places) or self.op.endswith(" begin")

    @property
    def deciding(self) -> tuple[int, ...]:
        """The operands that decide which body runs, or how often."""
        return {"If end": (0,), "Loop begin": (0, 1)}.get(self.op, ())

    def place(self, operand: int) -> tuple[ir.Graph, int]:
        """Of an end: return the body and the index of the result that an operand is."""
        return self.places[operand - self.first_place]


def op_name(node: ir.Node) -> str:
    """Return `MatMul` for the default domain, `domain::Name` for others."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def flatten(graph: ir.Graph, guards: tuple[Guard, ...] = ()) -> Iterator[InlinedNode]:
    """Yield all nodes of a graph in order, bodies in line."""
    for node in graph:
        op = op_name(node)
        if op == "If":
            yield from _branches(node, guards)
        elif op in ("Loop", "Scan") and len(node.attributes["body"].value.inputs) == len(node.inputs):
            yield from _iteration(op, node, guards)
        else:
            attributes = {a.name: a.value for a in node.attributes.values()}
            yield InlinedNode(op, node, tuple(node.inputs), tuple(node.outputs), attributes, guards)


def _branches(node: ir.Node, guards: tuple[Guard, ...]) -> Iterator[InlinedNode]:
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
    made_of = tuple(tuple(range(1 + k, len(operands), count)) for k in range(count))
    yield InlinedNode(
        "If end", node, tuple(operands), tuple(node.outputs), {MADE_OF: made_of}, guards, 1, tuple(places)
    )


def _iteration(op: str, node: ir.Node, guards: tuple[Guard, ...]) -> Iterator[InlinedNode]:
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
    yield InlinedNode(f"{op} begin", node, tuple(node.inputs), tuple(body.inputs), begin, guards)
    yield from flatten(body, guards)
    operands = (*body.outputs, *body.inputs)
    places = tuple((body, k) for k in range(len(body.outputs)))
    results = len(body.outputs)
    starts = {k: results + first + k for k in carried}
    made_of = tuple((leave + k, starts[k]) if k in starts else (leave + k,) for k in range(len(node.outputs)))
    end = attributes | {"results": results, MADE_OF: made_of, STARTS: starts}
    yield InlinedNode(f"{op} end", node, operands, tuple(node.outputs), end, guards, 0, places)
