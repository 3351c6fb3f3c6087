"""growc: a declarative graph-rewriting compiler for model surgery.

>>> import growc
>>> plan = growc.plan("widen ffn to 2 * ffn with uniform copy", "gpt2.onnx")  # doctest: +SKIP
>>> plan.certificate.exact  # doctest: +SKIP
True

Ten floors; imports run downwards only (tests/soundness/test_floors.py).

10 what a user calls: api, applied, budgets, file_roles, history, source_changes, cli, editor, render, reports
 9 formats and files: formats, checkpoint, modules, training, files
 8 verification: verification, measurement
 7 dialects: dialects
 6 passes: passes
 5 plan: plans
 4 ir: ir
 3 language: resolve, grammar, recipe
 2 algebra: algebra
 1 errors and the system: errors, system, version
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from growc.errors.display import rendered_in
from growc.version import __version__

if TYPE_CHECKING:
    from growc.api import apply as apply
    from growc.api import inspect as inspect
    from growc.api import plan as plan
    from growc.api import report as report
    from growc.api import verify as verify
    from growc.applied import Applied as Applied
    from growc.checkpoint.files.state_dict import save as save
    from growc.errors.diagnostic import GrowError as GrowError
    from growc.formats.nested import prefix as prefix
    from growc.history import replay as replay
    from growc.render.starter import init as init
    from growc.reports.difference import diff as diff
    from growc.reports.flops import Flops as Flops
    from growc.reports.flops import flops as flops
    from growc.reports.measure import measure as measure
    from growc.reports.shipped_recipes import recipes as recipes
    from growc.resolve.builder import Recipe as Recipe
    from growc.system.limits import limits as limits
    from growc.training.param_groups import param_groups as param_groups

_HERE = Path(__file__).parent
if not (_HERE / "passes").is_dir():  # in the source tree, grammar/, passes/ and examples/ stand beside growc/
    __path__.append(str(_HERE.parent))

rendered_in[:] = ["growc.render.result_lines"]

__all__ = [
    "Applied",
    "Flops",
    "GrowError",
    "Recipe",
    "__version__",
    "apply",
    "diff",
    "flops",
    "init",
    "inspect",
    "limits",
    "measure",
    "param_groups",
    "plan",
    "prefix",
    "recipes",
    "replay",
    "report",
    "save",
    "verify",
]

_HOMES = {
    "Applied": "growc.applied",
    "Flops": "growc.reports.flops",
    "GrowError": "growc.errors.diagnostic",
    "Recipe": "growc.resolve.builder",
    "apply": "growc.api",
    "diff": "growc.reports.difference",
    "flops": "growc.reports.flops",
    "init": "growc.render.starter",
    "inspect": "growc.api",
    "limits": "growc.system.limits",
    "measure": "growc.reports.measure",
    "param_groups": "growc.training.param_groups",
    "plan": "growc.api",
    "prefix": "growc.formats.nested",
    "recipes": "growc.reports.shipped_recipes",
    "replay": "growc.history",
    "report": "growc.api",
    "save": "growc.checkpoint.files.state_dict",
    "verify": "growc.api",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import growc` is instant."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    from difflib import get_close_matches

    near = get_close_matches(name, __all__, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise AttributeError(f"module 'growc' has no attribute {name!r}{meant}")


def __dir__() -> list[str]:
    """All public names, imported or not."""
    return sorted(__all__)
