"""growc: a declarative graph-rewriting compiler for model surgery.

growc.api has all that a program calls. `plan` and `verify` are to be had there only: here these are modules.

>>> import growc
>>> done = growc.apply("widen ffn to 2 * ffn with uniform copy", "gpt2.onnx")  # doctest: +SKIP
>>> done.plan.certificate.exact  # doctest: +SKIP
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from growc.api import Applied as Applied
    from growc.api import apply as apply
    from growc.api import inspect as inspect
    from growc.diagnostic import GrowError as GrowError

__version__ = "0.1.0"
__all__ = ["Applied", "GrowError", "__version__", "apply", "inspect"]

_HOMES = {
    "Applied": "growc.api",
    "GrowError": "growc.diagnostic",
    "apply": "growc.api",
    "inspect": "growc.api",
}


def __getattr__(name: str) -> Any:
    """Public names are looked up when they are used, so that `import growc` is instant."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'growc' has no attribute {name!r}")
