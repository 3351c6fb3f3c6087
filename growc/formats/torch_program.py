"""`.pt2` programs as a form of models: writing and stamping a result, and comparing it with its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from growc.dialects.torch.run.cases import Case, PortMapping
from growc.files.pt2_archive import add_record, record_of
from growc.formats.provenance import EarlierRecord, declared_by, records_in, retraced
from growc.modules.run_program import Program, arguments
from growc.passes.finish.interface import Ports
from growc.verification.ort_session import Feeds
from growc.verification.verify import Verification, cases_for_both, grown_feeds

if TYPE_CHECKING:
    from growc.dialects.torch.emit.grown_module import GrownModule
    from growc.errors.json_data import Json
    from growc.errors.progress import Progress
    from growc.passes.compilation import Result

OTHER_INPUTS = "the result takes other tensors than its source: all of them by name"


@dataclass
class ProgramFile:
    """The form of `.pt2` programs; see growc.formats.protocol.Form. written: the result that was written
    last.
    """

    remarks: tuple[str, ...] = ()
    written: tuple[Result, GrownModule] | None = None

    def whole(self, c: Result) -> Iterator[tuple[str, int]]:
        """The whole program, since torch reads and writes it at once."""
        yield str(c.path), 3 * c.plan.bytes_to_write

    def write(self, c: Result, folder: Path, target: Path, progress: Progress) -> list[Path]:
        """Write the program. Raises GrowError (G308) if the result is no program."""
        import torch

        from growc.dialects.torch.emit.emit import grown_module
        from growc.dialects.torch.model import torch_model
        from growc.dialects.torch.programs.build import program_of

        progress(f"writing {target.name}", 0, 0)
        grown = grown_module(c)
        captured = torch_model(c).captured
        program = program_of(grown, captured)
        draft = folder / target.name
        with draft.open("wb") as file:
            torch.export.save(program, file)
        self.written = c, grown
        specs = program.call_spec.in_spec, captured.program.call_spec.in_spec
        self.remarks = () if specs[0] == specs[1] else (OTHER_INPUTS,)
        return [draft]

    def stamp(self, result: Path, record: str) -> None:
        """Write the record into the archive, in a place that torch ignores."""
        add_record(result, record)

    def describe(self, result: Path, body: str | None, base: str) -> None:
        """Nothing: a single file has no card."""

    def history(self, model: Path) -> list[dict[str, Json]]:
        """The records in the archive."""
        return records_in(record_of(model))

    def retraced(self, source: Path, result: Path, progress: Progress) -> Ports:
        """The ports from the recipes in the archive of the result."""
        return retraced(self._past(source), self._past(result), self.write, progress)

    def _past(self, path: Path) -> EarlierRecord:
        return EarlierRecord(path, self.history(path), declared_by(Program.at(path).model))

    def verify(
        self, ports: Ports, source: Path, result: Path, inputs: str | Path | None, progress: Progress
    ) -> Verification:
        """Run both in torch. A result that was just written is also compared with its plan, in
        onnxruntime.
        """
        from growc.modules.compare import verify_modules
        from growc.modules.grow import beside_plan

        progress("running both programs", 0, 0)
        before, after = Program.at(source), Program.at(result)
        cases = _cases(before, after, ports, None if inputs is None else Path(inputs))
        descent = PortMapping(ports=ports, output_names=before.output_names, returns=after.output_names)
        measured = verify_modules(before.module, after.module, cases, descent)
        if self.written is None:
            return measured
        c, grown = self.written
        return beside_plan(measured, c, (before.module, after.module), cases, grown.descent)

    def in_wider(
        self, c: Result, folder: Path, inputs: str | Path | None, progress: Progress
    ) -> dict[str, Verification]:
        """Nothing more: `verify` already runs both with wider numbers."""
        return {}


def _cases(before: Program, after: Program, ports: Ports, inputs: Path | None) -> list[Case]:
    """The cases of a file, or drawn ones that both can run."""
    from growc.verification.feeds import cases_in, draw

    source_signature, result_signature, maps = before.signature, after.signature, ports.input_maps()
    if inputs is not None:
        cases: Sequence[Feeds] = cases_in(inputs, source_signature)
    elif ports.narrower:
        cases = cases_for_both(before, after, source_signature, result_signature, maps)
    else:
        cases = draw(source_signature, before)
    grown = (grown_feeds(case, result_signature, maps, ports.renamed) for case in cases)
    return [Case(arguments(a), arguments(b)) for a, b in zip(cases, grown, strict=True)]
