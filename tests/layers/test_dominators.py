"""Post-dominators against networkx on random graphs; periods on words."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from growc.ir.graph import Graph, Node, Value
from growc.passes.dataflow.post_dominators import PostDominators
from growc.passes.layers.repetition import Repetition, repetitions


def random_graph(seed):
    """A graph of forty nodes that read one to three earlier values each."""
    random = np.random.default_rng(seed)
    values = [Value("in")]
    nodes = []
    for k in range(40):
        near = values[-8:]
        chosen = random.choice(len(near), min(len(near), int(random.integers(1, 4))), replace=False)
        read = tuple(near[i] for i in chosen)
        node = Node("Op", f"n{k}", read, (Value(f"v{k}"),), {})
        for i, value in enumerate(read):
            value.users.append((node, i))
        node.outputs[0].producer = node
        nodes.append(node)
        values.append(node.outputs[0])
    return Graph(nodes, values[:1], values[-1:], [], None), frozenset(values)


@pytest.mark.parametrize("seed", range(12))
def test_the_parent_of_a_vertex_is_what_networkx_says(seed):
    graph, data = random_graph(seed)
    tree = PostDominators(graph, data, graph.outputs[0])
    reverse = nx.DiGraph()
    for node in tree.nodes:
        reverse.add_edges_from((node, v) for v in node.inputs)
        reverse.add_edges_from((v, node) for v in node.outputs)
    expected = nx.immediate_dominators(reverse, tree.root)
    assert {v: p for v, p in tree.parent.items() if v is not tree.root} == {
        v: p for v, p in expected.items() if v is not tree.root
    }


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("AFAFAF", [(0, 2, 3)]),
        ("AAAA", [(0, 1, 4)]),
        ("ACFACF", [(0, 3, 2)]),
        ("AACAAC", [(0, 3, 2)]),
        ("KAFAF", [(1, 2, 2)]),
        ("AFAG", [(0, 2, 2)]),
        ("AGAFAFAF", [(0, 2, 4)]),
        ("AFAFCCCC", [(0, 2, 2), (4, 1, 4)]),
        ("AFG", []),
    ],
)
def test_repetitions_of_words(word, found):
    opens = [letter == "A" for letter in word]
    assert repetitions(word, word, opens) == [Repetition(*one) for one in found]


def test_coarse_tokens_repeat_where_all_widths_differ():
    word = "AFBGCHDI"
    assert repetitions(word, "xyxyxyxy", [False] * 8) == [Repetition(0, 2, 4)]
