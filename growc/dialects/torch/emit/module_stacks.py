"""The modules that calls stand in, in other layers too: what torch.export keeps of a module's structure."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from growc.dialects.torch.operators.call import SITE

STACK = "nn_module_stack"
"""Key of a call's `meta`: for each module around it, from the outermost on, its path and its class."""

Stack = Mapping[str, tuple[str, str]]
Move = tuple[str, str]
"""The path of a module that stands in the source, and of the one that stands for it in the result."""


def move_of(node: ir.Node | None) -> Move | None:
    """Where a node stands by its name, and where its call does in the source; None where that is the same."""
    stack: Stack = {} if node is None or SITE not in node.meta else node.meta[SITE].node.meta.get(STACK) or {}
    place, _, own = ("" if node is None else node.name or "").partition("/")
    if not stack or not own:
        return None
    before, after = list(stack.values())[-1][0].split("."), place.split(".")
    parts = enumerate(zip(before, after, strict=False))
    first = next((k for k, (a, b) in parts if a != b), None)
    if first is None or len(before) != len(after):
        return None
    return ".".join(before[: first + 1]), ".".join(after[: first + 1])


def moved(stack: Stack, move: Move | None) -> dict[str, tuple[str, str]]:
    """The modules around a call in the result: in layer 5, where it was of layer 3."""
    if move is None:
        return dict(stack)
    old, new = move
    found: dict[str, tuple[str, str]] = {}
    for key, (path, kind) in stack.items():
        if path == old or path.startswith(f"{old}."):
            found[key.replace(old, new, 1)] = new + path[len(old) :], kind
        else:
            found[key] = path, kind
    return found
