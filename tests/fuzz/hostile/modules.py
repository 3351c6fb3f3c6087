"""One seed of a module: built, grown, and compared in torch itself."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from growc.errors.diagnostic import Attempt
from hostile.cases import BLUNT, Late, Outcome, kind_of, limited, planned
from hostile.judging import AT_ZERO, FINE, FLOOR, ROUNDINGS, SCALES, apart, is_too_large
from hostile.recipes import Seen, recipe
from hostile.torch_models import VOCAB
from hostile.torch_parts import Attention, Built, Feed, build

ATTEMPTS = 6
RECIPES = 3
SECONDS = 40
POLES = frozenset({"reciprocal", "log", "log2", "log10", "log1p", "rsqrt", "atanh", "logit"})
"""Functions that have a pole where they make infinity of finite numbers."""


def judge(seed: int, text: str = "") -> Outcome:
    """Judge the module of a seed, under a recipe of its own or another one."""
    outcome, began = Outcome(seed, family="module"), time.process_time()
    torch.set_num_threads(1)
    try:
        with limited(SECONDS):
            for attempt in range(ATTEMPTS):
                built = build(seed * ATTEMPTS + attempt)
                cases = [built.inputs(seed, scale) for scale in SCALES]
                try:
                    wanted = [_run(built.module, case) for case in cases]
                except (RuntimeError, IndexError):
                    continue
                if not _degenerate(wanted[:2]):
                    outcome.features = built.features
                    _grow(outcome, built, cases, wanted, text)
                    break
    except Late:
        outcome.kind = "timeout"
    outcome.seconds = round(time.process_time() - began, 3)
    return outcome


def _run(module: nn.Module, case: tuple[Any, ...]) -> list[np.ndarray]:
    with torch.no_grad():
        output = module(*case)
    return [
        value.float().numpy() if value.dtype == torch.bfloat16 else value.numpy() for value in _flat(output)
    ]


def _flat(made: Any) -> list[torch.Tensor]:
    if isinstance(made, torch.Tensor):
        return [made]
    values = made.values() if isinstance(made, dict) else made
    return [tensor for value in values for tensor in _flat(value)]


def _degenerate(results: list[list[np.ndarray]]) -> bool:
    for result in results:
        for value in result:
            if value.dtype.kind in "iub":
                continue
            if not np.isfinite(value).all() or np.ptp(value) < 1e-4 * max(1e-3, float(np.abs(value).max())):
                return True
    return False


def _seen(module: Any) -> Seen:
    """Axes that a module should have, by how it was built: to ask the compiler would be one more capture."""
    parts = list(module.modules())
    axes = {
        "hidden": [module.d],
        "ffn": [part.width for part in parts if isinstance(part, Feed)],
        "heads": [part.h for part in parts if isinstance(part, Attention) and part.kv == part.h > 1],
        "kv_heads": [part.kv for part in parts if isinstance(part, Attention) and part.kv < part.h],
        "head_dim": [part.e for part in parts if isinstance(part, Attention)],
        "experts": [3 for part in parts if isinstance(part, Feed) and part.how == "experts"],
        "vocab": [VOCAB] if hasattr(module, "table") else [],
        "positions": [8] if module.places is not None else [],
    }
    weights = {name: list(p.shape) for name, p in module.named_parameters() if p.is_floating_point()}
    present = {name: sizes for name, sizes in axes.items() if sizes}
    return Seen(present, [len(module.layers)], [], weights, module.end == "tied")


def _grow(
    outcome: Outcome, built: Built, cases: list[tuple[Any, ...]], wanted: list[list[np.ndarray]], text: str
) -> None:
    import growc
    from growc.dialects.torch.emit.emit import grown_module
    from growc.dialects.torch.model import TorchModel
    from growc.formats.compiler import outside
    from growc.passes.compilation import Source

    module, example = built.module, cases[1]
    with Attempt() as attempt:  # any exception is a finding
        model = TorchModel.of(module, example)
        parts = Seen({}, [], [], {}) if text else _seen(module)
        for again in range(RECIPES):
            outcome.recipe = text or recipe(outcome.seed * RECIPES + again + 500_000, parts)
            try:
                c = planned(Source(Path("module"), model, outside()), outcome.recipe)
                grown = grown_module(c)  # as it evaluates: a capture in training would take as long again
                break
            except growc.GrowError:
                if again == RECIPES - 1 or text:
                    raise
                model = TorchModel.open(model.captured, model.read)  # the passes change the graph
    if isinstance(attempt.error, growc.GrowError):
        outcome.refuse(attempt.error)
        return
    if attempt.error is not None:
        outcome.blame("traceback", attempt.error)
        return
    outcome.take(c.plan)
    with Attempt() as attempt:  # any exception is a finding
        results = [_run(grown.eval(), case) for case in cases]
    if attempt.error is not None:
        outcome.blame("unloadable", attempt.error)
        return
    found_apart = np.array([_apart(a, b) for a, b in zip(wanted, results, strict=True)])
    allowed = _allowed(module, cases, wanted, found_apart)
    equal = bool((found_apart <= allowed).all())
    worst = int(np.argmax(np.nan_to_num(found_apart / allowed, nan=0.0, posinf=1e300)))
    outcome.apart, outcome.allowed = float(found_apart[worst]), float(allowed[worst])
    sharp = bool((found_apart <= np.minimum(allowed, BLUNT)).all())
    outcome.kind = kind_of(outcome.claim == "exact", equal, sharp)
    differing = [case for case, differs in zip(cases, ~(found_apart <= allowed), strict=True) if differs]
    if outcome.kind == "false exact" and all(_overflows(grown, case) for case in differing):
        outcome.kind = "overflow"
    if outcome.kind == "unclaimed" and _apart_in_double(module, grown, cases):
        outcome.kind = "gap, fine"


class Overflows(TorchDispatchMode):
    """Whether a function makes infinity of finite numbers, and is not at a pole."""

    found = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor | float)]
        computed = any(isinstance(x, torch.Tensor) for x in given)
        fresh = computed and _infinite(output) and not _infinite(given)
        self.found |= fresh and _is_too_large(_name(function), args, output)
        return output


def _is_too_large(name: str, args: Any, made: Any) -> bool:
    """Whether a function makes infinity of finite numbers because the result is too large, not at a pole."""
    place = AT_ZERO.get(name)
    if place is None:
        return name not in POLES
    operand, result = (torch.as_tensor(x).detach().double().numpy() for x in (args[place], made))
    return is_too_large(operand, result)


def _name(function: Any) -> str:
    return str(function.__name__).split(".")[0]


def _infinite(values: Any) -> bool:
    numbers = (torch.as_tensor(x) for x in tree_leaves(values) if isinstance(x, torch.Tensor | float))
    return any(x.is_floating_point() and bool(x.isinf().any()) for x in numbers)


def _overflows(module: nn.Module, case: tuple[Any, ...]) -> bool:
    """Whether a number is too large for its type: the certificate speaks of real numbers there."""
    with Overflows() as watch:
        _run(module, case)
    return watch.found


def _allowed(
    module: nn.Module, cases: list[tuple[Any, ...]], wanted: list[list[np.ndarray]], found: np.ndarray
) -> np.ndarray:
    """How far apart numbers may be: the module's own rounding, looked at closely where they are farther."""
    for shakes in (3, 48):
        allowed = np.maximum(ROUNDINGS * _rounding(module, cases, wanted, shakes), FLOOR)
        if (found <= allowed).all():
            break
    return allowed


def _rounding(
    module: nn.Module, cases: list[tuple[Any, ...]], wanted: list[list[np.ndarray]], shakes: int = 3
) -> np.ndarray:
    """How far a last bit of the weights moves each case."""
    own = np.zeros(len(cases))
    for shake in range(shakes):
        other = _shaken(module, shake)
        own = np.maximum(own, [_apart(a, _run(other, c)) for a, c in zip(wanted, cases, strict=True)])
    return own


def _apart_in_double(module: nn.Module, grown: nn.Module, cases: list[tuple[Any, ...]]) -> bool:
    """Whether double precision tells the two apart: the certificate speaks of real numbers."""
    wide = [tuple(x.double() if x.dtype == torch.float32 else x for x in case) for case in cases]
    with Attempt() as attempt:  # a captured program may ask for single precision
        source, result = (copy.deepcopy(one).double() for one in (module, grown))
        wanted = [_run(source, case) for case in wide]
        distances = np.array([_apart(a, _run(result, c)) for a, c in zip(wanted, wide, strict=True)])
    if attempt.error is not None:
        return False
    return bool((distances > np.maximum(ROUNDINGS * _rounding(source, wide, wanted), FINE)).any())


def _apart(source: list[np.ndarray], result: list[np.ndarray]) -> float:
    """The largest difference of all outputs; of axes that grew, the units that the outside knows.

    States of new layers stand among those of the source's, in their order.
    """
    chosen = combinations(result, len(source))
    return min((_farthest(source, some) for some in chosen), default=float("inf"))


def _farthest(source: list[np.ndarray], result: Sequence[np.ndarray]) -> float:
    worst = 0.0
    for a, b in zip(source, result, strict=True):
        if a.ndim == b.ndim and a.shape != b.shape:
            b = b[tuple(slice(size) for size in a.shape)]
        worst = max(worst, apart(a, b))
    return worst


def _shaken(module: nn.Module, seed: int) -> nn.Module:
    """The module with every weight moved by half a unit in its last place."""
    other = copy.deepcopy(module)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            if weight.is_floating_point():
                sign = torch.randint(0, 2, weight.shape, generator=draw) * 2.0 - 1
                step = torch.finfo(weight.dtype).eps / 2 * 1.01
                weight.copy_((weight.double() * (1 + sign.double() * step)).to(weight.dtype))
    return other
