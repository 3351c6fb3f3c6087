"""Short reprs: an object is shown as one line in a notebook or debugger, whatever it holds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np

TEXT, FIELDS = 60, 12
"""The most characters of a field, and the most fields."""


def brief(thing: object) -> str:
    """A repr `Name(field=value, …)`. Numbers and short texts are shown; all else by type and size."""
    names = [f.name for f in fields(thing)] if is_dataclass(thing) else []
    parts = [f"{name}={shown(getattr(thing, name, None))}" for name in names[:FIELDS]]
    more = [f"… {len(names) - FIELDS} more"] if len(names) > FIELDS else []
    return f"{type(thing).__name__}({', '.join([*parts, *more])})"


def shown(value: object) -> str:
    """A value in a line: numbers and short texts as they are, all else by type and size."""
    if value is None or isinstance(value, bool | int | float | str | Path):
        text = repr(value if not isinstance(value, str) else value[: TEXT + 1])
        return text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"
    if isinstance(value, np.ndarray):
        return f"<{value.dtype}{list(value.shape)}>"
    if isinstance(value, Collection):
        return f"<{len(value)} of {type(value).__name__}>"
    return f"<{type(value).__name__}>"
