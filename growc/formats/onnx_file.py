"""ONNX files as a form of models: writing and stamping a result, and comparing it with its source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.recipe.syntax_tree import StackFrom
from growc.resolve.bound import Resolved

if TYPE_CHECKING:
    from growc.errors.json_data import Json
    from growc.errors.progress import Progress
    from growc.passes.compilation import Result
    from growc.passes.finish.interface import Ports
    from growc.verification.verify import Verification


class OnnxFile:
    """The form of ONNX files; see growc.formats.protocol.Form."""

    remarks: tuple[str, ...] = ()

    def whole(self, c: Result) -> Iterator[tuple[str, int]]:
        """Weights with rules for all of their entries at once."""
        from growc.plans.memory_bound import working_bytes

        yield from ((weight.name, working_bytes(weight)) for weight in c.plan.weights)

    def write(self, c: Result, folder: Path, target: Path, progress: Progress) -> list[Path]:
        """Write the file, and a second one for weights stored beside it. Raises GrowError (G311)."""
        from growc.dialects.onnx.emit import emitted
        from growc.dialects.onnx.files.load import EXTERNAL
        from growc.dialects.onnx.files.save import EXTERNAL_ABOVE, save
        from growc.files.commit import METADATA

        bytes_done = 0

        def wrote(name: str, count: int) -> None:
            nonlocal bytes_done
            bytes_done += count
            progress(f"writing {name}", bytes_done, c.plan.bytes_to_write)

        try:
            model = emitted(c)
            model.metadata_props.pop(METADATA, None)  # remove an earlier record: a new one is appended
            external = bool(model.meta.get(EXTERNAL)) or c.plan.bytes_to_write > EXTERNAL_ABOVE
            return save(model, folder, target.name, external, wrote)
        except GrowError:
            raise
        except Exception as error:
            if not (reason := c.model.fault(c.path)):
                raise
            message = f"`{c.path}` is not valid, and what is made of it would not be either"
            raise GrowError(Diagnostic("G311", message, notes=(reason,))) from error

    def stamp(self, result: Path, record: str) -> None:
        """Write the record into the metadata of the file."""
        from growc.files.commit import stamp

        stamp(result, record)

    def describe(self, result: Path, body: str | None, base: str) -> None:
        """Nothing: a single file has no card."""

    def history(self, model: Path) -> list[dict[str, Json]]:
        """The records in the metadata of the file."""
        from growc.dialects.onnx.files.load import metadata
        from growc.files.commit import METADATA
        from growc.formats.provenance import records_in

        return records_in(metadata(model).get(METADATA, ""))

    def retraced(self, source: Path, result: Path, progress: Progress) -> Ports:
        """The ports from the recipes in the metadata of the result."""
        from growc.formats.provenance import EarlierRecord, retraced

        return retraced(EarlierRecord.of(source), EarlierRecord.of(result), self.write, progress)

    def verify(
        self, ports: Ports, source: Path, result: Path, inputs: str | Path | None, progress: Progress
    ) -> Verification:
        """Run both in onnxruntime."""
        from growc.verification.verify import verify

        return verify(
            source,
            result,
            output_maps=ports.output_maps(),
            input_maps=ports.input_maps(),
            narrower=ports.narrower,
            logits=ports.logits,
            renamed=ports.renamed,
            inputs=None if inputs is None else Path(inputs),
            progress=lambda phrase: progress(phrase, 0, 0),
        )

    def in_wider(
        self, c: Result, folder: Path, inputs: str | Path | None, progress: Progress
    ) -> dict[str, Verification]:
        """Run a model with 16-bit floats and its result again as float32 copies, grown by the same recipe.

        Rounding weights to 16 bits hides all smaller differences; in float32, rounding costs next to nothing.
        """
        from growc.formats.compiler import compiled
        from growc.passes.finish.interface import ports_of
        from growc.verification.float_copies import SINGLE, copy_bytes, float_types, write_copy
        from growc.verification.rounding import COPY_BYTES

        if any(isinstance(bound.statement, StackFrom) for bound in c.statements):
            return {}  # the template has no float32 copy
        if not float_types(c.path) & SINGLE.keys() or copy_bytes(c.path, SINGLE) > COPY_BYTES:
            return {}
        copies = folder.with_name("single")
        for name in ("source", "grown"):
            (copies / name).mkdir(parents=True)
        source = write_copy(c.path, copies / "source" / c.path.name, SINGLE)
        twin = compiled(Resolved(tuple(c.statements)), source)
        if not twin.plan.certificate.exact:
            return {}
        grown = self.write(twin, copies / "grown", source, lambda *_: None)
        return {"As float32 copies": self.verify(ports_of(twin), source, grown[-1], inputs, progress)}
