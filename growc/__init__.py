"""growc: a declarative graph-rewriting compiler for model surgery.

>>> import growc
>>> plan = growc.plan("widen ffn to 2 * ffn with uniform copy", "gpt2.onnx")  # doctest: +SKIP
>>> plan.certificate.exact  # doctest: +SKIP
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from growc.version import __version__

if TYPE_CHECKING:
    from growc.api import Applied as Applied
    from growc.api import apply as apply
    from growc.api import inspect as inspect
    from growc.api import plan as plan
    from growc.api import verify as verify
    from growc.checkpoint.statefile import save as save
    from growc.diagnostic import GrowError as GrowError
    from growc.fluent import Recipe as Recipe
    from growc.measuring import measure as measure
    from growc.training import param_groups as param_groups

__all__ = [
    "Applied",
    "GrowError",
    "Recipe",
    "__version__",
    "apply",
    "inspect",
    "measure",
    "param_groups",
    "plan",
    "save",
    "verify",
]

_HOMES = {
    "Applied": "growc.api",
    "GrowError": "growc.diagnostic",
    "Recipe": "growc.fluent",
    "apply": "growc.api",
    "inspect": "growc.api",
    "measure": "growc.measuring",
    "param_groups": "growc.training",
    "plan": "growc.api",
    "save": "growc.checkpoint.statefile",
    "verify": "growc.api",
}


def __getattr__(name: str) -> Any:
    """Public names are looked up when they are used, so that `import growc` is instant."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    from difflib import get_close_matches

    near = get_close_matches(name, __all__, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise AttributeError(f"module 'growc' has no attribute {name!r}{meant}")


def __dir__() -> list[str]:
    """All public names, looked up or not."""
    return sorted(__all__)
