"""The calls of the result in training: those of the source in training, where evaluation has theirs.

A module computes other things in training: dropout, statistics of a batch, paths that are dropped. Both
graphs come from the same lines, so most calls have a twin in the other. A twin stands where its call does in
the result, with the same changes of its literals; what training alone has stands in front of whom it serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from torch import fx

from growc.dialects.torch.emit.literals import argument
from growc.dialects.torch.emit.rebuild import Made, Rebuilding, in_order
from growc.dialects.torch.emit.repeat_heads import call_likewise
from growc.dialects.torch.operators.call import Path
from growc.errors.diagnostic import Diagnostic, GrowError


class Training:
    """The calls of the result in training.

    `names`: of what the placeholders of `training` stand for; `rebuilding`: the calls in evaluation.
    """

    def __init__(self, training: fx.Graph, names: Mapping[str, fx.Node], rebuilding: Rebuilding) -> None:
        self.graph, self.rebuilding = training, rebuilding
        self.evaluated = _twins(training, rebuilding.source)
        self.trained = {e: t for t, e in self.evaluated.items()}
        if call_likewise(training, rebuilding.source, self.trained):
            self.evaluated = _twins(training, rebuilding.source)
            self.trained = {e: t for t, e in self.evaluated.items()}
        given = {name: node for node, name in rebuilding.stored.items()}
        self.placeholders = {node: given[name] for name, node in names.items() if name in given}
        self.instances: dict[fx.Node | None, list[Made]] = {}
        for made in rebuilding.calls.values():
            self.instances.setdefault(made.call, []).append(made)
        self.made: dict[object, Made] = {}
        self.twins: dict[Made, Made] = {}

    def calls(self, outputs: Sequence[tuple[fx.Node, fx.Node, Made]]) -> tuple[list[Made], list[Made]]:
        """All calls, and what gives the outputs.

        `outputs` has, for each one of the result, it in training and in evaluation, and what gives that.
        """
        for made in in_order(self.rebuilding.calls.values(), self.rebuilding.source):
            if made.call in self.trained:  # from the first on, so that none has to wait for many others
                self.twin(made)
        results = [self.of(u, Made(None, layer=made.layer, arguments={e: made})) for u, e, made in outputs]
        for node in self.graph.nodes:
            if node.op == "call_function" and not node.users and node.is_impure():
                self.of(node, Made(None))
        return in_order(self.made.values(), self.graph), results

    def of(self, node: fx.Node, reader: Made) -> Made:
        """What stands for a node of the graph where `reader`, a call in evaluation, reads it."""
        twin = self.placeholders[node] if node.op == "placeholder" else self.evaluated.get(node)
        if twin is None:
            arguments = {given: self.of(given, reader) for given in node.all_input_nodes}
            return self.add(node, reader, arguments, {})
        made = reader.arguments.get(twin) or self.nearest(twin, reader)
        return made if made.call is None else self.twin(made)

    def twin(self, made: Made) -> Made:
        """What a call in evaluation is in training."""
        if made not in self.twins:
            assert made.call is not None
            node = self.moved(made.call)
            arguments = {given: self.of(given, made) for given in node.all_input_nodes}
            self.twins[made] = self.add(node, made, arguments, _literals(made, node))
        return self.twins[made]

    def moved(self, call: fx.Node) -> fx.Node:
        """The twin in training of a call in evaluation."""
        if call not in self.trained:
            raise no_training(f"`{call.name}` is not there in training")
        return self.trained[call]

    def nearest(self, twin: fx.Node, reader: Made) -> Made:
        """What stands for a call or tensor in evaluation; of several calls, the one in the reader's layer."""
        if twin.op == "placeholder":
            return self.rebuilding.anywhere(twin)
        found = self.instances.get(twin, [])
        alike = [made for made in found if made.layer == reader.layer] or found
        if len(alike) != 1:
            where = "in several places" if alike else "nowhere by now"
            raise no_training(f"`{twin.name}` stands {where}")
        return alike[0]

    def add(
        self, node: fx.Node, place: Made, arguments: Mapping[fx.Node, Made], literals: Mapping[Path, Any]
    ) -> Made:
        """A call, once for the same arguments."""
        key = (node, *arguments.values())
        return self.made.setdefault(key, Made(node, place.layer, arguments, literals))


def no_training(reason: str) -> GrowError:
    """That a result has no graph for training."""
    return GrowError(Diagnostic("G320", "the result has no graph for training", notes=(reason,)))


def _twins(training: fx.Graph, evaluation: fx.Graph) -> dict[fx.Node, fx.Node]:
    """For calls in training the same ones in evaluation: of one operator, in one place of the module."""
    ours, theirs = _calls(training), _calls(evaluation)
    matcher = SequenceMatcher(None, [_key(n) for n in ours], [_key(n) for n in theirs], autojunk=False)
    twins: dict[fx.Node, fx.Node] = {}
    for block in matcher.get_matching_blocks():
        for k in range(block.size):
            twins[ours[block.a + k]] = theirs[block.b + k]
    return twins


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _key(node: fx.Node) -> tuple[str, str]:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(node.target), str(stack[-1][0]) if stack else ""


def _literals(made: Made, node: fx.Node) -> dict[Path, Any]:
    """The literals of a call in evaluation that changed, as its twin has them."""
    return {path: _literal(value, argument(node, path)) for path, value in made.literals.items()}


def _literal(value: Any, given: Any) -> Any:
    if isinstance(value, (list, tuple)) and isinstance(given, (list, tuple)):
        return [g if isinstance(v, fx.Node) else v for v, g in zip(value, given, strict=True)]
    return value
