"""A model's own rounding: how far it moves from itself when it is run in another way."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from growc.diagnostic import GrowError
from growc.difference import compare
from growc.float_copies import (
    SAME,
    SINGLE,
    WIDER,
    Types,
    copy_bytes,
    float_types,
    rounds_activations,
    runnable,
    write_copy,
)
from growc.session import Feeds, Session

Array = NDArray[Any]
_Copy = tuple[str, Types, Callable[[Array], Array] | None]
_LIMITS = (np.finfo(np.float32).min, np.finfo(np.float32).max)

FLOOR = 1e-6
"""No difference below this refutes anything."""

SLACK = 20
"""How many times its own rounding a model may move before a proof of sameness is refuted."""

COPY_BYTES = 4 << 30
"""No copy is made for the sake of rounding whose weights would take more than this."""


@dataclass
class Rounding:
    """A model's own rounding over the cases seen so far.

    largest: the largest r between it and another way to run it (see `ways`).
    plain: the largest r between it without graph optimisations and its copies; None where there are not both.
    unstable: outputs in which integers or infinities differ between those ways, so that they tell nothing.
    notes: which ways could not be taken, and why.
    """

    largest: float = 0.0
    plain: float | None = None
    unstable: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def distorted(self) -> bool:
        """Whether graph optimisations make the model compute something else.

        So they do where they move it further than rounding can, by what is measured without them: onnxruntime
        fuses layer norms with an eps of 1e-5 where it does not find theirs, for example.
        """
        return self.plain is not None and self.largest > limit(self.plain)

    def add(self, expected: Feeds, seen: Feeds) -> None:
        """Take in the outputs of one case, run in two ways."""
        for name in expected.keys() & seen.keys():
            report = compare(expected[name], seen[name])
            self.largest = max(self.largest, report.regular)
            if report.misplaced:
                self.unstable.add(name)

    def add_plain(self, expected: Feeds, seen: Feeds) -> None:
        """Take in the outputs of one case, of the model without graph optimisations and of a copy."""
        for name in expected.keys() & seen.keys():
            self.plain = max(self.plain or 0.0, compare(expected[name], seen[name]).regular)

    def note(self, label: str, error: GrowError | OSError) -> None:
        """Remember that a way could not be taken."""
        reason = str(error)
        if isinstance(error, GrowError):
            reason = "; ".join(note for d in error.diagnostics for note in d.notes or (d.message,))
        note = f"own rounding not measured on the {label}: {reason}"
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True)
class Way:
    """One more way to run the same model: a copy of it, or its `own` file."""

    label: str
    path: Path
    optimised: bool
    own: bool = False


def limit(rounding: float) -> float:
    """The r that a model's own rounding explains."""
    return max(SLACK * rounding, FLOOR)


def own_rounding(source: Path, cases: Sequence[Feeds]) -> float:
    """The largest r between the ways to run the ONNX file `source` on `cases`; see `ways`.

    Raises GrowError (G403) where onnxruntime cannot run the model itself.
    """
    rounding = Rounding()
    with runnable(source) as path, ways(source, path, rounding) as others:
        with Session(path) as session:
            expected = [session.run(case) for case in cases]
        measure(others, cases, expected, rounding)
    return rounding.largest


@contextlib.contextmanager
def ways(
    source: Path, path: Path, rounding: Rounding, *, optimised: bool = True
) -> Iterator[tuple[Way, ...]]:
    """The other ways to run `source`, of which `path` is what `runnable` gave.

    1. Without onnxruntime's graph optimisations, where it runs `optimised`.
    2. A float64 copy; of a model with 16-bit floats a float32 copy instead (none for bfloat16, where `path`
       is one).
    3. With 16-bit floats: a float32 copy with every weight divided by three, stored in its 16 bits, and
       multiplied by three again. That is what storing a grown weight costs; onnxruntime, which computes
       float16 in float32 wherever it can, does not show it otherwise.
    4. Of a model that rounds activations to a few steps: a copy with its real weights moved by a millionth.
       A last bit decides which step is taken, and one step is far more than a last bit.
    What fails is noted in `rounding` and left out.
    """
    found = [Way("model without graph optimisations", path, optimised=False, own=True)] if optimised else []
    half = bool(float_types(source) & SINGLE.keys())
    copies: list[_Copy] = [] if half else [("float64 copy", WIDER, None)]
    if half:
        copies = [] if Path(path) != Path(source) else [("float32 copy", SINGLE, None)]
        copies.append(("float32 copy with weights stored as thirds", SINGLE, _stored_as_thirds))
    if rounds_activations(source):
        copies.append(("copy with real weights moved by a millionth", SAME, _moved))
    with tempfile.TemporaryDirectory(prefix="growc-") as folder:
        for number, (label, types, change) in enumerate(copies):
            try:
                if copy_bytes(source, types) > COPY_BYTES:
                    raise OSError(f"it would take more than {COPY_BYTES >> 30} GiB")
                copy = write_copy(source, Path(folder) / f"{number}.onnx", types, change)
                found.append(Way(label, copy, optimised=half))
            except (GrowError, OSError) as error:
                rounding.note(label, error)
        yield tuple(found)


def measure(
    others: Sequence[Way], cases: Sequence[Feeds], expected: Sequence[Feeds], rounding: Rounding
) -> None:
    """Run `cases` in every other way, one in memory at a time, and compare with the `expected` outputs."""
    plain: list[Feeds] = []
    for way in others:
        try:
            with Session(way.path, optimised=way.optimised, lean=True) as session:
                kept = []
                for k, (case, outputs) in enumerate(zip(cases, expected, strict=True)):
                    seen = session.run(case)
                    rounding.add(outputs, seen)
                    if way.own:
                        kept.append(seen)
                    elif plain:
                        rounding.add_plain(plain[k], seen)
                plain = kept or plain
        except GrowError as error:
            rounding.note(way.label, error)


def _moved(weight: Array) -> Array:
    """A real weight whose elements are alternately a millionth larger and smaller."""
    signs = 1 - 2 * (np.arange(weight.size) % 2).reshape(weight.shape)
    return np.asarray(weight * (1 + 1e-6 * signs), dtype=weight.dtype)


def _stored_as_thirds(weight: Array) -> Array:
    """A 16-bit weight after one more rounding, as float32."""
    if weight.size < 2:
        return weight.astype(np.float32)
    third = (weight.astype(np.float32) / np.float32(3)).astype(weight.dtype)
    return np.asarray(np.clip(third.astype(np.float32) * np.float32(3), *_LIMITS))
