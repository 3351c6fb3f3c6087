"""A starter recipe for a model: one statement for each axis that can change, each tried on the model.

No table lists what a kind of model can do. The compiler plans every offered statement, alone and together
with the active one, on one analysis of the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from growc.algebra.space import Space, atoms_of, find
from growc.errors.diagnostic import Attempt, GrowError
from growc.errors.progress import Progress, quiet
from growc.errors.regular_files import first_line
from growc.errors.source import SourceText
from growc.formats.compiler import asked_of, compiled, fitted
from growc.passes.axes.ties import tied_heads
from growc.passes.lowering.resolve_axis import glob
from growc.passes.lowering.scopes import numbers
from growc.recipe.fills import OFFERED, OFFERED_OF
from growc.recipe.syntax_tree import Stack, SubcloneLayers
from growc.resolve.bound import Resolved
from growc.resolve.resolve import load

if TYPE_CHECKING:
    from torch import nn

    from growc.passes.compilation import Analysis, Result

    Model = str | Path | nn.Module


ORDERS = ("by whole with zero outputs", "by each with zero outputs", "by whole")
"""Options of `stack layers`, in the order in which they are tried."""

PREFERRED = ("ffn", "channels", "heads", "hidden", "experts", "kv_heads", "head_dim", "vocab", "positions")
"""Axes in the order of preference for the active statement: the first that can grow exactly is taken."""

MOST = 12
"""Largest number of offered axes without a name of their own, since each is tried."""


@dataclass(frozen=True)
class Verdict:
    """The compiler's judgement of statements.

    cause: the reason why they are refused, or are not exact.
    """

    valid: bool
    exact: bool = False
    cause: str = ""


@dataclass(frozen=True)
class Offer:
    """One axis, or one part of a model.

    statement: a possible change; empty if there is none, and then the verdict has the reason. beside: whether
    it can be combined with the active statement.
    """

    axis: str
    sizes: tuple[int, ...]
    statement: str
    verdict: Verdict
    beside: bool = True


@dataclass(frozen=True)
class Starter:
    """The possible changes of a model.

    active: the one offer that is not commented out.
    """

    analysis: Analysis
    axes: tuple[Offer, ...]
    unnamed: tuple[Offer, ...]
    more: int
    scoped: tuple[Offer, ...]
    layers: tuple[Offer, ...]
    head: tuple[Offer, ...]
    active: Offer | None


@dataclass
class StarterTrials:
    """Statements planned on one analysis, each text once.

    again: makes a new analysis of the model. progress: is told which statement is tried.
    """

    analysis: Analysis
    again: Callable[[], Analysis]
    progress: Progress = quiet
    known: dict[str, Verdict] = field(default_factory=dict)

    def of(self, *statements: str) -> Verdict:
        """The verdict on a recipe of these statements, before any class of the result is applied."""
        text = "\n".join(statements)
        if text not in self.known:
            self.progress(f"trying {statements[-1]}", 0, 0)
            self.known[text] = _verdict(lambda: self._planned(text))
        return self.known[text]

    def _planned(self, text: str) -> Result:
        resolved = load([SourceText("<starter>", text)], {})
        moving = any(isinstance(b.statement, Stack | SubcloneLayers) for b in resolved.statements)
        return asked_of(
            self.again() if moving else self.analysis, resolved
        )  # layers move in the model itself

    def _held(self, text: str) -> Result:
        return fitted(self._planned(text))

    def best(self, *ways: Sequence[str]) -> tuple[str, Verdict]:
        """The best candidate of the first way that works, with its verdict; else an empty text and the first
        refusal.

        The best of a way is its first exact candidate, else its first valid one. The class of the model must
        be able to hold it, too. That check is slow and depends on sizes, so it is made once for each way.
        """
        causes = []
        for candidates in ways:
            candidate = self._best_of(candidates)
            verdict = self.of(candidate)
            if verdict.valid:
                verdict = _verdict(partial(self._held, candidate))
            if verdict.valid:
                return candidate, verdict
            causes.append(verdict)
        return "", causes[0]

    def _best_of(self, candidates: Sequence[str]) -> str:
        valid = []
        for text in candidates:
            verdict = self.of(text)
            if verdict.exact:
                return text
            valid += [text] if verdict.valid else []
        return [*valid, *candidates][0]


def _verdict(plan: Callable[[], Result]) -> Verdict:
    """The verdict on a plan. A fault in growc itself only costs this one offer, which reports it."""
    plans: list[Result] = []
    with Attempt() as attempt:
        plans.append(plan())
    if isinstance(attempt.error, GrowError):
        first = attempt.error.diagnostics[0]
        return Verdict(False, cause=f"{first.message} ({first.code})")
    if attempt.error is not None:
        return Verdict(False, cause=f"growc fails to plan it: {first_line(attempt.error)} (G900)")
    certificate = plans[0].plan.certificate
    return Verdict(True, certificate.exact, "" if certificate.exact else certificate.gaps[0].cause)


def starter_of(model: Model, *, example_inputs: object = None, progress: Progress = quiet) -> Starter:
    """The possible changes of a model, tried by the compiler. Raises GrowError if it cannot be read."""

    def analysed() -> Analysis:
        return compiled(
            Resolved(()), model, analysis_only=True, example_inputs=example_inputs, keep_class=True
        )

    progress("planning", 0, 0)
    analysis = analysed()
    trials = StarterTrials(analysis, analysed, progress)
    roles = analysis.roles
    names = [
        name
        for name in roles.axes
        if not (name == "kv_heads" and roles.axes[name] == roles.axes.get("heads"))
    ]
    axes = [_named(trials, name) for name in names]
    unnamed = list(_unnamed(analysis))
    offered = [_offer(trials, text, (size,), str(2 * size)) for text, size in unnamed[:MOST]]
    offered = [offer for offer in offered if offer.statement]
    active = _active([*axes, *offered])
    named = [offer for offer in axes if offer.statement]
    parts = [
        *_scoped(trials, named, [name for name in roles.scopes.names if name in ("encoder", "decoder")]),
        *_in_layers(trials, named),
    ]
    layers = [_layers(trials)] if analysis.layers.runs else []
    head = [Offer("head", (), *trials.best(["untie head"]))] if tied_heads(analysis.axes) else []
    groups = (axes, offered, parts, layers, [offer for offer in head if offer.statement])
    axes, offered, parts, layers, head = (
        [_beside(trials, offer, active) for offer in group] for group in groups
    )
    more = max(0, len(unnamed) - MOST)
    return Starter(
        analysis, tuple(axes), tuple(offered), more, tuple(parts), tuple(layers), tuple(head), active
    )


def _active(offers: Sequence[Offer]) -> Offer | None:
    """The first exact growth, in the order of PREFERRED."""
    exact = [offer for offer in offers if offer.verdict.exact and offer.statement.startswith("widen")]
    return min(exact, key=lambda offer: (*PREFERRED, offer.axis).index(offer.axis), default=None)


def _beside(trials: StarterTrials, offer: Offer, active: Offer | None) -> Offer:
    """The offer, with its verdict together with the active statement."""
    if active is None or offer.statement in ("", active.statement):
        return offer
    combined = trials.of(active.statement, offer.statement)
    fits = combined.valid and combined.exact >= offer.verdict.exact
    return Offer(offer.axis, offer.sizes, offer.statement, offer.verdict, fits)


def _offer(trials: StarterTrials, axis: str, sizes: tuple[int, ...], larger: str = "") -> Offer:
    """The best statement on an axis of width."""
    return Offer(axis, sizes, *trials.best(*_candidates(axis, sizes, larger or f"2 * {axis}")))


def _candidates(axis: str, sizes: tuple[int, ...], larger: str) -> Iterator[list[str]]:
    """Candidate statements on an axis: growing it, else sorting its units, else dropping some."""
    yield [f"widen {axis} to {larger} with {fill}" for fill in OFFERED_OF.get(axis, OFFERED)]
    yield [f"reorder {axis} by magnitude"]
    if all(size % 2 == 0 for size in sizes):
        half = str(sizes[0] // 2) if len(sizes) == 1 else f"{axis} / 2"
        yield [f"subclone {axis} to {half} by {ranking}" for ranking in ("magnitude", "first")]


def _named(trials: StarterTrials, name: str) -> Offer:
    sizes = tuple(trials.analysis.roles.sizes(name))
    return _offer(trials, name, sizes, "vocab + 64" if name == "vocab" else "")


def _layers(trials: StarterTrials) -> Offer:
    depths = tuple(numbers(trials.analysis.layers.runs))
    deeper = [f"stack layers to 2 * layers {order}" for order in ORDERS]
    shallower = [["subclone layers to layers - 1 by even"]] if min(depths) > 1 else []
    return Offer("layers", depths, *trials.best(deeper, *shallower))


def _scoped(trials: StarterTrials, named: Sequence[Offer], scopes: Sequence[str]) -> Iterator[Offer]:
    """One statement in each scope: the first that is valid there alone."""
    yield from (offer for scope in scopes for offer in _first_within(trials, named, scope))


def _in_layers(trials: StarterTrials, named: Sequence[Offer]) -> Iterator[Offer]:
    """One statement on half of the layers."""
    fewest = min(numbers(trials.analysis.layers.runs), default=0)
    if fewest > 1:
        yield from _first_within(trials, named, f"layers 0..{fewest // 2}")


def _first_within(trials: StarterTrials, named: Sequence[Offer], scope: str) -> Iterator[Offer]:
    """The first statement that the graph can take in a scope, if the class can, too."""
    outside = ("hidden", "vocab", "positions") if scope.startswith("layers") else ()
    usable = sorted(
        (o for o in named if o.axis not in outside), key=lambda offer: PREFERRED.index(offer.axis)
    )
    texts = {f"in {scope} {{ {offer.statement} }}": offer for offer in usable}
    text, verdict = trials.best(list(texts)) if texts else ("", Verdict(False))
    if text:
        yield Offer(texts[text].axis, texts[text].sizes, text, verdict)


# --------------------------------------------------------------------------- axes without a name of their own


def _unnamed(c: Analysis) -> Iterator[tuple[str, int]]:
    """Weight axes that are not frozen and have no role, as a recipe names them; equal parts once."""
    covered = {find(x) for axes in c.roles.axes.values() for axis in axes for x in atoms_of(axis.spaces)}
    places: dict[tuple[str, int, int], list[tuple[str, Space]]] = {}
    for use in c.axes.graph.uses():
        weight = use.weight
        if weight is None or not weight.floating or not _can_be_quoted(weight.name):
            continue
        for k, space in enumerate(c.axes.of(use)):
            atoms = {find(x) for x in atoms_of([space])}
            fixed = not atoms or any(x.frozen for x in atoms) or atoms & covered
            if not fixed and k < len(weight.shape) and weight.shape[k] > 1:
                pattern = re.sub(r"(?<![^._/])\d+(?![^._/])", "*", weight.name)
                places.setdefault((pattern, k, weight.shape[k]), []).append((weight.name, find(space)))
    for (pattern, k, size), occurrences in places.items():
        spaces = {space for _, space in occurrences}
        atoms = {find(x) for x in atoms_of(spaces)}
        if atoms & covered:
            continue
        covered |= atoms
        one_pattern = len(spaces) > 1 and _matched(c, pattern) == {name for name, _ in occurrences}
        names = [pattern] if one_pattern else list(dict.fromkeys(name for name, _ in occurrences))
        yield from ((f'axis {k} of "{name}"', size) for name in names)


def _can_be_quoted(name: str) -> bool:
    """Whether a recipe can quote a parameter's name: strings have no escapes, and globs no quotes."""
    return name.isprintable() and name.isascii() and not set(name) & set('"*?')


def _matched(c: Analysis, pattern: str) -> set[str]:
    compiled_glob = re.compile(glob(pattern))
    names = {use.weight.name for use in c.axes.graph.uses() if use.weight and use.weight.floating}
    return {name for name in names if compiled_glob.fullmatch(name)}
