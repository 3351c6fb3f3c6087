"""Changes of exporters to a program before they write it, made to a lowered module: reasons to be checked.

A file that is understood otherwise than its module differs by nature, where the module's own model is
understood as the file is once the same was done to it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, DeduplicateInitializersPass
from onnxscript.optimizer import fold_constants_ir
from onnxscript.rewriter import rewrite
from onnxscript.rewriter.rules.common import _fuse_batchnorm as batch_norms

NEAR_ZERO = 1e-8
"""The exporter takes smaller numbers for zero."""


def once(model: ir.Model) -> None:
    """Equal constants become one tensor, and equal calls one node."""
    DeduplicateInitializersPass(size_limit=1024)(model)
    CommonSubexpressionEliminationPass()(model)


def in_advance(model: ir.Model) -> None:
    """Values that depend on stored tensors alone, and not on large ones, are computed and stored."""
    for node in list(model.graph):
        given = node.inputs[0] if node.op_type == "Split" and len(node.inputs) == 1 else None
        if given is None or given.const_value is None:
            continue
        axis, tape = node.attributes["axis"].value, ir.tape.Tape()
        size = given.const_value.shape[axis] // len(node.outputs)
        for k, part in enumerate(node.outputs):  # folding knows no operator with several results
            ends = ([k * size], [k * size + size], [axis])
            cut = [numbers(model, node, at, f"{k}.{j}") for j, at in enumerate(ends)]
            part.replace_all_uses_with(tape.op("Slice", [given, *cut]), replace_graph_outputs=True)
        model.graph.insert_before(node, tape.nodes)
        model.graph.remove(node, safe=True)
    fold_constants_ir(model)


def without_small_sums(model: ir.Model) -> None:
    """A number near zero is not added."""
    for node in list(model.graph):
        number = node.inputs[1].const_value if node.op_type == "Add" and node.inputs[1] is not None else None
        if number is not None and number.size == 1 and 0 < abs(number.numpy().item()) < NEAR_ZERO:
            node.outputs[0].replace_all_uses_with(node.inputs[0], replace_graph_outputs=True)
            model.graph.remove(node, safe=True)


def into_convolutions(model: ir.Model) -> None:
    """Batch norms become a part of the convolutions in front of them."""
    rewrite(model, batch_norms.rules)


def as_instance_norms(model: ir.Model) -> None:
    """Group norms become instance norms with gains of one and biases of zero, a product and a sum."""
    for node in list(model.graph):
        if node.op_type != "GroupNormalization":
            continue
        x, gain, bias = node.inputs
        assert x is not None
        groups, rank = node.attributes["num_groups"].value, len(x.shape or ())
        tape = ir.tape.Tape()
        out = tape.op("Reshape", [x, numbers(model, node, [0, groups, -1], "cut")])
        plain = [numbers(model, node, np.full(groups, k, np.float32), f"all{k}") for k in (1, 0)]
        out = tape.op("InstanceNormalization", [out, *plain], {"epsilon": node.attributes["epsilon"].value})
        out = tape.op("Reshape", [out, tape.op("Shape", [x])])
        behind = numbers(model, node, list(range(1, rank - 1)), "behind")
        for op, vector in (("Mul", gain), ("Add", bias)):
            out = tape.op(op, [out, tape.op("Unsqueeze", [vector, behind])])
        model.graph.insert_before(node, tape.nodes)
        node.outputs[0].replace_all_uses_with(out, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)


def numbers(model: ir.Model, node: ir.Node, values: object, name: str) -> ir.Value:
    """A new initializer."""
    tensor = ir.tensor(np.asarray(values), name=f"{node.outputs[0].name}.{name}")
    value = ir.Value(
        name=tensor.name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor
    )
    model.graph.register_initializer(value)
    return value


DOINGS: dict[str, Callable[[ir.Model], None]] = {
    "the exporter folds batch norms into convolutions": into_convolutions,
    "the exporter writes group norms as instance norms with gains of their own": as_instance_norms,
    "the exporter computes in advance what depends on small stored tensors alone": in_advance,
    "the exporter computes once what equal calls of several layers give": once,
    "the exporter leaves out sums with numbers near zero, as of an eps of 1e-20": without_small_sums,
}
