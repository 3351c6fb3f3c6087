"""A model's own rounding: how far its outputs move when it is run in another way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from growc.dialects.onnx.files.element_types import Change
from growc.errors.diagnostic import GrowError
from growc.system.workshop import scratch_folder
from growc.verification.difference import compare
from growc.verification.float_copies import (
    EMULATED,
    SAME,
    WIDER,
    copy_bytes,
    float_types,
    runnable,
    widened,
    write_copy,
)
from growc.verification.ort_session import Feeds, Session
from growc.verification.rounded_values import moves

FLOOR = 1e-6
"""The r below which no difference refutes anything."""

SLACK = 20
"""The factor of its own rounding that a model may move before a proof of sameness is refuted."""

NARROW_SLACK = 5
"""The same for a model that rounds its results to fewer places than float32 has.

Its own rounding is then the full effect of a few of these steps, or of its weights' steps, rather than that
of a last bit.
"""

COPY_BYTES = 4 << 30
"""The most bytes of weights for which a model is grown once more in wider numbers."""

WIDER_BYTES = 1 << 30
"""The most bytes of weights for which a float64 copy is made."""

MOVED = "model with weights moved by their last place"
COPY = "float64 copy"


@dataclass
class Rounding:
    """A model's own rounding over the cases seen so far.

    largest: the largest r between it and another way to run it (see `ways`). slack: the factor of it that
    explains a difference. plain: the largest r between it without graph optimisations and its copies; None if
    there are not both. unstable: for outputs with integers or infinities that differ between those ways,
    their number. odd: the outputs that are NaN or infinite somewhere in one way, and nowhere in another.
    notes: the ways that could not be taken, and why.
    """

    largest: float = 0.0
    slack: int = SLACK
    plain: float | None = None
    unstable: dict[str, int] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def distorted(self) -> bool:
        """Whether graph optimisations make the model compute something else.

        They do if they move it further than the rounding measured without them can. For example, onnxruntime
        fuses layer norms with an eps of 1e-5 if it does not find theirs.
        """
        return self.plain is not None and self.largest > limit(self.plain, self.slack)

    def add(self, expected: Feeds, seen: Feeds) -> None:
        """Add the outputs of one case, run in two ways."""
        for name in expected.keys() & seen.keys():
            report = compare(expected[name], seen[name])
            self.largest = max(self.largest, report.regular)
            if report.misplaced:
                self.unstable[name] = self.unstable.get(name, 0) + report.misplaced
            if report.alien:
                self.odd.add(name)

    def add_plain(self, expected: Feeds, seen: Feeds) -> None:
        """Add the outputs of one case, of the model without graph optimisations and of a copy."""
        for name in expected.keys() & seen.keys():
            self.plain = max(self.plain or 0.0, compare(expected[name], seen[name]).regular)

    def join(self, other: Rounding) -> None:
        """Add the rounding over other cases."""
        self.largest = max(self.largest, other.largest)
        if other.plain is not None:
            self.plain = max(self.plain or 0.0, other.plain)
        for name, count in other.unstable.items():
            self.unstable[name] = self.unstable.get(name, 0) + count
        self.odd |= other.odd
        self.notes += [note for note in other.notes if note not in self.notes]

    def note(self, label: str, error: GrowError | OSError) -> None:
        """Record that a way could not be taken."""
        reason = str(error)
        if isinstance(error, GrowError):
            reason = "; ".join(note for d in error.diagnostics for note in d.notes or (d.message,))
        note = f"own rounding not measured on the {label}: {reason}"
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True)
class Rerun:
    """Another way to run the same model: a copy of it, or its `own` file. `change` is applied to its inputs.

    graph: the graph loaded in place of the file, and the folder of its weights.
    """

    label: str
    path: Path
    optimised: bool
    own: bool = False
    change: Change | None = None
    graph: tuple[bytes, Path] | None = None

    def feeds(self, case: Feeds) -> Feeds:
        """Return the inputs of a case."""
        return case if self.change is None else {name: self.change(name, a) for name, a in case.items()}


def limit(rounding: float, slack: int = SLACK) -> float:
    """Return the r that a model's own rounding explains."""
    return max(slack * rounding, FLOOR)


def own_rounding(source: Path, cases: Sequence[Feeds]) -> float:
    """Return the largest r between the ways to run the ONNX file `source` on `cases`; see `ways`.

    Raises GrowError (G403) if onnxruntime cannot run the model itself.
    """
    rounding = Rounding()
    with runnable(source) as path, ways(source, path, rounding, cases[0]) as others:
        with Session(path) as session:
            expected = [session.run(case) for case in cases]
        measure(others, cases, expected, rounding)
    return rounding.largest


@contextlib.contextmanager
def ways(
    source: Path, path: Path, rounding: Rounding, case: Feeds, *, optimised: bool = True
) -> Iterator[tuple[Rerun, ...]]:
    """Yield the other ways to run `source`. `path`: the result of `runnable`; `case`: inputs that it takes.

    1. Without onnxruntime's graph optimisations, if the model runs `optimised`.
    2. With every weight and real input moved by half a unit of its last place, or further: see `moves`.
    3. For a model with float32 numbers, a float64 copy, if it takes no more than WIDER_BYTES.

    Ways that fail are noted in `rounding` and left out.
    """
    others = (
        [Rerun("model without graph optimisations", path, optimised=False, own=True)] if optimised else []
    )
    types = SAME if Path(path) == Path(source) else EMULATED
    with scratch_folder() as folder:
        try:
            moved = moves(source, path, case)
            rounding.slack = NARROW_SLACK if moved.narrow else SLACK
            for change in moved.changes:
                copy = write_copy(source, folder / f"{len(others)}.onnx", types, change)
                others.append(Rerun(MOVED, copy, optimised=False, change=change))
        except (GrowError, OSError) as error:
            rounding.note(MOVED, error)
        single = types is SAME and ir.DataType.FLOAT in float_types(source)
        if single and copy_bytes(source, WIDER) <= WIDER_BYTES:
            try:
                others.append(Rerun(COPY, path, optimised=False, graph=widened(source)))
            except (GrowError, OSError) as error:
                rounding.note(COPY, error)
        yield tuple(others)


def measure(
    others: Sequence[Rerun], cases: Sequence[Feeds], expected: Sequence[Feeds], rounding: Rounding
) -> None:
    """Run `cases` in every other way, one in memory at a time, and compare with the `expected` outputs."""
    plain: list[Feeds] = []
    for way in others:
        try:
            with Session(way.path, optimised=way.optimised, lean=True, graph=way.graph) as session:
                own_outputs = []
                for k, (case, outputs) in enumerate(zip(cases, expected, strict=True)):
                    seen = session.run(way.feeds(case))
                    rounding.add(outputs, seen)
                    if way.own:
                        own_outputs.append(seen)
                    elif plain:
                        rounding.add_plain(plain[k], seen)
                plain = own_outputs or plain
        except GrowError as error:
            rounding.note(way.label, error)
