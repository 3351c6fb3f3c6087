"""Checkpoint directories as a form of models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from growc.checkpoint.files.shards import SHARD_SIZE
from growc.errors.diagnostic import GrowError
from growc.files.commit import RECORD
from growc.system.ranks import ALONE, Ranks
from growc.system.workshop import notes

if TYPE_CHECKING:
    from growc.checkpoint.classes.new_tensors import GrownWeights
    from growc.checkpoint.classes.on_disk import Opened
    from growc.errors.json_data import Json
    from growc.errors.progress import Progress
    from growc.passes.compilation import Result
    from growc.passes.finish.interface import Ports
    from growc.training.optimizer_state import New
    from growc.verification.verify import Verification


@dataclass
class CheckpointDirectory:
    """See growc.formats.protocol.Form.

    shard_size: bytes of the largest file of weights. optimizer: the state that is to be carried along;
    optimizer_new: what entries of new units have in it. ranks: who writes the weights.
    """

    shard_size: int = SHARD_SIZE
    optimizer: Path | None = None
    optimizer_new: New = "mapped"
    ranks: Ranks = ALONE
    remarks: tuple[str, ...] = ()

    def whole(self, c: Result) -> Iterator[tuple[str, int]]:
        """Tensors that transformers joins or parts, and those with rules for all of their entries at once."""
        from growc.checkpoint.classes.new_tensors import held_result, parts
        from growc.plans.memory_bound import working_bytes

        grown: GrownWeights[Opened] = held_result(c).held
        yield from ((name, working_bytes(plan)) for name, plan in grown.plans.items())
        yield from ((part.entries[0].name, part.whole) for part in parts(grown))

    def write(self, c: Result, folder: Path, target: Path, progress: Progress) -> list[Path]:
        """The directory. Raises GrowError (G308) where a tensor is not as its class has it."""
        from growc.checkpoint.classes.new_tensors import carry_optimizer, held_result, remarks, write_grown

        grown: GrownWeights[Opened] = held_result(c).held
        total = sum(grown.entry(name).nbytes for name in grown.plans)
        written = 0

        def wrote(name: str, count: int) -> None:
            nonlocal written
            written += count
            progress(f"writing {name}", written, total)

        draft = folder / target.name
        done = notes(folder) if self.ranks.size > 1 else None
        write_grown(draft, grown, shard_size=self.shard_size, wrote=wrote, ranks=self.ranks, done=done)
        self.remarks = tuple(remarks(grown))
        if self.optimizer is not None:
            progress("carrying the optimizer's state", 0, 0)
            self.remarks += (carry_optimizer(self.optimizer, draft, grown, c.plan, self.optimizer_new),)
        return [draft]

    def stamp(self, result: Path, record: str) -> None:
        """A file of its own in the directory."""
        (result / RECORD).write_text(record, encoding="utf-8")

    def history(self, model: Path) -> list[dict[str, Json]]:
        """From that file."""
        from growc.formats.provenance import records_in

        try:
            return records_in((model / RECORD).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return []

    def retraced(self, source: Path, result: Path, progress: Progress) -> Ports:
        """By the record of one growth that made the result from this source."""
        from growc.formats.compiler import compiled
        from growc.formats.provenance import recipe_of, replayable
        from growc.passes.finish.interface import Ports, ports_of
        from growc.passes.finish.interface_json import from_json

        records, own = self.history(result), self.history(source)
        if records[: len(own)] != own or len(records) != len(own) + 1:
            return Ports()
        with contextlib.suppress(GrowError):
            if "ports" in records[-1]:
                return from_json(records[-1]["ports"])
            return ports_of(compiled(replayable(recipe_of(records[-1])), source, progress=progress))
        return Ports()

    def verify(
        self, ports: Ports, source: Path, result: Path, inputs: str | Path | None, progress: Progress
    ) -> Verification:
        """Run both by their class in torch, and as ONNX files where the class can be exported."""
        from growc.checkpoint.check.compare import compare

        progress("running both models", 0, 0)
        return compare(ports, source, result, inputs=None if inputs is None else Path(inputs))

    def in_wider(
        self, c: Result, folder: Path, inputs: str | Path | None, progress: Progress
    ) -> dict[str, Verification]:
        """With 16-bit weights: both once more in single precision, of weights that were never rounded."""
        from growc.checkpoint.check.compare import compare
        from growc.checkpoint.check.float32_copies import write_in_single
        from growc.checkpoint.classes.new_tensors import held_result
        from growc.passes.finish.interface import ports_of

        twins = write_in_single(held_result(c).held, folder.with_name("single"))
        if twins is None:
            return {}
        given = None if inputs is None else Path(inputs)
        found = compare(ports_of(c), *twins, inputs=given, exported=False)
        return {"With weights that were never rounded": found}
