"""The class of a checkpoint that a caller names, in place of what config.json says."""

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
"""Whether the named class is that of results alone."""

FORM = "it is a class's module and name, as in `package.module:Class`"


@contextlib.contextmanager
def class_named(name: str | type[PreTrainedModel] | None) -> Iterator[None]:
    """Meanwhile checkpoints are of this class; None: of the one that their config.json names.

    name: the class, or `MODULE:NAME`, which is imported from where Python finds modules, and from the current
    folder. Raises GrowError (G200) where that is no class with a config of its own, as transformers has them.
    """
    token = _named.set(_named.get() if name is None else _imported(name))
    both = _of_results.set(_of_results.get() if name is None else False)
    try:
        yield
    finally:
        _of_results.reset(both)
        _named.reset(token)


def name_results_alone() -> None:
    """From now on until `class_named` ends, sources are of the class that their config.json names."""
    _of_results.set(True)


def are_results_alone() -> bool:
    """Whether that holds."""
    return _of_results.get()


def names(config: Mapping[str, object]) -> bool:
    """Whether the named class is that of a checkpoint with this config.json."""
    own = _named.get()
    if own is None or not _of_results.get():
        return own is not None
    return config.get("architectures") == [own.__name__]


def named_class() -> type[PreTrainedModel] | None:
    """The class that a caller has named."""
    return _named.get()


def _imported(name: str | type[PreTrainedModel]) -> type[PreTrainedModel]:
    from transformers import PreTrainedModel

    found: object = name
    if isinstance(name, str):
        module, colon, own = name.partition(":")
        if not (module and colon and own.isidentifier()):
            raise wrong(f"`--class {name}` names no class", FORM)
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            found = getattr(importlib.import_module(module), own, None)
        except Exception as error:
            notes = (f"{type(error).__name__}: {first_line(error)}",)
            raise GrowError(
                Diagnostic("G200", f"`{module}` cannot be imported", notes=notes, help=FORM)
            ) from error
        if found is None:
            raise wrong(f"`{module}` has no `{own}`", FORM)
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        remedy = "it is a subclass of transformers.PreTrainedModel; growc.grow takes any module"
        raise wrong(f"`{name}` is no class of a checkpoint", remedy)
    if found.config_class is None:
        raise wrong(f"`{name}` has no `config_class`", "growc reads config.json by it, and fits its fields")
    return found
