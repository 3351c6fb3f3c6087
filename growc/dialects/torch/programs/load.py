"""`.pt2` files: programs of torch.export, with their weights.

torch.export.load trusts what it reads: where weights_only refuses a pickle it opens it without, it
evaluates the strings that stand for sizes, and it loads compiled libraries. So a file is looked through
before torch takes it apart: pickles are opened with weights_only alone, sizes and guards are arithmetic, and
compiled code and pickled objects are refused.
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
from growc.dialects.torch.capture.export import Captured
from growc.dialects.torch.capture.tracing import (
    Axes,
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
"""What makes torch.load refuse all other pickles, whatever its caller says."""
OBJECTS = (constants.CUSTOM_OBJ_FILENAME_PREFIX, constants.OPAQUE_OBJ_FILENAME_PREFIX)
"""How the names of constants begin that are pickled objects."""

SYMBOL = re.compile(r"[a-z]+\d+")
QUOTED = re.compile(r"'([a-z]+\d+|[\d.e+-]+)'")
"""A symbol or a number in quotes: the only text in a size."""
ARITHMETIC = re.compile(r"[\w\s()+\-*/,<>=&|~%]|\.(?![A-Za-z_])")
"""One character of a size, but for quotes."""
RELATIONS = "Eq Equality GreaterThan LessThan Ne StrictGreaterThan StrictLessThan Unequality"
OTHERS = "Abs Add And Float Integer Max Min Mul Not Or Pow Rational Symbol ceiling floor int_oo oo"
KEYWORDS = "False True false integer negative nonnegative positive precision real true zero"
NAMES = {name for name in functions.__all__ if name[0].isupper()} | {
    *RELATIONS.split(),
    *OTHERS.split(),
    *KEYWORDS.split(),
}
"""What a size may be made of, besides symbols."""


class _RefusedError(Exception):
    """What a file holds, and growc does not open."""


def load(path: Path) -> Captured:
    """The program of a `.pt2` file; its weights are in `program.state_dict`, by name.

    No code in the file is run; torch's own check refuses calls of anything but operators. Raises GrowError
    (G310) where there is some, or the file is no program of torch.export.
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
    """Refuse what takes more memory than its file is large: torch compresses nothing."""
    with zipfile.ZipFile(path) as archive:
        for one in archive.infolist():
            if one.compress_type != zipfile.ZIP_STORED or one.file_size != one.compress_size:
                raise _RefusedError(f"`{one.filename}` in it is compressed, as torch writes none")
            if one.filename.endswith(".json"):
                require("json_bytes", f"`{one.filename}` in `{path}` has", one.file_size)


def _look_through(archive: PT2ArchiveReader) -> None:
    names = archive.get_file_names()
    if any(name.startswith(constants.AOTINDUCTOR_DIR) for name in names):
        raise _RefusedError("it holds compiled code, and growc runs none")
    for name in names:
        if name.startswith(constants.CONSTANTS_DIR) and name.endswith(".json"):
            held = json.loads(archive.read_string(name))["config"].values()
            if any(payload["path_name"].startswith(OBJECTS) for payload in held):
                raise _RefusedError("it holds pickled objects, and growc opens none")
        if name.startswith(constants.MODELS_DIR):
            for text in _sizes(json.loads(archive.read_string(name))):
                _check_size(text)


def _sizes(value: Any) -> Iterator[str]:
    """The texts of sizes in a program: torch gives them to sympy, which evaluates them."""
    if isinstance(value, Mapping):
        yield from (text for key, text in value.items() if key == "expr_str")
        yield from (text for held in value.values() for text in _sizes(held))
    elif isinstance(value, list):
        yield from (text for held in value for text in _sizes(held))


def _check_size(text: str) -> None:
    unquoted = QUOTED.sub("0", text)
    names = re.findall(r"[A-Za-z_]\w*", unquoted)
    known = all(name in NAMES or SYMBOL.fullmatch(name) for name in names)
    if not known or ARITHMETIC.sub("", unquoted):
        raise _RefusedError(f"a size in it is no arithmetic: `{text[:60]}`")


def _captured(program: ExportedProgram) -> Captured:
    specs = program.graph_signature.input_specs
    values = placeholder_values(program)
    inputs = {s.arg.name: values[s.arg.name] for s in specs if s.kind is InputKind.USER_INPUT}
    stored = program.state_dict
    first: dict[tuple[Any, ...], str] = {}
    names = {name: first.setdefault(_identity(tensor), name) for name, tensor in stored.items()}
    targets = [str(spec.target) for spec in specs]
    made = {target: program.constants[target] for target in targets if target in program.constants}
    symbols = named_symbols(program, inputs.items(), free_axes(inputs))
    return Captured(program, names, made, symbols, _parameters(program))


def _parameters(program: ExportedProgram) -> tuple[str, ...]:
    """The names of the arguments that are given in order; where none is known, those of their tensors."""
    signature = program.module_call_graph[0].signature
    order, named = program.call_spec.in_spec.children()
    known = [] if signature is None else signature.forward_arg_names or []
    if len(known) == order.num_children + named.num_children:
        return tuple(known[: order.num_children])
    return tuple(f"argument {k}" for k in range(order.num_children))


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    """Tensors of one file are tied where they are the same part of the same memory."""
    memory = tensor.untyped_storage().data_ptr() or tensor
    return memory, tensor.storage_offset(), tensor.shape, tensor.stride()


def save(
    path: Path,
    module: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    axes: Axes | None = None,
) -> None:
    """Write a module as a program with its weights; inputs and axes are those of `export`.

    Raises GrowError (G317) where torch.export refuses it; OSError where it cannot be written.
    """
    given_args, given_kwargs = tree_map_only(Tensor, _filled, (tuple(args), dict(kwargs or {})))
    free = free_axes(by_name(module, given_args, given_kwargs)) if axes is None else axes
    with torch.no_grad():
        program, _ = trace(module, given_args, given_kwargs, free)
    with path.open("wb") as file:
        torch.export.save(program, file)


def _filled(tensor: Tensor) -> Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype) if tensor.is_meta else tensor
