"""The recipes of coverage, the models that each is asked of, and the cases that were judged by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]
NOISE = "split random noise 0.1 balanced"

MATHEMATICS, HIDDEN, MISSING = "mathematics", "the graph hides it", "not implemented"
"""The three reasons for a refusal. Only the first two are answers; the third is a defect."""


@dataclass(frozen=True)
class Recipe:
    """One recipe of the benchmark.

    asked: of which models it is asked at all (the others' cells stay empty).
    roles: what a model must have; one that is asked and lacks a role counts as not applicable.
    """

    name: str
    text: str
    roles: tuple[str, ...]
    asked: Callable[[Facts], bool] = lambda facts: True


def _average(facts: Facts) -> bool:
    return facts["norm"] == "layer" and facts["stream"] == "pre" and not facts["embedding_norm"]


RECIPES = (
    Recipe("ffn ×1.5", "widen ffn to 3 * ffn / 2 with uniform copy", ("ffn",)),
    Recipe("ffn ×2", f"widen ffn to 2 * ffn with neighbor copy {NOISE}", ("ffn",)),
    Recipe("heads ×2", "widen heads to 2 * heads with neighbor copy", ("heads",)),
    Recipe(
        "heads ×1.5",
        "widen heads to 3 * heads / 2 with uniform copy",
        ("heads",),
        lambda facts: not facts["whole_norm"],
    ),
    Recipe(
        "kv to heads",
        "widen kv_heads to heads with neighbor copy",
        ("kv_heads",),
        lambda facts: facts["kv_heads"] != facts["heads"],
    ),
    Recipe("hidden ×2", "widen hidden to 2 * hidden with cyclic copy", ("hidden",)),
    Recipe(
        "hidden ×1.5 copies",
        "widen hidden to 3 * hidden / 2 with neighbor copy",
        ("hidden",),
        lambda facts: facts["norm"] == "rms",
    ),
    Recipe("hidden ×1.5 means", "widen hidden to 3 * hidden / 2 with average fill", ("hidden",), _average),
    Recipe(
        "all ×2",
        f"widen hidden to 2 * hidden with cyclic copy {NOISE}\n"
        f"widen heads to 2 * heads with neighbor copy {NOISE}\n"
        f"widen ffn to 2 * ffn with neighbor copy {NOISE}",
        ("hidden", "heads", "ffn"),
    ),
    Recipe(
        "channels ×2",
        "widen channels to 2 * channels with neighbor copy",
        (),
        lambda facts: bool(facts["convolutional"]),
    ),
)


def lacking(recipe: Recipe, facts: Facts) -> str:
    """Why a recipe has nothing to act on in a model, or nothing."""
    missing = [role for role in recipe.roles if not facts[role]]
    if missing:
        return f"no {' and no '.join(missing)}"
    if recipe.name == "heads ×1.5" and any(n % 2 for n in facts["heads"]):
        return "a number of heads is odd"
    return ""


@dataclass(frozen=True)
class Judgement:
    """Why recipes are refused, or leave a gap, on a model: one of the reasons, and what stands behind it."""

    model: str
    recipes: Sequence[str]
    reason: str
    because: str
    flavours: Sequence[str] = ()


MEANS = ("hidden ×1.5 means",)

JUDGEMENTS = (
    Judgement(
        "whisper", MEANS, MATHEMATICS, "the stem's GELU writes the stream, and is not linear in a mean"
    ),
    Judgement(
        "esm", MEANS, MATHEMATICS, "the tied head's transform has the stream's width and ends in a GELU"
    ),
    Judgement(
        "siglip",
        ("hidden ×2", "all ×2", *MEANS),
        MATHEMATICS,
        "the outputs carry the stream at length one: a vector with every unit twice has another length",
    ),
    Judgement(
        "own_mlp_mixer",
        MEANS,
        MATHEMATICS,
        "each channel is mixed over places behind a GELU, which is not linear in a mean",
    ),
)


def judged(model: str, flavour: str, recipe: str) -> Judgement | None:
    """The judgement on a case that is not exact; a case without one is not implemented."""
    base = flavour.removesuffix(".anon")
    known = (j for j in JUDGEMENTS if j.model == model and recipe in j.recipes)
    return next((j for j in known if not j.flavours or base in j.flavours), None)
