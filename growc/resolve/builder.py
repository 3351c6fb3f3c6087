"""Recipes built in Python: each method returns a new recipe with one more statement of docs/language.md.

>>> print(Recipe().widen("hidden", to=1024, fill="neighbor copy").expect("exact"), end="")
widen hidden to 1024 with neighbor copy
expect exact

A method writes its statement as text and has the grammar read it, so errors have the same diagnostics as in a
recipe file: it raises GrowError (G1xx). Errors across statements (G2xx) are found when the recipe is used.
Paths are relative to the working directory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from growc.errors.diagnostic import Diagnostic, GrowError, nearest, wrong
from growc.errors.source import LINE_END, SourceText, Span

if TYPE_CHECKING:
    from growc.recipe import syntax_tree as rc

SizeText = int | float | str
"""A number, or an expression of the language as text: `"2 * hidden"`."""

LayersText = int | range | str
"""One layer, a range of them with step one, or a range of the language as text: `"6.."`."""


class Options(TypedDict, total=False):
    """The options that may follow a fill."""

    split: str
    noise: SizeText
    noise_on_copies: SizeText
    noise_balanced: SizeText
    std: SizeText
    reset: SizeText
    zero_outputs: bool
    from_next_layer: bool
    in_blocks_of: SizeText
    top: SizeText
    plain: bool
    seed: SizeText


_WORDS = {
    "std": "std {}",
    "reset": "reset {}",
    "zero_outputs": "with zero outputs",
    "from_next_layer": "from next layer",
    "plain": "plain",
    "split": "split {}",
    "noise": "noise {}",
    "noise_on_copies": "noise {} on copies",
    "noise_balanced": "noise {} balanced",
    "in_blocks_of": "in blocks of {}",
    "top": "top {}",
    "seed": "seed {}",
}


@dataclass(frozen=True)
class Recipe:
    """A recipe; `str` gives its text in canonical form, and every function of growc takes it as one.

    Each method raises GrowError (G1xx) with every mistake in its statement. Layers in a `range` raise
    ValueError if its step is not 1.
    """

    body: tuple[rc.Item, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        from growc import grammar
        from growc.recipe.syntax_tree import RecipeTree as Said

        return grammar.format(Said(self.body))

    def __add__(self, other: Recipe) -> Recipe:
        return Recipe(self.body + other.body)

    def language(self, version: str) -> Recipe:
        """`language VERSION`, which must be the first statement."""
        return self._said(f"language {version}")

    # ---- sizes

    def let(self, name: str, value: SizeText) -> Recipe:
        """`let NAME = VALUE`; expressions of later statements may use the name."""
        return self._said(f"let {name} = {value}")

    def widen(self, axis: str, *, to: SizeText, fill: str, **options: Unpack[Options]) -> Recipe:
        """`widen AXIS to SIZE with FILL [OPTION…]`."""
        return self._said(f"widen {axis} to {to} with {fill}{_options(options)}")

    def subclone(
        self,
        axis: str,
        *,
        to: SizeText,
        by: str,
        rescaling: str = "",
        seed: SizeText | None = None,
        file: str = "",
    ) -> Recipe:
        """`subclone AXIS to SIZE by RANKING [RESCALING]`, and `subclone layers to SIZE by ORDER`."""
        return self._said(f"subclone {axis} to {to} by {_ranking(by, seed, file)} {rescaling}")

    def subclone_to(
        self,
        budget: str,
        *,
        over: Iterable[str],
        by: str,
        at: tuple[SizeText, SizeText] | None = None,
        rescaling: str = "",
        seed: SizeText | None = None,
        file: str = "",
        layers: str = "",
        multiples: SizeText | None = None,
        candidates: SizeText | None = None,
    ) -> Recipe:
        """`subclone to BUDGET [at batch N length N] over AXIS, … by RANKING [RESCALING] [layers by ORDER]
        [multiples of EXPR] [candidates N]`; the budget is a comparison, `"parameters <= parameters / 2"`.
        """
        clauses = (f" layers by {layers}" if layers else "") + _multiples(multiples)
        clauses += "" if candidates is None else f" candidates {candidates}"
        ranking_words = f"by {_ranking(by, seed, file)} {rescaling}"
        return self._said(f"subclone to {budget}{_held(at)} over {', '.join(over)} {ranking_words}{clauses}")

    def widen_to(
        self,
        budget: str,
        *,
        over: Iterable[str],
        fill: str,
        at: tuple[SizeText, SizeText] | None = None,
        layers: str = "",
        layers_fill: str = "",
        layers_zero_outputs: bool = False,
        multiples: SizeText | None = None,
        **options: Unpack[Options],
    ) -> Recipe:
        """`widen to BUDGET [at batch N length N] over AXIS, … in proportion with FILL [OPTION…]
        [layers by ORDER [with FILL] [with zero outputs]] [multiples of EXPR]`.
        """
        new = _new_layers(layers_fill, layers_zero_outputs)
        order = f" layers by {layers}{new}" if layers or new else ""
        fill_words = f"in proportion with {fill}{_options(options)}{order}{_multiples(multiples)}"
        return self._said(f"widen to {budget}{_held(at)} over {', '.join(over)} {fill_words}")

    def subclone_total(
        self,
        axis: str,
        *,
        total: SizeText,
        by: str,
        rescaling: str = "",
        seed: SizeText | None = None,
        file: str = "",
    ) -> Recipe:
        """`subclone AXIS to total EXPR by RANKING [RESCALING]`."""
        return self._said(f"subclone {axis} to total {total} by {_ranking(by, seed, file)} {rescaling}")

    def merge_experts(self, *, to: SizeText) -> Recipe:
        """`merge experts to SIZE by mean`."""
        return self._said(f"merge experts to {to} by mean")

    def reorder(self, axis: str, *, by: str, seed: SizeText | None = None, file: str = "") -> Recipe:
        """`reorder AXIS by RANKING`."""
        return self._said(f"reorder {axis} by {_ranking(by, seed, file)}")

    def nest(
        self,
        axes: Iterable[str] | str,
        *,
        by: str,
        at: Iterable[str] | str = (),
        seed: SizeText | None = None,
        file: str = "",
    ) -> Recipe:
        """`nest AXIS, AXIS… by RANKING [at SHARE, SHARE…]`; a share is text, as `"1/2"`."""
        named = axes if isinstance(axes, str) else ", ".join(axes)
        shares = at if isinstance(at, str) else ", ".join(at)
        behind = f" at {shares}" if shares else ""
        return self._said(f"nest {named} by {_ranking(by, seed, file)}{behind}")

    def match(
        self,
        file: str,
        *,
        fill: str,
        layers: str = "",
        layers_fill: str = "",
        layers_zero_outputs: bool = False,
        smaller: str = "",
        **options: Unpack[Options],
    ) -> Recipe:
        """`match "FILE" with FILL [OPTION…] [layers by ORDER [with FILL] [with zero outputs]]
        [smaller by RANKING]`.
        """
        new = _new_layers(layers_fill, layers_zero_outputs)
        order = f" layers by {layers}{new}" if layers or new else ""
        ranking = f" smaller by {smaller}" if smaller else ""
        return self._said(f'match "{file}" with {fill}{_options(options)}{order}{ranking}')

    def untie_head(self) -> Recipe:
        """`untie head`."""
        return self._said("untie head")

    def upcycle(
        self,
        axis: str = "ffn",
        *,
        experts: SizeText,
        top: SizeText,
        fill: str,
        noise: SizeText | None = None,
        reset: SizeText | None = None,
        parts: SizeText | None = None,
        seed: SizeText | None = None,
    ) -> Recipe:
        """`upcycle ffn to experts N top K with FILL [noise S] [reset P] [in M parts] [seed N]`."""
        words = f"upcycle {axis} to experts {experts} top {top} with {fill}"
        words += "" if noise is None else f" noise {noise}"
        words += "" if reset is None else f" reset {reset}"
        words += "" if parts is None else f" in {parts} parts"
        return self._said(words + ("" if seed is None else f" seed {seed}"))

    # ---- layers

    def stack(self, *, to: SizeText, by: str, fill: str = "", zero_outputs: bool = False) -> Recipe:
        """`stack layers to SIZE by ORDER [with FILL] [with zero outputs]`; the fill may name its seed."""
        return self._said(f"stack layers to {to} by {by}{_new_layers(fill, zero_outputs)}")

    def stack_from(
        self, template: str, *, to: SizeText, fill: str = "", zero_outputs: bool = False
    ) -> Recipe:
        """`stack layers to SIZE from "FILE" [with FILL] [with zero outputs]`."""
        return self._said(f'stack layers to {to} from "{template}"{_new_layers(fill, zero_outputs)}')

    def arrange(
        self, layers: Iterable[LayersText] | str, *, fill: str = "", zero_outputs: bool = False
    ) -> Recipe:
        """`arrange layers as RANGE, RANGE, … [with FILL] [with zero outputs]`; the fill may name its seed."""
        ranges = layers if isinstance(layers, str) else ", ".join(map(_range, layers))
        return self._said(f"arrange layers as {ranges}{_new_layers(fill, zero_outputs)}")

    def drop(self, layers: LayersText) -> Recipe:
        """`drop layers RANGE`."""
        return self._said(f"drop layers {_range(layers)}")

    def merge_layers(self, layers: LayersText) -> Recipe:
        """`merge layers RANGE by mean`."""
        return self._said(f"merge layers {_range(layers)} by mean")

    # ---- what is measured, and what must hold

    def measure_importance(self, on: str, *, samples: SizeText | None = None) -> Recipe:
        """`measure importance on "FILE" [samples N]`."""
        return self._said(
            f'measure importance on "{on}"' + ("" if samples is None else f" samples {samples}")
        )

    def expect(self, condition: str) -> Recipe:
        """`expect CONDITION`: `"exact"`, `"preserved within 1e-5"`, `"parameters <= 355M"`."""
        return self._said(f"expect {condition}")

    # ---- recipes in recipes

    def include(self, file: str) -> Recipe:
        """`include "FILE"`."""
        return self._said(f'include "{file}"')

    def within(self, scope: str, inner: Recipe) -> Recipe:
        """`in SCOPE { … }`: the scope is `encoder`, `decoder`, `layers RANGE`, or a glob in double quotes."""
        from growc.recipe.syntax_tree import Scoped

        item = _read(f"in {scope} {{ }}")
        assert isinstance(item, Scoped), "what begins with `in` is a scope"
        return Recipe((*self.body, replace(item, body=inner.body)))

    def _said(self, line: str) -> Recipe:
        return Recipe((*self.body, _read(line)))


def _read(line: str) -> rc.Item:
    """The one statement that a line consists of. Raises GrowError (G1xx) with every mistake in it."""
    from growc import grammar

    source = SourceText("<recipe>", LINE_END.sub(" ", line))
    body = grammar.parse(source).body
    if len(body) != 1:
        whole = Span(source, 0, len(source.text))
        raise GrowError(Diagnostic("G104", "one statement is expected, and nothing behind it", whole))
    return body[0]


def _options(options: Options) -> str:
    """The options of a fill, in the order in which they were given. Raises GrowError (G200)."""
    for name in sorted(options.keys() - _WORDS.keys()):
        near = nearest(name, _WORDS)
        remedy = f"did you mean `{near}`?" if near else f"the options are {', '.join(_WORDS)}"
        raise wrong(f"there is no option `{name}`", remedy)
    stated = {name: value for name, value in options.items() if value is not None and value is not False}
    return "".join(f" {_WORDS[name].format(value)}" for name, value in stated.items())


def _ranking(by: str, seed: SizeText | None, file: str) -> str:
    return by + ("" if seed is None else f" seed {seed}") + (f' "{file}"' if file else "")


def _new_layers(fill: str, zero_outputs: bool) -> str:
    return (f" with {fill}" if fill else "") + (" with zero outputs" if zero_outputs else "")


def _held(at: tuple[SizeText, SizeText] | None) -> str:
    """The clause with the batch and the length of the sequences that count as memory."""
    return "" if at is None else f" at batch {at[0]} length {at[1]}"


def _multiples(of: SizeText | None) -> str:
    return "" if of is None else f" multiples of {of}"


def _range(layers: LayersText) -> str:
    if isinstance(layers, range):
        if layers.step != 1:
            raise ValueError("layers stand in ranges with step one")
        return f"{layers.start}..{layers.stop}"
    return str(layers)
