"""Scopes in keys of random numbers: their text is a part of version 1, whatever classes are called."""

from __future__ import annotations

import pytest

from growc.errors.source import SourceText
from growc.recipe.scope_keys import scope_key
from growc.resolve.resolve import load

KEYS = {
    "encoder": "RoleScope(role='encoder')",
    '"a.*b"': "GlobScope(pattern='a.*b')",
    "layers -1": "LayerScope(layers=Layer(number=Int(value=-1)))",
    "layers 0..1": "LayerScope(layers=Layers(start=Int(value=0), stop=Int(value=1)))",
    "layers 1..": "LayerScope(layers=Layers(start=Int(value=1), stop=None))",
    "layers -layers..": "LayerScope(layers=Layers(start=Neg(operand=Name(name='layers')), stop=None))",
    "layers 0..(2 * layers - 2) / 2": (
        "LayerScope(layers=Layers(start=Int(value=0), stop=Binary(operator='/', "
        "left=Binary(operator='-', left=Binary(operator='*', left=Int(value=2), right=Name(name='layers')), "
        "right=Int(value=2)), right=Int(value=2))))"
    ),
    "layers 1..max(3, layers)": (
        "LayerScope(layers=Layers(start=Int(value=1), "
        "stop=Call(function='max', first=Int(value=3), second=Name(name='layers'))))"
    ),
    'layers 1..axis 0 of "a"': (
        "LayerScope(layers=Layers(start=Int(value=1), stop=TensorAxis(number=0, glob='a')))"
    ),
}
"""Scopes, and their texts when version 1 was agreed on."""


@pytest.mark.parametrize("scope", KEYS)
def test_the_key_of_a_scope_is_that_of_version_1(scope: str) -> None:
    text = f"in {scope} {{ widen ffn to 24 with tail copy }}"
    [bound] = load([SourceText("<recipe>", text)], {}).statements
    assert scope_key(bound.scopes) == KEYS[scope]


def test_scopes_in_scopes_are_joined_outermost_first() -> None:
    text = "in encoder { in layers -1 { widen ffn to 24 with tail copy } }"
    [bound] = load([SourceText("<recipe>", text)], {}).statements
    assert scope_key(bound.scopes) == f"{KEYS['encoder']} {KEYS['layers -1']}"
