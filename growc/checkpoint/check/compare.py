"""Compare a grown checkpoint with its source: both are loaded as a user loads them, and run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from growc.checkpoint.check.run import Loaded, load
from growc.checkpoint.files.config_folders import described_in, home_of
from growc.checkpoint.files.directory import Checkpoint, config_of
from growc.checkpoint.files.quiet import quiet
from growc.dialects.torch.capture.example_inputs import example_inputs, real_inputs, without_cache
from growc.dialects.torch.operators.arrays import to_numpy, to_torch
from growc.dialects.transformers.classes import build
from growc.dialects.transformers.named_class import are_results_alone, name_results_alone
from growc.errors.diagnostic import Attempt, Diagnostic, GrowError
from growc.errors.regular_files import first_line, root_cause
from growc.formats.onnx_file import OnnxFile
from growc.modules.compare import IN_SINGLE
from growc.passes.finish.interface import Ports
from growc.plans.unitmaps import NumberMap
from growc.system.ranks import ALONE, Ranks
from growc.system.workshop import scratch_folder
from growc.verification.feeds import named_arrays
from growc.verification.rounding import COPY, MOVED, NARROW_SLACK, SLACK, Rounding
from growc.verification.verify import Comparison, Verification

ForwardArguments = Mapping[str, Any]
"""Keyword arguments of a forward call."""

SEEDS = (0, 1)
WAY = "Exported to ONNX, in onnxruntime"


def compare(
    ports: Ports,
    source: Path,
    result: Path,
    *,
    inputs: Path | None = None,
    exported: bool = True,
    ranks: Ranks = ALONE,
) -> Verification:
    """Run both on the same cases: those of a `.npz` file, or else drawn ones.

    With 16-bit weights both also run in single precision, since rounding to 16 bits would hide nearly all
    differences. exported: compare both as ONNX files too. ranks: the processes that run the cases; each case
    is run by one. Raises GrowError (G308, G403) if one of both cannot be loaded or run.
    """
    before, after = load(source), load(result)
    narrow = Checkpoint.open(source, before.module.state_dict()).narrow
    job = CompareCases(ports, source, result, inputs, home_of(source), narrow)
    cases = job.cases(before)
    measured = _joined(ranks.each(job, partial(job.own, before, after, cases))).summed_up()
    if exported:
        measured = replace(measured, **_exported(ports, before, after, cases[0], measured.notes))
    if not narrow:
        return measured
    del before, after
    single = _joined(ranks.each(replace(job, single=True))).summed_up()
    return replace(measured, beside={IN_SINGLE: single, **measured.beside})


@dataclass(frozen=True)
class CompareCases:
    """The job of each process: it compares the cases of its share.

    home: the folder of the source's config. narrow: whether there are 16-bit weights. single: run in single
    precision. other_class: whether the class that a caller named is the result's alone.
    """

    ports: Ports
    source: Path
    result: Path
    inputs: Path | None
    home: Path
    narrow: bool
    single: bool = False
    other_class: bool = field(default_factory=are_results_alone)

    def __call__(self, rank: int, size: int) -> Comparison | None:
        """The comparison on the process's cases, with the source's own rounding; None if it has no cases."""
        kind = torch.float32 if self.single else None
        if self.other_class:
            name_results_alone()
        with described_in(self.source, self.home):
            before = load(self.source, kind)
            return self.own(before, load(self.result, kind), self.cases(before), rank, size)

    def own(
        self, before: Loaded, after: Loaded, cases: Sequence[ForwardArguments], rank: int, size: int
    ) -> Comparison | None:
        """The comparison on the process's cases, with both models loaded."""
        if self.narrow and not (before.whole or self.single):
            cases = cases[:1]  # large models run most cases in single precision only
        if not (mine := cases[rank::size]):
            return None
        others = _others(self.source, before, self.narrow, self.single)
        return _measured(self.ports, before, after, others, mine, self.narrow)

    def cases(self, before: Loaded) -> list[ForwardArguments]:
        """All cases, of all processes."""
        if self.inputs is not None:
            return _read(self.inputs, self.source)
        return _drawn(before, self.source, self.result, self.ports)


def _joined(comparisons: Sequence[Comparison | None]) -> Comparison:
    """The comparisons of all processes, joined."""
    first, *others = (comparison for comparison in comparisons if comparison is not None)
    for other in others:
        first.join(other)
    return first


def _others(source: Path, own: Loaded, narrow: bool, single: bool) -> Mapping[str, Callable[[], Loaded]]:
    """The source run in other ways, by their names: with its weights moved by their last place, and in wider
    numbers.
    """
    moved = {MOVED: partial(load, source, torch.float32 if single else None, moves=True)}
    wider = {COPY: partial(load, source, torch.float64)}
    return moved if narrow or single or not own.whole else {**moved, **wider}


def _measured(
    ports: Ports,
    before: Loaded,
    after: Loaded,
    others: Mapping[str, Callable[[], Loaded]],
    cases: Sequence[ForwardArguments],
    narrow: bool,
) -> Comparison:
    """The differences of `after` from `before`, and of `others` from `before`; only one of `others` is loaded
    at a time.
    """
    maps, rounding = ports.input_maps(), Rounding(slack=NARROW_SLACK if narrow else SLACK)
    comparison = Comparison(ports.output_maps(), ports.renamed, ports.logits, rounding)
    expected = [before.run(case) for case in cases]
    for case, outputs in zip(cases, expected, strict=True):
        grown = after.run({name: _moved(value, maps.get(name, ())) for name, value in case.items()})
        comparison.add(outputs, grown)
    for label, other in others.items():
        _add_rounding(rounding, label, other(), cases, expected)
    return comparison


def _drawn(before: Loaded, source: Path, result: Path, ports: Ports) -> list[ForwardArguments]:
    """Cases that both can run, with a batch of one row if the model accepts it."""
    numbered = {n: m for n, maps in ports.input_maps().items() for m in maps if isinstance(m, NumberMap)}
    module = build(config_of(result if ports.narrower else source))
    cases: list[ForwardArguments] = []
    for seed in SEEDS:
        drawn = real_inputs(module, seed)
        for name, numbers in numbered.items():
            if name in drawn:
                drawn[name] = to_torch(numbers.narrow(to_numpy(drawn[name])))
        cases.append(drawn)
    row = {n: v[:1] if isinstance(v, torch.Tensor) and v.ndim else v for n, v in cases[0].items()}
    try:
        before.run(row)
    except (GrowError, ValueError, IndexError):
        return cases
    return [*cases, row]


def _read(path: Path, source: Path) -> list[ForwardArguments]:
    """The case in a file: an array for every argument of drawn inputs, if these are known."""
    arrays = {name: to_torch(array) for name, array in named_arrays(path).items()}
    module = build(config_of(source))
    inputs = _known(module)
    absent = [n for n, value in inputs.items() if isinstance(value, torch.Tensor) and n not in arrays]
    if "input_ids" not in arrays and absent:
        message = f"`{path}` lacks inputs of the model"
        raise GrowError(Diagnostic("G403", message, notes=(f"inputs: {', '.join(inputs)}",)))
    return [arrays | without_cache(module, kwargs=arrays)]


def _known(module: nn.Module) -> ForwardArguments:
    """Inputs with known names and kinds; empty if there are none."""
    with contextlib.suppress(GrowError):
        return example_inputs(module)
    return {}


def _moved(value: Any, maps: Sequence[Any]) -> Any:
    for axis_map in maps:
        try:
            value = to_torch(axis_map.extend(to_numpy(value)))
        except IndexError as error:
            message = "the inputs hold numbers that the grown model has no unit for"
            raise GrowError(Diagnostic("G403", message)) from error
    return value


def _add_rounding(
    rounding: Rounding, label: str, other: Loaded, cases: Sequence[ForwardArguments], expected: Sequence[Any]
) -> None:
    """Add to the rounding how the source, run in another way, differs from itself."""
    for case, outputs in zip(cases, expected, strict=True):
        try:
            repeated = other.run(case)
        except GrowError as error:
            rounding.note(label, error)
            break
        rounding.add(outputs, {name: array.astype(outputs[name].dtype) for name, array in repeated.items()})


def _exported(
    ports: Ports, before: Loaded, after: Loaded, case: Mapping[str, Any], notes: Sequence[str]
) -> dict[str, Any]:
    """Fields of a measurement for the comparison as ONNX files, or a note why there is none."""
    if not (before.whole and after.whole):
        return {"notes": (*notes, "not compared as ONNX files: an exporter needs all weights in memory")}
    with Attempt() as attempt, scratch_folder() as name:
        files = [
            _export(loaded, case, name / f"{number}.onnx") for number, loaded in enumerate((before, after))
        ]
        verification = OnnxFile().verify(ports, files[0], files[1], None, lambda *_: None)
        return {"beside": {WAY: verification}}
    error = attempt.error  # an exporter raises whatever a model leads it to
    assert error is not None
    reason = error.diagnostics[0].message if isinstance(error, GrowError) else first_line(root_cause(error))
    return {"notes": (*notes, f"not compared as ONNX files: {reason}")}


def _export(loaded: Loaded, case: Mapping[str, Any], path: Path) -> Path:
    inputs = loaded.fitting(case)
    outputs = list(loaded.run(inputs))
    tensors = [name for name, value in inputs.items() if isinstance(value, torch.Tensor)]
    with quiet():
        torch.onnx.export(
            loaded.module,
            (),
            path,
            kwargs=inputs,
            input_names=tensors,
            output_names=outputs,
            dynamo=True,
            optimize=False,
            verbose=False,
        )
    return path
