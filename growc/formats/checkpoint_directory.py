"""Checkpoint directories as a form of models."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from growc.checkpoint.files.shards import SHARD_SIZE
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.json_data import fields
from growc.files.commit import RECORD, WRITTEN, canonical
from growc.files.inventory import inventory
from growc.system.ranks import ALONE, Ranks
from growc.system.workshop import empty, notes

if TYPE_CHECKING:
    from growc.checkpoint.classes.new_tensors import GrownWeights
    from growc.checkpoint.classes.on_disk import CheckpointOnDisk
    from growc.checkpoint.files.process_shares import Tell
    from growc.errors.json_data import Json
    from growc.errors.progress import Progress
    from growc.passes.compilation import Result
    from growc.passes.finish.interface import Ports
    from growc.plans.plan import Plan
    from growc.training.optimizer_state import New
    from growc.verification.verify import Verification

Weights = Literal["safetensors", "distcp"]
"""Kinds of weight files: those of transformers, and those of torch.distributed.checkpoint."""

KINDS: tuple[Weights, ...] = get_args(Weights)
SAFETENSORS, DISTRIBUTED = KINDS


@dataclass
class CheckpointDirectory:
    """The form of checkpoint directories; see growc.formats.protocol.Form.

    weights: the kind of the result's files, if it differs from the source's. shard_size: bytes of the largest
    file. optimizer: the state to carry over. optimizer_new: the entries of new units in that state. ranks:
    the processes that write the weights.
    """

    weights: Weights | None = None
    shard_size: int = SHARD_SIZE
    optimizer: Path | None = None
    optimizer_new: New = "mapped"
    ranks: Ranks = ALONE
    remarks: tuple[str, ...] = ()

    def whole(self, c: Result) -> Iterator[tuple[str, int]]:
        """The tensors that transformers joins or splits, and those with rules for all of their entries at
        once.
        """
        from growc.checkpoint.classes.new_tensors import class_result, parts

        grown: GrownWeights[CheckpointOnDisk] = class_result(c).grown
        yield from ((name, grown.working(name)) for name in grown.plans)
        if grown.source.checkpoint.distributed:  # its tensors are joined from pieces
            yield from ((name, grown.source.entry(grown.origin(name)).nbytes) for name in grown.plans)
        if not self.distributed(grown):
            yield from ((part.entries[0].name, part.whole) for part in parts(grown))

    def distributed(self, grown: GrownWeights[CheckpointOnDisk]) -> bool:
        """Whether the result is a distributed checkpoint."""
        source_kind = DISTRIBUTED if grown.source.checkpoint.distributed else SAFETENSORS
        return (self.weights or source_kind) == DISTRIBUTED

    def write(self, c: Result, folder: Path, target: Path, progress: Progress) -> list[Path]:
        """Write the directory.

        Raises GrowError: G308 if a tensor differs from what its class has, G309 if `upcycle` shall carry the
        state of an optimizer.
        """
        from growc.checkpoint.classes.new_tensors import class_result, remarks, write_grown

        grown: GrownWeights[CheckpointOnDisk] = class_result(c).grown
        if self.optimizer is not None and not grown.carries:
            raise GrowError(Diagnostic("G309", "`upcycle` carries no optimizer along"))
        draft = folder / target.name
        if self.distributed(grown):
            self._write_distributed(draft, grown, c.plan, progress)
            return [draft]
        wrote = _telling(progress, sum(grown.entry(name).nbytes for name in grown.plans))
        notes_folder = notes(folder) if self.ranks.size > 1 else None
        write_grown(
            draft, grown, shard_size=self.shard_size, wrote=wrote, ranks=self.ranks, done=notes_folder
        )
        self.remarks = (*remarks(grown, self.optimizer), *self._left(grown))
        self.remarks += tuple(self._carried(draft, grown, c.plan, progress))
        return [draft]

    def _left(self, grown: GrownWeights[CheckpointOnDisk]) -> Iterator[str]:
        """A remark on entries of a distributed checkpoint that files of weights cannot hold."""
        from growc.checkpoint.classes.distributed_result import optimizers_of

        if saved := grown.source.checkpoint.distributed:
            optimizer_keys = {key for optimizer in optimizers_of(grown) for key in optimizer.keys}
            weights = saved.below(grown.source.checkpoint.prefix)
            skipped = [
                k
                for k, path in saved.paths.items()
                if k not in optimizer_keys and str(path[-1]) not in weights
            ]
            if skipped:
                yield f"not carried over: {len(skipped)} entries of the checkpoint, such as `{skipped[0]}`"

    def _carried(
        self, draft: Path, grown: GrownWeights[CheckpointOnDisk], plan: Plan, progress: Progress
    ) -> Iterator[str]:
        """Write the state of an optimizer beside the weights; yield remarks on it."""
        from growc.checkpoint.classes.carried_state import carry_optimizer
        from growc.checkpoint.classes.distributed_result import optimizers_of
        from growc.training.optimizer_state import parameter_groups, read_optimizer

        progress("carrying the optimizer's state", 0, 0)
        optimizers = optimizers_of(grown)
        if self.optimizer is not None:
            state = read_optimizer(self.optimizer)
            groups = parameter_groups(grown.source.module, state)
            yield carry_optimizer(state, groups, draft, grown, plan, self.optimizer_new)
        elif len(optimizers) == 1:
            state, groups = optimizers[0].merged()
            yield carry_optimizer(state, groups, draft, grown, plan, self.optimizer_new)
        elif optimizers:
            yield f"not carried over: the state of {len(optimizers)} optimizers"

    def _write_distributed(
        self, draft: Path, grown: GrownWeights[CheckpointOnDisk], plan: Plan, progress: Progress
    ) -> None:
        """Write the result as a distributed checkpoint."""
        from growc.checkpoint.classes.distributed_result import contents_of
        from growc.checkpoint.classes.new_tensors import remarks
        from growc.checkpoint.files.write import write_beside
        from growc.checkpoint.files.write_distributed import write_distributed

        draft.mkdir(exist_ok=True)
        empty(draft, lambda path: False)
        write_beside(draft, grown.source.checkpoint, grown.config)
        remade = partial(contents_of, grown, plan, self.optimizer, self.optimizer_new)
        contents = remade()
        wrote = _telling(progress, sum(e.nbytes for part in contents.parts for e in part.entries))
        write_distributed(draft, contents, wrote=wrote, ranks=self.ranks, remade=remade)
        self.remarks = (*remarks(grown, self.optimizer), *contents.remarks)

    def stamp(self, result: Path, record: str) -> None:
        """Write the record, and a list of the files of the directory, into one more file."""
        listed = {**fields(json.loads(record)), WRITTEN: inventory(result, RECORD)}
        (result / RECORD).write_text(canonical(listed), encoding="utf-8")

    def describe(self, result: Path, body: str | None, base: str) -> None:
        """Write the card into a file of the directory."""
        from growc.formats.model_card import write_card

        remark = write_card(result, body, base)
        self.remarks += (remark,) if remark else ()

    def history(self, model: Path) -> list[dict[str, Json]]:
        """The records in the directory's file."""
        from growc.formats.provenance import records_in

        try:
            return records_in((model / RECORD).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return []

    def retraced(self, source: Path, result: Path, progress: Progress) -> Ports:
        """The ports from the record of the one growth that made the result from this source."""
        from growc.formats.compiler import compiled
        from growc.formats.provenance import recipe_of, replayable
        from growc.passes.finish.interface import Ports, ports_of
        from growc.passes.finish.interface_json import from_json

        records, source_records = self.history(result), self.history(source)
        if records[: len(source_records)] != source_records or len(records) != len(source_records) + 1:
            return Ports()
        with contextlib.suppress(GrowError):
            if "ports" in records[-1]:
                return from_json(records[-1]["ports"])
            return ports_of(compiled(replayable(recipe_of(records[-1])), source, progress=progress))
        return Ports()

    def verify(
        self, ports: Ports, source: Path, result: Path, inputs: str | Path | None, progress: Progress
    ) -> Verification:
        """Run both by their class in torch, and as ONNX files if the class can be exported."""
        from growc.checkpoint.check.compare import compare

        progress("running both models", 0, 0)
        inputs_file = None if inputs is None else Path(inputs)
        return compare(ports, source, result, inputs=inputs_file, ranks=self.ranks)

    def in_wider(
        self, c: Result, folder: Path, inputs: str | Path | None, progress: Progress
    ) -> dict[str, Verification]:
        """With 16-bit weights: run both again in single precision, with weights that were never rounded."""
        from growc.checkpoint.check.compare import compare
        from growc.checkpoint.check.float32_copies import write_in_single
        from growc.checkpoint.classes.new_tensors import class_result
        from growc.passes.finish.interface import ports_of

        float32_copies = write_in_single(class_result(c).grown, folder.with_name("single"))
        if float32_copies is None:
            return {}
        inputs_file = None if inputs is None else Path(inputs)
        verification = compare(
            ports_of(c), *float32_copies, inputs=inputs_file, exported=False, ranks=self.ranks
        )
        return {"With weights that were never rounded": verification}


def _telling(progress: Progress, total: int) -> Tell:
    """A callback that reports each written tensor. total: all bytes to write."""
    written = 0

    def wrote(name: str, count: int) -> None:
        nonlocal written
        written += count
        progress(f"writing {name}", written, total)

    return wrote
