"""A model without layers put around the layers of another one, its template.

Needs: both models, and the run of layers of the template. Gives: the template with the tensors of the model
wherever none of its layers stands. That this computes what the model does, where every layer passes the
stream on, is shown by walking both from their outputs: without its layers the template has the same
operators, with the same attributes, on the same inputs, and each of its tensors stands where one of the
model's does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.origins import value_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.ir.naming import unused
from growc.ir.walk import walk
from growc.passes.layers.layer_runs import Run

Pair = tuple[ir.Value, ir.Value]
"""A value of the template, and the one of the model that stands there."""

EXACT = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
"""Types of numbers that say how something is computed."""


def graft(source: ir.Model, template: ir.Model, run: Run, span: Span) -> Clone:
    """The template with the source's tensors around its layers. Raises GrowError (G314) where both differ
    beside the layers, with the place.
    """
    start, end = value_of(run.layers[0].start), value_of(run.layers[-1].end)
    joined = _Joined(start, end, span)
    if source.opset_imports != template.opset_imports or source.functions or template.functions:
        raise joined.differ("it has another version of the operators, or one of them has functions")
    for kind in ("inputs", "outputs"):
        mine, theirs = ([v.name for v in getattr(m.graph, kind)] for m in (source, template))
        if mine != theirs:
            raise joined.differ(f"its {kind} are {_listed(theirs)}, and those of the model {_listed(mine)}")
    ends = zip(template.graph.outputs, source.graph.outputs, strict=True)
    found = dict(pair for pair in walk(ends, joined.behind) if pair[0].const_value is not None)
    there = Clone.of(template)
    _rename(there, found)
    return there


def _listed(names: list[str | None]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


class _Joined:
    """Walks two models at once; a stream leads from the end of the template's layers to their start."""

    def __init__(self, start: ir.Value, end: ir.Value, span: Span) -> None:
        self.start, self.end, self.span = start, end, span
        self.known: dict[ir.Value, ir.Value] = {}

    def differ(self, how: str) -> GrowError:
        """That the template is another model than the source with layers in it."""
        message = f"the template is not this model with layers in it: {how}"
        remedy = "a template is written as the model is, with one layer or more in its config"
        return GrowError(Diagnostic("G314", message, self.span, help=remedy))

    def behind(self, pair: Pair) -> Iterator[Pair]:
        """The operands of what makes both values. Raises GrowError where these are made differently."""
        ours, other = pair
        if ours is self.end:
            yield self.start, other
            return
        if self.known.setdefault(ours, other) is not other:
            raise self.differ(f"`{ours.name}` stands for `{other.name}`, and for `{self.known[ours].name}`")
        made, wanted = ours.producer(), other.producer()
        if made is None or wanted is None:
            self.same_tensor(ours, other)
            return
        if _signature(made) != _signature(wanted) or ours.index() != other.index():
            raise self.differ(f"{made.op_type} `{made.name}` stands for {wanted.op_type} `{wanted.name}`")
        for one, two in zip(made.inputs, wanted.inputs, strict=True):
            if (one is None) != (two is None):
                raise self.differ(f"an operand of `{made.name}` is left out in one of them")
            if one is not None and two is not None:
                yield one, two

    def same_tensor(self, ours: ir.Value, other: ir.Value) -> None:
        """Both are inputs, or stored tensors of one shape and type, with equal numbers where these count."""
        mine, theirs = ours.const_value, other.const_value
        if mine is None or theirs is None:
            if not (mine is theirs is None and ours.is_graph_input() and ours.name == other.name):
                raise self.differ(f"`{ours.name}` stands for `{other.name}`")
            return
        shapes = tuple(mine.shape.numpy()), tuple(theirs.shape.numpy())
        if shapes[0] != shapes[1] or mine.dtype != theirs.dtype:
            shown = [f"[{', '.join(map(str, shape))}]" for shape in shapes]
            raise self.differ(f"`{ours.name}` {shown[0]} stands for `{other.name}` {shown[1]}")
        if mine.dtype in EXACT and not np.array_equal(mine.numpy(), theirs.numpy()):
            raise self.differ(f"the numbers in `{ours.name}` are others than those in `{other.name}`")


def _signature(node: ir.Node) -> tuple[object, ...]:
    """Equal for nodes that do the same with their operands; never equal where a node has a body."""
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        value = attribute.value
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            value = object()
        elif attribute.type is ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            value = (tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes())
        attributes.append((name, attribute.type, value))
    return (node.domain, node.op_type, node.overload, len(node.inputs), tuple(attributes))


def _rename(there: Clone, found: dict[ir.Value, ir.Value]) -> None:
    """The source's tensors, under their names there; what has one of these in the template takes another."""
    values = {there.value(ours): other for ours, other in found.items()}
    wanted = {other.name for other in values.values()}
    own = [*there.model.graph.initializers.values()]
    own += [value for node in there.model.graph.all_nodes() for value in node.outputs]
    known = {value.name or "" for value in own} | {name or "" for name in wanted}
    for value in own:
        if value in values or value.name in wanted:
            value.name = unused(f"{value.name}_of_template", known)
    for value, other in values.items():
        value.const_value, value.name = other.const_value, other.name
