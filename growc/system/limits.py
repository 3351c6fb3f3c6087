"""Limits on input from untrusted files. Each has a name; a user who trusts a file can raise it.

Work and memory are linear in the counted quantities. So a small file that expands to much, or a large useless
one, is refused in seconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from growc.errors.diagnostic import Diagnostic, GrowError, nearest, wrong
from growc.errors.source import Span


@dataclass(frozen=True)
class Limit:
    """A limit: the description of what it counts, and its default."""

    counts: str
    default: int


LIMITS: Mapping[str, Limit] = {
    "recipe_bytes": Limit("bytes of a recipe, or of one that it includes", 1_000_000),
    "statements": Limit("statements of a recipe and all that it includes, as often as it does", 10_000),
    "layers": Limit("layers of a result", 2_000),
    "nodes": Limit("nodes of a graph, with its functions written out", 30_000),
    "calls": Limit("calls of functions that a model defines", 5_000),
    "tensors": Limit("tensors of a checkpoint", 100_000),
    "json_bytes": Limit("bytes of a `config.json`, an index or a header", 32 << 20),
    "constant_bytes": Limit("bytes of buffers that a class computes from its config", 512 << 20),
    "unpacked_bytes": Limit("bytes that the arrays of a `.npz` unpack to", 1 << 30),
}
"""All limits by name."""

_RAISED: ContextVar[Mapping[str, int] | None] = ContextVar("raised limits", default=None)


def most(name: str) -> int:
    """The current value of a limit."""
    return (_RAISED.get() or {}).get(name, LIMITS[name].default)


@contextlib.contextmanager
def limits(**allowed: int) -> Iterator[None]:
    """Set limits for a while, by name: `with growc.limits(layers=5000): growc.apply(…)`.

    docs/reliability.md lists them. Raises GrowError (G200) for a name that is none, and no positive integer.
    """
    for name, value in allowed.items():
        if name not in LIMITS:
            near = nearest(name, LIMITS)
            remedy = f"did you mean `{near}`?" if near else f"there are {', '.join(LIMITS)}"
            raise wrong(f"there is no limit `{name}`", remedy)
        if not isinstance(value, int) or value < 1:
            raise wrong(f"the limit `{name}` is a positive integer, not `{value}`")
    token = _RAISED.set({**(_RAISED.get() or {}), **allowed})
    try:
        yield
    finally:
        _RAISED.reset(token)


def beyond(
    name: str, subject: str, count: int, span: Span | None = None, code: str = "G324"
) -> Diagnostic | None:
    """A diagnostic if a count exceeds its limit; otherwise None.

    subject: the start of the sentence, with the thing that has the count (`the model has`).
    """
    if count <= (bound := most(name)):
        return None
    message = f"{subject} more than {bound:,} {LIMITS[name].counts.split()[0]}"
    remedy = f"`--limit {name}=N` lets more through; in Python, `with growc.limits({name}=N)`"
    return Diagnostic(code, message, span, help=remedy)


def require(name: str, subject: str, count: int, span: Span | None = None, code: str = "G324") -> None:
    """Raise GrowError (G324) if a count exceeds its limit (see `beyond`)."""
    if problem := beyond(name, subject, count, span, code):
        raise GrowError(problem)
