"""The one walk over graphs, and the one way back."""

from __future__ import annotations

from growc.ir.graph import Node, Value, backward
from growc.ir.walk import postorder, walk

DIAMOND = {"a": "bc", "b": "d", "c": "d", "d": "ae", "e": ""}


def test_each_is_reached_once_though_there_are_circles() -> None:
    assert sorted(walk("a", DIAMOND.__getitem__)) == list("abcde")
    assert list(walk("aab", lambda _: "")) == ["b", "a"]


def test_the_nearest_come_first_where_that_is_asked() -> None:
    assert list(walk("a", DIAMOND.__getitem__, nearest=True)) == list("abcde")
    assert list(walk("a", DIAMOND.__getitem__)) == list("acdeb")


def test_a_step_is_taken_after_its_start_was_handed_out() -> None:
    taken = []

    def step(at: int) -> list[int]:
        taken.append(at)
        return [at + 1]

    assert next(at for at in walk([0], step) if at == 3) == 3
    assert taken == [0, 1, 2]


def test_the_way_back_ends_at_the_first_node_that_does_not_pass() -> None:
    values = [Value(name) for name in "abcd"]
    for op, given, made in zip(["Gather", "Cast", "Cast"], values, values[1:], strict=False):
        made.producer = Node(op, op, (given,), (made,), {})
    assert backward(values[-1], lambda node: node.op == "Cast") is values[1]
    assert backward(values[-1], lambda node: True) is values[0]


def test_a_stored_tensor_is_read_behind_what_lays_it_out() -> None:
    use, turned, read = (Value(name) for name in "abc")
    turn = Node("Transpose", "turn", (use,), (turned,), {}, chain=True)
    reader = Node("MatMul", "reader", (turned,), (read,), {})
    use.users, turned.users = [(turn, 0)], [(reader, 1)]
    assert use.reader is reader
    assert read.reader is None


def test_postorder_visits_needs_first_in_their_order() -> None:
    needs = {"a": "bc", "b": "d", "c": "de", "d": "", "e": ""}
    assert list(postorder("a", needs.__getitem__)) == list("dbeca")
    assert list(postorder("eda", needs.__getitem__)) == list("edbca")
