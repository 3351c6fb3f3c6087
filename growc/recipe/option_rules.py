"""The options of `widen` and `subclone`, one row each in GROWING and SHRINKING.

The language and its messages follow from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from growc.recipe.expression import Expr
from growc.recipe.syntax_tree import Option
from growc.recipe.words import Word

ADDED_UP = ("ffn", "heads", "experts", "channels")
"""Axes whose units' outputs are added up, so that `with zero outputs` has a meaning."""

RESCALED = ("hidden", "ffn", "heads", "channels")
"""Axes that readers contract. Their readers can be rescaled when the axis shrinks."""

CHOSEN = ("experts",)
"""Axes from whose units a router chooses."""

INSIDE_LAYERS = ("hidden", "kv_heads", "heads", "head_dim", "ffn", "experts")
"""Axes that every layer has, so that new units can come from the next layer."""

NoiseKind = Literal["new", "on copies", "balanced"]
RescalingPlace = Literal["readers", "norms", "nowhere"]


@dataclass(frozen=True)
class NoiseOption:
    """`noise S`, `noise S on copies`, `noise S balanced`."""

    scale: float
    kind: NoiseKind


@dataclass(frozen=True)
class StatementOptions:
    """The options of a statement, besides its fill or ranking."""

    split_random: bool = False
    noise: NoiseOption | None = None
    zero_outputs: bool = False
    plain: bool = False
    rescale: RescalingPlace = "nowhere"
    """The weights that take the factor sqrt(d/d') when an axis shrinks from d to d'."""
    next_layer: bool = False
    std: float | None = None
    """The standard deviation of drawn units; None: that of the source tensor."""
    reset: float = 0.0
    """The part of the new units that is drawn, from 0 to 1."""
    block: Expr | None = None
    top: Expr | None = None
    """The new number of chosen units; None: it does not change."""
    seed: Expr | None = None

    @property
    def on_readers(self) -> list[str]:
        """The options that change the shares of readers alone, as a recipe writes them."""
        words = ["split random"] if self.split_random else []
        if self.noise is not None and self.noise.kind != "new":
            words.append(f"noise {self.noise.scale:g} {self.noise.kind}")
        return [*words, "with zero outputs"] if self.zero_outputs else words

    @property
    def on_makers(self) -> list[str]:
        """The options that change what makes new units, as a recipe writes them."""
        new = self.noise is not None and self.noise.kind == "new"
        words = [f"noise {self.noise.scale:g}"] if self.noise is not None and new else []
        return [*words, f"reset {self.reset:g}"] if self.reset else words

    def and_also(self, options: Iterable[Option]) -> StatementOptions:
        """These options, with those of a statement applied in order."""
        result = self
        for option in options:
            result = OPTIONS[option.name].effect(result, option)
        return result


@dataclass(frozen=True)
class OptionRule(Word):
    """One option: its effect, and the statements that it is allowed in.

    - meaning: the hover text of an editor.
    - about: a key; a statement may have one option for each key.
    - effect: sets the option in `StatementOptions`.
    - needs: the units that the fill must make: copies only, copies that share the weights of their readers,
      only copies that do so, or drawn units.
    - unequal: whether it gives copies different shares.
    - silent: whether it gives new copies no share.
    - draws: whether it draws units.
    - axes: the named axes on which it has a meaning; empty: all.
    - in_match: the axes that take it from a `match`, if these differ.
    - value: the name of its argument, which is at least `least` and at most `most`, and the same for every
      model if `fixed`.
    """

    meaning: str
    about: str
    effect: Callable[[StatementOptions, Option], StatementOptions]
    needs: Literal["", "copies", "shares", "sharing copies", "draws"] = ""
    unequal: bool = False
    silent: bool = False
    draws: bool = False
    axes: tuple[str, ...] = ()
    in_match: tuple[str, ...] = ()
    value: str = ""
    least: int = 0
    most: float = inf
    fixed: bool = False


def _noise(kind: NoiseKind) -> Callable[[StatementOptions, Option], StatementOptions]:
    return lambda options, option: replace(
        options, noise=NoiseOption(option.number, kind) if option.number else None
    )


def _rescaled(where: RescalingPlace) -> Callable[[StatementOptions, Option], StatementOptions]:
    return lambda options, option: replace(options, rescale=where)


_GROWING = (
    OptionRule(
        "split equal",
        "the copies of a unit have equal shares in what reads it (the default)",
        "split",
        lambda options, option: options,
        "shares",
    ),
    OptionRule(
        "split random",
        "the shares of a unit's copies are drawn; they sum to one, so that the function is kept",
        "split",
        lambda options, option: replace(options, split_random=True),
        "shares",
        unequal=True,
    ),
    OptionRule(
        "noise S",
        "Gaussian noise, S times the source tensor's std, on the rows and columns of new units; not exact",
        "noise",
        _noise("new"),
        value="a noise",
    ),
    OptionRule(
        "noise S on copies",
        "noise on the reading columns of every unit that has copies, the original included; not exact",
        "noise",
        _noise("on copies"),
        "shares",
        unequal=True,
        value="a noise",
    ),
    OptionRule(
        "noise S balanced",
        "noise on the reading columns of copies that sums to nothing for each unit; exact",
        "noise",
        _noise("balanced"),
        "shares",
        unequal=True,
        value="a noise",
    ),
    OptionRule(
        "std S",
        "drawn weights have the standard deviation S, in the place of the source tensor's",
        "std",
        lambda options, option: replace(options, std=option.number),
        "draws",
        value="a standard deviation",
    ),
    OptionRule(
        "reset P",
        "a part P of the new units is drawn with the source tensor's mean and standard deviation; not exact",
        "reset",
        lambda options, option: replace(options, reset=option.number),
        "sharing copies",
        draws=True,
        value="a part",
        most=1,
    ),
    OptionRule(
        "with zero outputs",
        "the readers of the new units are zero, whatever the fill; exact",
        "zero outputs",
        lambda options, option: replace(options, zero_outputs=True),
        silent=True,
        axes=ADDED_UP,
    ),
    OptionRule(
        "from next layer",
        "the makers of new units come from the layer above (AKI)",
        "next layer",
        lambda options, option: replace(options, next_layer=True),
        "copies",
        in_match=INSIDE_LAYERS,
    ),
    OptionRule(
        "in blocks of EXPR",
        "units are runs of so many channels",
        "blocks",
        lambda options, option: replace(options, block=option.expr),
        in_match=("hidden",),
        value="a block",
        least=1,
    ),
    OptionRule(
        "top EXPR",
        "so many units are chosen for each token; as many times more as there are units is exact where the "
        "weights of the chosen ones add up to the same",
        "top",
        lambda options, option: replace(options, top=option.expr),
        axes=CHOSEN,
        value="a number of chosen units",
        least=1,
    ),
    OptionRule(
        "plain",
        "copies in front of RMSNorms are not weighted, as the papers print them; not exact",
        "plain",
        lambda options, option: replace(options, plain=True),
        "copies",
    ),
    OptionRule(
        "seed N",
        "the number that the draws of the statement begin with (0 without it)",
        "seed",
        lambda options, option: replace(options, seed=option.expr),
        value="a seed",
        fixed=True,
    ),
)

_SHRINKING = (
    OptionRule(
        "rescaled",
        "the readers of the axis are multiplied by sqrt(d/d'), where d becomes d' (the default)",
        "rescaling",
        _rescaled("readers"),
        axes=RESCALED,
    ),
    OptionRule(
        "rescaled in norms",
        "sqrt(d/d') goes into the gains of the norms in front of what reads the axis",
        "rescaling",
        _rescaled("norms"),
        axes=RESCALED,
    ),
    OptionRule("unscaled", "no weight is multiplied by anything", "rescaling", _rescaled("nowhere")),
)

GROWING = {rule.name: rule for rule in _GROWING}
"""The options that may follow a fill, by name."""

SHRINKING = {rule.name: rule for rule in _SHRINKING}
"""The options that may follow a ranking, by name."""

OPTIONS = {**GROWING, **SHRINKING}
