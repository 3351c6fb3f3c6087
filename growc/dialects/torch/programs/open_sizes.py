"""Ranges of open sizes of a grown program: as declared, or as far as its grown tables allow.

A range of the source was declared by the user, or inferred by torch from where the program fails. A trial run
tells which. If the source runs beyond its range, the range was declared, and stays. If only the result runs
beyond it, the new range ends where the result fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._sympy.value_ranges import ValueRanges

from growc.dialects.torch.capture.export import ExportedModule, run
from growc.dialects.torch.emit.grown_module import GrownModule
from growc.dialects.torch.programs.guards import holds, is_about
from growc.dialects.torch.run.call_signature import CallSignature
from growc.dialects.torch.run.cases import resized
from growc.dialects.torch.run.run_module import Inputs

LONGEST = 1 << 16
"""The largest size of an input that is tried."""


def ranges_of(grown: GrownModule, captured: ExportedModule) -> dict[Any, Any]:
    """Return the ranges of the result's symbols, which are the source's symbols."""
    program = captured.program
    ranges = dict(program.range_constraints)
    for symbol, declared in program.range_constraints.items():
        if program.example_inputs is None or not declared.upper.is_Integer or declared.upper >= LONGEST:
            continue
        sizing = _Sizing.along(captured, symbol)
        end = int(declared.upper)
        if not sizing.runs(sizing.source, end + 1) and sizing.runs(sizing.result(grown), end + 1):
            ranges[symbol] = ValueRanges(declared.lower, sizing.longest(sizing.result(grown), end + 1))
    return ranges


def guards_of(
    captured: ExportedModule, ranges: Mapping[object, ValueRanges[Any]], names: Collection[str]
) -> list[str]:
    """Return the source's guards on the result's arguments, without those that end an extended range.

    names: the arguments of the result, if they differ from the source's.
    """
    program = captured.program
    guards = [guard for guard in program._guards_code if not names or is_about(guard, names)]
    for symbol, value_range in ranges.items():
        if value_range != program.range_constraints.get(symbol):
            args, kwargs = _Sizing.along(captured, symbol).of(int(value_range.upper))
            longest = dict(zip(captured.parameters, args, strict=False)) | dict(kwargs)
            guards = [guard for guard in guards if holds(guard, longest)]
    return guards


@dataclass(frozen=True)
class _Sizing:
    """Trial runs on other sizes. inputs: those of the program. called: the name of the symbols to vary."""

    captured: ExportedModule
    inputs: Inputs
    called: str

    @staticmethod
    def along(captured: ExportedModule, symbol: object) -> _Sizing:
        """Return trial runs of the example inputs with other sizes of a symbol."""
        inputs: Any = captured.program.example_inputs
        return _Sizing(captured, inputs, captured.symbols.get(str(symbol), str(symbol)))

    def source(self, inputs: Inputs) -> None:
        """Run the source's program."""
        run(self.captured, self.captured.program.state_dict.__getitem__, *inputs)

    def result(self, grown: nn.Module) -> Callable[[Inputs], None]:
        """Return a function that runs the result on inputs of the source."""

        def call(inputs: Inputs) -> None:
            args, kwargs = grown.descent.case(inputs).result  # type: ignore[operator, union-attr]
            grown(*args, **kwargs)

        return call

    def runs(self, call: Callable[[Inputs], None], size: int) -> bool:
        """Whether a call runs on inputs of this size."""
        try:
            with torch.no_grad():
                call(self.of(size))
        except (RuntimeError, ValueError, IndexError):
            return False
        return True

    def longest(self, call: Callable[[Inputs], None], size: int) -> int | float:
        """Return the largest size that a call runs on, starting from one that it runs on."""
        step = size
        while size + step <= LONGEST and self.runs(call, size + step):
            size, step = size + step, 2 * step
        while step > 1:
            step //= 2
            if size + step <= LONGEST and self.runs(call, size + step):
                size += step
        return size

    def of(self, size: int) -> Inputs:
        """Return the inputs in this size, with their content repeated."""
        calling = CallSignature.of(self.captured)
        return resized(
            self.captured, calling, self.inputs, lambda called, own: size if called == self.called else own
        )
