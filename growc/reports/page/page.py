"""The complete contents of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError, concealed
from growc.errors.source import LINE_END, SourceText
from growc.passes.compilation import Result
from growc.passes.finish.certify import width
from growc.plans.plan import Plan
from growc.reports.flops import Flops, before_and_after
from growc.reports.page.attention import Patterns, patterns_of
from growc.reports.page.network import DrawnNetwork, network_of
from growc.reports.page.selection import Selections, selections_of
from growc.verification.verify import Verification

LINES = 2000
"""The most lines of one recipe that are shown."""
LONGEST = 400
"""The most characters of one line."""


@dataclass(frozen=True)
class RecipeLine:
    """One line of a recipe, and the problems in it."""

    number: int
    text: str
    problems: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class Listing:
    """One text of a recipe. name: that of its file, without folders. more: the number of lines not shown."""

    name: str
    lines: tuple[RecipeLine, ...]
    more: int = 0


@dataclass(frozen=True)
class ReportContents:
    """The contents of a plan, and measurements; `unmeasured` is the reason if there are none."""

    plan: Plan
    network: DrawnNetwork
    flops: tuple[Flops, Flops]
    stored: tuple[int, int]
    selections: Selections
    patterns: Patterns
    verification: Verification | None = None
    unmeasured: str = ""


@dataclass(frozen=True)
class Page:
    """A whole report.

    problems: those that have no place in a listing. growth: None without a plan.
    """

    model: str
    listings: tuple[Listing, ...]
    problems: tuple[Diagnostic, ...] = ()
    growth: ReportContents | None = None


@dataclass(frozen=True)
class MeasuredResult:
    """The measurements of a result: its file, the comparison, and the inputs for it."""

    result: Path
    verification: Verification | None
    inputs: Path | None = None
    reason: str = ""


NOT_RUN = "`growc report` runs no result; `growc apply --report FILE` measures, and so does `--result FILE`"


def page_of(
    model: Path, sources: Sequence[SourceText], growth: ReportContents | None, error: GrowError | None = None
) -> Page:
    """A page of a growth, or of problems."""
    problems = () if error is None else tuple(map(concealed, error.diagnostics))
    public = [source for source in sources if not source.private]
    placed = [d for d in problems if d.span is not None and d.span.source in public]
    listings = tuple(
        _listing(source, [d for d in placed if d.span and d.span.source == source]) for source in public
    )
    return Page(model.name, listings, tuple(d for d in problems if d not in placed), growth)


def growth_of(c: Result, measured: MeasuredResult | None = None) -> ReportContents:
    """The growth of a finished compilation, with the measurements of its result."""
    patterns = Patterns(reason=f"they were not measured: {NOT_RUN}")
    if measured is not None:
        patterns = patterns_of(c, measured.result, measured.inputs)
    before = sum(w.elements * width(w.dtype) for w in c.first.graph.weights if not w.assumed)
    return ReportContents(
        c.plan,
        network_of(c),
        before_and_after(c),
        (before, c.plan.bytes_to_write),
        selections_of(c),
        patterns,
        None if measured is None else measured.verification,
        NOT_RUN if measured is None else measured.reason,
    )


def _listing(source: SourceText, problems: Sequence[Diagnostic]) -> Listing:
    by_line: dict[int, list[Diagnostic]] = defaultdict(list)
    for problem in problems:
        if problem.span is not None:
            by_line[problem.span.line].append(problem)
    texts = LINE_END.split(source.text.removeprefix("\ufeff"))
    texts = texts[:-1] if texts and not texts[-1] else texts

    def lines() -> Iterator[RecipeLine]:
        for number, text in enumerate(texts[:LINES], 1):
            yield RecipeLine(number, text[:LONGEST].replace("\t", " "), tuple(by_line.get(number, ())))

    beyond = tuple(
        RecipeLine(n, "", tuple(line_problems))
        for n, line_problems in sorted(by_line.items())
        if n > min(len(texts), LINES)
    )
    return Listing(Path(source.name).name, (*lines(), *beyond), max(0, len(texts) - LINES))
