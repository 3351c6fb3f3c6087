"""Calls of the result in training mode, derived from the source's calls in training and in evaluation.

A module computes other things in training: dropout, batch statistics, dropped paths. Both graphs come from
the same code, so most calls have a twin in the other graph. A twin has the place of its call in the result,
and the same changes of literals. Calls of training alone are placed in front of their readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from torch import fx

from growc.dialects.torch.emit.literals import argument
from growc.dialects.torch.emit.rebuild import Rebuilding, RebuiltCall, in_order
from growc.dialects.torch.emit.repeat_heads import call_likewise
from growc.dialects.torch.operators.call import ArgumentPath
from growc.errors.diagnostic import Diagnostic, GrowError


class Training:
    """The calls of the result in training.

    names: the placeholders of `training` by the names of their tensors. rebuilding: the calls in evaluation.
    """

    def __init__(self, training: fx.Graph, names: Mapping[str, fx.Node], rebuilding: Rebuilding) -> None:
        self.graph, self.rebuilding = training, rebuilding
        self.evaluated = _twins(training, rebuilding.source)
        self.trained = {e: t for t, e in self.evaluated.items()}
        if call_likewise(training, rebuilding.source, self.trained):
            self.evaluated = _twins(training, rebuilding.source)
            self.trained = {e: t for t, e in self.evaluated.items()}
        nodes_by_name = {name: node for node, name in rebuilding.stored.items()}
        self.placeholders = {
            node: nodes_by_name[name] for name, node in names.items() if name in nodes_by_name
        }
        self.instances: dict[fx.Node | None, list[RebuiltCall]] = {}
        for rebuilt in rebuilding.calls.values():
            self.instances.setdefault(rebuilt.call, []).append(rebuilt)
        self.calls_by_key: dict[object, RebuiltCall] = {}
        self.twins: dict[RebuiltCall, RebuiltCall] = {}

    def calls(
        self, outputs: Sequence[tuple[fx.Node, fx.Node, RebuiltCall]]
    ) -> tuple[list[RebuiltCall], list[RebuiltCall]]:
        """Return all calls, and the calls or tensors that give the outputs.

        outputs: for each output its node in training, its node in evaluation, and the call that gives the
        latter.
        """
        for rebuilt in in_order(self.rebuilding.calls.values(), self.rebuilding.source):
            if rebuilt.call in self.trained:  # arguments come first, so that recursion stays shallow
                self.twin(rebuilt)
        results = [
            self.of(u, RebuiltCall(None, layer=rebuilt.layer, arguments={e: rebuilt}))
            for u, e, rebuilt in outputs
        ]
        for node in self.graph.nodes:
            if node.op == "call_function" and not node.users and node.is_impure():
                self.of(node, RebuiltCall(None))
        return in_order(self.calls_by_key.values(), self.graph), results

    def of(self, node: fx.Node, reader: RebuiltCall) -> RebuiltCall:
        """Return the call or tensor for a training node.

        reader: the call in evaluation at whose place the node is read.
        """
        twin = self.placeholders[node] if node.op == "placeholder" else self.evaluated.get(node)
        if twin is None:
            arguments = {operand: self.of(operand, reader) for operand in node.all_input_nodes}
            return self.add(node, reader, arguments, {})
        rebuilt = reader.arguments.get(twin) or self.nearest(twin, reader)
        return rebuilt if rebuilt.call is None else self.twin(rebuilt)

    def twin(self, rebuilt: RebuiltCall) -> RebuiltCall:
        """Return the counterpart in training of a call in evaluation."""
        if rebuilt not in self.twins:
            assert rebuilt.call is not None
            node = self.moved(rebuilt.call)
            arguments = {operand: self.of(operand, rebuilt) for operand in node.all_input_nodes}
            self.twins[rebuilt] = self.add(node, rebuilt, arguments, _literals(rebuilt, node))
        return self.twins[rebuilt]

    def moved(self, call: fx.Node) -> fx.Node:
        """Return the training node that is the twin of a source call in evaluation.

        Raises GrowError (G320) if there is none.
        """
        if call not in self.trained:
            raise no_training(f"`{call.name}` is not there in training")
        return self.trained[call]

    def nearest(self, twin: fx.Node, reader: RebuiltCall) -> RebuiltCall:
        """Return the result's call or tensor for a node in evaluation.

        Of several calls, the one in the reader's layer is taken. Raises GrowError (G320) if none or several
        are left.
        """
        if twin.op == "placeholder":
            return self.rebuilding.anywhere(twin)
        calls = self.instances.get(twin, [])
        candidates = [rebuilt for rebuilt in calls if rebuilt.layer == reader.layer] or calls
        if len(candidates) != 1:
            where = "in several places" if candidates else "nowhere by now"
            raise no_training(f"`{twin.name}` stands {where}")
        return candidates[0]

    def add(
        self,
        node: fx.Node,
        place: RebuiltCall,
        arguments: Mapping[fx.Node, RebuiltCall],
        literals: Mapping[ArgumentPath, Any],
    ) -> RebuiltCall:
        """Return a call. Calls of the same arguments are made once."""
        key = (node, *arguments.values())
        return self.calls_by_key.setdefault(key, RebuiltCall(node, place.layer, arguments, literals))


def no_training(reason: str) -> GrowError:
    """Return the error (G320) that a result has no graph for training."""
    return GrowError(Diagnostic("G320", "the result has no graph for training", notes=(reason,)))


def _twins(training: fx.Graph, evaluation: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Return the call in evaluation for each call in training: same operator, same place in the module."""
    training_calls, evaluation_calls = _calls(training), _calls(evaluation)
    matcher = SequenceMatcher(
        None, [_key(n) for n in training_calls], [_key(n) for n in evaluation_calls], autojunk=False
    )
    twins: dict[fx.Node, fx.Node] = {}
    for block in matcher.get_matching_blocks():
        for k in range(block.size):
            twins[training_calls[block.a + k]] = evaluation_calls[block.b + k]
    return twins


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _key(node: fx.Node) -> tuple[str, str]:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(node.target), str(stack[-1][0]) if stack else ""


def _literals(rebuilt: RebuiltCall, node: fx.Node) -> dict[ArgumentPath, Any]:
    """Return the changed literals of a call in evaluation, in the form of its twin."""
    return {path: _literal(value, argument(node, path)) for path, value in rebuilt.literals.items()}


def _literal(value: Any, twin_value: Any) -> Any:
    if isinstance(value, (list, tuple)) and isinstance(twin_value, (list, tuple)):
        return [g if isinstance(v, fx.Node) else v for v, g in zip(value, twin_value, strict=True)]
    return value
