"""Tracing of a module by torch.export, with as many dynamic sizes as torch allows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from functools import partial
from io import StringIO
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import (
    BUILTIN_TYPES,
    SUPPORTED_NODES,
    tree_flatten,
    tree_leaves,
    tree_map_only,
)

from growc.dialects.torch.capture.clean import clean
from growc.dialects.torch.capture.data_dependence import asks_data, asserted, untraceable
from growc.dialects.torch.capture.fake_module import SMALL, Fakes
from growc.dialects.torch.capture.forward_state import StatefulError, of_every_call
from growc.dialects.torch.capture.functionalize import NoOperatorError, written_tensors
from growc.dialects.torch.capture.routed_loops import (
    SOME,
    Chosen,
    NotIdleError,
    drop_loop_marks,
    every,
    over,
    require_idle,
    unrolls,
)
from growc.errors.diagnostic import Attempt, GrowError

__all__ = ["NamedAxes", "by_name", "free_axes", "named_symbols", "trace"]

NamedAxes = Mapping[str, Mapping[int, str]]
"""For each input, the names of its axes of any size, such as batch and sequence."""
FINAL = (NoOperatorError, NotIdleError, StatefulError)
"""Errors found in a traced program. Another way of tracing does not avoid them."""


def by_name(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs by name, in the order in which a program takes them."""
    return inspect.signature(module.forward).bind_partial(*args).arguments | dict(kwargs)


def free_axes(inputs: Mapping[str, Any]) -> NamedAxes:
    """Return the axes that have any size, with their names.

    The first axis holds the rows, also for tensors in lists and mappings. The second axis of token ids, of
    masks and of vectors is the sequence.
    """
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor) and value.ndim}
    several = [name for name, value in inputs.items() if not isinstance(value, Tensor) and tree_leaves(value)]
    free: dict[str, dict[int, str]] = {name: {0: "batch"} for name in (*tensors, *several)}
    lengths: dict[str, str] = {}
    for name, value in tensors.items():
        if value.ndim == 3 or (value.ndim > 1 and not value.is_floating_point()):
            usual = "sequence" if not lengths else f"sequence_of_{name}"
            free[name][1] = lengths.setdefault(str(value.shape[1]), usual)
    return free


def trace(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    axes: NamedAxes,
    fakes: Fakes | None = None,
    deciding: bool = False,
) -> tuple[ExportedProgram, frozenset[str]]:
    """Return the cleaned program and the names of the arguments whose values it is specialised to.

    The module is traced by torch.export. If a forward on fake tensors decides by values, it gets the values
    of small buffers, but of none that it writes to. With `deciding` it also gets the values of
    arguments of few whole numbers, such as sizes of pictures; as few arguments as it works with get them. If
    torch.export still fails, it gets the module as torch.fx traces it. torch.export refuses a forward that
    keeps tensors in attributes, whereas torch.fx sees tensors alone and leaves such writes out. Raises
    GrowError (G317) with torch's first reason if every way fails.
    """
    with Attempt() as attempt, _naming(module, kwargs):
        return _freest(module, args, kwargs, axes), frozenset()
    assert attempt.error is not None
    if fakes is not None and asks_data(attempt.error):
        specialise = partial(_told, module, args, kwargs, axes, fakes)
        inputs = by_name(module, args, kwargs) if deciding else {}
        names = [name for name, one in inputs.items() if fakes.tells(one)]
        for chosen in ([], names) if names else ([],):
            if (program := specialise(chosen)) is not None:
                return _fewest(program, chosen, specialise)
    if not isinstance(attempt.error, FINAL):
        with suppress(Exception):  # the first reason is the one that helps
            return _freest(fx.symbolic_trace(module), args, kwargs, axes), frozenset()
    raise GrowError(untraceable(module, attempt.error)) from attempt.error


def _told(
    module: nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    axes: NamedAxes,
    fakes: Fakes,
    names: Sequence[str],
) -> ExportedProgram | None:
    """Return the program specialised to the values of small buffers and of the named arguments, or None.

    Buffers that it writes to have no values: those of the next run are others.
    """
    inputs = by_name(module, args, kwargs)
    free = {name: input_axes for name, input_axes in axes.items() if name not in names}

    def program(changing: Collection[Tensor]) -> ExportedProgram | None:
        with Attempt(), _naming(module, kwargs), fakes.valued([inputs[name] for name in names], changing):
            return _freest(module, args, kwargs, free)
        return None

    first = program(())
    if first is None:
        return None
    changed = {node.name for node in written_tensors(first.graph)}
    specs = [spec for spec in first.graph_signature.input_specs if spec.arg.name in changed]
    buffers = [module.get_buffer(str(spec.target)) for spec in specs if spec.kind is InputKind.BUFFER]
    return program(buffers) if any(buffer.numel() <= SMALL for buffer in buffers) else first


def _fewest(
    program: ExportedProgram, names: Sequence[str], told: Callable[[Sequence[str]], ExportedProgram | None]
) -> tuple[ExportedProgram, frozenset[str]]:
    """Return the program specialised to the values of as few arguments as possible, with their names."""
    needed = list(names)
    for name in names:
        fewer = [one for one in needed if one != name]
        if fewer and (narrower := told(fewer)) is not None:
            program, needed = narrower, fewer
    return program, frozenset(needed)


@contextmanager
def _naming(module: nn.Module, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Give the module a forward that names all these arguments.

    torch.export loses the sizes of arguments that a forward takes as `**kwargs`.
    """
    forward = module.forward
    signature = inspect.signature(forward)
    kinds = {name: one for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD}
    if not set(kwargs) - set(kinds):
        yield
        return
    kinds |= {n: inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in kwargs if n not in kinds}

    def all_named(*positional: Any, **keywords: Any) -> Any:
        return forward(*positional, **keywords)

    all_named.__signature__ = signature.replace(parameters=list(kinds.values()))  # type: ignore[attr-defined]
    had_own_forward = "forward" in vars(module)
    module.forward = all_named
    try:
        yield
    finally:
        if had_own_forward:
            module.forward = forward
        else:
            del module.forward


def _freest(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], axes: NamedAxes
) -> ExportedProgram:
    """Return the program with as many free axes as torch allows."""
    only_rows = {name: {0: free[0]} for name, free in axes.items() if 0 in free}
    tries = [(args, kwargs, free) for free in (axes, only_rows, {})]
    if _is_one_row(by_name(module, args, kwargs), axes):  # torch treats a size of one as a constant
        tries.insert(0, (*tree_map_only(Tensor, _two_rows, (args, kwargs)), axes))
    reason: Exception | None = None
    for positional, keywords, free in tries:
        with Attempt() as attempt:
            shapes = _dynamic(module, positional, keywords, free)
            program = _program(module, positional, keywords, shapes)
            if unrolls(program):
                for chosen in SOME:
                    require_idle(program, _program(module, positional, keywords, shapes, chosen), chosen)
                drop_loop_marks(program)
            return program
        if isinstance(attempt.error, FINAL):
            raise attempt.error
        reason = reason or attempt.error
    assert reason is not None
    raise reason


def _program(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any, chosen: Chosen = every
) -> ExportedProgram:
    """Return the cleaned program whose data-dependent loops run over the chosen numbers."""
    silenced = redirect_stderr(StringIO())  # torch prints the graph there on failure
    with asserted(), over(chosen), silenced, torch.enable_grad():  # so that regions without gradients show
        call = partial(torch.export.export, module, args, kwargs, dynamic_shapes=shapes, strict=False)
        program = of_every_call(module, call)
    clean(program)
    return program


def _is_one_row(inputs: Mapping[str, Any], axes: NamedAxes) -> bool:
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    return bool(tensors) and all(0 in axes.get(n, {}) and t.shape[0] == 1 for n, t in tensors.items())


def _two_rows(tensor: Tensor) -> Tensor:
    return tensor.new_zeros((2, *tensor.shape[1:]))


def _dynamic(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], axes: NamedAxes) -> Any:
    """Return the axes in the form of torch.export: a structure like that of the arguments."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)

    def of(argument: Any, free: Mapping[int, str]) -> Any:
        if isinstance(argument, Tensor):
            return {axis: Dim.AUTO if axis in free else Dim.STATIC for axis in range(argument.ndim)}
        node = SUPPORTED_NODES.get(type(argument))
        if node is None:
            return None
        parts, context = node.flatten_fn(argument)
        sizes = [of(part, free) for part in parts]
        return node.unflatten_fn(sizes, context) if type(argument) in BUILTIN_TYPES else sizes

    kinds = inspect.signature(module.forward).parameters
    shapes: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if kinds[name].kind is inspect.Parameter.VAR_POSITIONAL:
            shapes[name] = tuple(of(v, axes.get(name, {})) for v in value)
        else:
            shapes[name] = of(value, axes.get(name, {}))
    return shapes


def placeholder_values(program: ExportedProgram) -> dict[str, Any]:
    """Return the fake value of each placeholder of a program, by name."""
    return {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}


def named_symbols(
    program: ExportedProgram, inputs: Iterable[tuple[str, Any]], axes: NamedAxes
) -> dict[str, str]:
    """Return the names of symbols, by their place in the inputs. The inputs are in the program's order.

    An axis whose size differs from that of an earlier axis of the same name gets a separate name.
    """
    names: dict[str, str] = {}
    sizes: dict[str, int | None] = {}
    values = placeholder_values(program)
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    leaves = [name for name, tree in inputs for _ in tree_flatten(tree)[0]]
    for name, spec in zip(leaves, specs, strict=True):
        value = values[spec.arg.name]
        if isinstance(value, Tensor):
            for axis, axis_name in axes.get(name, {}).items() if value.ndim else ():
                size = value.shape[axis]
                if isinstance(size, torch.SymInt) and size.node.expr.is_symbol and str(size) not in names:
                    same_size = sizes.setdefault(axis_name, size.node.hint) == size.node.hint
                    names[str(size)] = axis_name if same_size else f"{axis_name}_of_{name}"
    return names
