"""Records of a compilation that tell which of their fields are read."""

from __future__ import annotations

import sys
from typing import Any


def watched(record: Any, read: set[str]) -> Any:
    """The same record; which of its fields are read is told."""

    class Watched(type(record)):
        def __getattribute__(self, name: str) -> Any:
            copied = sys._getframe(1).f_globals["__name__"] == "dataclasses"  # by `replace`
            read.update(set() if copied else {name} & vars(record).keys())
            return super().__getattribute__(name)

    copy = object.__new__(Watched)
    copy.__dict__.update(vars(record))
    return copy
