"""Imports that are delayed until an attribute of the module is read."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType


class _Postponed(ModuleType):
    """A stand-in for a module; the first attribute that is read from it imports the module."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def postponed(*names: str) -> Iterator[None]:
    """In this context, imported modules get stand-ins for these modules, which are imported on first use.

    Modules that are already imported are not postponed. Nothing is postponed if other threads could import
    them.
    """
    single_thread = threading.active_count() == 1
    stand_ins = {name: _Postponed(name) for name in names if single_thread and name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
