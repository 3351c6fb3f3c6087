"""Imports that wait until something of the module is read."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType


class _Postponed(ModuleType):
    """Stands for a module; the first attribute that is read of it imports the module."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def postponed(*names: str) -> Iterator[None]:
    """Modules that are imported meanwhile import those of these names only once they read something of them.

    Nothing is postponed that has been imported, or while other threads could import it.
    """
    alone = threading.active_count() == 1
    own = {name: _Postponed(name) for name in names if alone and name not in sys.modules}
    sys.modules.update(own)
    try:
        yield
    finally:
        for name, module in own.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
