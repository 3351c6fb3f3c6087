"""How long the inputs of a grown program may be: as declared, or as long as its tables have become.

A range of the source comes from whoever exported it, or from torch, which saw where the program ends to run.
Which of both is tried: where the source runs beyond its range, that was declared, and stays. Where it does
not and the result does, the result's range ends where the result does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._sympy.value_ranges import ValueRanges

from growc.dialects.torch.capture.export import Captured, run
from growc.dialects.torch.emit.grown_module import GrownModule
from growc.dialects.torch.programs.guards import holds, is_about
from growc.dialects.torch.run.call_signature import Calling
from growc.dialects.torch.run.cases import resized
from growc.dialects.torch.run.run_module import Inputs

LONGEST = 1 << 16
"""No input is tried that is longer."""


def ranges_of(grown: GrownModule, captured: Captured) -> dict[Any, Any]:
    """The ranges of the symbols in the result, which are those of the source."""
    program = captured.program
    found = dict(program.range_constraints)
    for symbol, known in program.range_constraints.items():
        if program.example_inputs is None or not known.upper.is_Integer or known.upper >= LONGEST:
            continue
        sizing = _Sizing.along(captured, symbol)
        end = int(known.upper)
        if not sizing.runs(sizing.source, end + 1) and sizing.runs(sizing.result(grown), end + 1):
            found[symbol] = ValueRanges(known.lower, sizing.longest(sizing.result(grown), end + 1))
    return found


def guards_of(
    captured: Captured, ranges: Mapping[object, ValueRanges[Any]], names: Collection[str]
) -> list[str]:
    """The guards of the source about what the result is called with, all but those that end a range.

    names: the arguments of the result, where it takes others than the source.
    """
    program = captured.program
    kept = [guard for guard in program._guards_code if not names or is_about(guard, names)]
    for symbol, known in ranges.items():
        if known != program.range_constraints.get(symbol):
            args, kwargs = _Sizing.along(captured, symbol).of(int(known.upper))
            longest = dict(zip(captured.parameters, args, strict=False)) | dict(kwargs)
            kept = [guard for guard in kept if holds(guard, longest)]
    return kept


@dataclass(frozen=True)
class _Sizing:
    """`given`: inputs of the program; `called`: what the symbols are called whose sizes are tried."""

    captured: Captured
    given: Inputs
    called: str

    @staticmethod
    def along(captured: Captured, symbol: object) -> _Sizing:
        """The example inputs, at other sizes of a symbol."""
        given: Any = captured.program.example_inputs
        return _Sizing(captured, given, captured.symbols.get(str(symbol), str(symbol)))

    def source(self, inputs: Inputs) -> None:
        """Run the source's program."""
        run(self.captured, self.captured.program.state_dict.__getitem__, *inputs)

    def result(self, grown: nn.Module) -> Callable[[Inputs], None]:
        """What runs the result on inputs of the source."""

        def call(inputs: Inputs) -> None:
            args, kwargs = grown.descent.case(inputs).result  # type: ignore[operator, union-attr]
            grown(*args, **kwargs)

        return call

    def runs(self, call: Callable[[Inputs], None], size: int) -> bool:
        """Whether something runs on inputs of this size."""
        try:
            with torch.no_grad():
                call(self.of(size))
        except (RuntimeError, ValueError, IndexError):
            return False
        return True

    def longest(self, call: Callable[[Inputs], None], size: int) -> int | float:
        """The largest size that it runs on, from one that it runs on."""
        step = size
        while size + step <= LONGEST and self.runs(call, size + step):
            size, step = size + step, 2 * step
        while step > 1:
            step //= 2
            if size + step <= LONGEST and self.runs(call, size + step):
                size += step
        return size

    def of(self, size: int) -> Inputs:
        """The inputs with this size, what stands in them again and again."""
        calling = Calling.of(self.captured)
        return resized(
            self.captured, calling, self.given, lambda called, own: size if called == self.called else own
        )
