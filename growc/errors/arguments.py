"""Report calls with wrong arguments in the words of the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from growc.errors.diagnostic import nearest, wrong

P = ParamSpec("P")
Made = TypeVar("Made")


def checked_arguments(function: Callable[P, Made]) -> Callable[P, Made]:
    """The function with checked arguments.

    GrowError (G200) is raised if it is called with unknown names or without required arguments.
    """

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> Made:
        signature = inspect.signature(called)
        try:
            signature.bind(*given, **named)
        except TypeError as error:
            argument_names = [p.name for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
            unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            near = nearest(unknown[1], argument_names) if unknown else None
            remedy = f"did you mean `{near}`?" if near else f"its arguments are {', '.join(argument_names)}"
            raise wrong(f"`{function.__name__}` is called wrongly: {error}", remedy) from error
        return function(*given, **named)

    return called


def joined(first: Callable[..., object], *others: Callable[..., object]) -> inspect.Signature:
    """The signature of a function that combines several: the first one's arguments, and further options of
    the others.
    """
    signature = inspect.signature(first)
    parameters = dict(signature.parameters)
    for other in others:
        for name, parameter in inspect.signature(other).parameters.items():
            if parameter.default is not parameter.empty:
                parameters.setdefault(name, parameter.replace(kind=parameter.KEYWORD_ONLY))
    return signature.replace(parameters=sorted(parameters.values(), key=lambda one: one.kind))
