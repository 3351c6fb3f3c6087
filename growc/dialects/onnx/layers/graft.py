"""A model without layers, put around the layers of a template.

Needs: both models, and the run of layers of the template. Gives: the template, with the model's tensors
everywhere outside of its layers.

If every layer passes the stream on, the result computes what the model does. To prove this, both models are
walked from their outputs. Without its layers, the template has the same operators, with the same attributes,
on the same inputs, and each of its tensors has one counterpart in the model.
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

Counterparts = tuple[ir.Value, ir.Value]
"""A value of the template, and its counterpart in the model."""

EXACT = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
"""Types of numbers that decide how something is computed."""


def graft(source: ir.Model, template: ir.Model, run: Run, span: Span) -> Clone:
    """Return the template with the source's tensors around its layers.

    Raises GrowError (G314) naming the place if the two differ outside of the layers.
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
    tensors = dict(pair for pair in walk(ends, joined.behind) if pair[0].const_value is not None)
    clone = Clone.of(template)
    _rename(clone, tensors)
    return clone


def _listed(names: list[str | None]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


class _Joined:
    """A walk through two models at once. It jumps from the end of the template's layers to their start."""

    def __init__(self, start: ir.Value, end: ir.Value, span: Span) -> None:
        self.start, self.end, self.span = start, end, span
        self.known: dict[ir.Value, ir.Value] = {}

    def differ(self, how: str) -> GrowError:
        """The error that the template is not the source with layers in it."""
        message = f"the template is not this model with layers in it: {how}"
        remedy = "a template is written as the model is, with one layer or more in its config"
        return GrowError(Diagnostic("G314", message, self.span, help=remedy))

    def behind(self, pair: Counterparts) -> Iterator[Counterparts]:
        """Yield the pairs of operands of both values' producers. Raises GrowError (G314) if these differ."""
        ours, other = pair
        if ours is self.end:
            yield self.start, other
            return
        if self.known.setdefault(ours, other) is not other:
            raise self.differ(f"`{ours.name}` stands for `{other.name}`, and for `{self.known[ours].name}`")
        node, other_node = ours.producer(), other.producer()
        if node is None or other_node is None:
            self.same_tensor(ours, other)
            return
        if _signature(node) != _signature(other_node) or ours.index() != other.index():
            raise self.differ(
                f"{node.op_type} `{node.name}` stands for {other_node.op_type} `{other_node.name}`"
            )
        for own, others in zip(node.inputs, other_node.inputs, strict=True):
            if (own is None) != (others is None):
                raise self.differ(f"an operand of `{node.name}` is left out in one of them")
            if own is not None and others is not None:
                yield own, others

    def same_tensor(self, ours: ir.Value, other: ir.Value) -> None:
        """Check that both are inputs, or stored tensors of equal shape and type. Raises GrowError (G314).

        Numbers of the types in EXACT must be equal too.
        """
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
    """Return a key that is equal for nodes that do the same with their operands.

    It is never equal for nodes with bodies.
    """
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


def _rename(clone: Clone, counterparts: dict[ir.Value, ir.Value]) -> None:
    """Give the copied template the source's tensors and their names.

    Values of the template that have one of these names get another.
    """
    values = {clone.value(ours): other for ours, other in counterparts.items()}
    source_names = {other.name for other in values.values()}
    own = [*clone.model.graph.initializers.values()]
    own += [value for node in clone.model.graph.all_nodes() for value in node.outputs]
    known = {value.name or "" for value in own} | {name or "" for name in source_names}
    for value in own:
        if value in values or value.name in source_names:
            value.name = unused(f"{value.name}_of_template", known)
    for value, other in values.items():
        value.const_value, value.name = other.const_value, other.name
