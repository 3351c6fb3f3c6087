"""Report calls with wrong arguments in the words of the command line."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from typing import ParamSpec, TypeVar

from growc.errors.diagnostic import nearest, wrong

TYPES: Mapping[str, Callable[[object], bool]] = {
    "None": lambda value: value is None,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, Integral) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, Real) and not isinstance(value, bool),
    "Path": lambda value: isinstance(value, PathLike),
    "Mapping": lambda value: isinstance(value, Mapping),
    "Sequence": lambda value: isinstance(value, Sequence),
    "Callable": callable,
    "Progress": callable,
    "nn.Module": callable,
    "Analysis": lambda value: hasattr(value, "graph"),
    "Model": lambda value: isinstance(value, str | PathLike) or callable(value),
}
"""The types whose values are checked, by the words of annotations. A module can be called."""

P = ParamSpec("P")
Made = TypeVar("Made")


def checked_arguments(function: Callable[P, Made]) -> Callable[P, Made]:
    """The function with checked arguments.

    GrowError (G200) is raised if it is called with unknown names or without required arguments, and if it
    fails where an argument has another type than its annotation says.
    """

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> Made:
        signature = inspect.signature(called)
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError as error:
            argument_names = [p.name for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
            unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            near = nearest(unknown[1], argument_names) if unknown else None
            remedy = f"did you mean `{near}`?" if near else f"its arguments are {', '.join(argument_names)}"
            raise wrong(f"`{function.__name__}` is called wrongly: {error}", remedy) from error
        try:
            return function(*arguments, **named)
        except (TypeError, AttributeError, IndexError) as error:
            from growc.errors.short_repr import shown

            for name, value in bound.arguments.items():
                kinds = str(signature.parameters[name].annotation)
                if not fits(value, kinds):
                    given_type = f"{shown(value)}, of type {type(value).__name__}"
                    message = f"`{name}` of `{function.__name__}` is {given_type}"
                    raise wrong(message, f"it takes {kinds}") from error
            raise

    return called


def fits(value: object, kinds: str) -> bool:
    """Whether a value is of one of the types in an annotation, `str | Path | None`. Unknown types fit all."""
    checks = map(TYPES.get, _words(ast.parse(kinds, mode="eval").body))
    return any(check is None or check(value) for check in checks)


def _words(kinds: ast.expr) -> Iterator[str]:
    """The names of the types in a union, without what stands in brackets behind them."""
    match kinds:
        case ast.BinOp(left=left, right=right):
            yield from (*_words(left), *_words(right))
        case ast.Subscript(value=value):
            yield ast.unparse(value)
        case _:
            yield ast.unparse(kinds)


def joined(first: Callable[..., object], *others: Callable[..., object], **kinds: str) -> inspect.Signature:
    """The signature of a function that combines several: the first one's arguments, and further options of
    the others. kinds: annotations of arguments that may be of more types than in the first one.
    """
    signature = inspect.signature(first)
    parameters = dict(signature.parameters)
    for other in others:
        for name, parameter in inspect.signature(other).parameters.items():
            if parameter.default is not parameter.empty:
                parameters.setdefault(name, parameter.replace(kind=parameter.KEYWORD_ONLY))
    parameters |= {name: parameters[name].replace(annotation=kind) for name, kind in kinds.items()}
    return signature.replace(parameters=sorted(parameters.values(), key=lambda one: one.kind))
