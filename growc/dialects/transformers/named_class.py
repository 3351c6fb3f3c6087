"""Class of a checkpoint as named by the caller, in place of the one in config.json."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING

from growc.errors.diagnostic import Diagnostic, GrowError, wrong
from growc.errors.regular_files import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_named: ContextVar[type[PreTrainedModel] | None] = ContextVar("named", default=None)

_of_results: ContextVar[bool] = ContextVar("of_results", default=False)
"""Whether the named class applies to results only."""

FORM = "it is a class's module and name, as in `package.module:Class`"


@contextlib.contextmanager
def class_named(name: str | type[PreTrainedModel] | None) -> Iterator[None]:
    """Use a named class for checkpoints inside the context. None uses the class in config.json.

    name: the class, or `MODULE:NAME`, which is imported from Python's search path or the current folder.
        Raises GrowError (G200) if that is not a class of transformers with a config of its own.
    """
    token = _named.set(_named.get() if name is None else _imported(name))
    results_token = _of_results.set(_of_results.get() if name is None else False)
    try:
        yield
    finally:
        _of_results.reset(results_token)
        _named.reset(token)


def name_results_alone() -> None:
    """Use the class in config.json for sources, until the context of `class_named` ends."""
    _of_results.set(True)


def are_results_alone() -> bool:
    """Whether the named class applies to results only."""
    return _of_results.get()


def names(config: Mapping[str, object]) -> bool:
    """Whether the named class applies to a checkpoint with this config.json."""
    named = _named.get()
    if named is None or not _of_results.get():
        return named is not None
    return config.get("architectures") == [named.__name__]


def named_class() -> type[PreTrainedModel] | None:
    """Return the class that the caller has named, or None."""
    return _named.get()


def _imported(name: str | type[PreTrainedModel]) -> type[PreTrainedModel]:
    from transformers import PreTrainedModel

    imported: object = name
    if isinstance(name, str):
        module, colon, class_name = name.partition(":")
        if not (module and colon and class_name.isidentifier()):
            raise wrong(f"`--class {name}` names no class", FORM)
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            imported = getattr(importlib.import_module(module), class_name, None)
        except Exception as error:
            notes = (f"{type(error).__name__}: {first_line(error)}",)
            raise GrowError(
                Diagnostic("G200", f"`{module}` cannot be imported", notes=notes, help=FORM)
            ) from error
        if imported is None:
            raise wrong(f"`{module}` has no `{class_name}`", FORM)
    if not (isinstance(imported, type) and issubclass(imported, PreTrainedModel)):
        remedy = "it is a subclass of transformers.PreTrainedModel; `growc.apply` takes any module"
        raise wrong(f"`{name}` is no class of a checkpoint", remedy)
    if imported.config_class is None:
        raise wrong(f"`{name}` has no `config_class`", "growc reads config.json by it, and fits its fields")
    return imported
