"""Writing a model to a file, inline or with external data, with one block of a weight in memory at a time.

Needs: an onnx-ir model, whose tensors may be computed on demand. Gives: the files, checked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
import onnx_ir as ir
import xxhash

from growc.dialects.onnx.files.checker import check_model
from growc.dialects.onnx.files.load import write_inline
from growc.dialects.onnx.files.references import INLINE_LIMIT
from growc.dialects.onnx.files.repeats import repeats
from growc.dialects.onnx.planned_tensor import beside_blocks, rows_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import first_line, own_cause, root_cause
from growc.plans.background_writes import BackgroundWrites, ToDisk
from growc.plans.lazy_rows import Rows, content, end_to_end, stored

EXTERNAL_ABOVE = 2_000_000_000
"""Bytes of weights above which external data is used, whatever the source did: a protobuf ends at 2 GiB."""

ALIGNMENT = 4096


def save(
    model: ir.Model, folder: Path, name: str, external: bool, progress: Callable[[str, int], None]
) -> list[Path]:
    """Write `name` into `folder`; external data go to `STEM-<12 hex of its XXH3>.data` beside it.

    Returns the files in the order in which they are to appear; the `.onnx` is the last. `progress(name,
    bytes)` is called after each block of a tensor, with its size in bytes. Raises GrowError (G310) if no
    protobuf can hold the model.
    """
    path = folder / name
    tensors: dict[str, Any] = {k: v.const_value for k, v in model.graph.initializers.items()}
    large = {key: tensor for key, tensor in tensors.items() if _is_large(tensor)}
    data = folder / f"{path.stem}.data"
    if external:
        places, data = _write_data(large, data, progress)
    else:
        places = dict.fromkeys(large, (0, 0))
    for key, (offset, length) in places.items():
        value, tensor = model.graph.initializers[key], large[key]
        shape = ir.Shape([int(d) for d in tensor.shape])
        value.const_value = ir.ExternalTensor(
            data.name, offset, length, tensor.dtype, shape=shape, name=key, base_dir=folder
        )
    proto = _written(model)
    for key in places:
        model.graph.initializers[key].const_value = large[key]
    with path.open("wb") as file:
        if external:
            file.write(proto.SerializeToString(deterministic=True))
        else:
            write_inline(proto, large, file, progress)
    check_model(path)
    return [data, path] if external else [path]


def _written(model: ir.Model) -> onnx.ModelProto:
    """Return the model as a protobuf.

    Raises GrowError: G310 if a protobuf cannot hold it, as invalid UTF-8, which is read unchanged; G326 if
    new values are not finite.
    """
    try:
        return ir.to_proto(model)
    except ir.serde.SerdeError as error:
        if (own := own_cause(error)) is not None:
            raise own from None
        message = f"the model cannot be written as an ONNX model: {first_line(root_cause(error))}"
        raise GrowError(Diagnostic("G310", message)) from error


def _is_large(tensor: ir.TensorProtocol) -> bool:
    if tensor is None or tensor.dtype == ir.DataType.STRING:
        return False
    return isinstance(tensor, ir.ExternalTensor) or tensor.nbytes >= INLINE_LIMIT


class Digested:
    """A file that is digested and written a few blocks later (growc.plans.background_writes).

    size: the bytes given so far. readable: of these, the bytes that the file has.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.digest, self.size, self.readable = path, xxhash.xxh3_128(), 0, 0
        self.written, self.settled = BackgroundWrites(), ToDisk()

    def __enter__(self) -> Self:
        self.file = self.path.open("wb", buffering=0)
        return self

    def __exit__(self, *error: object) -> None:
        with self.file, self.settled, self.written:
            pass

    def write(self, content: bytes | memoryview) -> None:
        """Write bytes, which must not change any more."""
        view = memoryview(content)
        self.size += view.nbytes
        self.written.ask(partial(self._digest_and_put, view))

    def fill(self, size: int) -> None:
        """Write zeros up to a position, if the file is shorter. The digest leaves them out."""
        if size > self.size:
            self.written.ask(partial(self._put, memoryview(bytes(size - self.size))))
            self.size = size

    def _digest_and_put(self, content: memoryview) -> None:
        self.digest.update(content)
        self._put(content)

    def _put(self, content: memoryview) -> None:
        size = content.nbytes
        while content:
            content = content[self.file.write(content) :]
        self.readable += size
        self.settled.wrote(self.file.fileno(), size)


def _write_data(
    tensors: Mapping[str, Any], draft: Path, progress: Callable[[str, int], None]
) -> tuple[dict[str, tuple[int, int]], Path]:
    """Write tensors one after the other; return the place of each, and the file, named by its digest.

    The digest is of the tensors alone. A tensor with the bytes of an earlier one is read from the file.
    """
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for key, tensor in tensors.items():
        start = end + -end % ALIGNMENT
        end = start + tensor.nbytes
        places[key] = start, tensor.nbytes
    earlier = repeats(tensors)

    def rows(key: str) -> Rows:
        tensor = tensors[key]
        start, length = places[earlier[key]] if key in earlier else (0, 0)
        if length and start + length <= file.readable:
            with contextlib.suppress(OSError):  # not every file system maps files
                return stored(np.memmap(draft, tensor.dtype.numpy(), "r", start, tuple(tensor.shape.numpy())))
        return rows_of(tensor)

    parts = ((key, beside_blocks(tensor), partial(rows, key)) for key, tensor in tensors.items())
    with Digested(draft) as file:
        for key, block in end_to_end(parts):
            file.fill(places[key][0])
            file.write(content(block))
            progress(key, block.nbytes)
        file.fill(end)
        if file.size != end:
            raise AssertionError(f"{file.size} bytes are written, not {end}")
    final = draft.with_name(f"{draft.stem}-{file.digest.hexdigest()[:12]}.data")
    draft.rename(final)
    return places, final
