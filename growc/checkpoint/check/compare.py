"""Whether a grown checkpoint computes what its source does: both are loaded as a user loads them, and run."""

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
from growc.checkpoint.files.directory import Checkpoint, config_of
from growc.checkpoint.files.homes import described_in, home_of
from growc.checkpoint.files.quiet import quiet
from growc.dialects.torch.capture.example_inputs import example_inputs, real_inputs, without_cache
from growc.dialects.torch.operators.arrays import to_numpy, to_torch
from growc.dialects.transformers.classes import build
from growc.dialects.transformers.named_class import are_results_alone, name_results_alone
from growc.errors.diagnostic import Attempt, Diagnostic, GrowError
from growc.formats.onnx_file import OnnxFile
from growc.modules.compare import IN_SINGLE
from growc.passes.finish.interface import Ports
from growc.plans.unitmaps import NumberMap
from growc.system.ranks import ALONE, Ranks
from growc.system.workshop import scratch_folder
from growc.verification.feeds import named_arrays
from growc.verification.rounding import NARROW_SLACK, SLACK, Rounding
from growc.verification.verify import Comparison, Verification

Case = Mapping[str, Any]
"""Keyword arguments of a forward."""

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
    """Run both on the same cases: those of a `.npz` file, else drawn ones.

    With weights of 16 bits both compute in single precision as well: in 16 bits nearly all would be hidden.
    exported: compare both as ONNX files too. ranks: who runs the cases, each of which is one process's.
    Raises GrowError (G308, G403) where one cannot be loaded or run.
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
    """The job of each process: every so many a case, by its number. home: the folder of the source's config.
    narrow: whether there are weights of 16 bits. single: in single precision. other_class: whether the class
    that a caller has named is that of the result alone.
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
        """What its cases show, the source's own rounding among that; None where it has none."""
        kind = torch.float32 if self.single else None
        if self.other_class:
            name_results_alone()
        with described_in(self.source, self.home):
            before = load(self.source, kind)
            return self.own(before, load(self.result, kind), self.cases(before), rank, size)

    def own(
        self, before: Loaded, after: Loaded, cases: Sequence[Case], rank: int, size: int
    ) -> Comparison | None:
        """The same, with all in memory."""
        if self.narrow and not (before.whole or self.single):
            cases = cases[:1]  # of large ones most are run in single precision
        if not (mine := cases[rank::size]):
            return None
        moved: Callable[[], Loaded] = partial(load, self.source, torch.float32, moves=True)
        others = [moved] if self.single else _others(self.source, before, self.narrow)
        return _measured(self.ports, before, after, others, mine, self.narrow)

    def cases(self, before: Loaded) -> list[Case]:
        """All cases, of all processes."""
        if self.inputs is not None:
            return _read(self.inputs, self.source)
        return _drawn(before, self.source, self.result, self.ports)


def _joined(found: Sequence[Comparison | None]) -> Comparison:
    """What all processes have seen."""
    first, *others = (one for one in found if one is not None)
    for other in others:
        first.join(other)
    return first


def _others(source: Path, own: Loaded, narrow: bool) -> list[Callable[[], Loaded]]:
    """The source in other ways: with its weights moved by their last place, and with wider numbers."""
    wide = [] if narrow or not own.whole else [partial(load, source, torch.float64)]
    return [partial(load, source, moves=True), *wide]


def _measured(
    ports: Ports,
    before: Loaded,
    after: Loaded,
    others: Sequence[Callable[[], Loaded]],
    cases: Sequence[Case],
    narrow: bool,
) -> Comparison:
    """How far `after` is from `before`, and `others` from it, of which one is in memory at a time."""
    maps, rounding = ports.input_maps(), Rounding(slack=NARROW_SLACK if narrow else SLACK)
    found = Comparison(ports.output_maps(), ports.renamed, ports.logits, rounding)
    expected = [before.run(case) for case in cases]
    for case, outputs in zip(cases, expected, strict=True):
        grown = after.run({name: _moved(value, maps.get(name, ())) for name, value in case.items()})
        found.add(outputs, grown)
    for other in others:
        _add_rounding(rounding, other(), cases, expected)
    return found


def _drawn(before: Loaded, source: Path, result: Path, ports: Ports) -> list[Case]:
    """Cases that both can run, a batch of one row among them where the model takes it."""
    numbered = {n: m for n, found in ports.input_maps().items() for m in found if isinstance(m, NumberMap)}
    module = build(config_of(result if ports.narrower else source))
    cases: list[Case] = []
    for seed in SEEDS:
        drawn = real_inputs(module, seed)
        for name, numbers in numbered.items():
            if name in drawn:
                drawn[name] = to_torch(numbers.narrow(to_numpy(drawn[name])))
        cases.append(drawn)
    row = {n: v[:1] if isinstance(v, torch.Tensor) and v.ndim else v for n, v in cases[0].items()}
    try:
        before.run(row)
    except (RuntimeError, ValueError, IndexError):
        return cases
    return [*cases, row]


def _read(path: Path, source: Path) -> list[Case]:
    """The case in a file: an array for every argument that drawn inputs have, where any are known."""
    given = {name: to_torch(array) for name, array in named_arrays(path).items()}
    module = build(config_of(source))
    wanted = _known(module)
    absent = [n for n, value in wanted.items() if isinstance(value, torch.Tensor) and n not in given]
    if "input_ids" not in given and absent:
        message = f"`{path}` lacks inputs of the model"
        raise GrowError(Diagnostic("G403", message, notes=(f"inputs: {', '.join(wanted)}",)))
    return [given | without_cache(module, kwargs=given)]


def _known(module: nn.Module) -> Case:
    """Inputs of which names and kinds are known, if any are."""
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


def _add_rounding(found: Rounding, other: Loaded, cases: Sequence[Case], expected: Sequence[Any]) -> None:
    """The source beside itself, run in another way."""
    for case, outputs in zip(cases, expected, strict=True):
        try:
            seen = other.run(case)
        except RuntimeError as error:
            found.notes.append(f"own rounding not measured: {str(error).splitlines()[0]}")
            break
        found.add(outputs, {name: array.astype(outputs[name].dtype) for name, array in seen.items()})


def _exported(
    ports: Ports, before: Loaded, after: Loaded, case: Mapping[str, Any], notes: Sequence[str]
) -> dict[str, Any]:
    """The fields of a measurement that this one stands beside, or a note why there is none."""
    if not (before.whole and after.whole):
        return {"notes": (*notes, "not compared as ONNX files: an exporter needs all weights in memory")}
    with Attempt() as attempt, scratch_folder() as name:
        files = [
            _export(loaded, case, name / f"{number}.onnx") for number, loaded in enumerate((before, after))
        ]
        found = OnnxFile().verify(ports, files[0], files[1], None, lambda *_: None)
        return {"beside": {WAY: found}}
    error = attempt.error  # an exporter raises whatever a model leads it to
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    reason = error.diagnostics[0].message if isinstance(error, GrowError) else reason
    return {"notes": (*notes, f"not compared as ONNX files: {reason}")}


def _export(loaded: Loaded, case: Mapping[str, Any], path: Path) -> Path:
    given = loaded.fitting(case)
    outputs = list(loaded.run(given))
    tensors = [name for name, value in given.items() if isinstance(value, torch.Tensor)]
    with quiet():
        torch.onnx.export(
            loaded.module,
            (),
            path,
            kwargs=given,
            input_names=tensors,
            output_names=outputs,
            dynamo=True,
            optimize=False,
            verbose=False,
        )
    return path
