"""What a forward asks of values where there are none: assertions hold, and all else is a reason to refuse.

Needs: a forward that runs on tensors without data. An assertion changes no result, so its outcome is known;
a branch, a loop or a size that data decide is not, and the place in the class that asks for it is named.
"""

from __future__ import annotations

import dis
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from growc.errors.diagnostic import Diagnostic

__all__ = ["asks_data", "asserted", "reasons", "untraceable"]

ASKING = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
"""What torch raises where a forward asks for data."""
SIZES = ("expected to contain only concrete integers", "unhashable type: non-nested SymInt")
"""What it says, by no type of its own, where sizes that data decide stand in the place of numbers."""
JUMPS = {name for name in dis.opmap if "JUMP" in name and name.endswith(("IF_TRUE", "IF_FALSE"))}
BETWEEN = (Path(torch.__file__).parent, Path(__file__).parent)
"""Where no forward of a model stands."""


@contextmanager
def asserted() -> Iterator[None]:
    """Assertions about data hold."""
    usual = SymNode.guard_bool

    def answer(node: SymNode, file: str, line: int) -> bool:
        try:
            return usual(node, file, line)
        except GuardOnDataDependentSymNode:
            held = _held(_asking(sys._getframe(1)))
            if held is None:
                raise
            return held

    with mock.patch.object(SymNode, "guard_bool", answer):
        yield


def asks_data(error: BaseException) -> bool:
    """Whether a forward failed since it asks for values, and not since its inputs do not fit."""
    return any(isinstance(one, ASKING) or any(said in str(one) for said in SIZES) for one in _chain(error))


def reasons(error: BaseException) -> tuple[str, ...]:
    """The first line of what was raised; where data decide, the place in the forward that asks for them."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"
    place = _place(error) if asks_data(error) else ""
    return (said, f"its forward asks for values of tensors at {place}") if place else (said,)


def untraceable(module: nn.Module, reason: Exception) -> Diagnostic:
    """That a module cannot be traced (G317), with torch's reason."""
    message = f"`{type(module).__name__}` cannot be traced by torch.export"
    return Diagnostic("G317", message, notes=reasons(reason))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _place(error: BaseException) -> str:
    """The last line of the forward that ran, by the error that came first."""
    for one in reversed(list(_chain(error))):
        for frame in reversed(traceback.extract_tb(one.__traceback__)):
            path = Path(frame.filename)
            if path.is_file() and not _between(path):
                return f"{path.name}:{frame.lineno} (`{frame.name}`)"
    return ""


def _asking(frame: FrameType | None) -> FrameType | None:
    """The frame behind those that only hand on."""
    while frame is not None and _between(Path(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def _between(path: Path) -> bool:
    return any(path.is_relative_to(one) for one in BETWEEN)


def _held(frame: FrameType | None) -> bool | None:
    """What lets the assertion pass that a frame is about to decide; None where it decides something else."""
    if frame is None:
        return None
    code = list(dis.get_instructions(frame.f_code))
    at = next((k for k, step in enumerate(code) if step.offset == frame.f_lasti), len(code))
    jump = next((k for k in range(at, min(at + 2, len(code) - 1)) if code[k].opname in JUMPS), None)
    if jump is None:
        return None
    raising = {step.offset for step in code if step.opname == "LOAD_ASSERTION_ERROR"}
    jumps = code[jump].opname.endswith("TRUE")
    if code[jump + 1].offset in raising:
        return jumps
    return not jumps if code[jump].argval in raising else None
