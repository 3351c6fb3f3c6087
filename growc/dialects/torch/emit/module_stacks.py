"""Module stacks of calls, as torch.export records them, and their counterparts in other layers."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from growc.dialects.torch.operators.call import SITE

STACK = "nn_module_stack"
"""Key of a call's `meta`: path and class of each module around it, outermost first."""

ModuleStack = Mapping[str, tuple[str, str]]
ModuleMove = tuple[str, str]
"""The path of a module in the source, and the path of its counterpart in the result."""


def move_of(node: ir.Node | None) -> ModuleMove | None:
    """Return the modules of a node's call in the source and in the result, or None if they are equal."""
    stack: ModuleStack = (
        {} if node is None or SITE not in node.meta else node.meta[SITE].node.meta.get(STACK) or {}
    )
    place, _, call_name = ("" if node is None else node.name or "").partition("/")
    if not stack or not call_name:
        return None
    before, after = list(stack.values())[-1][0].split("."), place.split(".")
    parts = enumerate(zip(before, after, strict=False))
    first = next((k for k, (a, b) in parts if a != b), None)
    if first is None or len(before) != len(after):
        return None
    return ".".join(before[: first + 1]), ".".join(after[: first + 1])


def moved(stack: ModuleStack, move: ModuleMove | None) -> dict[str, tuple[str, str]]:
    """Return the modules around a call in the result, for example in layer 5 instead of layer 3."""
    if move is None:
        return dict(stack)
    old, new = move
    renamed: dict[str, tuple[str, str]] = {}
    for key, (path, kind) in stack.items():
        if path == old or path.startswith(f"{old}."):
            renamed[key.replace(old, new, 1)] = new + path[len(old) :], kind
        else:
            renamed[key] = path, kind
    return renamed
