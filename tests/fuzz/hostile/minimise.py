"""A smaller graph that fails in the same way: `python tests/fuzz/hostile/minimise.py SEED [OUT.onnx]`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import onnx

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from growc.errors.diagnostic import Attempt
from hostile import cases
from hostile.judging import degenerate, feeds, run, session


def judged(model: onnx.ModelProto, seed: int, text: str) -> str:
    """How a model fails under a recipe; of a traceback, where."""
    case = cases.Source(model, None, [], [], [])
    with Attempt() as attempt:  # a candidate that does not run is no candidate
        inputs = [(v.name, cases._kind(v), cases._shape(v)) for v in model.graph.input]
        case.cases, case.names = feeds(inputs, seed, 7), [v.name for v in model.graph.output]
        case.results = run(session(model), case.cases, case.names)
    if attempt.error is not None:
        return ""
    if degenerate(case.results) or not case.cases[0]:
        return ""
    outcome = cases.Outcome(seed)
    try:
        with cases.limited(), tempfile.TemporaryDirectory() as folder:
            cases._compile(outcome, case, Path(folder), text)
    except cases.Late:
        outcome.kind = "timeout"
    where = outcome.detail.split(" | ")[-1].split(" < ")[0] if outcome.kind == "traceback" else ""
    return outcome.kind + where if outcome.kind in cases.BAD else ""


def smaller(model: onnx.ModelProto) -> list[onnx.ModelProto]:
    """Candidates: a node replaced by one of its operands, the latest first; an output less."""
    candidates = []
    if len(model.graph.output) > 1:
        for i in range(len(model.graph.output)):
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            del copy.graph.output[i]
            candidates.append(pruned(copy))
    for place in reversed(range(len(model.graph.node))):
        node = model.graph.node[place]
        for operand in dict.fromkeys(node.input):
            if not operand or not node.output:
                continue
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            gone = node.output[0]
            del copy.graph.node[place]
            outputs = {v.name for v in copy.graph.output}
            if gone in outputs:
                copy.graph.node.append(onnx.helper.make_node("Identity", [operand], [gone]))
            for other in copy.graph.node:
                for k, name in enumerate(other.input):
                    if name == gone:
                        other.input[k] = operand
            candidates.append(pruned(copy))
    return [
        m
        for m in candidates
        if len(m.graph.node) < len(model.graph.node) or len(m.graph.output) < len(model.graph.output)
    ]


def pruned(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without what no output needs."""
    needed = {v.name for v in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
            for attribute in node.attribute:
                needed |= {name for inner in attribute.g.node for name in inner.input}
    nodes = list(reversed(kept))
    weights = [t for t in model.graph.initializer if t.name in needed]
    inputs = [v for v in model.graph.input if v.name in needed]
    del model.graph.node[:], model.graph.initializer[:], model.graph.value_info[:], model.graph.input[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(weights)
    model.graph.input.extend(inputs)
    return model


def minimised(model: onnx.ModelProto, seed: int, text: str) -> tuple[onnx.ModelProto, str]:
    """The smallest that still fails, by nodes and by statements."""
    wanted = judged(model, seed, text)
    lines = text.splitlines()
    for line in list(lines):
        fewer = [other for other in lines if other != line]
        if fewer and judged(model, seed, "\n".join(fewer)) == wanted:
            lines = fewer
    text = "\n".join(lines)
    again = True
    while again:
        again = False
        for candidate in smaller(model):
            if judged(candidate, seed, text) == wanted:
                model, again = candidate, True
                break
    return model, text


def described(model: onnx.ModelProto) -> str:
    """The graph in a few lines."""
    known = {t.name: f"{list(t.dims)}" for t in model.graph.initializer}
    lines = []
    for node in model.graph.node:
        given = ", ".join(f"{name}{known.get(name, '')}" for name in node.input)
        attributes = {
            a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.type in (1, 2, 3, 6, 7)
        }
        lines.append(f"{', '.join(node.output)} = {node.op_type}({given}) {attributes or ''}")
    return "\n".join(lines)


def main() -> int:
    """The command."""
    seed = int(sys.argv[1])
    outcome = cases.judge(seed)
    case = cases.source(seed)
    if case is None or outcome.kind not in cases.BAD:
        print(outcome)
        return 1
    model, text = minimised(case.model, seed, outcome.recipe)
    print(f"seed {seed}: {judged(model, seed, text)} (opset {model.opset_import[0].version})")
    print(text, described(model), Counter(n.op_type for n in model.graph.node), sep="\n")
    if len(sys.argv) > 2:
        onnx.save(model, sys.argv[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
