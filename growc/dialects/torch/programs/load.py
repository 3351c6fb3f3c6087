"""Loading and saving of `.pt2` files: programs of torch.export with their weights.

torch.export.load trusts its input. If weights_only refuses a pickle, it opens the pickle without. It
evaluates the strings of sizes, and it loads compiled libraries. So a file is checked before torch reads it.
Pickles are opened with weights_only alone, and sizes and guards must be arithmetic. Compiled code and pickled
objects are refused.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.export.pt2_archive import PT2ArchiveReader, constants
from torch.export.pt2_archive._package import load_pt2
from torch.utils._pytree import tree_map_only
from torch.utils._sympy import functions

from growc.dialects.torch.capture.clean import clean
from growc.dialects.torch.capture.export import ExportedModule
from growc.dialects.torch.capture.tracing import (
    NamedAxes,
    by_name,
    free_axes,
    named_symbols,
    placeholder_values,
    trace,
)
from growc.dialects.torch.programs.guards import is_arithmetic
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import irregular
from growc.system.limits import require

__all__ = ["load", "save"]

WEIGHTS_ONLY = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0"}
"""Environment that makes torch.load refuse all other pickles, whatever arguments it gets."""
OBJECTS = (constants.CUSTOM_OBJ_FILENAME_PREFIX, constants.OPAQUE_OBJ_FILENAME_PREFIX)
"""Prefixes of the names of constants that are pickled objects."""

SYMBOL = re.compile(r"[a-z]+\d+")
QUOTED = re.compile(r"'([a-z]+\d+|[\d.e+-]+)'")
"""A symbol or number in quotes: the only string allowed in a size."""
ARITHMETIC = re.compile(r"[\w\s()+\-*/,<>=&|~%]|\.(?![A-Za-z_])")
"""One character that a size may contain, apart from quotes."""
RELATIONS = "Eq Equality GreaterThan LessThan Ne StrictGreaterThan StrictLessThan Unequality"
OTHERS = "Abs Add And Float Integer Max Min Mul Not Or Pow Rational Symbol ceiling floor int_oo oo"
KEYWORDS = "False True false integer negative nonnegative positive precision real true zero"
NAMES = {name for name in functions.__all__ if name[0].isupper()} | {
    *RELATIONS.split(),
    *OTHERS.split(),
    *KEYWORDS.split(),
}
"""Names that a size may contain, besides symbols."""


class _RefusedError(Exception):
    """Content of a file that growc does not open."""


def load(path: Path) -> ExportedModule:
    """Return the program of a `.pt2` file. Its weights are in `program.state_dict`, by name.

    No code in the file is run; torch's own check refuses calls of anything but operators. Raises GrowError
    (G310) if the file holds code, or is no program of torch.export.
    """
    try:
        if kind := irregular(path):
            raise _RefusedError(f"it is {kind}")
        _weigh(path)
        _look_through(PT2ArchiveReader(os.fspath(path)))
        with mock.patch.dict(os.environ, WEIGHTS_ONLY):
            [program] = load_pt2(os.fspath(path)).exported_programs.values()
        if unfit := [guard for guard in program._guards_code if not is_arithmetic(guard)]:
            raise _RefusedError(f"a guard in it is no arithmetic of sizes: `{unfit[0][:60]}`")
        clean(program)
    except GrowError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        message = f"`{path}` cannot be read as a program of torch.export: {reason}"
        raise GrowError(Diagnostic("G310", message)) from error
    return _captured(program)


def _weigh(path: Path) -> None:
    """Refuse compressed entries, which could take more memory than the file. torch writes none."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise _RefusedError(f"`{entry.filename}` in it is compressed, as torch writes none")
            if entry.filename.endswith(".json"):
                require("json_bytes", f"`{entry.filename}` in `{path}` has", entry.file_size)


def _look_through(archive: PT2ArchiveReader) -> None:
    names = archive.get_file_names()
    if any(name.startswith(constants.AOTINDUCTOR_DIR) for name in names):
        raise _RefusedError("it holds compiled code, and growc runs none")
    for name in names:
        if name.startswith(constants.CONSTANTS_DIR) and name.endswith(".json"):
            payloads = json.loads(archive.read_string(name))["config"].values()
            if any(payload["path_name"].startswith(OBJECTS) for payload in payloads):
                raise _RefusedError("it holds pickled objects, and growc opens none")
        if name.startswith(constants.MODELS_DIR):
            for text in _sizes(json.loads(archive.read_string(name))):
                _check_size(text)


def _sizes(value: Any) -> Iterator[str]:
    """Yield the strings of sizes in a program. torch passes them to sympy, which evaluates them."""
    if isinstance(value, Mapping):
        yield from (text for key, text in value.items() if key == "expr_str")
        yield from (text for part in value.values() for text in _sizes(part))
    elif isinstance(value, list):
        yield from (text for part in value for text in _sizes(part))


def _check_size(text: str) -> None:
    unquoted = QUOTED.sub("0", text)
    names = re.findall(r"[A-Za-z_]\w*", unquoted)
    known = all(name in NAMES or SYMBOL.fullmatch(name) for name in names)
    if not known or ARITHMETIC.sub("", unquoted):
        raise _RefusedError(f"a size in it is no arithmetic: `{text[:60]}`")


def _captured(program: ExportedProgram) -> ExportedModule:
    specs = program.graph_signature.input_specs
    values = placeholder_values(program)
    inputs = {s.arg.name: values[s.arg.name] for s in specs if s.kind is InputKind.USER_INPUT}
    stored = program.state_dict
    first: dict[tuple[Any, ...], str] = {}
    names = {name: first.setdefault(_identity(tensor), name) for name, tensor in stored.items()}
    targets = [str(spec.target) for spec in specs]
    file_constants = {target: program.constants[target] for target in targets if target in program.constants}
    symbols = named_symbols(program, inputs.items(), free_axes(inputs))
    return ExportedModule(program, names, file_constants, symbols, _parameters(program))


def _parameters(program: ExportedProgram) -> tuple[str, ...]:
    """Return the names of the positional arguments, or numbered names if they are unknown."""
    signature = program.module_call_graph[0].signature
    order, named = program.call_spec.in_spec.children()
    argument_names = [] if signature is None else signature.forward_arg_names or []
    if len(argument_names) == order.num_children + named.num_children:
        return tuple(argument_names[: order.num_children])
    return tuple(f"argument {k}" for k in range(order.num_children))


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    """Return a key by which tensors of one file are tied: the same part of the same memory."""
    memory = tensor.untyped_storage().data_ptr() or tensor
    return memory, tensor.storage_offset(), tensor.shape, tensor.stride()


def save(
    path: Path,
    module: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    axes: NamedAxes | None = None,
) -> None:
    """Write a module as a program with its weights. Inputs and axes are those of `export`.

    Raises GrowError (G317) if torch.export refuses the module, and OSError if the file cannot be written.
    """
    given_args, given_kwargs = tree_map_only(Tensor, _filled, (tuple(args), dict(kwargs or {})))
    free = free_axes(by_name(module, given_args, given_kwargs)) if axes is None else axes
    with torch.no_grad():
        program, _ = trace(module, given_args, given_kwargs, free)
    with path.open("wb") as file:
        torch.export.save(program, file)


def _filled(tensor: Tensor) -> Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype) if tensor.is_meta else tensor
