"""The text of a result in a notebook is short, and comes at once."""

from __future__ import annotations

import sys
from collections import defaultdict

import pytest
from graphs import TINY

import growc

RECIPE = (
    "widen hidden to 192 with cyclic copy split random\nwiden ffn to 500 with uniform copy noise 0.1 balanced"
)


def reachable(root):
    """Some objects of each class of growc that hang on a result."""
    found, seen, pending = defaultdict(list), set(), [root]
    while pending:
        thing = pending.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | type):
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            pending += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset):
            pending += thing
        elif type(thing).__module__.startswith("growc"):
            found[type(thing)].append(thing)
            pending += vars(thing).values() if hasattr(thing, "__dict__") else ()
    return [thing for things in found.values() for thing in (*things[:3], *things[-3:])]


def calls_of(function, *arguments):
    """The result of a call, and how many calls it makes: an effort that no busy machine changes."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    earlier = sys.getprofile()
    sys.setprofile(count)
    try:
        return function(*arguments), calls
    finally:
        sys.setprofile(earlier)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("result", ["inspect", "plan", "apply", "verify"])
def test_what_hangs_on_a_result_is_shown_in_a_line(result, tmp_path):
    if result == "inspect":
        made = growc.inspect(TINY)
    elif result == "plan":
        made = growc.plan(RECIPE, TINY)
    elif result == "apply":
        made = growc.apply(RECIPE, TINY, tmp_path / "grown.onnx")
    else:
        growc.apply(RECIPE, TINY, tmp_path / "grown.onnx", check=False)
        made = growc.verify(TINY, tmp_path / "grown.onnx")
    things = reachable(made)
    assert made in things
    for thing in things:
        text, calls = calls_of(repr, thing)
        assert calls < 2000, type(thing)
        assert len(text) < 2000, type(thing)
        assert "\n" not in text, type(thing)


def test_a_plan_shows_what_becomes_of_the_sizes():
    text = repr(growc.plan(RECIPE, TINY))
    assert text.startswith("<Plan of tiny-gpt.onnx: exact, hidden 96 -> 192, ffn 384 -> 500; 484416 -> ")
    assert repr(growc.inspect(TINY)).endswith("positions 128>")


def test_dir_lists_what_there_is():
    assert dir(growc) == sorted(growc.__all__)
    for name in growc.__all__:
        assert getattr(growc, name) is not None


@pytest.mark.parametrize(("name", "said"), [("inspekt", "; did you mean 'inspect'"), ("zzz", "")])
def test_an_attribute_that_is_not_there_names_the_nearest(name, said):
    with pytest.raises(AttributeError) as caught:
        getattr(growc, name)
    assert str(caught.value) == f"module 'growc' has no attribute {name!r}{said and said + '?'}"
