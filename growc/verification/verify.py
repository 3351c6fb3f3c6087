"""Verification that a grown model computes what its source does: both are run, and every output is compared.

It knows nothing of the compiler. It gets two files, how resized inputs and outputs show the source's units,
and the user's inputs if any. r and a model's own rounding are defined in the language's reference, "what the
same means".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from growc.algebra.indexmap import Array
from growc.dialects.onnx.files.signature import Input, read_signature
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.display import Shown
from growc.plans.unitmaps import InputMap, NumberMap, OutputMap
from growc.verification.difference import OutputReport as OutputReport
from growc.verification.difference import closeness, incomparable, worst
from growc.verification.difference import compare as compare
from growc.verification.feeds import Runner, complete, draw, read_inputs
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Feeds, Session
from growc.verification.rounding import SLACK, Rerun, Rounding, limit, measure, ways

InputMaps = Mapping[str, Sequence[InputMap]]

STEADY = "is one number throughout, whatever is fed: no difference can be seen in it"
UNSTABLE = "has integers or infinities that differ between two ways to run the source"

HELD_BYTES = 256 << 20
"""Approximate bytes of the source's outputs that are kept while the grown model is run."""


@dataclass(frozen=True)
class Verification(Shown):
    """The result of running both models.

    max_abs, relative: the largest over all outputs and cases; relative is infinite if an output differs
        in kind (see OutputReport).
    rounding: the source's own rounding, as an r.
    cases: the number of inputs that were run.
    outputs: one report for each output of the source that the grown model has too, over all cases.
    unstable: for outputs with integers or infinities of the source that differ between two ways to run it,
        their number; `odd`: the outputs with NaN or infinities in one way alone.
    slack: the factor of its own rounding that explains a difference.
    notes: what was not compared or measured, and why.
    beside: measurements in other ways to run both, by their names.
    """

    max_abs: float
    relative: float
    rounding: float
    cases: int
    outputs: Mapping[str, OutputReport]
    notes: tuple[str, ...] = ()
    unstable: Mapping[str, int] = field(default_factory=dict)
    odd: frozenset[str] = frozenset()
    slack: int = SLACK
    beside: Mapping[str, Verification] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The largest differences, and the number of cases."""
        differences = f"{self.relative:.2g} relative, {self.max_abs:.2g} absolute"
        return f"<Verification: {differences}; rounding {self.rounding:.2g}; cases {self.cases}>"

    @property
    def limit(self) -> float:
        """The r above which a proof of sameness is refuted."""
        return limit(self.rounding, self.slack)

    def refutes_exact(self) -> bool:
        """Whether an output moved by more than rounding can explain, in any of the ways."""
        return self.refuting() is not None

    def refuting(self) -> tuple[str, Verification] | None:
        """Return the first measurement that shows more than rounding can explain, with its name."""
        if any(self._moved(name, report) for name, report in self.outputs.items()):
            return "", self
        refutations = ((way, one.refuting()) for way, one in self.beside.items())
        return next(((seen[0] or way, seen[1]) for way, seen in refutations if seen), None)

    def _moved(self, name: str, report: OutputReport) -> bool:
        strange = report.alien > 0 and name not in self.odd
        unequal = report.misplaced > SLACK * self.unstable.get(name, 0)
        return strange or unequal or not report.regular <= self.limit


@dataclass
class Comparison:
    """The outputs of a source compared with those of a result, case by case.

    maps: how resized outputs show the source's units, by the source's names. renamed: as for `verify`.
    logits: outputs that are also compared as distributions. rounding: the source's own.
    """

    maps: Mapping[str, Sequence[OutputMap]]
    renamed: Mapping[str, str | None]
    logits: Collection[str] = ()
    rounding: Rounding = field(default_factory=Rounding)
    cases: int = 0
    reports: dict[str, list[OutputReport]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, expected: Feeds, grown: Feeds) -> None:
        """Add one case: every output of the source that the grown model is meant to have."""
        self.cases += 1
        for name, output in expected.items():
            grown_name = self.renamed.get(name, name)
            if grown_name is None:
                self._note(f"output `{name}` is not in the grown model")
                continue
            report = self._compared(name, output, grown.get(grown_name))
            if report.note:
                self._note(f"output `{name}`: {report.note}")
            elif output.size and not report.compared and not report.misplaced:
                self._note(f"output `{name}` held no finite number in one case")
            self.reports.setdefault(name, []).append(report)

    def join(self, other: Comparison) -> None:
        """Append other cases."""
        self.cases += other.cases
        for name, reports in other.reports.items():
            self.reports.setdefault(name, []).extend(reports)
        for note in other.notes:
            self._note(note)
        self.rounding.join(other.rounding)

    def _compared(self, name: str, output: Array, grown: Array | None) -> OutputReport:
        """Compare an output on the source's units; as distributions too if it holds logits."""
        if grown is None:
            return incomparable("the grown model lacks it")
        try:
            for axis_map in self.maps.get(name, ()):
                output, grown = axis_map.restrict(output, grown)
        except IndexError:
            return incomparable(f"the grown shape {list(grown.shape)} has no place for the source's units")
        report = compare(output, grown)
        scores = name in self.logits and not report.note
        return replace(report, closeness=closeness(output, grown)) if scores else report

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    @property
    def outputs(self) -> dict[str, OutputReport]:
        """One report for each output, over all cases."""
        return {name: worst(seen) for name, seen in self.reports.items()}

    def summed_up(self) -> Verification:
        """Return all cases as one measurement."""
        outputs, rounding = self.outputs, self.rounding
        steady = (f"output `{name}` {STEADY}" for name, report in outputs.items() if report.steady)
        unstable = (
            f"output `{name}` {UNSTABLE}" for name in sorted(rounding.unstable.keys() & outputs.keys())
        )
        return Verification(
            max_abs=max((report.max_abs for report in outputs.values()), default=0.0),
            relative=max((report.relative for report in outputs.values()), default=0.0),
            rounding=rounding.largest,
            slack=rounding.slack,
            cases=self.cases,
            outputs=outputs,
            notes=(*self.notes, *steady, *unstable, *rounding.notes),
            unstable=dict(rounding.unstable),
            odd=frozenset(rounding.odd),
        )


def verify(
    source: Path,
    result: Path,
    *,
    output_maps: Mapping[str, Sequence[OutputMap]] = MappingProxyType({}),
    input_maps: InputMaps = MappingProxyType({}),
    renamed: Mapping[str, str | None] = MappingProxyType({}),
    inputs: Path | None = None,
    narrower: bool = False,
    logits: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Run the ONNX files `source` and `result` on the same cases, and compare every output of the source.

    The maps are keyed by the source's names. `renamed` maps renamed inputs and outputs to the result's names,
    and those that it is meant to lack to None. Cases come from the file `inputs`, else they are drawn. If the
    result is `narrower` (its tables have lost rows), they are drawn so that it can run them too. One model is
    in memory at a time, except then. Outputs among `logits` are also compared as distributions. `progress` is
    called with a phrase before every step that takes long.

    If onnxruntime's graph optimisations distort the source, both are run without them.

    Raises GrowError: G403 if onnxruntime cannot run one of them or `inputs` does not fit the source, G310 for
    a file that is no ONNX model.
    """
    tell = progress or (lambda phrase: None)
    pair = _Pair(source, result, output_maps, input_maps, renamed, inputs, narrower, logits, tell)
    comparison = pair.compared(optimised=True)
    if not comparison.rounding.distorted:
        return comparison.summed_up()
    plain = pair.compared(optimised=False).summed_up()
    note = (
        "both were run without onnxruntime's graph optimisations: they change what the source computes "
        f"(r = {comparison.rounding.largest:.1e})"
    )
    return replace(plain, notes=(note, *plain.notes))


@dataclass(frozen=True)
class _Pair:
    """The arguments of `verify`."""

    source: Path
    result: Path
    output_maps: Mapping[str, Sequence[OutputMap]]
    input_maps: InputMaps
    renamed: Mapping[str, str | None]
    inputs: Path | None
    narrower: bool
    logits: Collection[str]
    tell: Callable[[str], None]

    def compared(self, optimised: bool) -> Comparison:
        """Run both, with graph optimisations or without, and return the comparison."""
        comparison = Comparison(self.output_maps, self.renamed, self.logits)
        with contextlib.ExitStack() as stack:
            before, after = (stack.enter_context(runnable(model)) for model in (self.source, self.result))
            ports = read_signature(self.result)
            others: Sequence[Rerun] = ()
            for cases, expected in self.groups(before, self.cases(before, after, ports), optimised):
                self.tell("measuring the source's own rounding")
                if not comparison.cases:
                    others = stack.enter_context(
                        ways(self.source, before, comparison.rounding, cases[0], optimised=optimised)
                    )
                measure(others, cases, expected, comparison.rounding)
                self.tell("running the grown model")
                with Session(after, optimised=optimised) as session:
                    for case, outputs in zip(cases, expected, strict=True):
                        feeds = grown_feeds(case, ports, self.input_maps, self.renamed)
                        comparison.add(outputs, session.run(feeds))
        return comparison

    def cases(self, before: Path, after: Path, ports: Sequence[Input]) -> list[Feeds] | None:
        """Return the cases if they are known before the source runs, else None."""
        if self.inputs is not None:
            return read_inputs(self.inputs, self.source)
        if not self.narrower:
            return None
        self.tell("drawing inputs that both models can take")
        with Session(before) as source, Session(after) as result:
            own = read_signature(self.source)
            return cases_for_both(source, result, own, ports, self.input_maps)

    def groups(
        self, source: Path, pending: list[Feeds] | None, optimised: bool
    ) -> Iterator[tuple[list[Feeds], list[Feeds]]]:
        """Yield cases and the source's outputs, as many at a time as fit into HELD_BYTES, at least one."""
        while pending is None or pending:
            self.tell("running the source")
            cases: list[Feeds] = []
            expected: list[Feeds] = []
            with Session(source, optimised=optimised) as session:
                if pending is None:
                    pending = draw(read_signature(self.source), session)
                nbytes = 0
                while pending and nbytes < HELD_BYTES:
                    cases.append(pending[0])
                    expected.append(session.run(pending[0]))
                    nbytes += sum(output.nbytes for output in expected[-1].values())
                    pending = pending[1:]
            yield cases, expected


def cases_for_both(
    before: Runner, after: Runner, own: Sequence[Input], ports: Sequence[Input], maps: InputMaps
) -> list[Feeds]:
    """Return cases of a source with its `own` inputs, which a result with other `ports` can run too.

    Raises GrowError (G403) if there are none.
    """
    theirs = {port.name: port for port in ports}
    numbers = {name: m for name, axis_maps in maps.items() for m in axis_maps if isinstance(m, NumberMap)}
    drawn = list(own)
    for k, port in enumerate(own):
        if port.name in theirs:
            drawn[k] = port = replace(port, low=theirs[port.name].low, high=theirs[port.name].high)
        if port.name in numbers:
            drawn[k] = replace(port, high=min(port.high, len(numbers[port.name].kept)))

    def wide(feeds: Feeds) -> Feeds:
        return {n: numbers[n].narrow(a) if n in numbers else a for n, a in feeds.items()}

    class Both:
        def run(self, feeds: Feeds) -> Feeds:
            after.run(grown_feeds(wide(feeds), ports, maps, {}))
            return before.run(wide(feeds))

    return [wide(case) for case in draw(drawn, Both())]


def grown_feeds(
    case: Feeds,
    ports: Sequence[Input],
    maps: InputMaps,
    renamed: Mapping[str, str | None],
) -> Feeds:
    """Return the source's inputs as the grown model takes them, and values for its additional inputs.

    Raises GrowError (G403) if a number in them has no unit in the grown model.
    """
    port_names = {port.name for port in ports}
    feeds = {}
    for name, array in case.items():
        extended = array
        for axis_map in maps.get(name, ()):
            try:
                extended = axis_map.extend(extended)
            except IndexError as error:
                message = f"the inputs hold numbers in `{name}` that the grown model has no unit for"
                raise GrowError(Diagnostic("G403", message)) from error
        grown_name = renamed.get(name, name)
        if grown_name in port_names:
            feeds[grown_name] = extended
    return complete(ports, feeds)
