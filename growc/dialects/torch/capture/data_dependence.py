"""Data-dependent control flow in a forward that runs on tensors without data.

Assertions about data are taken to hold, since an assertion changes no result. Branches, loops and sizes that
depend on data are refused. The reason names the place in the class that asks for the data.
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
from growc.errors.regular_files import causes

__all__ = ["asks_data", "asserted", "reasons", "untraceable"]

ASKING = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
"""Errors that torch raises if a forward asks for data."""
SIZES = ("expected to contain only concrete integers", "unhashable type: non-nested SymInt")
"""Messages of untyped errors of torch: a data-dependent size is used where a number is needed."""
JUMPS = {name for name in dis.opmap if "JUMP" in name and name.endswith(("IF_TRUE", "IF_FALSE"))}
BETWEEN = (Path(torch.__file__).parent, Path(__file__).parent)
"""Folders that contain no forward of a model."""


@contextmanager
def asserted() -> Iterator[None]:
    """Let assertions about data hold inside the context."""
    usual = SymNode.guard_bool

    def answer(node: SymNode, file: str, line: int) -> bool:
        try:
            return usual(node, file, line)
        except GuardOnDataDependentSymNode:
            passing = _held(_asking(sys._getframe(1)))
            if passing is None:
                raise
            return passing

    with mock.patch.object(SymNode, "guard_bool", answer):
        yield


def asks_data(error: BaseException) -> bool:
    """Whether a forward failed because it asks for values, rather than because its inputs do not fit."""
    return any(
        isinstance(cause, ASKING) or any(message in str(cause) for message in SIZES)
        for cause in causes(error)
    )


def reasons(error: BaseException) -> tuple[str, ...]:
    """Return the first line of an error and, if it asks for data, the place in the forward that does so."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    summary = f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"
    place = _place(error) if asks_data(error) else ""
    return (summary, f"its forward asks for values of tensors at {place}") if place else (summary,)


def untraceable(module: nn.Module, reason: Exception) -> Diagnostic:
    """Return the diagnostic that a module cannot be traced (G317), with torch's reason."""
    message = f"`{type(module).__name__}` cannot be traced by torch.export"
    return Diagnostic("G317", message, notes=reasons(reason))


def _place(error: BaseException) -> str:
    """Return the last line of the forward that ran, taken from the earliest error of the chain."""
    for cause in reversed(list(causes(error))):
        for frame in reversed(traceback.extract_tb(cause.__traceback__)):
            path = Path(frame.filename)
            if path.is_file() and not _between(path):
                return f"{path.name}:{frame.lineno} (`{frame.name}`)"
    return ""


def _asking(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame that is outside torch and growc's capture."""
    while frame is not None and _between(Path(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def _between(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in BETWEEN)


def _held(frame: FrameType | None) -> bool | None:
    """Return the truth value that lets the frame's assertion pass, or None if it decides something else."""
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
