"""Inputs for a model: drawn from its signature, or read from the user's file.

The drawn cases are these. The first has every mask open. The second has another batch size and other lengths,
and empty caches, if the model allows these. Its rows are in turn ten times as large, unchanged, and a tenth
as large. If the model has switches, there is a case with these off. If the model has masks, the last case has
right padding. Indices reach from the first row of a table to its last. Every drawn case has run in
onnxruntime, and gave something that can be compared.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from growc.algebra.indexmap import Array
from growc.dialects.onnx.files.signature import Input, Role, read_signature
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import parsing_foreign_file
from growc.system.limits import require
from growc.verification import feed_sizes
from growc.verification.feed_sizes import FIRST, SECOND, Scale, SymbolKind, SymbolSizes
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Feeds, Session

ROWS = 8
"""Rows of the user's file that are run at a time."""

_SCALES = (10.0, 1.0, 0.1)
"""The factors of rows of data in all cases but the first."""

_CLOSED = -1e4
"""The number that a right-padded place adds to attention scores: it closes them in every float type."""


class Runner(Protocol):
    """An object that inputs can be tried on."""

    def run(self, feeds: Feeds, /) -> Feeds:
        """Return all outputs by name. Raises GrowError (G403) for inputs that it does not take."""


def draw_cases(model: Path) -> list[Feeds]:
    """Return inputs, by name, for the drawn cases of the ONNX file `model`, each time the same.

    Raises GrowError (G403) if onnxruntime cannot load the model, or runs it on none of the sizes tried.
    """
    with runnable(model) as path, Session(path) as session:
        return draw(read_signature(model), session)


def draw(inputs: Sequence[Input], session: Runner) -> list[Feeds]:
    """As `draw_cases`, for a model that is loaded already. Raises GrowError (G403)."""
    kinds = feed_sizes.symbols(inputs)
    cases: list[Feeds] = []
    sizes, reason = _first_that_runs(inputs, kinds, FIRST, session, cases)
    if sizes is None:
        raise GrowError(
            Diagnostic(
                "G403",
                "onnxruntime ran the model on none of the inputs drawn for it",
                notes=(reason,) if reason else (),
                help="give inputs with `--inputs FILE.npz`",
            )
        )
    seconds: tuple[Scale, ...] = SECOND + tuple(scale._replace(batch=3) for scale in FIRST)
    if SymbolKind.PAST in kinds.values():
        seconds = tuple(scale._replace(past=0) for scale in SECOND[:2]) + seconds
    second, _ = _first_that_runs(inputs, kinds, seconds, session, cases)
    sizes = second or sizes
    if any(port.role is Role.SWITCH for port in inputs):
        _first_that_runs(inputs, kinds, (*seconds, *FIRST), session, cases, off=True)
    if any(port.role in (Role.MASK, Role.BIAS) for port in inputs):
        padded = _feeds(inputs, sizes, len(cases), padded=True)
        if _runs(session, padded) is None:
            cases.append(padded)
    return cases


def _first_that_runs(
    inputs: Sequence[Input],
    kinds: Mapping[str, SymbolKind],
    scales: Sequence[Scale],
    session: Runner,
    cases: list[Feeds],
    *,
    off: bool = False,
) -> tuple[SymbolSizes | None, str]:
    """Append the first case that the model runs, and return its sizes; else why the first case failed."""
    reason = ""
    for sizes in feed_sizes.assignments(kinds, scales):
        feeds = _feeds(inputs, sizes, len(cases), off=off)
        refused = _runs(session, feeds)
        if refused is None:
            cases.append(feeds)
            return sizes, ""
        reason = reason or refused
    return None, reason


def _runs(session: Runner, feeds: Feeds) -> str | None:
    """Return None if the model runs and outputs at least one finite number; else the reason."""
    try:
        outputs = session.run(feeds)
    except GrowError as error:
        return "; ".join(note for diagnostic in error.diagnostics for note in diagnostic.notes)
    if any(output.size == 0 for output in outputs.values()):
        return "an output is empty"
    reals = [output for output in outputs.values() if output.dtype.kind == "f"]
    if reals and not any(np.isfinite(output).any() for output in reals):
        return "no output holds a finite number"
    return None


def _feeds(
    inputs: Sequence[Input], sizes: SymbolSizes, case: int, *, padded: bool = False, off: bool = False
) -> Feeds:
    feeds = {}
    for number, port in enumerate(inputs):
        shape = feed_sizes.shape(port, sizes)
        feeds[port.name] = values(port, shape, case, number, padded=padded)
        if port.role is Role.SWITCH:
            feeds[port.name] = np.full(shape, not off).astype(port.dtype)
    return feeds


def values(port: Input, shape: tuple[int, ...], case: int, number: int, *, padded: bool = False) -> Array:
    """Return the elements of one input, of `shape`, drawn by the numbers of the case and of the input."""
    draw = np.random.Generator(np.random.Philox(np.random.SeedSequence((0, case, number))))
    if port.role is Role.IDS:
        ids = draw.integers(port.low, port.high, shape)
        edges = [port.low, port.high - 1]
        ids.reshape(-1)[:2] = edges[: ids.size]
        return np.asarray(ids, dtype=port.dtype)
    if port.role is Role.POSITIONS:
        places = np.arange(shape[-1] if shape else 1)
        return np.broadcast_to(places, shape or (1,)).reshape(shape).astype(port.dtype)
    if port.role is Role.MASK:
        return (_open(shape) if padded else np.ones(shape, dtype=np.bool_)).astype(port.dtype)
    if not port.real:
        top = 256 if port.dtype == np.uint8 else 2 if port.dtype == np.bool_ else 8
        return draw.integers(0, top, shape).astype(port.dtype)
    drawn = draw.standard_normal(shape)
    if port.role is Role.DATA and case and shape:
        drawn *= np.resize(_SCALES, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    drawn = drawn.astype(port.dtype)
    if port.role is Role.BIAS and padded:
        drawn = np.where(_open(shape), drawn, port.dtype.type(_CLOSED))
    return np.asarray(drawn, dtype=port.dtype)


def _open(shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return a right-padded mask: the first row is whole, every other one lacks more of its end."""
    whole = np.ones(shape, dtype=np.bool_)
    if not shape or shape[-1] < 2:
        return whole
    rows = shape[0] if len(shape) > 1 else 1
    for row in range(rows):
        number = row if rows > 1 else 1
        cut = min(number * max(1, shape[-1] // 4), shape[-1] // 2)
        if cut:
            part = whole[row] if len(shape) > 1 else whole
            part[..., shape[-1] - cut :] = False
    return whole


def complete(inputs: Iterable[Input], feeds: Feeds) -> Feeds:
    """Return `feeds`, and values for the other `inputs` (of the grown model), sized by shared symbols.

    Raises GrowError (G403) for an input whose size nothing tells.
    """
    ports = list(inputs)
    sizes: SymbolSizes = {}
    for port in ports:
        for axis in range(len(port.dims) if port.name in feeds else 0):
            symbol = feed_sizes.dimension(port, axis)
            if isinstance(symbol, str) and feed_sizes.names(symbol) == (symbol,):
                sizes[symbol] = feeds[port.name].shape[axis]
    completed = dict(feeds)
    for number, port in enumerate(ports):
        if port.name not in feeds:
            shape = _shape_like(port, ports, feeds, sizes)
            completed[port.name] = values(port, shape, len(ports), number)
    return completed


def _shape_like(port: Input, ports: Sequence[Input], feeds: Feeds, sizes: SymbolSizes) -> tuple[int, ...]:
    """Return the shape of an input from the symbols' sizes, else that of a fed input declared alike."""
    with contextlib.suppress(KeyError):
        return feed_sizes.shape(port, sizes)

    def kind(port: Input) -> object:
        return port.role, [dim if isinstance(dim, int) else None for dim in port.dims]

    for other in ports:
        if other.name in feeds and kind(other) == kind(port):
            return feeds[other.name].shape
    raise _unreadable(f"the grown model's input `{port.name}` is new, and nothing tells its size")


# Inputs from a file


def read_inputs(path: Path, model: Path) -> list[Feeds]:
    """Return the cases in `path`, for the ONNX file `model`, by input name.

    1. `.npz` with an array for every input: its first axis counts rows, run ROWS at a time (or as many as the
       model's own batch size). An input with another first axis, or one, is used whole for all rows.
    2. `.npz` with arrays named `in0.NAME`, `in1.NAME`, …: each number is one case, used whole.
    3. `.npy`, for a model with one input.

    Arrays without an input in the model are ignored.

    Raises GrowError: G323 if the file cannot be read; G403 if it lacks an input, or holds the wrong type or
    rank.
    """
    return cases_in(path, read_signature(model))


def cases_in(
    path: Path, inputs: Sequence[Input], samples: int | None = None, *, open_masks: bool = False
) -> list[Feeds]:
    """As `read_inputs`, for a known signature. Only the first `samples` rows or cases are used.

    `open_masks`: missing masks are open.
    """
    arrays = _load(Path(path), inputs)
    if open_masks:
        arrays = _open_masks(inputs, arrays) | arrays
    numbers = sorted({int(match[1]) for name in arrays if (match := re.match(r"in(\d+)\.", name))})
    if numbers and not any(port.name in arrays for port in inputs):
        prefixes = [f"in{number}." for number in numbers]
        return [_fitted(inputs, arrays, prefix, Path(path)) for prefix in prefixes[:samples]]
    return _rows(inputs, _fitted(inputs, arrays, "", Path(path)), Path(path), samples)


def _open_masks(inputs: Sequence[Input], arrays: Feeds) -> Feeds:
    """Return open masks as large as other inputs that are declared with the same sizes."""
    masks: Feeds = {}
    for port in (p for p in inputs if p.role is Role.MASK):
        for other in (p for p in inputs if p.dims == port.dims):
            for name in (n for n in arrays if n == other.name or re.fullmatch(rf"in\d+\.{other.name}", n)):
                own = name.removesuffix(other.name) + port.name
                masks[own] = np.ones(arrays[name].shape, port.dtype)
    return masks


def rows_of(case: Feeds) -> int:
    """Return the number of samples in a case."""
    return max((array.shape[0] for array in case.values() if array.ndim), default=1)


def _unreadable(message: str, *notes: str) -> GrowError:
    return GrowError(Diagnostic("G403", message, notes=notes))


def _load(path: Path, inputs: Sequence[Input]) -> Feeds:
    loaded = read_arrays(path)
    if isinstance(loaded, np.ndarray):
        if len(inputs) != 1:
            raise _unreadable(
                f"`{path.name}` is one array, and the model has {len(inputs)} inputs",
                "inputs: " + ", ".join(port.name for port in inputs),
            )
        return {inputs[0].name: loaded}
    return loaded


MAGIC = (b"PK", b"\x93NUMPY")
"""The first bytes of a .npz and of a .npy file."""


def read_arrays(path: Path) -> Feeds | Array:
    """Return the arrays of a `.npz` file by name, or that of a `.npy` file.

    Raises GrowError: G323 if it cannot be read, G324 if it would unpack to too many bytes.
    """
    # Numpy does not close a file that it has opened and cannot read, so the file is opened here.
    with parsing_foreign_file(path, "a .npz or .npy file", "G323"), path.open("rb") as raw:
        if not raw.read(len(MAGIC[-1])).startswith(MAGIC):
            raise ValueError("it starts as neither does")  # numpy would take it for a pickle, and advise that
        raw.seek(0)
        loaded = np.load(raw, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            assert loaded.zip is not None
            packed = (one.file_size for one in loaded.zip.infolist() if one.compress_type)
            require("unpacked_bytes", f"what is compressed in `{path}` has", sum(packed))
            return {name: np.asarray(loaded[name]) for name in loaded.files}


def named_arrays(path: Path) -> Feeds:
    """Return the arrays of a `.npz` file by name. Raises GrowError (G323)."""
    with parsing_foreign_file(path, "a .npz file", "G323"):
        return dict(read_arrays(path))


def _fitted(inputs: Sequence[Input], arrays: Feeds, prefix: str, path: Path) -> Feeds:
    """Return the arrays of one case, in the model's types."""
    feeds = {}
    for port in inputs:
        array = arrays.get(prefix + port.name)
        if array is None:
            near = difflib.get_close_matches(prefix + port.name, arrays, 1)
            has = f"did you mean `{near[0]}`?" if near else "it has " + ", ".join(sorted(arrays))
            raise _unreadable(f"`{path.name}` lacks the input `{prefix}{port.name}`", has)
        named = f"`{prefix}{port.name}` in `{path.name}`"
        if len(array.shape) != len(port.dims):
            raise _unreadable(f"{named} has {array.ndim} axes instead of {len(port.dims)}")
        if port.dtype.kind == "f" and array.dtype.kind == "V" and array.dtype.itemsize == 2:
            raise _unreadable(f"{named} holds raw 16-bit words; store float32")
        counted = port.real and array.dtype.kind in "biu"
        if not counted and not np.can_cast(array.dtype, port.dtype, "same_kind"):
            raise _unreadable(f"{named} holds {array.dtype}, the model takes {port.dtype}")
        feeds[port.name] = array.astype(port.dtype)
    return feeds


def _rows(inputs: Sequence[Input], feeds: Feeds, path: Path, samples: int | None) -> list[Feeds]:
    """Return one case for every ROWS rows of the first axis."""
    counts = [feeds[port.name].shape[0] for port in inputs if port.dims]
    count = max(counts, default=1)
    batches = {port.dims[0] for port in inputs if port.dims and feeds[port.name].shape[0] == count}
    fixed = [dim for dim in batches if isinstance(dim, int) and dim > 0]
    if any(other not in (1, count) for other in counts):
        return [feeds]  # arrays with different first axes are one case
    step = fixed[0] if fixed else ROWS
    used = count if samples is None else min(count, samples)
    if count == 0 or (fixed and count % step):
        raise _unreadable(f"`{path.name}` has {count} rows, no multiple of the model's batch size {step}")
    return [
        {
            name: array[start : min(start + step, used)] if array.ndim and array.shape[0] == count else array
            for name, array in feeds.items()
        }
        for start in range(0, used, step)
    ]
