"""The program of a module: an FX graph of whole ATen operators, by torch.export."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export._tree_utils import reorder_kwargs
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._pytree import tree_flatten, tree_unflatten

from growc.diagnostic import Diagnostic, GrowError
from growc.dialects.torch.cleaning import clean
from growc.dialects.torch.standins import Fakes, standing_in

__all__ = ["Axes", "Captured", "export", "run"]

Axes = Mapping[str, Mapping[int, str]]
"""For each input, what its axes of any size are called: the batch, the sequence."""


@dataclass(frozen=True)
class Captured:
    """What a module computes.

    program: its placeholders say by their targets which parameter or buffer they are. All operators are
        ATen's, and whole.
    names: for each name of a parameter or buffer, the first name of the same tensor. A graph uses one name
        of a tied tensor, whichever it is.
    constants: what no state dict holds, by the targets of its placeholders: buffers that are not stored, and
        tensors that forward makes. None where the module was on meta and only its class knows the value.
    symbols: what the program's symbols are called. Symbols of one name are meant to be equal.
    """

    program: ExportedProgram
    names: Mapping[str, str]
    constants: Mapping[str, Tensor | None]
    symbols: Mapping[str, str]


def export(
    module: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool = False,
    axes: Axes | None = None,
) -> Captured:
    """Capture a module, on meta or with values, which is left as it was.

    args, kwargs: example inputs; only their sizes count. axes: which of their axes have any size; without it
    the rows of all, and the sequence of token numbers and of vectors. Fewer are free where torch finds that
    the module works with one size alone.

    Raises GrowError (G317) with torch's reason for a module that cannot be captured.
    """
    named = _by_name(module, args, kwargs or {})
    free = free_axes(named) if axes is None else axes
    with standing_in(module, train) as fakes, torch.no_grad():
        program = _program(module, fakes.within(tuple(args)), fakes.within(dict(kwargs or {})), free)
    return Captured(
        program, _names(module), _constants(module, program, fakes), _symbols(program, named, free)
    )


def _by_name(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs in the order in which a program takes them."""
    return inspect.signature(module.forward).bind_partial(*args).arguments | dict(kwargs)


def free_axes(inputs: Mapping[str, Any]) -> Axes:
    """The axes that have any size, and what they are called.

    Rows are first. Second stands the sequence of token numbers, of masks, and of vectors.
    """
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor) and value.ndim}
    free: dict[str, dict[int, str]] = {name: {0: "batch"} for name in tensors}
    lengths: dict[int, str] = {}
    for name, value in tensors.items():
        if value.ndim == 3 or (value.ndim > 1 and not value.is_floating_point()):
            usual = "sequence" if not lengths else f"sequence_of_{name}"
            free[name][1] = lengths.setdefault(value.shape[1], usual)
    return free


def _program(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], axes: Axes) -> ExportedProgram:
    """By torch.export; or of what torch.fx traces, which sees tensors alone.

    torch.export refuses a forward that keeps tensors in attributes; torch.fx leaves such things out.
    """
    try:
        return _freest(module, args, kwargs, axes)
    except Exception as refused:  # noqa: BLE001 - whatever the module's code raises while it is traced
        try:
            return _freest(fx.symbolic_trace(module), args, kwargs, axes)
        except Exception:  # noqa: BLE001 - the first reason is the one that helps
            raise GrowError(_untraceable(module, refused)) from refused


def _freest(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], axes: Axes) -> ExportedProgram:
    """The program with as many free axes as torch allows."""
    only_rows = {name: {0: free[0]} for name, free in axes.items() if 0 in free}
    reason: Exception | None = None
    for tried in (axes, only_rows, {}):
        try:
            shapes = _dynamic(module, args, kwargs, tried)
            program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
            clean(program)
        except Exception as error:  # noqa: BLE001 - as above
            reason = reason or error
        else:
            return program
    assert reason is not None
    raise reason


def _untraceable(module: nn.Module, reason: Exception) -> Diagnostic:
    """That a module cannot be traced, with the first line of torch's reason."""
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
    said = f"{type(reason).__name__}: {lines[0] if lines else 'no reason given'}"
    return Diagnostic("G317", f"`{type(module).__name__}` cannot be traced by torch.export", notes=(said,))


def _dynamic(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], axes: Axes) -> Any:
    """The axes as torch.export wants them: a structure like the arguments'."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)

    def of(value: Any, free: Mapping[int, str]) -> Any:
        if isinstance(value, Tensor):
            return {axis: Dim.AUTO if axis in free else Dim.STATIC for axis in range(value.ndim)}
        return None

    kinds = inspect.signature(module.forward).parameters
    shapes: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if kinds[name].kind is inspect.Parameter.VAR_POSITIONAL:
            shapes[name] = tuple(of(v, axes.get(name, {})) for v in value)
        elif kinds[name].kind is inspect.Parameter.VAR_KEYWORD:
            shapes[name] = {key: of(v, axes.get(key, {})) for key, v in value.items()}
        else:
            shapes[name] = of(value, axes.get(name, {}))
    return shapes


def _names(module: nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    tensors = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    return {name: first.setdefault(id(tensor), name) for name, tensor in tensors}


def _constants(module: nn.Module, program: ExportedProgram, fakes: Fakes) -> dict[str, Tensor | None]:
    """The values of what is not stored: the module's own, or what forward made."""
    own = dict(module.named_buffers(remove_duplicate=False))
    stored = module.state_dict(keep_vars=True)
    found: dict[str, Tensor | None] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind not in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR) or spec.target in stored:
            continue
        target = str(spec.target)
        value = own[target] if target in own else program.constants[target]
        found[target] = None if value.is_meta or isinstance(value, torch._subclasses.FakeTensor) else value
    return found


def _symbols(program: ExportedProgram, named: Mapping[str, Any], axes: Axes) -> dict[str, str]:
    """The names of symbols, by where they stand in the inputs."""
    names: dict[str, str] = {}
    values = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    leaves = [name for name, given in named.items() for _ in tree_flatten(given)[0]]
    for name, spec in zip(leaves, specs, strict=True):
        value = values[spec.arg.name]
        if isinstance(value, Tensor):
            for axis, called in axes.get(name, {}).items():
                size = value.shape[axis]
                if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                    names.setdefault(str(size), called)
    return names


def run(
    captured: Captured,
    tensors: Callable[[str], Tensor],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """What the program computes: parameters and stored buffers by name from `tensors`, constants its own.

    It gives what the module's forward would, but for the classes that a module puts around its outputs.
    """
    program = captured.program
    ordered = reorder_kwargs(dict(kwargs or {}), program.call_spec.in_spec)
    given = iter(tree_flatten((tuple(args), ordered))[0])
    feed: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            feed.append(next(given))
        else:
            target = str(spec.target)
            feed.append(
                captured.constants[target]
                if target in captured.constants
                else tensors(captured.names[target])
            )
    made = fx.Interpreter(program.graph_module).run(*feed)
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    kept = [value for value, kind in zip(made, kinds, strict=True) if kind is OutputKind.USER_OUTPUT]
    return tree_unflatten(kept, program.call_spec.out_spec)
